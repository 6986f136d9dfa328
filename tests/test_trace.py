#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: quick
"""sluice trace: hits and admissions are those of a second, slow replay; reports are those of plain counting; bad files are named."""
import bisect
import collections
import csv
import gzip
import io
import math
import os
import struct
import tempfile
import xml.etree.ElementTree

import cases

TRACE = os.path.join(cases.ROOT, "tests", "data", "trace", "demo.csv.gz")
FIRST, EXPERTS, USED = 40, 64, 6
SIZES = [0, 30, 90, 150, 320]
HEAD = "window,position,layer,ids,weights"


def read_windows():
    """Windows as lists of rows (position, layer, ids, weights, shadow ids)."""
    windows = collections.OrderedDict()
    with gzip.open(TRACE, "rt") as f:
        for r in csv.DictReader(f):
            row = (int(r["position"]), int(r["layer"]), [int(x) for x in r["ids"].split()], [float(x) for x in r["weights"].split()],
                   [int(x) for x in r["shadow_ids"].split()])
            windows.setdefault(r["window"], []).append(row)
    return list(windows.values())


WINDOWS = read_windows()
LAYERS = sorted({row[1] for row in WINDOWS[0]})
CYCLE = len(LAYERS)


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


class Replay:
    """One policy and size over one window, from the definitions: victims are looked for one at a time, in a list."""

    def __init__(self, policy, slots, half_life, rows, learned):
        self.policy, self.slots, self.half_life, self.rows = policy, slots, half_life, rows
        self.cache, self.uses, self.chances, self.now = [], {}, {}, 0  # cache: in order of admission; uses: decayed count, last visit
        self.per_use = 1 - 2.0 ** (-1 / half_life)
        self.learned = learned  # layer -> [named][used] counts
        self.ahead = collections.defaultdict(list)  # key -> visits, rising
        column = {"lfu-ahead": 4, "odds-ahead": 4, "exact-ahead": 2, "min": 2}.get(policy)
        for i, row in enumerate(rows if column else []):
            for x in row[column]:
                self.ahead[row[1], x].append(i)

    def heat(self, key):
        count, last = self.uses.get(key, (0, 0))
        return count * 2.0 ** (-(self.now - last) / (self.half_life * CYCLE))

    def expected(self, key):
        visits = self.ahead.get(key, [])
        i = bisect.bisect_right(visits, self.now)
        return visits[i] if i < len(visits) and (self.policy == "min" or visits[i] <= self.now + CYCLE) else None

    def worth(self, key):
        if self.policy in ("odds", "odds-ahead"):
            rate = self.heat(key) * self.per_use
            at, chance = self.chances.get(key, (0, 0))
            if at <= self.now:
                at, chance = self.now + CYCLE, rate
            return (0, (chance + rate / 2) / ((at - self.now) / CYCLE + 0.5))
        at = self.expected(key) if self.ahead else None
        if at is not None:
            return (1, -at)
        return (0, self.uses[key][1] if self.policy == "lru" else self.heat(key))

    def calibrate(self, row):
        """Learns from the set that named this row, then gives chances for the sets that have come into sight."""
        _, layer, ids, _, shadow = row
        if self.now > 0:
            for x in range(EXPERTS):
                self.learned[layer][x in shadow][x in ids] += 1
        first = self.now + 1 if self.now == 0 else self.now + CYCLE
        for at in range(first, min(self.now + CYCLE, len(self.rows) - 1) + 1):
            layer, named = self.rows[at][1], self.rows[at][4]
            (a, b), (c, d) = self.learned[layer]
            for x in range(EXPERTS):
                rate = self.heat((layer, x)) * self.per_use
                rate = min(max(rate, USED / EXPERTS / 64), 0.98)
                likelihood = (d / (b + d)) / (c / (a + c)) if x in named else (b / (b + d)) / (a / (a + c))
                odds = rate / (1 - rate) * likelihood
                self.chances[layer, x] = (at, single(odds / (1 + odds)))

    def admit(self, key, visit):
        """(admitted, evicted)"""
        if len(self.cache) < self.slots:
            self.cache.append(key)
            return 1, 0
        leaving = min((x for x in self.cache if x not in visit), key=self.worth, default=None)
        if leaving is None:
            return 0, 0
        a, b = self.worth(key), self.worth(leaving)
        b = (b[0], b[1] * (1.2 if self.policy in ("odds", "odds-ahead") else 1))
        if self.policy != "lru" and a <= b:
            return 0, 0
        self.cache.remove(leaving)
        self.cache.append(key)
        return 1, 1

    def play(self):
        """uses, hits, admitted, evicted from FIRST on"""
        total = [0, 0, 0, 0]
        for self.now, row in enumerate(self.rows):
            visit = [(row[1], x) for x in row[2]]
            missed = [key for key in visit if key not in self.cache]
            for key in visit:
                self.uses[key] = (self.heat(key) + 1, self.now)
            if self.policy == "odds-ahead":
                self.calibrate(row)
            moved = [self.admit(key, visit) for key in missed]
            if row[0] >= FIRST:
                for i, n in enumerate((len(visit), len(visit) - len(missed), sum(m[0] for m in moved), sum(m[1] for m in moved))):
                    total[i] += n
        return total


def replay(policy, slots, half_life):
    learned = {layer: [[EXPERTS - USED - USED / 2, USED / 2], [USED / 2, USED / 2]] for layer in LAYERS}
    return [sum(x) for x in zip(*(Replay(policy, slots, half_life, rows, learned).play() for rows in WINDOWS))]


def simulate(*args, trace=TRACE):
    return cases.sluice_json("trace", "simulate", trace, "--first-position", FIRST, "--json", *args)


def test_every_policy_is_that_of_the_slow_replay():
    got = simulate("--cache", ",".join(map(str, SIZES)))
    assert (got["windows"], got["tokens"], got["counted_tokens"], got["experts"], got["layers"]) == (3, 288, 168, EXPERTS, LAYERS)
    best = {r["slots"]: r for r in got["results"] if r["policy"] == "min"}
    seen = set()
    for r in got["results"]:
        uses, hits, admitted, evicted = replay(r["policy"], r["slots"], 32 if r["policy"] == "odds-ahead" else 64)
        found = (r["uses"], r["hits"], r["admitted"], r["evicted"], r["bypassed"])
        assert found == (uses, hits, admitted, evicted, uses - hits - admitted), (r, hits, admitted, evicted)
        assert abs(r["hit_ratio"] - hits / uses) < 1e-6 and abs(r["admitted_per_token"] - admitted / 168) < 1e-3
        assert abs(r["regret_points"] - 100 * (best[r["slots"]]["hits"] - hits) / uses) < 1e-3 and r["regret_points"] >= 0
        assert abs(sum(r["layer_hit_ratio"]) / CYCLE - r["hit_ratio"]) < 1e-5
        seen.add((r["policy"], r["slots"]))
    assert seen == {(p, s) for p in ("lru", "lfu", "odds", "lfu-ahead", "odds-ahead", "exact-ahead", "min") for s in SIZES}


def test_half_life_and_shares():
    got = simulate("--cache", "20%", "--half-life", 8)["results"]
    for r in got:
        assert [r["hits"], r["admitted"]] == replay(r["policy"], r["slots"], 8)[1:3], r
    assert {r["slots"] for r in got} == {64}
    assert {r["slots"] for r in simulate("--cache", "10%", "--experts", 256, "--policy", "lru")["results"]} == {128}


def test_table_shows_the_same_figures():
    text = cases.sluice("trace", "simulate", TRACE, "--first-position", FIRST, "--cache", "30,90").stdout.decode()
    results = simulate("--cache", "30,90")["results"]
    for line in text.splitlines():
        mine = [r for r in results if line.startswith(r["policy"] + " ")]
        if mine:
            shown = [float(x) for x in line.split()[1:]]
            assert shown == [float(f"{x:.1f}") for r in mine for x in (100 * r["hit_ratio"], r["admitted_per_token"], r["regret_points"])], line
            results = [r for r in results if r not in mine]
    assert not results


def plain(directory, name="t.csv", change=lambda text: text):
    path = os.path.join(directory, name)
    with gzip.open(TRACE, "rt") as f, open(path, "w", encoding="utf-8") as out:
        out.write(change(f.read()))
    return path


def without_shadow(text):
    return "".join(line.rsplit(",", 1)[0] + "\r\n" for line in text.splitlines())


def test_plain_files_and_files_without_predictions():
    with tempfile.TemporaryDirectory() as d:
        args = ("--cache", "90")
        assert simulate(*args, trace=plain(d))["results"] == simulate(*args)["results"]
        path = plain(d, "u.csv", without_shadow)
        names = [r["policy"] for r in simulate(*args, trace=path)["results"]]
        assert names == ["lru", "lfu", "odds", "exact-ahead", "min"]
        run = cases.sluice("trace", "simulate", path, "--policy", "odds-ahead", status=2)
        assert b"u.csv has no column shadow_ids" in run.stderr


def test_report_is_plain_counting():
    got = cases.sluice_json("trace", "report", TRACE, "--first-position", FIRST, "--json", "--top", 7)
    rows = [row for window in WINDOWS for row in window]
    uses, gate = collections.Counter(), collections.Counter()
    for position, layer, ids, weights, _ in rows:
        for x, w in zip(ids, weights):
            uses[layer, x] += position >= FIRST
            gate[layer, x] += w * (position >= FIRST)
    for layer in got["layers"]:
        mine = [uses[layer["layer"], x] for x in range(EXPERTS)]
        assert layer["uses"] == mine
        assert all(abs(a - gate[layer["layer"], x]) < 1e-3 for x, a in enumerate(layer["gate"]))
        total = sum(mine)
        entropy = -sum(u / total * math.log2(u / total) for u in mine if u)
        assert layer["unused"] == [x for x, u in enumerate(mine) if not u]
        assert layer["used_experts"] == sum(u > 0 for u in mine) and layer["busiest"] == mine.index(max(mine))
        assert abs(layer["busiest_over_mean"] - max(mine) * EXPERTS / total) < 1e-5
        assert abs(layer["effective_experts"] - 2 ** entropy) < 1e-4
        assert abs(layer["hottest_fifth_share"] - sum(sorted(mine)[-13:]) / total) < 1e-5
        for n in (2, 3, 4):
            runs = [[set(r[2]) for r in w if r[1] == layer["layer"] and r[0] >= FIRST] for w in WINDOWS]
            distinct = [len(set().union(*run[i:i + n])) for run in runs for i in range(len(run) - n + 1)]
            assert abs(layer["distinct_rows"][str(n)] - sum(distinct) / len(distinct) / USED) < 1e-5
    check_pairs(got, rows, uses)


def check_pairs(got, rows, uses):
    together = collections.Counter()
    for a, b in zip(rows, rows[1:]):
        if a[1] < b[1] and a[0] >= FIRST:
            together.update((a[1], x, b[1], y) for x in a[2] for y in b[2])
    chance = {k: uses[k[0], k[1]] * uses[k[2], k[3]] / got["counted_tokens"] for k in together}
    best = sorted(together, key=lambda k: (chance[k] - together[k], k))[:7]
    assert len(got["pairs"]) == 7
    for p, k in zip(got["pairs"], best):
        assert (p["layers"], p["experts"], p["count"]) == ([k[0], k[2]], [k[1], k[3]], together[k]) and abs(p["expected"] - chance[k]) < 1e-5


def test_heat_map_has_a_mark_for_every_expert():
    text = cases.sluice("trace", "report", TRACE, "--experts", 80, "--top", 1).stdout.decode()
    maps = [line.split("|")[1] for line in text.splitlines() if line.endswith("|")]
    assert [len(m) for m in maps] == [64, 16] * CYCLE
    assert all(m == " " * 16 for m in maps[1::2]) and all(m.strip() for m in maps[0::2])


def test_experts_never_used_are_listed():
    report = ("trace", "report", TRACE, "--experts", 80, "--top", 1)
    layers = {x["layer"]: x["unused"] for x in cases.sluice_json(*report, "--json")["layers"]}
    lines = cases.sluice(*report).stdout.decode().split("experts that were never used\n")[1].splitlines()
    for (layer, unused), line in zip(sorted(layers.items()), lines):
        more = " ..." if len(unused) > 16 else ""
        assert unused and line == f"{layer:5} {len(unused):5}: " + " ".join(map(str, unused[:16])) + more, line
    assert lines[len(layers)].split() == ["all", str(sum(map(len, layers.values()))), "of", str(80 * CYCLE)]


def test_plot_has_a_line_per_policy_through_its_points():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "hits.svg")
        results = simulate("--cache", "90,30,50%", "--plot", path)["results"]
        root = xml.etree.ElementTree.parse(path).getroot()
        lines = [x.attrib for x in root if x.tag.endswith("polyline")]
        names = [r["policy"] for r in results if r["slots"] == 30]
        assert len(lines) == len(names) == 7
        for name, line in zip(names, lines):
            mine = sorted((r["share"], r["hit_ratio"]) for r in results if r["policy"] == name)
            points = [tuple(map(float, p.split(","))) for p in line["points"].split()]
            assert len(points) == 3 and all(abs(x - 60 - 400 * a) < 0.06 and abs(y - 20 - 400 * (1 - b)) < 0.06 for (x, y), (a, b) in zip(points, mine)), (name, points, mine)
            assert ("stroke-dasharray" in line) == (name in ("exact-ahead", "min"))
        refused(TRACE, "no/hits.svg", flags=["--plot", os.path.join(d, "no", "hits.svg")])


BAD = [
    ("", "no rows"),
    (HEAD + "\n", "no rows"),
    ("window,position,layer,ids\n", "line 1:"),
    (HEAD + ",extra\n", "line 1:"),
    (HEAD + "\n0,0,1,1 2\n", "line 2: 4 fields, expected 5"),
    (HEAD + "\n0,0,1,1 2,1 1,3\n", "line 2: 6 fields, expected 5"),
    (HEAD + "\nx,0,1,1 2,1 1\n", 'line 2, column window: "x"'),
    (HEAD + "\n0,-1,1,1 2,1 1\n", 'line 2, column position: "-1"'),
    (HEAD + "\n0,0,1024,1 2,1 1\n", 'line 2, column layer: "1024", expected a number from 0 to 1023'),
    (HEAD + "\n0,0,1,1 4096,1 1\n", 'line 2, column ids: "4096", expected a number from 0 to 4095'),
    (HEAD + "\n0,0,1,2 2,1 1\n", 'line 2, column ids: "2", expected each expert once'),
    (HEAD + "\n0,0,1,,\n", "line 2, column ids: 0 experts"),
    (HEAD + "\n0,0,1,1 2,1\n", "line 2, column weights: 1 numbers for 2 experts"),
    (HEAD + "\n0,0,1,1 2,1 nan\n", 'line 2, column weights: "nan"'),
    (HEAD + "\n0,0,1,1 2,1 -1\n", 'line 2, column weights: "-1"'),
    (HEAD + "\n0,0,1,1 2,1 1\n0,1,1,1,1\n", "line 3, column ids: 1 experts, expected 2"),
    (HEAD + "\n0,0,2,1,1\n0,0,1,1,1\n", "line 3, column layer: 1 after 2"),
    (HEAD + "\n0,0,1,1,1\n0,0,2,1,1\n0,1,2,1,1\n", "line 4, column layer: 2"),
    (HEAD + "\n0,0,1,1,1\n0,1,1,1,1\n0,1,2,1,1\n", "line 4, column layer: 2, expected the next position"),
    (HEAD + "\n0,0,1,1,1\n0,0,2,1,1\n0,1,1,1,1\n0,2,1,1,1\n", "line 5: position 1 of window 0 ends before layer 2"),
    (HEAD + "\n0,0,1,1,1\n0,0,2,1,1\n0,1,1,1,1\n", "line 4: the file ends before layer 2"),
    (HEAD + "\n0,1,1,1,1\n0,0,1,1,1\n", "line 3, column position: 0 after 1"),
    (HEAD + "\n1,0,1,1,1\n0,0,1,1,1\n", "line 3, column window: 0 after 1"),
    (HEAD + ",shadow_ids\n0,0,1,1,1,5 5\n", 'line 2, column shadow_ids: "5"'),
    (HEAD + "\n0,0,1,1\0,1\n", "line 2 holds a zero byte"),
    (HEAD + "\n0,0,1," + "1 " * 40000 + ",1\n", "line 2 holds a zero byte or more than"),
]


def refused(path, part, status=1, verb="simulate", flags=()):
    run = cases.sluice("trace", verb, path, *flags, status=status)
    text = run.stderr.decode()
    assert run.stdout == b"" and text.count("\n") == 1 and part in text and text.startswith("sluice trace: "), (part, text)
    return text


def test_bad_files_are_named_with_line_and_column():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "bad.csv")
        for text, part in BAD:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            for verb in ("simulate", "report"):
                assert path in refused(path, part, verb=verb), text
        refused(os.path.join(d, "absent.csv"), "absent.csv: No such file")
        refused(d, d)


def test_damaged_gzip_is_refused():
    with open(TRACE, "rb") as f:
        data = f.read()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "t.csv.gz")
        for text in (data[: len(data) // 2], data[:-4], data[:3000] + bytes(100) + data[3100:]):
            with open(path, "wb") as f:
                f.write(text)
            assert path in refused(path, "")
        whole = io.BytesIO()
        with gzip.GzipFile(fileobj=whole, mode="wb") as f:
            f.write((HEAD + "\n0,0,1,3,1\n0,0,1,4,1\n").encode())
        with open(path, "wb") as f:
            f.write(whole.getvalue())
        refused(path, "line 3, column layer: 1 after 1")


def test_wrong_use():
    for flags, part in ((["--cache", "1,x"], "--cache 1,x"), (["--cache", "321"], "slots from 0 to 320"), (["--cache", "101%"], "101%"),
                        (["--cache", "1,,2"], "--cache"), (["--cache", ""], "--cache"), (["--policy", "best"], "no such policy"),
                        (["--experts", "10"], "the trace has expert 63"), (["--experts", "0"], "--experts 0"),
                        (["--first-position", "96"], "the last position is 95"), (["--half-life", "-1"], "--half-life -1"),
                        (["--top", "3"], "unknown flag --top"), (["--json", "--cache"], "--cache needs a value"), (["again"], "two traces")):
        refused(TRACE, part, 2, flags=flags)
    refused(TRACE, "unknown flag --cache", 2, "report", ["--cache", "3"])
    for args, part in (([], b"simulate, report, record, play, fit or predict?"), (["simulate"], b"no trace given"), (["fit", "x"], b"unexpected argument x"), (["x"], b"expected simulate")):
        assert part in cases.sluice("trace", *args, status=2).stderr
    for args in (["--help"], ["simulate", "--help"], ["report", "-h"]):
        text = cases.sluice("trace", *args).stdout
        assert b"examples:" in text and b"odds-ahead" in text
    assert b"SLUICE_THREADS" in cases.sluice("trace", "report", TRACE, status=2, env={"SLUICE_THREAD": "1"}).stderr


if __name__ == "__main__":
    cases.main(globals())
