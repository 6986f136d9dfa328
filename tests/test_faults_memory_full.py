#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""Every allocation of each command fails in turn, n = 1 to 2000 and a sample of what comes after; docs in test_faults_memory.py.
With a sanitized build beside the program (build/asan) leaks and misuse on the error paths count as well."""
import os

import cases
from fail_alloc import AREAS, first_and_sample, every_nth, try_area


def test_every_allocation():
    for area in AREAS:
        try_area(area, first_and_sample(2000, 60))


def test_no_memory_from_the_n_th_on():
    for area in AREAS:
        try_area(area, every_nth(11), persistent=True)


def test_under_sanitizers():
    binary = os.path.join(os.path.dirname(cases.BINARY), "asan", "sluice")
    if not os.path.exists(binary):
        raise cases.Skip("no build/asan/sluice: the asan+ubsan stage builds it")
    for area in AREAS:
        try_area(area, every_nth(31), binary=binary)


if __name__ == "__main__":
    cases.main(globals())
