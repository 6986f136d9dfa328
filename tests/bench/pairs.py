# SPDX-License-Identifier: Apache-2.0
"""Reading ahead and drafts, each against off, in interleaved pairs: the part `pairs` of stream.py.

A case is a feature (prefetch, mtp; the other one is off), a start (cold: no popularity is known; warm: a heat file from a run with another text) and
what binds (drive: a quarter of the experts in RAM, and --io-limit makes reading take four times as long as computing; compute: three quarters, no limit). A round runs the arms off, auto, on, the next
one on, auto, off: each arm meets `off` in the order ABBA. All runs of a case give the same tokens and
have room for the same number of experts in RAM: with drafts those of the MTP layer are among them. Every run is a line of FILE.jsonl; a call that
finds some of them goes on behind the last.
"""
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

FEATURES = {"prefetch": ("off", "auto", "on"), "mtp": ("off", "auto", "on")}
STARTS, BOUNDS = ("cold", "warm"), {"drive": "25%", "compute": "75%"}  # and the experts in RAM, of those of the main layers
DRIVE_SHARE = 4  # drive-bound: reading takes so many times as long as computing
SECONDS_BOUND, WORK_BOUND = 1.03, 1.01  # the upper end of the interval for seconds; the median for demand bytes and processor time
MEASURES = ("seconds", "demand", "processor", "read")


def median_interval(values):
    """Median, and the 95 % interval of it by order statistics."""
    v, n = sorted(values), len(values)
    k = max(0, int(n / 2 - 0.98 * n**0.5))
    return statistics.median(v), v[k], v[n - 1 - k]


class Pairs:
    def __init__(self, a, table):
        self.a, self.table, self.model = a, table, a.pairs_model
        self.folder = tempfile.mkdtemp(dir=a.dir)
        self.began, self.done_here = time.monotonic(), 0
        self.head = {"model": self.model, "tokens": a.pairs_tokens, "build": os.stat(a.binary).st_mtime_ns}
        self.slots = {bound: self.slots_of(share) for bound, share in BOUNDS.items()}
        self.runs, self.limits, self.load = {}, {}, {}  # load: processor seconds of a process that gives one token
        self.resume()

    # ---- one run ----

    def slots_of(self, share):
        plan = subprocess.run([self.a.binary, "plan", "-m", self.model, "--mtp", "off", "--expert-ram", share, "--json"], check=True, capture_output=True).stdout
        return f"{json.loads(plan)['expert_slots']}x"

    def heat_of(self, flags):
        """A run with drafts counts the experts of the MTP layer, too."""
        return os.path.join(self.folder, "heat" if flags[flags.index("--mtp") + 1] == "off" else "heat-mtp")

    def drop_pages(self):
        """What the system holds of the model's files; reads go past it anyway, where the file system lets them."""
        files = [os.path.join(self.model, f) for f in os.listdir(self.model)] if os.path.isdir(self.model) else [self.model]
        for f in files:
            fd = os.open(f, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)

    def run(self, start, *flags, n=None, expert_ram=None, text="The ship came into the harbour, and"):
        """Timings of an answer, with the seconds of prompt and answer, and processor seconds of the process, loading included."""
        command = [self.a.binary, "run", "-m", self.model, "--raw", "-p", text, "-n", str(n or self.a.pairs_tokens), "--ignore-eos", "--temp", "0.8", "--seed", "1", "--json",
                   "--expert-ram", expert_ram or self.slots["drive"], *flags]
        if start == "warm":
            heat = self.heat_of(flags)
            shutil.copy(heat, heat + ".now")
            command += ["--heat", heat + ".now"]
        self.drop_pages()
        errors = tempfile.TemporaryFile("w+")
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        out = child.stdout.read()
        _, status, use = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            errors.seek(0)
            sys.exit(f"exit status {child.returncode}: {' '.join(command)}\n{errors.read()}")
        t = json.loads(out)["timings"]
        return {"seconds": t["prompt_s"] + t["decode_s"], "processor": use.ru_utime + use.ru_stime, "demand": t["cache"]["nvme"]["missed_bytes"], "decode_s": t["decode_s"],
                "read": t["cache"]["nvme"]["bytes"], "n": t["decode_n"], "per_token": t["bytes_per_token"]["nvme"], "waited": t["cache"]["nvme"]["demand_s"], "prefetch": t["prefetch"], "draft": t["draft"]}

    # ---- before the first round ----

    def resume(self):
        if not os.path.exists(self.a.out):
            with open(self.a.out, "w", encoding="utf-8") as f:
                f.write(json.dumps(self.head) + "\n")
            return
        with open(self.a.out, encoding="utf-8") as f:
            head = json.loads(f.readline())
            if head != self.head:
                sys.exit(f"{self.a.out} is of other runs ({head}): remove it, or give another --out")
            for line in f:
                if line.endswith("\n"):  # the last one may have been cut off
                    r = json.loads(line)
                    self.take(r)

    def take(self, r):
        if "limit" in r:
            self.limits[r["start"]] = r["limit"]
        elif "load" in r:
            self.load[tuple(r["load"])] = r["processor"]
        else:
            self.runs[tuple(r["key"])] = r

    def append(self, r):
        self.take(r)
        with open(self.a.out, "a", encoding="utf-8") as f:
            f.write(json.dumps(r) + "\n")

    def prepare(self):
        """The heat file; what loading costs; for each start the rate at which reading takes DRIVE_SHARE times as long as a token whose experts are all in RAM."""
        for mtp in FEATURES["mtp"][:2]:
            flags = ("--prefetch", "off", "--mtp", mtp)
            self.run("cold", *flags, "--heat", self.heat_of(flags), n=2 * self.a.pairs_tokens, text="It was in the spring of the year that")
        for feature, arms in FEATURES.items():
            for arm in arms:
                if (feature, arm) not in self.load:
                    runs = [self.run("cold", *self.flags(feature, "cold", "compute", arm), n=1)["processor"] for _ in range(3)]
                    self.append({"load": (feature, arm), "processor": statistics.median(runs)})
        if set(self.limits) == set(STARTS):
            return
        in_ram = min(r["decode_s"] / r["n"] for r in (self.run("cold", "--prefetch", "off", "--mtp", "off", expert_ram="100%") for _ in range(3)))
        for start in STARTS:
            r = self.run(start, "--prefetch", "off", "--mtp", "off")
            self.append({"start": start, "limit": int(r["per_token"] / (DRIVE_SHARE * in_ram))})

    # ---- rounds ----

    def flags(self, feature, start, bound, arm):
        other = next(f for f in FEATURES if f != feature)
        limit = ("--io-limit", str(self.limits[start])) if bound == "drive" else ()
        return (f"--{feature}", arm, f"--{other}", "off", *limit)

    def round(self, case, i, left):
        feature, start, bound = case
        arms = [arm for arm in FEATURES[feature] if arm in ("off", *self.a.arms)]
        for arm in arms if i % 2 == 0 else reversed(arms):
            key = (*case, arm, i)
            if key not in self.runs:
                r = self.run(start, *self.flags(feature, start, bound, arm), expert_ram=self.slots[bound])
                r["processor"] -= self.load[(feature, arm)]
                self.append({"key": key, **r})
                self.done_here += 1
        spent = time.monotonic() - self.began
        sys.stderr.write(f"\r\033[K{' '.join(case)}-bound: round {i + 1} of {self.a.pairs}; {spent / 60:.1f} min so far, about {spent * left / 60 / max(1, self.done_here):.1f} to go")
        sys.stderr.flush()

    def work(self, cases):
        """Rounds go through all cases in turn, so that a machine that drifts meets every case alike."""
        rounds = list(itertools.product(range(self.a.pairs), cases))
        todo = [(i, case, sum((*case, arm, i) not in self.runs for arm in ("off", *self.a.arms))) for i, case in rounds]
        left = sum(n for _, _, n in todo)
        for i, case, n in todo:
            left -= n
            if n > 0:
                self.round(case, i, left)
        sys.stderr.write("\r\033[K")

    # ---- tables ----

    def ratios(self, case, arm, measure):
        of = [(self.runs[(*case, arm, i)][measure], self.runs[(*case, "off", i)][measure]) for i in range(self.a.pairs)]
        return [on / off if off > 0 else 1.0 if on == 0 else float("inf") for on, off in of]

    def row(self, case, arm):
        found = {m: median_interval(self.ratios(case, arm, m)) for m in MEASURES}
        over = [m for m, x in (("seconds", found["seconds"][2] / SECONDS_BOUND), ("demand", found["demand"][0] / WORK_BOUND), ("processor", found["processor"][0] / WORK_BOUND)) if x > 1]
        verdict = "above: " + ", ".join(over) if over else "wins" if found["seconds"][2] < 1 else "within"
        return (f"{case[0]} {arm}", case[1], case[2], *(f"{m:.3f} ({low:.3f} to {high:.3f})" for m, low, high in found.values()), verdict)

    def off_row(self, case):
        runs = [self.runs[(*case, "off", i)] for i in range(self.a.pairs)]
        middle = {m: statistics.median(r[m] for r in runs) for m in ("seconds", "processor", "demand", "waited", "n")}
        return (case[0], case[1], case[2], f"{middle['n'] / statistics.median(r['decode_s'] for r in runs):.1f}", f"{middle['seconds']:.2f}", f"{middle['processor']:.2f}",
                f"{middle['demand'] / 1e6:.1f}", f"{100 * middle['waited'] / middle['seconds']:.0f} %")

    def print(self, cases):
        limits = ", ".join(f"{start} {rate / 1e6:.1f} MB/s" for start, rate in self.limits.items())
        print(f"\n### Reading ahead and drafts against off: {self.a.pairs} pairs ABBA of {self.a.pairs_tokens} tokens\n\n"
              f"Drive-bound: {BOUNDS['drive']} of the experts in RAM, --io-limit of {limits}; compute-bound: {BOUNDS['compute']}, no limit. Ratios to off: median (95 % interval of it). The bounds are {SECONDS_BOUND} for the upper end of seconds, {WORK_BOUND} for the\n"
              "medians of demand bytes and processor time, from which that of loading is taken.")
        self.table(("off", "start", "bound by", "tokens/s", "seconds", "processor, s", "demand, MB", "time with a wait"), [self.off_row(c) for c in cases])
        self.table(("on against off", "start", "bound by", "seconds", "demand bytes", "processor time", "all bytes read", "bounds"),
                   [self.row(c, arm) for arm in self.a.arms for c in cases])


def part_pairs(a, table):
    cases = list(itertools.product(a.features, STARTS, BOUNDS))
    p = Pairs(a, table)
    try:
        p.prepare()
        p.work(cases)
        p.print(cases)
    finally:
        shutil.rmtree(p.folder)
