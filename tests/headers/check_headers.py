#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every header compiles alone as C11; those that .cu files or C++ programs see compile as C++ as well.

usage: check_headers.py ROOT

Templates (*_tmpl.h) are bodies that a unit includes after its own macros, not headers, and are left out.
"""
import concurrent.futures
import os
import shutil
import subprocess
import sys

FOLDERS = ["include", "src", "io", "cpu", "cuda"]
CXX_SEEN = ("include/", "cuda/gpu.h")
FLAGS = ["-I.", "-Iinclude", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-Wno-unused-function", "-D_GNU_SOURCE"]
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni", "-mavx512bf16"]


def find_compiler(*names):
    return next((n for n in names if n and shutil.which(n)), None)


def headers(root):
    found = []
    for folder in FOLDERS:
        for where, _, files in os.walk(os.path.join(root, folder)):
            found += [os.path.relpath(os.path.join(where, f), root) for f in files if f.endswith(".h")]
    return sorted(f for f in found if not f.endswith("_tmpl.h"))


def isa_flags(header):
    """Flags of the instruction set that a header of cpu/x86 is written for."""
    if not header.startswith("cpu/x86/"):
        return []
    return AVX2 + (AVX512 if "avx512" in header else ["-mamx-tile"] if "tile" in header else [])


def compiles(root, header, command):
    unit = f'#include "{header}"\n'
    run = subprocess.run(command + FLAGS + isa_flags(header) + ["-"], input=unit, cwd=root, capture_output=True, text=True)
    if run.returncode != 0:
        print(f"{header}: does not compile alone with {' '.join(command)}\n{run.stderr}")
    return run.returncode == 0


def main():
    root = sys.argv[1]
    cc, cxx = find_compiler("cc", "gcc", "clang"), find_compiler("c++", "g++", "clang++")
    if cc is None:
        print("skipped: no C compiler in PATH")
        return 77
    if cxx is None:
        print("note: no C++ compiler in PATH, the C++ half is not checked; install g++")
    jobs = [(header, [cc, "-xc", "-std=c11"]) for header in headers(root)]
    if cxx:
        jobs += [(header, [cxx, "-xc++", "-std=c++17"]) for header, _ in jobs if header.startswith(CXX_SEEN)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        ok = list(pool.map(lambda job: compiles(root, *job), jobs))
    print(f"{len(ok)} compilations, {ok.count(False)} fail")
    return 0 if all(ok) else 1


if __name__ == "__main__":
    sys.exit(main())
