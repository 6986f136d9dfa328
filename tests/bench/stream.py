#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Experts that are read while they are used, measured: prints Markdown tables for docs/performance.md.

    tests/bench/stream.py build/sluice [PART ...] [--dir FOLDER] [--model FILE] [--samples N] [--ram SIZE]

Parts: drive (the rate while a token waits, beside fio on the same file), budgets (the plan's bytes and speed against what was
measured), both on a V3 slice of random weights, 15 GB that are written unless --model names one; pairs (reading ahead and drafts
against off, in pairs ABBA, on the demo model: pairs.py says how). Default: all. The first part needs fio. Nothing else should run.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import pairs

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SLICE = ("--shape", "v3", "--dense", "1", "--moe", "2", "--type", "q4_k", "--attn-type", "q8_0")

SAMPLING = ("--temp", "1", "--seed", "1")
PURPOSES = {"resident": "resident weights", "experts": "experts", "scales": "fp8 scales", "kv": "kv cache"}  # plan's key: the engine's name


def table(head, rows):
    print("\n| " + " | ".join(head) + " |\n|" + " --- |" * len(head), flush=True)
    for row in rows:
        print("| " + " | ".join(str(x) for x in row) + " |", flush=True)


class Stream:
    def __init__(self, a, model):
        self.a, self.model = a, model

    def command(self, tokens, flags):
        return [self.a.binary, "run", "-m", self.model, "--ram", self.a.ram, "--tokens", "1,2,3,4", "-n", str(tokens), "--ignore-eos", "--temp", "0", "--json",
                "--mtp", "off", *flags]

    def decode(self, *flags, tokens=None):
        """Figures of one answer, with the processor seconds of the threads that read while it runs; those that loaded the rest have ended."""
        child = subprocess.Popen(self.command(tokens or self.a.tokens, flags), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        reading = {}
        while child.poll() is None:
            now = {}
            for task in os.listdir(f"/proc/{child.pid}/task") if os.path.isdir(f"/proc/{child.pid}/task") else ():
                try:
                    with open(f"/proc/{child.pid}/task/{task}/stat", encoding="ascii") as f:
                        name, rest = re.match(r"\d+ \((.*)\) (.*)", f.read()).groups()
                except OSError:
                    continue
                if name == "sluice-read" or name.startswith("iou-"):
                    now[task] = sum(map(int, rest.split()[11:13])) / os.sysconf("SC_CLK_TCK")
            reading = now or reading
            time.sleep(0.05)
        out = json.loads(child.stdout.read())["timings"]
        out["reading_s"] = sum(reading.values())
        return out

    def output(self, *args):
        run = subprocess.run([self.a.binary, *args], capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"exit status {run.returncode}: {' '.join(args)}\n{run.stderr}")
        return run.stdout

    def fio(self, seconds=5):
        """GB/s, and processor seconds per GB."""
        out = subprocess.run(["fio", "--name=x", f"--filename={self.model}", "--rw=randread", "--bs=1M", "--iodepth=32", "--ioengine=io_uring", "--direct=1", "--readonly",
                              f"--runtime={seconds}", "--time_based", "--output-format=json"], check=True, capture_output=True, text=True).stdout
        job = json.loads(out)["jobs"][0]
        gb = job["read"]["io_bytes"] / 1e9
        return job["read"]["bw_bytes"] / 1e9, (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["read"]["runtime"] / 1000 / gb


def part_drive(s):
    print(f"\n### While a token waits for the drive: {s.a.ram} of RAM")
    rows, before = [], s.fio()
    for _ in range(s.a.samples):
        t = s.decode("--prefetch", "off")
        after = s.fio()
        n, total = t["cache"]["nvme"], t["prompt_s"] + t["decode_s"]
        rate, ceiling = n["demand_bytes"] / n["demand_s"] / 1e9, max(before[0], after[0])
        rows.append((f"{t['decode_tok_s']:.2f}", f"{n['bytes'] / 1e9 / (t['prompt_n'] + t['decode_n']):.3f}", f"{rate:.2f}", f"{ceiling:.2f}", f"{100 * rate / ceiling:.0f} %",
                     f"{100 * n['demand_s'] / total:.0f} %", f"{t['reading_s'] * 1e9 / n['bytes']:.3f}", f"{after[1]:.3f}"))
        before = after
    table(("tokens/s", "GB/token", "GB/s while waiting", "fio, GB/s", "share", "time with a wait", "reading threads, s/GB", "fio, s/GB"), rows)


def recorded(s, folder):
    """This machine as `plan --record` sees it, with the drive no faster than --io-limit will let it be, and the routing of the tokens that are decoded below."""
    machine, limit, tokens, trace = json.loads(s.output("plan", "--record", "-m", s.model)), s.a.io_limit, os.path.join(folder, "tokens.json"), os.path.join(folder, "trace.csv")
    measured = machine["nvme_read_gb_s"]
    machine["nvme_read_gb_s"] = min(measured, limit / 1e9) if measured > 0 else limit / 1e9
    path = os.path.join(folder, "machine.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(machine, f)
    answer = json.loads(s.output("run", "-m", s.model, "--tokens", "1", "-n", str(s.a.budget_tokens), "--ignore-eos", *SAMPLING, "--json", "--mtp", "off"))
    with open(tokens, "w", encoding="utf-8") as f:
        json.dump([1, *answer["tokens"][:-1]], f)
    s.output("trace", "record", "-m", s.model, "--tokens-file", tokens, "--mtp", "off", "-ub", "8", "-o", trace)
    print(f"\nMachine: memory {machine['ram_read_gb_s']:.1f} GB/s, this model's kernels {machine['decode_read_gb_s']:.1f}, drive {measured:.2f}, --io-limit {limit / 1e9:.2f}.")
    return path, trace


def budget(s, share, machine, trace):
    """One row: the plan, and the medians of the runs that follow it."""
    setting = ("--mtp", "off", "--expert-ram", share, "-c", "512")
    plan = json.loads(s.output("plan", "-m", s.model, "--machine", machine, "--trace", trace, *setting, "--json"))
    runs = [json.loads(s.output("run", "-m", s.model, *setting, "--prefetch", "off", "--io-limit", str(s.a.io_limit), "--tokens", "1", "-n", str(s.a.budget_tokens), "--ignore-eos",
                                *SAMPLING, "--json")) for _ in range(s.a.samples)]
    planned, buffers = plan["tiers"]["ram"]["purposes"], runs[0]["memory"]["purposes"]
    t = [r["timings"] for r in runs]
    per = statistics.median(x["cache"]["nvme"]["bytes"] / (x["prompt_n"] + x["decode_n"]) for x in t)
    speed, expected = statistics.median(x["decode_tok_s"] for x in t), plan["decode_expected_tok_s"]
    different = [key for key, name in PURPOSES.items() if planned[key] != buffers[name]] + ["work"] * (buffers["work"] > planned["work"])  # the plan counts a second step
    return (share, f"{planned['experts']:,}", f"{buffers['experts']:,}", ", ".join(different) or "none", f"{plan['nvme_bytes_per_token']:,}", f"{per:,.0f}",
            f"{plan['decode_tok_s']:.2f}", f"{expected:.2f}", f"{speed:.2f}", f"{100 * (speed / expected - 1):+.0f} %")


def part_budgets(s):
    print(f"\n### The plan against what was measured: {s.a.budget_tokens} tokens from an empty cache, {s.a.samples} runs each")
    with tempfile.TemporaryDirectory(dir=s.a.dir) as folder:
        machine, trace = recorded(s, folder)
        rows = [budget(s, share, machine, trace) for share in s.a.budgets]
        table(("experts in RAM", "their bytes, plan", "engine", "purposes that differ", "bytes/token from the drive, plan", "measured", "tokens/s at best", "expected", "measured", "off"), rows)


def part_pairs(s):
    pairs.part_pairs(s.a, table)


PARTS = {"drive": part_drive, "budgets": part_budgets, "pairs": part_pairs}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("binary", type=os.path.abspath)
    ap.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART")
    ap.add_argument("--dir", default=".")
    ap.add_argument("--model")
    ap.add_argument("--samples", type=int, default=3)
    ap.add_argument("--tokens", type=int, default=24)
    ap.add_argument("--ram", default="4G")
    ap.add_argument("--budgets", nargs="+", default=["0%", "10%", "25%", "50%", "100%"])
    ap.add_argument("--budget-tokens", type=int, default=64)
    ap.add_argument("--io-limit", type=int, default=1000000000, help="bytes per second of the drive in the part budgets: one that is known, and below what the drive can")
    ap.add_argument("--pairs", type=int, default=20)
    ap.add_argument("--pairs-model", default=os.path.join(ROOT, "models/demo"), metavar="MODEL")
    ap.add_argument("--pairs-tokens", type=int, default=256)
    ap.add_argument("--features", nargs="+", default=list(pairs.FEATURES), choices=list(pairs.FEATURES))
    ap.add_argument("--arms", nargs="+", default=["auto", "on"], choices=["auto", "on"], help="what is compared with off")
    ap.add_argument("--out", default="pairs.jsonl", help="runs of the pairs; a call that finds the file goes on behind its last line")
    a = ap.parse_args()
    if set(a.parts) - set(PARTS):
        ap.error(f"parts are {', '.join(PARTS)}")
    if "drive" in a.parts and not shutil.which("fio"):
        ap.error("the part drive needs fio")
    folder = None if a.model or a.parts == ["pairs"] else tempfile.mkdtemp(dir=a.dir)
    try:
        model = a.model or os.path.join(folder or ".", "slice.gguf")
        if folder:
            subprocess.run([a.binary, "synth", *SLICE, "-o", model], check=True)
        for part in a.parts:
            PARTS[part](Stream(a, model))
    finally:
        if folder:
            shutil.rmtree(folder)


main()
