#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Benchmark, reported and not asserted: decoding with 1 to N threads, with more threads than processors, with a CPU quota and beside
busy neighbours, as a share of what would be fair: alone with N threads, times the processors that fairness leaves.

usage: threads.py build/sluice [--samples N] [--shares N]

Quotas and neighbours need root and a cpu control group (version 1 or 2). --shares gives the group of all runs that weight against
other programs of the machine (version 1: 1024 is one thread's). Scenarios take turns; medians of the samples.
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import tempfile

TOKENS = 40
V1 = "/sys/fs/cgroup/cpu"
IS_V1 = os.path.exists(f"{V1}/cpu.cfs_quota_us")


@contextlib.contextmanager
def group(name, shares, percent=None):
    """A control group with a weight and a quota; yields the prefix that runs a program in it, None if none can be made."""
    path = os.path.join(V1 if IS_V1 else "/sys/fs/cgroup", f"sluice-bench-{os.getpid()}-{name}")
    files = {"cpu.shares": str(shares)} if IS_V1 else {"cpu.weight": str(min(10000, max(1, shares * 100 // 1024)))}
    if percent:
        files.update({"cpu.cfs_quota_us": str(percent * 1000)} if IS_V1 else {"cpu.max": f"{percent * 1000} 100000"})
    try:
        os.mkdir(path)
        for file, text in files.items():
            with open(os.path.join(path, file), "w", encoding="ascii") as f:
                f.write(text)
        prefix = ["sh", "-c", f'echo $$ >{path}/cgroup.procs && exec "$@"', "sh"]
    except OSError as e:
        print(f"no control group: {e}")
        prefix = None
    yield prefix
    with contextlib.suppress(OSError):
        os.rmdir(path)


def rate(binary, model, threads, prefix, hogs):
    """Tokens per second of one run; hogs: processors on which a busy loop runs, -1 for any."""
    command = ["sh", "-c", "while :; do :; done"]
    neighbours = [subprocess.Popen([*(prefix or []), *([] if cpu < 0 else ["taskset", "-c", str(cpu)]), *command]) for cpu in hogs]
    try:
        p = subprocess.run([*(prefix or []), binary, "run", "-m", model, "--tokens", "1,2,3", "-n", str(TOKENS), "--temp", "0", "--ignore-eos", "--json",
                            "-ub", "8", "-c", "256", "-t", str(threads)], capture_output=True, stdin=subprocess.DEVNULL, check=True)
    finally:
        for n in neighbours:
            n.kill()
            n.wait()
    return json.loads(p.stdout)["timings"]["decode_tok_s"]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("binary")
    ap.add_argument("--samples", type=int, default=3)
    ap.add_argument("--shares", type=int, default=1024)
    a = ap.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    n = len(cpus)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder, group("all", a.shares) as free, group("quota", a.shares, 75 * n) as quota:
        model = os.path.join(folder, "model.gguf")
        subprocess.run([a.binary, "synth", "--shape", "v2-lite", "--dense", "1", "--moe", "3", "--experts", "16", "--type", "q4_k", "-o", model],
                       check=True, capture_output=True)
        scenarios = [(f"{t} thread{'s' if t > 1 else ''}", t, free, (), None) for t in range(1, n + 1)]
        scenarios += [(f"{4 * n} threads", 4 * n, free, (), n)]
        if quota:
            scenarios += [(f"{t} threads, quota of {0.75 * n:.1f}", t, quota, (), 0.75 * n) for t in (n, 4 * n)]
        if free:
            scenarios += [(f"{n} threads, a neighbour on the first", n, free, cpus[:1], n - 0.5),
                          (f"{n} threads, a neighbour on the last", n, free, cpus[-1:], n - 0.5),
                          (f"{n} threads, a neighbour on each", n, free, cpus, n / 2),
                          (f"{4 * n} threads, a neighbour on each", 4 * n, free, cpus, n / 2)]
        results = {s[0]: [] for s in scenarios}
        for _ in range(a.samples):
            for name, threads, prefix, hogs, _ in scenarios:
                results[name].append(rate(a.binary, model, threads, prefix, hogs))
        alone = statistics.median(results[scenarios[n - 1][0]])
        print(f"{os.path.getsize(model) * 1e-6:.0f} MB, q4_k, {n} processors, {a.samples} samples of {TOKENS} tokens")
        for name, _, _, _, fair in scenarios:
            v = results[name]
            share = "" if fair is None else f"  {statistics.median(v) / (alone * fair / n) * 100:4.0f} % of the fair share"
            print(f"{name:36} {statistics.median(v):8.2f} tok/s (min {min(v):.2f}, max {max(v):.2f}){share}", flush=True)


if __name__ == "__main__":
    main()
