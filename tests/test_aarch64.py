#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""The aarch64 build computes the bits of the x86-64 build: every golden model and the demo under qemu-user. The stage
aarch64 of tools/test builds it."""
import glob
import os
import shutil

import cases
from test_cpus import GOLDEN, TOKENS, dump_of

PROGRAM = os.path.join(cases.ROOT, "build", "aarch64", "sluice")
LIBRARIES = os.path.join(cases.ROOT, "build", "cross", "root")
DEMO_TOKENS = "0,2563,339,1107,88,1202"


def emulated():
    """What runs the aarch64 program here."""
    if not shutil.which("qemu-aarch64") or not os.path.exists(PROGRAM):
        raise cases.Skip("no qemu-aarch64 or no build/aarch64/sluice: the aarch64 build is not compared")
    return ["qemu-aarch64", "-L", LIBRARIES, PROGRAM]


def models():
    """Folders in the Hugging Face layout, and of GGUF files the first of each set."""
    for folder in sorted(glob.glob(os.path.join(GOLDEN, "*", ""))):
        files = sorted(glob.glob(os.path.join(folder, "*.gguf")))
        if os.path.exists(os.path.join(folder, "config.json")):
            yield folder
        yield from files[:1] if "split" in folder else files


def assert_same_bits(model, tokens, *flags, threads=1):
    there = dump_of(emulated(), model, tokens, *flags, threads=threads)
    here = dump_of([cases.BINARY], model, tokens, "--isa", "scalar", *flags)
    assert here == there, f"{model} {' '.join(flags)}: bits on aarch64 differ from those of the scalar kernels on x86-64"


def test_same_bits_of_every_golden_model():
    found = list(models())
    assert len(found) >= 20
    for model in found:
        assert_same_bits(model, TOKENS)


def test_same_bits_of_the_demo_with_two_threads():
    assert_same_bits(cases.DEMO, DEMO_TOKENS, threads=2)


def test_same_bits_of_float_activations():
    assert_same_bits(os.path.join(GOLDEN, "kq-q4", "model.gguf"), TOKENS, "--activations", "f32")


def test_kernels_of_another_family_are_refused():
    refused = cases.run([*emulated(), "score", "-m", cases.DEMO, "--tokens", "1", "--isa", "avx2"], status=2)
    assert b"--isa avx2: this processor" in refused.stderr


if __name__ == "__main__":
    cases.main(globals())
