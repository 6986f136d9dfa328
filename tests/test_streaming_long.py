#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: long
"""Long answers of models whose experts are read when they are used: the same tokens and logits, bit for bit, over every combination of
expert budget, way of reading, reading ahead, drafts, threads, joined reads, and an empty or full page cache. About half an hour."""
import cases
import ways
from model_files import golden, gguf_path

TEXT = "It is a truth universally acknowledged, that a single man in possession of a good fortune"
TOKENS = 500


def check(model, every, *args):
    args = (*args, "-n", TOKENS, "-c", "1024", "--temp", "0")
    want = ways.answer(model, {}, *args)
    assert len(want[0]) == TOKENS, (model, len(want[0]))
    for n, way in enumerate(every):
        assert ways.answer(model, way, *args) == want, (model, way)
        if n % 50 == 49:
            print(f"     {n + 1} of {len(every)} ways", flush=True)


def test_every_combination():
    every = ways.product()
    assert len(every) == 576
    check(cases.DEMO, every, "--raw", "-p", TEXT)


def test_reference_models():
    for model, mtp in ((golden("v3-fp8"), True), (gguf_path("gguf-f16-mtp"), True), (gguf_path("gguf-q4_0"), False)):
        check(model, ways.covering(3, mtp), "--tokens", "1,2,3,4,5,6,7,8,9,10,11,12")


if __name__ == "__main__":
    cases.main(globals())
