#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Benchmark, reported and not asserted: load and decode of a true-shape V3 file of 2-3 GB, and the demo model.

usage: decode.py build/sluice build/tests/bench/ceiling MODELS_DEMO [--samples N] [--type NAME]

Every rate stands beside its ceiling measured in the same run: memory read with the same threads, `dd iflag=direct` of the
same file. Prints median and spread of the samples.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile

THREADS = 2


def run(*args):
    p = subprocess.run(args, capture_output=True, stdin=subprocess.DEVNULL, check=True)
    return p.stdout.decode(), p.stderr.decode()


def show(name, values, unit, note=""):
    m = statistics.median(values)
    print(f"{name:34} {m:10.2f} {unit}  (min {min(values):.2f}, max {max(values):.2f}, {len(values)} samples) {note}", flush=True)
    return m


def dd_rate(path):
    _, err = run("dd", f"if={path}", "of=/dev/null", "bs=4M", "iflag=direct")
    seconds = float(re.search(r", ([0-9.e-]+) s,", err).group(1))
    return os.path.getsize(path) / seconds * 1e-9


def decode(binary, model, n, *flags):
    out, _ = run(binary, "run", "-m", model, "--tokens", "1,2,3,4", "-n", str(n), "--temp", "0", "--ignore-eos", "--json", "-t", str(THREADS), *flags)
    return json.loads(out)["timings"]


def load_rate(binary, model):
    _, err = run(binary, "run", "-m", model, "--tokens", "1", "-n", "1", "-v", "-t", str(THREADS))
    m = re.search(r"loaded .*?([0-9.]+) GB/s", err)
    return float(m.group(1)) if m else float("nan")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("binary")
    ap.add_argument("ceiling")
    ap.add_argument("demo")
    ap.add_argument("--samples", type=int, default=3)
    ap.add_argument("--type", default="q4_k")
    a = ap.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR") or ".") as d:
        model = os.path.join(d, "v3.gguf")
        run(a.binary, "synth", "--shape", "v3", "--dense", "1", "--moe", "1", "--experts", "8", "--type", a.type, "-o", model)
        print(f"V3 shape, 1 dense + 1 MoE layer, 8 experts, {a.type}: {os.path.getsize(model) * 1e-9:.2f} GB, {THREADS} threads")
        ceilings, rates, loads, disks = [], [], [], []
        for _ in range(a.samples):
            ceilings.append(float(run(a.ceiling, str(THREADS))[0]))
            rates.append(decode(a.binary, model, 24)["read_gb_s"])
            disks.append(dd_rate(model))
            loads.append(load_rate(a.binary, model))
        c, r = show("memory read, ceiling", ceilings, "GB/s"), show("decode, weights read", rates, "GB/s")
        print(f"{'':34} decode reads at 1/{c / r:.2f} of the ceiling")
        c, r = show("dd iflag=direct, ceiling", disks, "GB/s"), show("load", loads, "GB/s")
        print(f"{'':34} load at {100 * r / c:.0f} % of dd")
    per_token = [1e6 / decode(a.binary, a.demo, 200)["decode_tok_s"] for _ in range(a.samples)]
    show("demo model", per_token, "us per token")


main()
