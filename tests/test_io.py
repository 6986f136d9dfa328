#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: quick
"""How weights are read changes no output: --io, --io-limit, --merge, by flag or environment; what a limit costs; what refuses a mapping."""
import os
import shutil
import time

import cases
from model_files import folder, golden, gguf_path

SMALL = gguf_path("gguf-q4_0")
MODELS = (SMALL, golden("v3-fp8"))
GREEDY = ["--tokens", "1,2,3", "-n", "4", "--temp", "0"]
WAYS = [{"SLUICE_IO": io} | more for io in ("auto", "uring", "pread", "mmap") for more in ({}, {"SLUICE_MERGE": "off"}, {"SLUICE_IO_LIMIT": "200M"})]


def outcome(model, *args, **options):
    """Tokens, the bytes of the logits, and what was done without."""
    with folder() as where:
        dump = os.path.join(where, "logits.safetensors")
        report = cases.sluice_json("run", "-m", model, *GREEDY, "--json", "--dump", dump, *args, **options)
        with open(dump, "rb") as f:
            return report["tokens"], f.read(), {s["what"]: s["why"] for s in report["timings"]["steps_down"]}


def test_same_output():
    for model in MODELS:
        tokens, logits, _ = outcome(model)
        for way in WAYS:
            assert outcome(model, env=way)[:2] == (tokens, logits), (model, way)


def test_same_fingerprints():
    for model in MODELS:
        want = cases.sluice_json("check", "-m", model, "--json")
        for way in WAYS:
            assert cases.sluice_json("check", "-m", model, "--json", env=way) == want, (model, way)


def test_limit_is_kept():
    """26 MB at 16 MB a second, but for the last chunk of at most 4 MiB: this long at least."""
    size = sum(os.path.getsize(os.path.join(cases.DEMO, f)) for f in os.listdir(cases.DEMO) if f.endswith(".safetensors"))
    start = time.monotonic()
    cases.sluice("check", "-m", cases.DEMO, env={"SLUICE_IO_LIMIT": "16M"})
    assert time.monotonic() - start > (size - (6 << 20)) / (16 << 20)


def test_mapping_refused():
    if shutil.which("strace") is None:
        raise cases.Skip("no strace")
    tokens, logits, notes = outcome(SMALL, "--io", "mmap")
    if "io" in notes:
        raise cases.Skip("no copies out of mappings here: " + notes["io"])
    prefix = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=process_vm_readv:error=EPERM"]
    got, same, notes = outcome(SMALL, "--io", "mmap", prefix=prefix)
    assert got == tokens and same == logits and "pread" in notes["io"] and "Operation not permitted" in notes["io"], notes


if __name__ == "__main__":
    cases.main(globals())
