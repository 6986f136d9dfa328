#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that object files hold no mutable variables with static storage.

usage: check_state.py LIBRARY.a...

Reads the symbol tables with nm. State belongs to an engine, a session or a command, not to a file. Prints
LIBRARY(OBJECT): symbol for every variable found; exit 0 when there is none.
"""
import re
import subprocess
import sys

# .data.rel.ro holds constants that contain addresses; it is read-only once the program runs.
MUTABLE = re.compile(r"^(?:\.t?data(?!\.rel\.ro)|\.t?bss|\*COM\*)")
MEMBER = re.compile(r"^Symbols from (.*):$")


def mutable_symbols(nm_output):
    """(object, symbol) for every variable in the output of nm --format=sysv."""
    found, member = [], "?"
    for line in nm_output.split("\n"):
        header = MEMBER.match(line.strip())
        if header:
            member = header.group(1)
            continue
        parts = [p.strip() for p in line.split("|")]
        if len(parts) == 7 and parts[3] in ("OBJECT", "TLS") and MUTABLE.match(parts[6]):
            found.append((member, parts[0]))
    return found


def main():
    bad = 0
    for library in sys.argv[1:]:
        run = subprocess.run(["nm", "--format=sysv", library], capture_output=True, text=True)
        if run.returncode != 0:
            print(f"{library}: nm failed: {run.stderr.strip()}")
            return 1
        for member, symbol in mutable_symbols(run.stdout):
            print(f"{member}: {symbol} is a mutable variable of the file; give it to the object that owns it")
            bad += 1
    print(f"check_state: {len(sys.argv) - 1} libraries, {bad} variables")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
