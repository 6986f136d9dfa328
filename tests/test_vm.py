#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""On a real kernel with two NUMA nodes and an NVMe drive: the same output, the nodes seen, direct reads. tests/vm/vm.py
says how it is booted; all commands run in one boot."""
import functools
import hashlib
import json
import os
import tempfile

import cases
from vm import vm

MODEL = "/models/demo"
TOKENS = "0,2563,339,1107,88"
RUN = f"sluice run -m %s --tokens {TOKENS} -n 4 --temp 0 --json"
SCORE = f"sluice score -m %s --tokens {TOKENS} -ub 8 --dump %s"
SECTORS = "set -- $(cat /sys/block/nvme0n1/stat); echo sectors $3"
COMMANDS = {
    "nodes": "numactl -H",
    "tokens": RUN % MODEL,
    "score": SCORE % (MODEL, "dump") + " && sha256sum dump",
    "reads": f"{SECTORS}; cat {MODEL}/*.safetensors >/dev/null; {SECTORS}; {SCORE % (MODEL, 'dump')} >/dev/null; {SECTORS}",
    "direct": f"dd if={MODEL}/model-00001-of-00002.safetensors bs=4096 count=100 iflag=direct | sha256sum",
}


@functools.lru_cache(maxsize=None)
def booted():
    """What each command printed, or why there is nothing: one boot serves all cases."""
    try:
        with vm.Guest() as guest:
            guest.add_program(cases.BINARY)
            guest.add_program(vm.which("numactl"))
            guest.add_tree(cases.DEMO, MODEL)
            return guest.boot(COMMANDS), None
    except (cases.Skip, AssertionError) as e:
        return None, e


def output(name):
    done, failure = booted()
    if failure is not None:
        raise failure
    done = done[name]
    assert done.status == 0, f"{COMMANDS[name]}\nexit status {done.status}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def test_kernel_has_two_nodes():
    assert "available: 2 nodes (0-1)" in output("nodes")


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
