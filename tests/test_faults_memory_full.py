#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""Every allocation of each command fails in turn, n = 1 to 2000, and a sample of what comes after. (The sanitized build runs
test_faults_memory.py: leaks and misuse on the error paths.)"""
import cases
from fail_alloc import AREAS, first_and_sample, every_nth, try_area


def test_every_allocation():
    for area in AREAS:
        try_area(area, first_and_sample(2000, 60))


def test_no_memory_from_the_n_th_on():
    for area in AREAS:
        try_area(area, every_nth(11), persistent=True)


if __name__ == "__main__":
    cases.main(globals())
