#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""On a real kernel with two NUMA nodes and an NVMe drive: the same output, the nodes seen, direct reads. tests/vm/vm.py
says how it is booted; all commands run in one boot."""
import hashlib
import json
import os
import re
import tempfile

import cases
from vm import vm

MODEL = "/models/demo"
TOKENS = "0,2563,339,1107,88"
RUN = f"sluice run -m %s --tokens {TOKENS} -n 4 --temp 0 --json"
SCORE = f"sluice score -m %s --tokens {TOKENS} -ub 8 --dump %s"
SECTORS = "set -- $(cat /sys/block/nvme0n1/stat); echo sectors $3"
MIB = [448, 320]  # of the nodes
COMMANDS = {
    "nodes": "numactl -H",
    "sizes": "grep MemTotal /sys/devices/system/node/node*/meminfo",
    "doctor": "sluice doctor --json",
    "plan": f"sluice plan -m {MODEL} --json",
    "tokens": RUN % MODEL,
    "score": SCORE % (MODEL, "dump") + " && sha256sum dump",
    "reads": f"{SECTORS}; cat {MODEL}/*.safetensors >/dev/null; {SECTORS}; {SCORE % (MODEL, 'dump')} >/dev/null; {SECTORS}",
    "direct": f"dd if={MODEL}/model-00001-of-00002.safetensors bs=4096 count=100 iflag=direct | sha256sum",
}
BOOT = vm.Boot(COMMANDS, {MODEL: cases.DEMO}, nodes=MIB)


def output(name):
    return BOOT.output(name).stdout


def test_kernel_has_two_nodes():
    assert "available: 2 nodes (0-1)" in output("nodes")


def node_sizes():
    """Bytes of each node by the kernel's account; some of what the machine has is the kernel's own."""
    sizes = [int(kib) * 1024 for kib in re.findall(r"MemTotal: +(\d+) kB", output("sizes"))]
    assert len(sizes) == 2 and all(0.7 * mib * 2**20 < size <= mib * 2**20 for size, mib in zip(sizes, MIB)), sizes
    return sizes


def test_doctor_sees_both_nodes():
    report = json.loads(output("doctor"))
    seen = [f["text"] for f in report["findings"] if f["topic"] == "node"]
    expected = [f"{i}: {size / 2**20:.2f} MiB, " for i, size in enumerate(node_sizes())]
    assert len(seen) == 2 and all(text.startswith(start) for text, start in zip(seen, expected)), (seen, expected)
    machine = report["machine"]
    assert machine["nodes"] == len(machine["node_available"]) == 2 and machine["memory_total"] <= sum(node_sizes()), machine
    assert all(size / 2 < available <= size for available, size in zip(machine["node_available"], node_sizes())), machine


def test_plan_sees_both_nodes():
    plan = json.loads(output("plan"))
    assert [n["node"] for n in plan["nodes"]] == [0, 1], plan
    assert all(size / 2 < n["available"] <= size for n, size in zip(plan["nodes"], node_sizes())), plan
    first, second = (n["weights"] for n in plan["nodes"])
    assert abs(first - second) < 0.1 * first, plan


def test_same_tokens_inside_as_outside():
    inside = json.loads(output("tokens"))
    outside = cases.sluice_json(*(RUN % cases.DEMO).split()[1:])
    assert inside["tokens"] == outside["tokens"] and len(inside["tokens"]) == 4


def test_same_bits_inside_as_outside():
    with tempfile.TemporaryDirectory() as folder:
        dump = os.path.join(folder, "dump")
        cases.sluice(*(SCORE % (cases.DEMO, dump)).split()[1:])
        with open(dump, "rb") as f:
            expected = hashlib.sha256(f.read()).hexdigest()
    assert output("score").split()[-2] == expected


def test_weights_are_read_past_the_page_cache():
    """The kernel's own count of sectors: files that are cached as a whole are read from the drive once more."""
    before, cached, after = (int(line.split()[1]) for line in output("reads").split("\n") if line.startswith("sectors"))
    size = sum(os.path.getsize(os.path.join(cases.DEMO, f)) for f in os.listdir(cases.DEMO) if f.endswith(".safetensors"))
    assert after - cached >= 0.9 * size / 512, f"{after - cached} sectors by sluice after {cached - before} by cat, {size} bytes of weights"


def test_drive_allows_direct_reads():
    with open(os.path.join(cases.DEMO, "model-00001-of-00002.safetensors"), "rb") as f:
        assert output("direct").split()[0] == hashlib.sha256(f.read(409600)).hexdigest()


if __name__ == "__main__":
    cases.main(globals())
