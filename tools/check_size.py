#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that files have at most 1,000 lines and C functions and macros at most 120.

usage: check_size.py [ROOT]

The only exemption is the generated tables named below. Prints FILE:LINE: rule for every violation; exit 0 when there is none.
"""
import os
import re
import sys

from c_source import blank_comments, source_files

MAX_FILE, MAX_FUNCTION = 1000, 120
GENERATED = {"cpu/iq_grids.c"}
C_ENDINGS = (".c", ".h", ".cu", ".cuh")
DIRECTIVE = re.compile(r"^\s*#\s*(\w+)")
LINKAGE = re.compile(r'\bextern\s*"\s*"\s*$|\bnamespace\b[^()]*$')
ATTRIBUTES = {"__attribute__", "aligned", "format", "_Alignas", "__launch_bounds__", "ATTR_PRINTF", "ATTR_ALIGNED"}
NOT_FUNCTION = re.compile(r"\b(?:struct|union|enum|typedef|namespace|class)\b[^()]*$")


def split_directives(code):
    """Code without preprocessor lines and without the #else branches (braces balance in one branch, not in both), and
    the macros as (first line, name, lines)."""
    out, macros = [], []
    lines = code.split("\n")
    skipping = []  # one entry per open #if: inside its first branch (False) or a later one (True)
    i = 0
    while i < len(lines):
        match = DIRECTIVE.match(lines[i])
        first = i
        if match:
            while lines[i].rstrip().endswith("\\") and i + 1 < len(lines):
                i += 1
            word = match.group(1)
            if word.startswith("if"):
                skipping.append(False)
            elif word in ("else", "elif") and skipping:
                skipping[-1] = True
            elif word == "endif" and skipping:
                skipping.pop()
            elif word == "define":
                name = re.match(r"\s*#\s*define\s+(\w+)", lines[first])
                macros.append((first + 1, name.group(1) if name else "?", i - first + 1))
        drop = match or any(skipping)
        out += ["" if drop else line for line in lines[first:i + 1]]
        i += 1
    return "\n".join(out), macros


def is_function_head(head):
    """Whether the text before a brace at file scope is that of a function definition."""
    if "(" not in head or NOT_FUNCTION.search(head):
        return False
    depth = 0
    for c in head:
        depth += (c == "(") - (c == ")")
        if c == "=" and depth == 0:
            return False  # an initialiser
    return True


def functions(code):
    """Function definitions as (first line, name, lines)."""
    found, depth, head_start, body = [], 0, 0, None
    for i, c in enumerate(code):
        if c == "{":
            head = code[head_start:i]
            if depth == 0 and LINKAGE.search(head):
                head_start = i + 1  # linkage block: its content is file scope; its closing brace is ignored below
                continue
            if depth == 0 and is_function_head(head):
                start = head_start + len(head) - len(head.lstrip())
                names = [n for n in re.findall(r"(\w+)\s*\(", head) if n not in ATTRIBUTES]
                body = (code.count("\n", 0, start) + 1, names[0] if names else "?")
            depth += 1
        elif c == "}":
            depth = max(depth - 1, 0)
            if depth == 0:
                if body:
                    found.append((*body, code.count("\n", 0, i) + 2 - body[0]))
                    body = None
                head_start = i + 1
        elif c == ";" and depth == 0:
            head_start = i + 1
    return found


def check_file(path, text):
    """Violations of one file as (line, rule)."""
    found = []
    count = text.count("\n") + (not text.endswith("\n") and text != "")
    if count > MAX_FILE and path not in GENERATED:
        found.append((1, f"{count} lines, at most {MAX_FILE}: split the file"))
    if path.endswith(C_ENDINGS):
        code, macros = split_directives(blank_comments(text))
        for kind, parts in (("function", functions(code)), ("macro", macros)):
            for line, name, lines in parts:
                if lines > MAX_FUNCTION:
                    found.append((line, f"{kind} {name} has {lines} lines, at most {MAX_FUNCTION}"))
    return found


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    bad = files = 0
    for path in source_files(root, C_ENDINGS + (".py", ".sh")):
        with open(os.path.join(root, path), encoding="utf-8") as f:
            violations = check_file(path, f.read())
        files += 1
        bad += len(violations)
        for line, rule in violations:
            print(f"{path}:{line}: {rule}")
    print(f"check_size: {files} files, {bad} violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
