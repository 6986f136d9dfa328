#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks who includes whom, where the few one-place calls are made, and how files begin.

usage: check_layers.py [ROOT]

Prints FILE:LINE: rule for every violation; exit 0 when there is none.
"""
import os
import re
import sys

from c_source import blank_comments, source_files

COMMON, BASE = "include/common/", "src/base/"
TIER = [COMMON, BASE, "io/", "cuda/gpu.h", "src/place/plan.h", "src/model/shape.h", "src/model/names.h"]
RUN = [COMMON, BASE, "io/", "cuda/gpu.h", "cpu/cpu.h", "src/model/", "src/sample/", "src/place/", "src/tier/", "include/sluice/"]

# Folder -> what it may include besides itself: folders end with '/', anything else is one header.
ALLOWED = {
    "include/common/": [],
    "include/sluice/": [],
    "src/base/": [COMMON],
    "io/": [COMMON, BASE],
    "cpu/": [COMMON, BASE],
    "cuda/": [COMMON, BASE],
    "src/model/": [COMMON, BASE, "io/"],
    "src/sample/": [COMMON, BASE],
    "src/place/": [COMMON, BASE, "src/model/shape.h"],
    "src/tier/": TIER,
    "src/run/": RUN,
    "src/commands/": RUN + ["src/run/"],
    "src/serve/": ["include/sluice/", BASE],
    "src/cli/": ["include/sluice/", BASE, "src/commands/commands.h"],
}

# What may appear in one file only, outside comments and strings.
ONE_PLACE = [
    (re.compile(r"\b(?:secure_)?getenv\b|\benviron\b"), "src/base/settings.c", "environment is read in {} only"),
    (re.compile(r"\bhwloc_\w+|\b(?:mbind|move_pages|[sg]et_mempolicy)\s*\("), "src/base/numa.c",
     "hwloc and NUMA calls are made in {} only"),
    (re.compile(r"^\s*#\s*include\s*<(?:hwloc|numa|numaif)[./h]"), "src/base/numa.c",
     "hwloc and libnuma are included by {} only"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SPDX = "/* SPDX-License-Identifier: Apache-2.0 */"


def real_path(included):
    """Path from the root of what an include names: include/ is on the search path."""
    return "include/" + included if included.startswith(("common/", "sluice/")) else included


def may_include(folder, target):
    if target.startswith(folder):
        return True
    return any(target.startswith(a) if a.endswith("/") else target == a for a in ALLOWED[folder])


def check_include(folder, quote, included):
    """The rule an include line breaks, or None."""
    target = real_path(included)
    ours = any(target.startswith(f) for f in ALLOWED)
    if quote == "<":
        return f'<{included}> is ours: write it with quotes' if ours else None
    if not ours:
        return f'"{included}": write includes from the repository root ("io/file.h", "common/error.h")'
    if not may_include(folder, target):
        allowed = ", ".join(ALLOWED[folder]) or "nothing of ours"
        return f'{folder} may not include "{included}" (allowed: itself, {allowed})'
    return None


def check_file(path, text):
    """Violations of one file as (line, rule)."""
    folder = next((f for f in ALLOWED if path.startswith(f)), None)
    if folder is None:
        return []
    found = []
    lines = text.split("\n")
    if lines[0] != SPDX:
        found.append((1, f"the first line is not {SPDX}"))
    if len(lines) < 2 or not lines[1].startswith("/* "):
        found.append((2, "the second line does not say what the file owns"))
    for number, line in enumerate(blank_comments(text, keep_includes=True).split("\n"), 1):
        match = INCLUDE.match(line)
        rule = check_include(folder, *match.groups()) if match else None
        if rule:
            found.append((number, rule))
        for pattern, place, message in ONE_PLACE:
            if path != place and pattern.search(line):
                found.append((number, message.format(place)))
    return found


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    bad = files = 0
    for path in source_files(root, (".c", ".h", ".cu", ".cuh")):
        with open(os.path.join(root, path), encoding="utf-8") as f:
            violations = check_file(path, f.read())
        files += 1
        bad += len(violations)
        for line, rule in violations:
            print(f"{path}:{line}: {rule}")
    print(f"check_layers: {files} files, {bad} violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
