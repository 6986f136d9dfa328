#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every header compiles alone as C11; those that .cu files or C++ programs see compile as C++ as well.

usage: check_headers.py ROOT

Templates (*_tmpl.h) are bodies that a unit includes after its own macros, not headers, and are left out.
"""
import os
import shutil
import subprocess
import sys

FOLDERS = ["include", "src", "io", "cpu", "cuda"]
CXX_SEEN = ("include/", "cuda/gpu.h")
FLAGS = ["-I.", "-Iinclude", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-Wno-unused-function", "-D_GNU_SOURCE"]
ISA_FLAGS = {"cpu/x86/": ["-mavx2", "-mfma", "-mf16c"]}


def find_compiler(*names):
    return next((n for n in names if n and shutil.which(n)), None)


def headers(root):
    found = []
    for folder in FOLDERS:
        for where, _, files in os.walk(os.path.join(root, folder)):
            found += [os.path.relpath(os.path.join(where, f), root) for f in files if f.endswith(".h")]
    return sorted(f for f in found if not f.endswith("_tmpl.h"))


def compiles(root, header, command):
    extra = [flag for prefix, flags in ISA_FLAGS.items() if header.startswith(prefix) for flag in flags]
    unit = f'#include "{header}"\n'
    run = subprocess.run(command + FLAGS + extra + ["-"], input=unit, cwd=root, capture_output=True, text=True)
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
    ok, checked = True, 0
    for header in headers(root):
        ok &= compiles(root, header, [cc, "-xc", "-std=c11"])
        checked += 1
        if cxx and header.startswith(CXX_SEEN):
            ok &= compiles(root, header, [cxx, "-xc++", "-std=c++17"])
            checked += 1
    print(f"{checked} compilations, {'all alone' if ok else 'some fail'}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
