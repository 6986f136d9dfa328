#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: quick
"""sluice trace record --events and trace play: what the store of experts was told and what came, played through the store itself, gives
the engine's counters, with reads ahead too; on a clock of its own the figures are those of a drive one can reckon."""
import functools
import gzip
import json
import os
import random
import resource
import subprocess
import tempfile

import cases

ENDS = ["useful", "late", "wasted", "cancelled"]
LEADS = ["token", "start", "layer", "chunk"]
EXACT = ["expert.ram.hits", "expert.ram.bytes", "expert.ram.misses", "expert.nvme.hits", "expert.nvme.bytes", "expert.ram.admitted"]
EXACT += [f"prefetch.{lead}{end}{unit}" for lead in ("", *(x + "." for x in LEADS)) for end in ("begun", *ENDS) for unit in ("", "_bytes")]
EXPERT, SCALES = 3 * 64 * 256, 3 * 2 * 4  # bytes of the demo model
FOLDER = tempfile.TemporaryDirectory(prefix="sluice-test-")


@functools.lru_cache
def record(prefetch, *flags, tokens=24, step=True, experts="25%", mtp=("--mtp", "off")):
    """An event file of two texts, plain, and the counters."""
    number = len(os.listdir(FOLDER.name))
    texts, path = (os.path.join(FOLDER.name, f"{number}{end}") for end in (".json", ".events"))
    dice = random.Random(7)
    with open(texts, "w", encoding="ascii") as f:
        json.dump([[dice.randrange(10, 400) for _ in range(n)] for n in (tokens, tokens // 3)], f)
    cases.sluice("trace", "record", "-m", cases.DEMO, "--tokens-file", texts, "-o", path + ".csv", *mtp, "--expert-ram", experts, "--prefetch", prefetch, "--events", path,
                 *(["--step"] if step else []), *flags)
    with open(path, encoding="ascii") as f:
        return path, [int(line.split()[1]) for line in f if line.startswith("counted")]


def play(path, *flags):
    return cases.sluice_json("trace", "play", path, "--json", *flags)


def check_ends(counted):
    """Each read that was begun has one end, or is under way; leads add up."""
    for unit, each in (("", 1), ("_bytes", EXPERT + SCALES)):
        for end in ("begun", *ENDS):
            assert counted[f"prefetch.{end}{unit}"] == sum(counted[f"prefetch.{lead}.{end}{unit}"] for lead in LEADS), (end, counted)
        for lead in LEADS:
            under_way = counted[f"prefetch.{lead}.begun{unit}"] - sum(counted[f"prefetch.{lead}.{end}{unit}"] for end in ENDS)
            assert 0 <= under_way <= 64 * each and under_way % each == 0, (lead, counted)


def test_every_counter_is_the_engines():
    seen = {name: 0 for name in EXACT}
    for args, step, experts in ((("off",), True, "25%"), (("on",), True, "25%"), (("on",), True, "0"), (("auto", "--io", "pread", "--io-limit", "50M"), True, "10%"), (("on",), False, "1x"),
                                (("on", "-ub", "8"), False, "50%")):
        path, counted = record(*args, step=step, experts=experts)
        got = play(path)
        assert got["same"] and got["tokens"] == 24 + 8, got
        assert list(got["played"]) == EXACT and list(got["played"].values()) == counted[:len(EXACT)] == list(got["counted"].values())[:len(EXACT)], (args, got, counted)
        check_ends(got["played"])
        assert counted[0] + counted[2] > 0 and counted[4] == counted[2] * (EXPERT + SCALES), counted
        for name in EXACT:
            seen[name] += got["played"][name]
    assert all(seen[name] for name in EXACT[:14] + [f"prefetch.{lead}.begun" for lead in LEADS[1:]]), seen


def test_what_was_expected_is_played():
    """Of a shadow row it is known what the next token uses: that decides who stays, and is part of the file."""
    path, counted = record("on", tokens=48, experts="10%", mtp=("--shadow",))
    with open(path, encoding="ascii") as f:
        lines = f.read().splitlines()
    expected = [line for line in lines if line.startswith("expect ")]
    assert len(expected) > 100 and all(len(line.split()) == 5 + 64 for line in expected), len(expected)
    got = play(path)
    assert got["same"] and list(got["played"].values()) == counted[:len(EXACT)], (got, counted)
    (clocked,) = play(path, "--prefetch", "on")["results"]
    played = clocked["counted"]
    assert played["expert.ram.hits"] + played["expert.ram.misses"] == counted[0] + counted[2] and abs(played["expert.ram.admitted"] / counted[5] - 1) < 0.02, (clocked, counted)


def test_text_shows_the_same():
    path, counted = record("on")
    text = cases.sluice("trace", "play", path, "--drive", "20M").stdout.decode().splitlines()
    shown = {line.split()[0]: line.split()[1:] for line in text if line.startswith(("expert.", "prefetch."))}
    assert shown == {name: [str(n)] * 2 for i, (name, n) in enumerate(zip(EXACT, counted)) if i < 16 or n > 0}, text
    assert [line.split()[4] for line in text if "%)" in line] == ["off", "on", "auto"], text


def test_a_counter_that_differs_is_told():
    path, _ = record("on")
    with open(path, encoding="ascii") as f:
        text = f.read()
    changed = os.path.join(FOLDER.name, "changed.events.gz")
    for was, becomes, part in (("counted ", "counted 1", b"counters are not the engine's"), ("\nrelease ", "\nend ", b"line "), ("\nhint ", "\nbegin ", b"line ")):
        with gzip.open(changed, "wt") as f:
            f.write(text.replace(was, becomes, 1))
        run = cases.sluice("trace", "play", changed, status=1)
        assert part in run.stderr and run.stderr.count(b"\n") == 1, run.stderr
    lines = text.splitlines(keepends=True)
    dropped = next(i for i, line in enumerate(lines) if line.startswith("come ") and i > 200)
    with gzip.open(changed, "wt") as f:
        f.write("".join(lines[:dropped] + lines[dropped + 1:]))
    run = cases.sluice("trace", "play", changed, status=1)
    assert b"the store does something else than the engine's did" in run.stderr, run.stderr


def test_clock():
    """Where no expert stays each use is one read, and one after the other: seconds are bytes over the rate, and what is computed."""
    path, _ = record("off", experts="0")
    visits, uses = 32 * 5, 32 * 5 * 6
    for rate in (1 << 20, 1 << 26):
        (got,) = play(path, "--prefetch", "off", "--drive", rate, "--compute", "0,1000,0")["results"]
        assert got["counted"]["expert.ram.misses"] == uses and got["counted"]["expert.nvme.drive_bytes"] == uses * EXPERT
        want = uses * EXPERT / rate + visits * 1e-3
        assert abs(got["seconds"] / want - 1) < 1e-3 and abs(got["waiting_s"] / (uses * EXPERT / rate) - 1) < 1e-3, (got, want)
    (got,) = play(path, "--prefetch", "off", "--drive", "1T", "--compute", "500,1000,0")["results"]
    assert abs(got["seconds"] / (uses * 500e-6 + visits * 1e-3) - 1) < 1e-3, got
    (late,) = play(path, "--prefetch", "off", "--drive", "1T,2000", "--compute", "500,1000,0")["results"]
    assert abs(late["waiting_s"] - visits * 2e-3) < 1e-3 * late["seconds"], late
    (limit,) = play(path, "--prefetch", "off", "--io-limit", "1M", "--compute", "0,0,0")["results"]
    assert abs(limit["seconds"] / (uses * EXPERT / (1 << 20)) - 1) < 0.01, limit
    again = [play(path, "--drive", "9M", "--compute", "50,100,10")["results"] for _ in range(2)]
    assert again[0] == again[1]


def test_hits_are_the_engines_where_nothing_is_read_ahead():
    """Without hints what stays does not depend on when it came."""
    path, counted = record("off")
    (got,) = play(path, "--prefetch", "off")["results"]
    assert list(got["counted"].values())[:len(EXACT)] == counted[:len(EXACT)]
    for cache in (10, 32, 200):
        _, counted = record("off", experts=f"{cache}x")
        (got,) = play(path, "--cache", cache, "--prefetch", "off")["results"]
        assert list(got["counted"].values())[:6] == counted[:6], (cache, got, counted)


def test_hints_between_leases():
    """Those that are given before a layer begins are played, too; empty ones change nothing, and cost their asking."""
    path, counted = record("on")
    between = os.path.join(FOLDER.name, "between.events")
    with open(path, encoding="ascii") as f, open(between, "w", encoding="ascii") as out:
        for line in f:
            out.write(line)
            if line.startswith("end "):
                out.write(f"come\nhint {sum(map(int, line.split()[1:3]))} 0\n")
    flags = ("--drive", "20M", "--compute", "100,800,50")
    (plain,), (got,) = (play(x, "--prefetch", "on", *flags)["results"] for x in (path, between))
    assert play(between)["same"] and list(play(between)["played"].values()) == counted[:len(EXACT)]
    assert 0 < got["seconds"] - got["waiting_s"] - plain["seconds"] + plain["waiting_s"] - 32 * 5 * 50e-6 + 1e-6 < 2e-6, (plain, got)
    (plain,), (got,) = (play(x, "--prefetch", "off", *flags)["results"] for x in (path, between))
    assert plain == got


def test_sweep():
    path, _ = record("on")
    got = play(path, "--cache", "10%,25%,60%", "--drive", "100M", "--compute", "100,800,0")["results"]
    assert [(r["cached"], r["prefetch"]) for r in got] == [(n, p) for n in (32, 80, 192) for p in ("off", "on", "auto")]
    rates = {(r["cached"], r["prefetch"]): r["tokens_s"] for r in got}
    assert rates[32, "off"] < rates[80, "off"] < rates[192, "off"] and rates[32, "on"] > rates[32, "off"], rates
    assert all(rates[n, "auto"] > 0.99 * min(rates[n, "off"], rates[n, "on"]) for n in (32, 80, 192)), rates
    stages = play(path)["stages"]
    assert [s["layer"] for s in stages] == [1, 2, 3, 4, 5] and all(s["visits"] == 32 and 0 <= s[k]["p50"] <= s[k]["p99"] for s in stages for k in s if k.endswith("_us")), stages


def test_auto_costs_no_more_than_a_hundredth():
    """Where hints lose and where they win, bound by the drive and by arithmetic."""
    path, _ = record("on", "-c", "1024", tokens=900)
    wins = 0
    for drive, compute in (("1M", "100,800,0"), ("10M", "100,800,0"), ("30M", "100,800,0"), ("100M", "100,800,50"), ("1G", "100,800,50")):
        off, on, auto = (r["tokens_s"] for r in play(path, "--drive", drive, "--compute", compute)["results"])
        assert auto > 0.99 * off and auto > 0.97 * on, (drive, off, on, auto)
        wins += on > 1.02 * off
    assert wins > 0


def test_pauses_are_no_part_of_tokens():
    """A user who thinks between two tokens: what auto measures, and so what it does, is the same."""
    path, _ = record("on", "-c", "1024", tokens=300)
    paused = os.path.join(FOLDER.name, "paused.events")
    dice, pause, ended = random.Random(3), 0, False
    with open(path, encoding="ascii") as f, open(paused, "w", encoding="ascii") as out:
        for line in f:
            words = line.split()
            if words[0] in ("begin", "hint", "next", "release", "end"):
                if words[0] in ("begin", "hint") and ended:
                    pause += dice.choice((0, 0, 0, 3)) * 10**9
                ended = words[0] == "end" and layer == "5"
                layer = words[4] if words[0] == "begin" else layer if words[0] != "end" else None
                words[1] = str(int(words[1]) + pause)
            out.write(" ".join(words) + "\n")
    flags = ("--prefetch", "auto", "--drive", "100M", "--compute", "100")
    (plain,), (got,) = (play(x, *flags)["results"] for x in (path, paused))
    named = [r["counted"]["prefetch.begun"] for r in (plain, got)]
    assert abs(got["seconds"] - plain["seconds"] - pause * 1e-9) < 0.02 * plain["seconds"] and 0.95 < named[0] / named[1] < 1.05, (plain, got, pause)


BAD = [
    ("", "the file ends early"),
    ("sluice-events 1\n", 'line 1: "sluice-events 1"'),
    ("window,position\n", "line 1"),
    ("sluice-events 2\nbegin 0 0 0 1 0 1 1\n", "line 2: begin, expected the store first"),
    ("sluice-events 2\nstore 1 2\n", "line 2: store, expected one such line of 12 numbers"),
    ("sluice-events 2\nstore 1 x\n", "line 2: x, expected a number"),
    ("sluice-events 2\nstore 18446744073709551615 1 1 1 64 6 80 12 341 32 1048576 0\n", "line 2: a shape"),
    ("sluice-events 2\nstore 6 0 1 1 64 6 80 0 341 32 1048576 0\n", "line 2: slots"),
    ("sluice-events 2\nstore 6 0 1 1 64 6 80 12 341 0 1048576 0\n", "line 2: a reader"),
]
COUNTED = "counted 0\n" * (len(EXACT) + 3)
HEAD = "sluice-events 2\nstore 2 0 1 1 4 2 1 4 341 32 1048576 0\nlayer 1 64 0 64 0 64 0\n"
BAD += [(HEAD + text.rstrip("\n") + "\n", part) for text, part in (
    ("layer 1 64 0 64 0 64 0", "line 4: layer, expected each layer once"),
    ("begin 0 0 0 0 0 1 1", "line 4: begin, expected rising experts of a layer that has some"),
    ("begin 0 0 0 1 0 2 1 1 1", "line 4: begin, expected rising"),
    ("begin 0 0 16 1 0 2 1", "line 4: begin, expected time, duration, lease"),
    ("hint 0 0 1 4 1 0 0", "line 4: hint, expected experts"),
    ("hint 0 0 1 3 1 0", "line 4: hint, expected time"),
    ("hint 0 0 1 3 1 0 4", "line 4: hint, expected experts of a layer that has some, with a chance and a lead"),
    ("hint 0 0 1 3 1 1065353217 0", "line 4: hint, expected experts of a layer that has some, with a chance and a lead"),
    ("expect 0 0 1 2 0 0 255", "line 4: expect, expected time, duration, a layer"),
    ("expect 0 0 1 2 0 0 255 256", "line 4: expect, expected time, duration, a layer"),
    ("expect 0 0 0 2 0 0 255 1", "line 4: expect, expected time, duration, a layer"),
    ("come 1 4 0", "line 4: come, expected experts"),
    ("next 0 0 0 2 3", "line 4: a call"),
    ("jump 1", "line 4: jump, expected begin"),
    ("end 9 1 0\nend 8 1 0", "line 5: a time"),
    ("end 0 0 0", "line 4: the file ends early"),
    ("end 0 0 0\n" + COUNTED + "end 1 0 0", "line 64: end, expected"),
    ("end 0 0 0\n" + COUNTED + "counted 0\n", "line 64: counted"),
    ("come\nhint 0 0\n" + COUNTED, "no token came to the first layer with experts: there is nothing to play"),
    ("end 0 0 0\nbegin 1 0 0 1 0 2 1\n" + COUNTED, "call 1: the store does something else"),
    ("begin 0 0 0 1 0 2 1\n" + COUNTED, "call 1: the store does something else"),
    ("come\nbegin 0 0 0 1 0 2 1\nnext 0 0 0 4 1\n" + COUNTED, "call 2: the store does something else"),
    ("come\nbegin 0 0 0 1 0 2 1\nrelease 0 0 0 1\n" + COUNTED, "call 2: the store does something else"),
)]

LARGE = "".join(f"layer {layer} 64 0 64 0 64 0\n" for layer in range(33))
BAD += [(f"sluice-events 2\nstore 33 0 1 1 4096 2 {cached} {staging} 341 32 1048576 0\n{LARGE}begin 0 0 0 0 0 2 1\n{COUNTED}", part) for cached, staging, part in (
    (1, 4, f"{33 * 4096} experts in all layers, expected at most 131072"), (131073, 4, "line 2: slots"), (1, 131073, "line 2: slots"))]
ONLY_MTP = "sluice-events 2\nstore 1 1 1 1 4 2 1 4 341 32 1048576 0\nlayer 1 64 0 64 0 64 0\ncome\nbegin 0 0 0 1 0 2 1\n"
BAD.append((ONLY_MTP + COUNTED, "no token came to the first layer with experts"))


def test_tables_are_bounded():
    """The largest model that a file may name: five times what is known, and yet little memory; addresses of experts have none behind them."""
    path = os.path.join(FOLDER.name, "large.events")
    layers = "".join(f"layer {layer} 64 0 64 0 64 0\n" for layer in range(32))
    with open(path, "w", encoding="ascii") as f:
        f.write(f"sluice-events 2\nstore 32 0 0 1 4096 2 131071 131072 341 32 1048576 0\n{layers}begin 0 0 0 0 0 2 1\nend 1 0 0\n{COUNTED}")
    limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (256 << 20, 256 << 20))
    run = subprocess.run([cases.BINARY, "trace", "play", path], capture_output=True, preexec_fn=limit, check=False)
    assert run.returncode == 1 and b"call 1: the store does something else" in run.stderr, run.stderr


def test_bad_files_are_named_with_their_line():
    path = os.path.join(FOLDER.name, "bad.events")
    for text, part in BAD:
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        run = cases.sluice("trace", "play", path, status=1)
        assert run.stdout == b"" and run.stderr.count(b"\n") == 1 and part in run.stderr.decode(), (text, run.stderr)
    cases.sluice("trace", "play", os.path.join(FOLDER.name, "absent"), status=1)
    with open(path, "wb") as f:
        f.write(gzip.compress(HEAD.encode())[:-9])
    assert b"bad.events" in cases.sluice("trace", "play", path, status=1).stderr


def test_wrong_use():
    path, _ = record("on")
    for flags, part in ((["--drive", "0"], "--drive 0"), (["--drive", "1G,x"], "--drive 1G,x"), (["--prefetch", "ghost"], "--prefetch ghost"), (["--io-limit", "0"], "--io-limit 0"),
                        (["--cache", "320"], "320 experts are all"), (["--cache", "321"], "slots from 0 to 320"), (["--drive", "1G", "--compute", "1,2"], "--compute 1,2"),
                        (["--drive", "1G", "--compute", "-1"], "--compute -1"), (["--top", "1"], "unknown flag --top"), (["--drive"], "--drive needs a value"), ([path], "two event files")):
        run = cases.sluice("trace", "play", path, *flags, status=2)
        assert run.stdout == b"" and part in run.stderr.decode(), (flags, run.stderr)
    assert b"no event file" in cases.sluice("trace", "play", status=2).stderr
    texts = os.path.join(FOLDER.name, "texts.json")
    with open(texts, "w", encoding="ascii") as f:
        f.write("[1, 2]")
    recording = ("trace", "record", "-m", cases.DEMO, "--tokens-file", texts, "-o", texts + ".csv", "--events")
    heat = os.path.join(FOLDER.name, "heat")
    for flags, status, part in (([texts + ".events"], 2, b"all experts are in RAM"), ([texts + ".events", "--expert-ram", "0", "--heat", heat], 2, b"leave --heat out"),
                                ([os.path.join(FOLDER.name, "no", "x"), "--expert-ram", "0"], 1, b"no/x.tmp")):
        run = cases.sluice(*recording, *flags, status=status)
        assert part in run.stderr and not os.path.exists(texts + ".events") and not os.path.exists(texts + ".events.tmp"), run.stderr


if __name__ == "__main__":
    cases.main(globals())
