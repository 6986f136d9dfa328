#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: quick
"""The n-th allocation fails (the program's own, jansson's, PCRE2's): the outcome is the right answer or one clear error and exit
status 1, never a signal. A sample here; tests/test_faults_memory_full.py tries all of them."""
import cases
from fail_alloc import AREAS, every_nth, try_area


def test_sampled_allocations():
    for area in AREAS:
        try_area(area, every_nth(67))


def test_no_memory_from_the_n_th_on():
    for area in AREAS:
        try_area(area, every_nth(199), persistent=True)


if __name__ == "__main__":
    cases.main(globals())
