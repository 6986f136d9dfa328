#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Benchmark, reported and not asserted: the tables of docs/performance.md, as markdown, on this machine.

PART: slice formats rows threads first-token load kernels; default all. Models are written to FOLDER by `sluice synth`, one at a
time, and deleted. --quick: fewer experts (files below 4 GB) and samples, to see that it runs. Every rate stands beside its
ceilings, measured just before and just after each repeat; decoding is measured in many short repeats, so that a machine whose
memory rate drifts is the same for both. The full set needs 14 GB of disk, 16 GB of memory and about an hour on 2 cores.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

# Format, experts of the file, share of the ceiling that decode is meant to reach.
FORMATS = [("q8_0", 256, 85), ("fp8", 256, 80), ("bf16", 128, 85), ("q6_k", 256, 85), ("q5_k", 256, 85), ("q4_k", 256, 90), ("q3_k", 256, 80),
           ("q2_k", 256, 80), ("iq4_xs", 256, 85), ("mxfp4", 256, 85), ("iq2_xxs", 256, 60), ("iq1_s", 256, 60)]
REPEATS_MAX = 64 # of sluice bench
GROUPS = "/sys/fs/cgroup"


def run(*args, **options):
    return subprocess.run([str(a) for a in args], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True, **options).stdout


class Proof:
    def __init__(self, a):
        self.a = a
        self.threads = ["-t", a.threads] if a.threads else []

    def synth(self, folder, *flags):
        path = os.path.join(folder, "model.gguf")
        experts = ["--experts", self.a.experts] if self.a.experts and "--experts" not in flags else []
        if "fp8" in flags: # a format of Hugging Face folders
            path = os.path.join(folder, "model/")
        run(self.a.binary, "synth", "--shape", "v3", *flags, *experts, "-o", path)
        return path

    def bench(self, model, repeats, *flags, prefix=()):
        args = [*prefix, self.a.binary, "bench", "-m", model, "-r", repeats, "--quiet", "--json", *self.threads, *flags]
        print("    $ sluice " + " ".join(str(x) for x in args[len(prefix) + 1:]), file=sys.stderr, flush=True)
        return json.loads(run(*args))

    def prompts(self, model, lengths):
        return self.bench(model, self.a.samples, "-p", ",".join(map(str, lengths)), "-n", 0)

    def decode(self, model, *flags, prefix=()):
        return self.bench(model, min(3 * self.a.samples, REPEATS_MAX), "-p", 0, "-n", 4 if self.a.quick else 16, *flags, prefix=prefix)

    def with_model(self, flags, use):
        with tempfile.TemporaryDirectory(dir=self.a.dir) as folder:
            return use(self.synth(folder, *flags))


def table(head, rows):
    print("\n| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for row in rows:
        print("| " + " | ".join(str(x) for x in row) + " |")
    sys.stdout.flush()


def percent(x):
    return "-" if x is None else f"{100 * x:.0f} %"


def num(x, digits=1):
    return "-" if x is None else f"{x:.{digits}f}"


def spread(r):
    t = r["tok_s"]
    return f"{t['median']:.2f} ({t['min']:.2f} to {t['max']:.2f})"


def rows_of(results):
    return [(r["test"], spread(r), num(r["read_gb_s"]), num(r["ceiling_gb_s"]), percent(r["ceiling_share"]), num(r["roof_tok_s"]), percent(r["roof_share"]), r["roof_bound"])
            for r in results]


HEAD = ("test", "tokens/s: median (range)", "GB/s", "ceiling", "share", "roof", "share of roof", "bound by")
SLICE = ("--dense", 1, "--moe", 2, "--type", "q4_k", "--attn-type", "q8_0")
ONE = ("--dense", 1, "--moe", 1, "--type", "q4_k", "--attn-type", "q8_0")


def part_slice(p):
    print("\n### V3 slice: 1 dense and 2 MoE layers, Q4_K experts, Q8_0 attention")
    results = p.with_model(SLICE, lambda m: p.prompts(m, [512] if p.a.quick else [512, 2048]) + p.decode(m))
    print(f"\n{results[0]['machine']}\n\n{results[0]['model']}")
    table(HEAD, rows_of(results))


def part_formats(p):
    print("\n### Formats: 1 dense and 1 MoE layer in one format")
    rows = []
    for name, experts, goal in FORMATS:
        flags = ("--dense", 1, "--moe", 1, "--type", name, "--attn-type", name, *(() if p.a.experts or experts == 256 else ("--experts", experts)))
        try:
            pp, tg = p.with_model(flags, lambda m: p.prompts(m, [512]) + p.decode(m))
        except subprocess.CalledProcessError as e:
            rows.append((name, (e.stderr or "failed").strip().split("\n")[-1][:120], "", "", "", "", "", ""))
            continue
        rows.append((name, spread(tg), num(tg["read_gb_s"]), num(tg["ceiling_gb_s"]), percent(tg["ceiling_share"]), f"{goal} %", spread(pp), percent(pp["roof_share"])))
    table(("format", "decode, tokens/s", "GB/s", "ceiling", "share", "wanted", "pp512, tokens/s", "share of roof"), rows)


def part_rows(p):
    print("\n### Several timelines in one step")
    results = p.with_model(ONE, lambda m: p.decode(m, "--rows", "1,2,4,8"))
    one = 1 / results[0]["tok_s"]["median"]
    table(("timelines", "tokens/s", "time per step against one", "bytes per step against one", "share of roof"),
          [(r["rows"], spread(r), f"{r['rows'] / r['tok_s']['median'] / one:.2f}", f"{r['rows'] * r['bytes_per_token']['ram'] / results[0]['bytes_per_token']['ram']:.2f}",
            percent(r["roof_share"])) for r in results])


def with_neighbour(use):
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        return use()
    finally:
        other.kill()
        other.wait()


def quota_files(cores):
    """Folder of a control group and what is to be written into its files, for version 2 or 1."""
    if os.path.exists(f"{GROUPS}/cgroup.controllers"):
        return f"{GROUPS}/sluice-proof", {"cpu.max": f"{int(cores * 100000)} 100000"}
    return f"{GROUPS}/cpu/sluice-proof", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": str(int(cores * 100000))}


def with_quota(cores, use):
    """None where control groups cannot be made (no root, none mounted)."""
    group, files = quota_files(cores)
    try:
        os.mkdir(group)
        for name, value in files.items():
            if not os.path.exists(f"{group}/{name}"):
                raise OSError(f"{group}/{name} does not appear: no control group")
            with open(f"{group}/{name}", "w", encoding="ascii") as f:
                f.write(value)
    except OSError as e:
        print(f"    quota: {e}", file=sys.stderr)
        if os.path.isdir(group):
            os.rmdir(group)
        return None
    try:
        return use(["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"])
    finally:
        time.sleep(0.2)
        os.rmdir(group)


def part_threads(p):
    print("\n### Threads")
    cores = len(os.sched_getaffinity(0))

    def measure(m):
        p.threads = []
        counts = sorted({*[t for t in (1, 2, 4, 8, 16, 32, 64) if t < cores], cores, 2 * cores, 4 * cores})
        rows = [(f"{r['threads']} threads", spread(r), percent(r["ceiling_share"])) for r in p.decode(m, "-t", ",".join(map(str, counts)))]
        fair = [f"fair share {100 * (cores - 0.5) / cores:.0f} %"]
        busy = with_neighbour(lambda: p.decode(m))[0]
        rows.append((f"default, a busy neighbour ({fair[0]})", spread(busy), percent(busy["ceiling_share"])))
        limited = with_quota(1.5, lambda prefix: p.decode(m, prefix=prefix))
        rows.append(("default, quota of 1.5 cores", spread(limited[0]), percent(limited[0]["ceiling_share"])) if limited else ("quota", "not measured", ""))
        table(("what", "decode, tokens/s", "share of the ceiling"), rows)

    p.with_model(ONE, measure)


def part_first_token(p):
    print("\n### Time to first token: one more prompt token (R24)")
    most = 40 if p.a.quick else 130
    results = p.with_model(("--dense", 1, "--moe", 1, "--experts", 32, "--type", "q4_k", "--attn-type", "q8_0"),
                           lambda m: p.prompts(m, range(1, most + 1)))
    best = [(r["prompt_n"], r["prompt_n"] / r["tok_s"]["max"]) for r in results]
    steps = sorted(((b[1] / a[1], a[0]) for a, b in zip(best, best[1:])), reverse=True)
    table(("prompt tokens", "seconds, best"), [(n, f"{s:.4f}") for n, s in best if n in (1, 2, 4, 8, 9, 16, 32, 33, 64, 128)])
    print("\nlargest steps: " + ", ".join(f"{ratio:.2f}x from {n} to {n + 1}" for ratio, n in steps[:4]))


def drive_rate(path):
    """GB/s of fio over the whole file: what the drive gives to a program that does nothing else; None without fio."""
    if not shutil.which("fio"):
        return None
    out = run("fio", "--name=read", f"--filename={path}", "--rw=read", "--bs=1M", "--iodepth=32", "--ioengine=io_uring", "--direct=1", "--readonly",
              "--output-format=json")
    return json.loads(out)["jobs"][0]["read"]["bw_bytes"] / 1e9


def part_load(p):
    print("\n### Loading, between two readings of the whole file by fio (io_uring, 1 MiB, depth 32)")

    def memory_of(pid, key):
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            m = re.search(rf"{key}:\s+(\d+) kB", f.read())
        return int(m.group(1)) if m else 0

    def measure(m):
        rows = []
        before = drive_rate(m)
        for _ in range(p.a.samples):
            child = subprocess.Popen([p.a.binary, "run", "-m", m, "--tokens", "1", "-n", "40", "--ignore-eos", "--temp", "0", "-v"], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True)
            held, peak = [], 0
            while child.poll() is None:
                held.append(memory_of(child.pid, "VmRSS"))
                peak = memory_of(child.pid, "VmHWM") or peak
                time.sleep(0.01)
            found = re.search(r"loaded (\S+ \S+) in .*?([0-9.]+) GB/s", child.stderr.read())
            after = drive_rate(m)
            rate, steady = float(found.group(2)), sorted(held[-200:-20])[90]  # of the two seconds before the end, the model being there
            drive = max(before, after) if before and after else None
            rows.append((found.group(1), f"{rate:.2f}", f"{drive:.2f}" if drive else "", percent(rate / drive if drive else None), f"{(peak - steady) / 1024:.0f} MiB"))
            before = after
        table(("file", "load, GB/s", "fio, GB/s", "share", "peak above steady memory"), rows)

    p.with_model(SLICE, measure)


def part_kernels(p):
    print("\n### Operations alone\n")
    print("```\n" + run(p.a.binary, "bench", "--kernels", "--quiet", "-r", min(8 * p.a.samples, REPEATS_MAX), *p.threads) + "```")


PARTS = {"slice": part_slice, "formats": part_formats, "rows": part_rows, "threads": part_threads, "first-token": part_first_token, "load": part_load, "kernels": part_kernels}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("binary", type=os.path.abspath)
    ap.add_argument("parts", nargs="*", metavar="PART", default=list(PARTS))
    ap.add_argument("--dir", default=".")
    ap.add_argument("--samples", type=int, default=3, help="repeats of a prompt; decoding has three times, operations eight times as many")
    ap.add_argument("--threads", type=int)
    ap.add_argument("--experts", type=int, help="of each layer of the files: with fewer they are smaller, and a token reads as many")
    ap.add_argument("--quick", action="store_true")
    a = ap.parse_args()
    a.experts = a.experts or (32 if a.quick else None)
    unknown = set(a.parts) - set(PARTS)
    if unknown:
        ap.error(f"unknown part {', '.join(sorted(unknown))}")
    proof = Proof(a)
    for part in a.parts:
        PARTS[part](proof)


main()
