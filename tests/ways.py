# SPDX-License-Identifier: Apache-2.0
"""Ways to read experts, none of which may change output: every combination, or few in which any two or three choices meet; the page
cache filled or emptied before; tokens and a digest of the logits of a run.

    for way in ways.covering(2, mtp=False): assert ways.answer(model, way, "-p", "x") == ways.answer(model, {}, "-p", "x")
"""
import hashlib
import itertools
import os
import tempfile

import cases

CHOICES = {
    "--expert-ram": ("0", "1x", "5%", "25%", "50%", "100%"),
    "--io": ("uring", "pread", "mmap"),
    "--prefetch": ("off", "on"),
    "--mtp": ("off", "on"),
    "--threads": ("1", "2"),
    "--merge": ("on", "off"),
    "cache": ("cold", "warm"),
}


def choices(mtp):
    """mtp: the model has such a layer."""
    return CHOICES if mtp else {**CHOICES, "--mtp": ("off",)}


def product(mtp=True):
    """Every combination."""
    named = choices(mtp)
    return [dict(zip(named, values)) for values in itertools.product(*named.values())]


def covering(strength, mtp=True):
    """Combinations in which any `strength` values of different choices occur together; always the same ones."""
    def groups(way):
        return set(itertools.combinations(way.items(), strength))

    left = [(way, groups(way)) for way in product(mtp)]
    missing, chosen = set().union(*(g for _, g in left)), []
    while missing:
        best, covered = max(left, key=lambda x: len(x[1] & missing))
        chosen.append(best)
        missing -= covered
    return chosen


def prepare_cache(model, state):
    """The model's pages leave the page cache, or are all in it."""
    for path in [os.path.join(model, name) for name in os.listdir(model)] if os.path.isdir(model) else [model]:
        with open(path, "rb") as f:
            if state == "cold":
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                while f.read(1 << 20):
                    pass


def answer(model, way, *args, **options):
    """Tokens of `sluice run` with these arguments, and a digest of the logits of each."""
    flags = [x for name, value in way.items() if name != "cache" for x in (name, value)]
    if "cache" in way:
        prepare_cache(model, way["cache"])
    with tempfile.TemporaryDirectory(prefix="sluice-test-") as home:
        dump = os.path.join(home, "logits.safetensors")
        out = cases.sluice_json("run", "-m", model, "--ignore-eos", "--json", "--dump", dump, *args, *flags, **options)
        with open(dump, "rb") as f:
            return out["tokens"], hashlib.sha256(f.read()).hexdigest()
