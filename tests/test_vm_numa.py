#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""--numa on a real kernel with two memory nodes: where weights lie, by our own count and the kernel's; the same
bits; what numactl and taskset leave; a node that is full. All commands run in one boot of tests/vm/vm.py."""
import re

import cases
from model_files import golden
from vm import vm

MODEL = "/models/demo"
SMALL = ("v3-fp8", "kq-q4")
SCORE = f"sluice score -m {MODEL} --tokens 0,2563 -ub 8 %s --dump dump && sha256sum dump"
SCORE_SMALL = "for m in " + " ".join(f"/models/{m}" for m in SMALL) + "; do sluice score -m $m --tokens 1,2,3,4 -ub 8 %s --dump dump && sha256sum dump; done"
RUN = f"sluice run -m {MODEL} --tokens 0 -n 1 --temp 0 -ub 8 -v"
BITS = {"off": "--numa off", "auto": "", "second": "--numa 1", "both": "--numa 1,0", "one-thread": "-t 1", "three-threads": "-t 3", "many-threads": "-t 6"}
# The kernel's own account of a running process, once its first rows are in the KV cache.
MAPS = f"""sluice run -m {MODEL} --tokens 0 -n 4000 --ignore-eos --temp 0 -ub 8 >/dev/null 2>log &
p=$!; i=0
while ! grep -q 'interleave.*anon=' /proc/$p/numa_maps && [ $i -lt 100 ]; do sleep 0.2; i=$((i + 1)); done
cat /proc/$p/numa_maps; kill -9 $p; grep placement: log >&2"""
FILL = "numactl -m 1 dd if=/dev/zero of=/tmp/fill bs=1M count=%d 2>/dev/null; "
COMMANDS = {
    "nodes": "numactl -H",
    **{f"small-{name}": SCORE_SMALL % flags for name, flags in BITS.items()},
    **{f"bits-{name}": SCORE % BITS[name] for name in ("off", "auto")},
    "maps": MAPS,
    "placed": RUN,
    "placed-second": f"{RUN} --numa 1",
    "outer": f"numactl -N 0 -m 0 {RUN}",
    "outer-other": f"numactl -N 0 -m 0 {RUN} --numa 1",
    "memory-only": f"numactl -m 1 {RUN}",
    "taskset": f"taskset 2 {RUN}",
    "full-on": FILL % 330 + f"{RUN} --numa on",
    "full-auto": RUN,
    "full-other": f"{RUN} --numa 0",
}
BOOT = vm.Boot(COMMANDS, {MODEL: cases.DEMO, **{f"/models/{name}": golden(name) for name in SMALL}}, nodes=[384, 384], seconds=560, each=120)


def output(name, status=0):
    """stdout and stderr."""
    done = BOOT.output(name, status)
    return done.stdout, done.stderr


def rows(text):
    """{node: (found, asked or None)} of the placement line, in MiB."""
    line = re.search(r"placement: (.*)", text)
    assert line, text
    found = re.findall(r"node (\d+): ([\d.]+) MiB(?: of ([\d.]+) MiB asked)?", line.group(1))
    return {int(n): (float(there), float(asked) if asked else None) for n, there, asked in found}


def threads(text):
    return int(re.search(r"threads: (\d+) ", text).group(1))


def test_kernel_has_two_nodes():
    assert "available: 2 nodes (0-1)" in output("nodes")[0]


def test_same_bits_on_one_and_two_nodes():
    small = {name: re.findall(r"^[0-9a-f]{64}", output(f"small-{name}")[0], re.M) for name in BITS}
    assert all(found == small["off"] and len(found) == len(SMALL) for found in small.values()), small
    digests = [re.findall(r"^[0-9a-f]{64}", output(name)[0], re.M) for name in ("bits-off", "bits-auto")]
    assert digests[0] == digests[1] and len(digests[0]) == 1, digests


def test_weights_lie_half_and_half():
    text = output("placed")[1]
    placed = rows(text)
    assert set(placed) == {0, 1} and threads(text) == 2, text
    for found, asked in placed.values():
        assert found == asked, placed
    assert abs(placed[0][0] - placed[1][0]) < 0.1 * placed[0][0], placed


def test_the_kernel_counts_the_same():
    """Of mappings bound to a node, all pages lie on it; together as many as the line says."""
    maps, line = output("maps")
    placed = rows(line)
    pages = {}
    for node, rest in re.findall(r"bind:(\d) (.*)", maps):
        for where, count in re.findall(r"\bN(\d)=(\d+)", rest):
            pages[node, where] = pages.get((node, where), 0) + int(count)
    assert set(pages) == {("0", "0"), ("1", "1")}, (pages, maps)
    spread = re.findall(r"interleave:0-1 .*", maps)
    assert len(spread) == 1 and "anon=" in spread[0] and line.rstrip().endswith(", kv cache on all in turn"), (maps, line)
    for node, (found, _) in placed.items():
        assert abs(pages[str(node), str(node)] * 4096 / 2**20 - found) < 0.02 * found + 0.1, (pages, placed)


def test_one_node_of_two():
    text = output("placed-second")[1]
    placed = rows(text)
    assert set(placed) == {1} and placed[1][0] == placed[1][1] and threads(text) == 1, text


def test_outer_numactl_and_taskset_are_respected():
    text = output("outer")[1]
    placed = rows(text)
    assert set(placed) == {0} and threads(text) == 1 and "other nodes" not in text, text
    assert "allowed: 0" in output("outer-other", status=2)[1]
    text = output("memory-only")[1]
    assert set(rows(text)) == {1} and "other nodes" not in text and threads(text) == 2, text
    text = output("taskset")[1]
    assert threads(text) == 1 and all(asked is None for _, asked in rows(text).values()), text


def test_a_full_node():
    """Refused with its number and figures where the user chose, one notice where not; the other node alone still serves."""
    text = output("full-on", status=3)[1]
    assert re.search(r"node 1 would hold [\d.]+ MiB of the weights and [\d.]+ MiB of the rest, and has [\d.]+ [KM]iB", text), text
    text = output("full-auto")[1]
    assert text.count("the system places the weights: does not fit: node 1 ") == 1 and all(asked is None for _, asked in rows(text).values()), text
    assert rows(output("full-other")[1])[0][1] is not None


if __name__ == "__main__":
    cases.main(globals())
