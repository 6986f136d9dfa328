#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Experts that are read while they are used, measured: writes a V3 slice, runs it in little memory and prints Markdown tables for docs/performance.md.

    tests/bench/stream.py build/sluice [PART ...] [--dir FOLDER] [--model FILE] [--samples N] [--ram SIZE]

Parts: drive (the rate while a token waits, beside fio on the same file), prefetch (reading ahead on and off, in pairs ABBA),
budgets (the plan's bytes and speed against what was measured). Default: all. Needs 15 GB of disk unless --model names a slice,
and fio for the first part. Nothing else should run.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

SLICE = ("--shape", "v3", "--dense", "1", "--moe", "2", "--type", "q4_k", "--attn-type", "q8_0")


def table(head, rows):
    print("\n| " + " | ".join(head) + " |\n|" + " --- |" * len(head), flush=True)
    for row in rows:
        print("| " + " | ".join(str(x) for x in row) + " |", flush=True)


def median_interval(values):
    """Median, and the 95 % interval of it by order statistics."""
    v, n = sorted(values), len(values)
    k = max(0, int(n / 2 - 0.98 * n**0.5))
    return statistics.median(v), v[k], v[n - 1 - k]


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


def part_prefetch(s):
    print("\n### Reading ahead: on against off, pairs in the order ABBA")
    ratios, demand = [], []
    for i in range(s.a.pairs):
        order = ("off", "on") if i % 2 == 0 else ("on", "off")
        got = {mode: s.decode("--prefetch", mode, tokens=12) for mode in order}
        ratios.append(got["on"]["decode_s"] / got["off"]["decode_s"])
        demand.append(got["on"]["cache"]["nvme"]["bytes"] / got["off"]["cache"]["nvme"]["bytes"])
    rows = [(name, *(f"{x:.3f}" for x in median_interval(v))) for name, v in (("seconds, on / off", ratios), ("bytes read, on / off", demand))]
    table((f"{s.a.pairs} pairs", "median", "95 % from", "to"), rows)


def part_budgets(s):
    print("\n### The plan against what was measured")
    with tempfile.TemporaryDirectory() as folder:
        machine = os.path.join(folder, "machine.json")
        with open(machine, "wb") as f:
            f.write(subprocess.run([s.a.binary, "plan", "--record", "-m", s.model], check=True, capture_output=True).stdout)
        rows = []
        for share in ("2%", "10%", "25%", "50%", "75%"):
            flags = ("--expert-ram", share, "--prefetch", "off")
            plan = json.loads(subprocess.run([s.a.binary, "plan", "-m", s.model, "--machine", machine, "--expert-ram", share, "--mtp", "off", "--json"],
                                             check=True, capture_output=True).stdout)
            s.a.ram, ram = "22G", s.a.ram
            t = s.decode(*flags, tokens=2 * s.a.tokens)
            s.a.ram = ram
            per = t["cache"]["nvme"]["bytes"] / (t["prompt_n"] + t["decode_n"])
            rows.append((share, f"{plan['nvme_bytes_per_token'] / 1e9:.3f}", f"{per / 1e9:.3f}", f"{plan['decode_tok_s']:.2f}", f"{t['decode_tok_s']:.2f}",
                         f"{t['decode_tok_s'] / plan['decode_tok_s'] if plan['decode_tok_s'] else 0:.2f}"))
    table(("experts in RAM", "GB/token, plan", "measured", "tokens/s, plan", "measured", "measured / plan"), rows)


PARTS = {"drive": part_drive, "prefetch": part_prefetch, "budgets": part_budgets}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("binary", type=os.path.abspath)
    ap.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART")
    ap.add_argument("--dir", default=".")
    ap.add_argument("--model")
    ap.add_argument("--samples", type=int, default=3)
    ap.add_argument("--pairs", type=int, default=20)
    ap.add_argument("--tokens", type=int, default=24)
    ap.add_argument("--ram", default="4G")
    a = ap.parse_args()
    if set(a.parts) - set(PARTS):
        ap.error(f"parts are {', '.join(PARTS)}")
    if "drive" in a.parts and not shutil.which("fio"):
        ap.error("the part drive needs fio")
    folder = None if a.model else tempfile.mkdtemp(dir=a.dir)
    try:
        model = a.model or os.path.join(folder, "slice.gguf")
        if folder:
            subprocess.run([a.binary, "synth", *SLICE, "-o", model], check=True)
        for part in a.parts:
            PARTS[part](Stream(a, model))
    finally:
        if folder:
            shutil.rmtree(folder)


main()
