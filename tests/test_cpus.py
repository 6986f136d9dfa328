#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""One binary starts on plain x86-64 and picks kernels at run time: the same bits under emulated processors."""
import os
import shutil
import tempfile

import cases

GOLDEN = os.path.join(cases.ROOT, "tests", "data", "golden")
TOKENS = "0,11,60,128,242,304,88,166,210,7,149,287"


def emulator():
    for name in ("qemu-x86_64", "qemu-x86_64-static"):
        if shutil.which(name):
            return name
    raise cases.Skip("qemu-user is not installed: other processors are not tried")


def logits(model, prefix=(), *flags):
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "dump.safetensors")
        cases.sluice("score", "-m", os.path.join(GOLDEN, model), "--tokens", TOKENS, "-ub", "8", "-t", "1", "--dump", out, *flags, prefix=prefix, timeout=600)
        with open(out, "rb") as f:
            return f.read()


def same_bits(model, cpu, isa):
    qemu = emulator()
    native = logits(model, (), "--isa", "scalar")
    emulated = logits(model, (qemu, "-cpu", cpu))
    assert emulated == native, f"{model}: {cpu} ({isa}) differs from the scalar kernels"
    refused = cases.sluice("score", "-m", os.path.join(GOLDEN, model), "--tokens", "1", "--isa", "avx512", prefix=(qemu, "-cpu", cpu), status=2, timeout=600)
    assert b"--isa avx512: this processor" in refused.stderr and isa.encode() in refused.stderr


def test_nehalem_has_no_avx():
    same_bits("v3-fp8", "Nehalem", "scalar")


def test_nehalem_integer_blocks():
    same_bits("kq-q4/model.gguf", "Nehalem", "scalar")


def test_haswell_has_avx2():
    same_bits("v3-fp8", "Haswell", "avx2")


def test_haswell_integer_blocks():
    same_bits("kq-q4/model.gguf", "Haswell", "avx2")


if __name__ == "__main__":
    cases.main(globals())
