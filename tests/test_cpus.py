#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""One binary starts on plain x86-64 and picks kernels at run time: the same bits under emulated processors, and no
instruction beyond the baseline outside the objects of its instruction set."""
import glob
import os
import re
import shutil
import tempfile

import cases

GOLDEN = os.path.join(cases.ROOT, "tests", "data", "golden")
TOKENS = "0,11,60,128,242,304,88,166,210,7,149,287"


def emulator(cpu):
    for name in ("qemu-x86_64", "qemu-x86_64-static"):
        if shutil.which(name):
            return [name, "-cpu", cpu, cases.BINARY]
    raise cases.Skip("qemu-user is not installed: other processors are not tried")


def dump_of(command, model, tokens, *flags, threads=1):
    """The bytes of everything `sluice score` computes; `command` is the program, with what runs it."""
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "dump.safetensors")
        cases.run([*command, "score", "-m", model, "--tokens", tokens, "-ub", "8", "-t", threads, "--dump", out, *flags], timeout=600)
        with open(out, "rb") as f:
            return f.read()


def same_bits(model, cpu, isa):
    path, emulated = os.path.join(GOLDEN, model), emulator(cpu)
    assert dump_of(emulated, path, TOKENS) == dump_of([cases.BINARY], path, TOKENS, "--isa", "scalar"), \
        f"{model}: {cpu} ({isa}) differs from the scalar kernels"
    refused = cases.run([*emulated, "score", "-m", path, "--tokens", "1", "--isa", "avx512"], status=2, timeout=600)
    assert b"--isa avx512: this processor" in refused.stderr and isa.encode() in refused.stderr


def test_nehalem_has_no_avx():
    same_bits("v3-fp8", "Nehalem", "scalar")


def test_nehalem_integer_blocks():
    same_bits("kq-q4/model.gguf", "Nehalem", "scalar")


def test_haswell_has_avx2():
    same_bits("v3-fp8", "Haswell", "avx2")


def test_haswell_integer_blocks():
    same_bits("kq-q4/model.gguf", "Haswell", "avx2")


# What plain x86-64 lacks: VEX and EVEX mnemonics, registers and masks wider than SSE's, bit manipulation, tiles.
TILES = r"\t(?:tile|tdp|ldtilecfg|sttilecfg)|%tmm"
WIDE = r"%zmm|%k[0-7]|%xmm(?:1[6-9]|2\d|3[01])|%ymm(?:1[6-9]|2\d|3[01])"
VECTOR = r"\tv(?!err|erw|mcall)[a-z0-9]+ |%ymm"
BITS = r"\t(?:andn|bextr|blsi|blsmsk|blsr|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx|lzcnt|popcnt|movbe)[lqw]? "


def forbidden(path):
    """Pattern of the instructions that an object must not hold."""
    library = re.search(r"cpu/x86/libcpu_(\w+)\.a\.p/", path)
    if library is None:
        return "|".join((TILES, WIDE, VECTOR, BITS))
    if "amx" in library.group(1):
        return None
    return TILES if "avx512" in library.group(1) else TILES + "|" + WIDE


def foreign_instructions(path, pattern):
    if pattern is None:
        return []
    text = cases.run(["objdump", "-d", "--no-show-raw-insn", path]).stdout.decode()
    code = (line.split("<")[0].strip() for line in text.split("\n") if ":\t" in line)
    return [line for line in code if re.search(pattern, line + " ")]


def test_instructions_stay_in_the_objects_of_their_set():
    if not shutil.which("objdump"):
        raise cases.Skip("no objdump: instructions are not looked at")
    build = os.path.dirname(cases.BINARY)
    objects = [o for o in glob.glob(os.path.join(build, "**", "*.o"), recursive=True)
               if not re.match(r"(tests|asan|tsan|clang|fuzz|aarch64|cross|vm)/", os.path.relpath(o, build))]
    assert any("libcpu_" in o for o in objects) and len(objects) > 50, f"only {len(objects)} objects in {build}"
    found = [f"{os.path.relpath(o, build)}: {line}" for o in objects for line in foreign_instructions(o, forbidden(o))[:3]]
    assert not found, "\n".join(found)
    seen = [o for o in objects if "libcpu_" in o and foreign_instructions(o, VECTOR)]
    assert len(seen) >= 4, f"the check sees vector instructions in {len(seen)} objects only"


if __name__ == "__main__":
    cases.main(globals())
