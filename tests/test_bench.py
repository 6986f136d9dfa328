#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""sluice bench and doctor from outside: fields, refusals, interruption. No figure is judged, only how figures hang together."""
import csv
import io
import json
import math
import os
import signal
import statistics
import subprocess
import tempfile
import time

import cases
from cases import DEMO, sluice, sluice_json

KEYS = {"test", "prompt_n", "prompt_s", "decode_n", "decode_s", "prompt_tok_s", "decode_tok_s", "bytes_per_token", "read_gb_s", "ceiling_gb_s",
        "ceiling_share", "cache", "draft", "steps_down"}
QUICK = ("-r", "2", "--quiet")


def refused(status, part, *args):
    run = sluice(*args, status=status)
    assert run.stdout == b"" and part in run.stderr.decode(), (part, run.stderr)


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-6)


def test_drafts_are_made_when_asked_for():
    def drafts(*mtp):
        rows = sluice_json("bench", "-m", DEMO, "-p", "0", "-n", "32", "--rows", "1,2", "-d", "0,70", *QUICK, "--json", *mtp)
        return [r["draft"] for r in rows]

    assert drafts() == [{"drafted": 0, "accepted": 0}] * 4
    for d in drafts("--mtp", "2"):
        assert 0 < d["accepted"] < d["drafted"], d


def assert_beside_ceilings(r):
    """Each repeat beside its own ceiling: the shares are medians of what the repeats have of theirs."""
    ceiling, beside = r["ceiling"], r["ceiling"]["repeats_gb_s"]
    assert ceiling["samples"] == len(beside) + 1 == len(r["tok_s"]["samples"]) + 1
    assert 0 < ceiling["worst_gb_s"] <= min(beside) and near(max(beside), ceiling["best_gb_s"])
    assert near(r["ceiling_gb_s"], statistics.median(beside))
    assert near(r["ceiling_share"], statistics.median(r["bytes_per_token"]["ram"] * speed / 1e9 / c for speed, c in zip(r["tok_s"]["samples"], beside)))
    assert r["roof_tok_s"] > 0 and r["roof_share"] >= r["ceiling_share"] * (1 - 1e-6)  # a roof is at most what memory allows


def test_rows_have_the_agreed_fields():
    rows = sluice_json("bench", "-m", DEMO, "-p", "32,0", "-n", "16", "--rows", "1,2", "-d", "0,8", *QUICK, "--json")
    assert [r["test"] for r in rows] == ["pp32", "tg16", "tg16 x2", "pp32 @ 8", "tg16 @ 8", "tg16 x2 @ 8"]
    for r in rows:
        assert KEYS <= set(r), KEYS - set(r)
        assert set(r["bytes_per_token"]) == {"vram", "ram", "nvme"}
        assert set(r["cache"]) == {"vram", "ram", "nvme"}
        tokens = r["prompt_n"] or r["decode_n"] * r["rows"]
        seconds = r["prompt_s"] if r["prompt_n"] else r["decode_s"]
        speed = r["prompt_tok_s"] if r["prompt_n"] else r["decode_tok_s"]
        samples = sorted(r["tok_s"]["samples"])
        assert len(samples) == 2 and near(r["tok_s"]["min"], samples[0]) and near(r["tok_s"]["max"], samples[1])
        assert near(speed, sum(samples) / 2) and near(speed, r["tok_s"]["median"])
        assert seconds > 0 and samples[0] <= tokens / seconds <= samples[1]
        assert near(r["read_gb_s"], r["bytes_per_token"]["ram"] * speed / 1e9)
        assert_beside_ceilings(r)
        assert r["cold"] is (r["bytes_per_token"]["nvme"] >= 1) and 0 < r["resident_share"] <= 1
        assert all(set(s) == {"what", "why"} for s in r["steps_down"])
    one = next(r for r in rows if r["test"] == "tg16")
    two = next(r for r in rows if r["test"] == "tg16 x2")
    assert one["window"] == 4 and one["first_tok_s"] > 0 and one["last_tok_s"] > 0
    # two timelines share the dense weights, and experts that both chose
    assert one["bytes_per_token"]["ram"] > two["bytes_per_token"]["ram"] > one["bytes_per_token"]["ram"] / 2


def test_bytes_are_those_of_the_plan():
    plan = sluice_json("plan", "-m", DEMO, "--json")["bytes_per_token"]
    row = sluice_json("bench", "-m", DEMO, "-p", "0", "-n", "2", "-r", "1", "--quiet", "--json")[0]
    latents = 2 * sluice_json("plan", "-m", DEMO, "--json")["kv_bytes_per_token"]
    assert abs(row["bytes_per_token"]["ram"] - latents - plan) < 0.01 * plan, (row["bytes_per_token"], plan)


def test_latents_are_those_of_the_main_layers():
    start, far = sluice_json("bench", "-m", DEMO, "-p", "0", "-n", "2", "-d", "0,64", "-r", "1", "--quiet", "--json")
    kv = {mtp: sluice_json("plan", "-m", DEMO, "--mtp", mtp, "--json")["kv_bytes_per_token"] for mtp in ("auto", "off")}
    assert kv["off"] < kv["auto"]  # the MTP layer keeps latents that plain decoding does not read
    assert far["bytes_per_token"]["ram"] - start["bytes_per_token"]["ram"] == 64 * kv["off"]


def test_threads_of_a_list():
    rows = sluice_json("bench", "-m", DEMO, "-p", "0", "-n", "2", "-t", "0,1,0", "-r", "1", "--quiet", "--json")
    assert rows[1]["threads"] == 1 and rows[2]["threads"] == rows[0]["threads"], [r["threads"] for r in rows]


def test_table_and_csv():
    text = sluice("bench", "-m", DEMO, "-p", "16", "-n", "8", *QUICK).stdout.decode()
    assert text.startswith("machine: ") and "\nmodel:   deepseek_v3, 6 layers" in text
    lines = [x for x in text.split("\n") if x.startswith("|")]
    assert len({len(x) for x in lines}) == 1 and len(lines) == 4, lines
    assert "pp16" in lines[2] and "tg8" in lines[3]
    table = list(csv.DictReader(io.StringIO(sluice("bench", "-m", DEMO, "-p", "16", "-n", "8", "-t", "1,2", *QUICK, "--csv").stdout.decode())))
    assert [(r["test"], r["threads"]) for r in table] == [("pp16", "1"), ("tg8", "1"), ("pp16", "2"), ("tg8", "2")]
    assert all(float(r["tok_s"]) > 0 and r["machine"] and r["model"] for r in table)


def test_kernels():
    rows = sluice_json("bench", "--kernels", "--type", "q8_0,bf16", "-r", "1", "--quiet", "--json")
    for op, kind in (("matvec", "q8_0"), ("matvec", "bf16"), ("bulk", "q8_0"), ("dequantise", "bf16"), ("attention", "f16"), ("quantise", "32")):
        found = [r for r in rows if r["op"] == op and r["type"] == kind]
        assert found, (op, kind)
        assert all(r["isa"] in ("scalar", "avx2", "avx512") and r["gb_s"] > 0 for r in found)
    assert not [r for r in rows if r["type"] == "q4_k"]
    assert {r["n"] for r in rows if r["op"] == "matvec"} == {1, 2, 4, 8}
    memory = [r for r in rows if r["from"] == "memory"]
    assert memory and all(r["ceiling_share"] > 0 for r in memory)
    assert all(r["ceiling_share"] is None for r in rows if r["from"] == "cache")


def test_wrong_usage():
    refused(2, "no model given", "bench")
    refused(2, "-p 1,x", "bench", "-m", DEMO, "-p", "1,x")
    refused(2, "-r 0", "bench", "-m", DEMO, "-r", "0")
    refused(2, "--rows", "bench", "-m", DEMO, "--rows", "0")
    refused(2, "nothing to do", "bench", "-m", DEMO, "-p", "0", "-n", "0")
    refused(2, "-c 8", "bench", "-m", DEMO, "-p", "32", "-c", "8")
    refused(2, "--json and --csv", "bench", "-m", DEMO, "--json", "--csv")
    refused(2, "--kernels", "bench", "-m", DEMO, "--type", "q4_k")
    refused(2, "q9_9", "bench", "--kernels", "--type", "q9_9")
    refused(2, "--isa", "bench", "--kernels", "--isa", "avx1024")
    refused(2, "needs no model", "bench", "--kernels", "-m", DEMO)
    for flag, value in (("-p", "5"), ("-n", "5"), ("-d", "5"), ("--rows", "3"), ("-t", "2,4")):
        refused(2, f"--kernels {flag} {value}", "bench", "--kernels", flag, value)
    refused(2, "--machine", "bench", "-m", DEMO, "--machine", "x.json")
    refused(2, "--frobnicate", "bench", "--frobnicate")
    refused(3, "does not fit", "bench", "-m", DEMO, "--ram", "1M")
    refused(1, "/nonexistent", "bench", "-m", "/nonexistent")
    refused(2, "--frobnicate", "doctor", "--frobnicate")


def test_interrupted_in_every_phase():
    for args in (["bench", "-m", DEMO, "-p", "0", "-n", "4000"], ["bench", "-m", DEMO, "-p", "4000", "-n", "0"], ["bench", "--kernels"]):
        for delay in (0.05, 0.5, 2.0):
            p = subprocess.Popen([cases.BINARY, *args, "-r", "20"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            cases.wait_until_caught(p.pid, signal.SIGINT)
            time.sleep(delay)
            p.send_signal(signal.SIGINT)
            try:
                out, err = p.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                p.kill()
                raise
            assert p.returncode == 130, (args, delay, p.returncode, err[-300:])
            assert out == b""


def test_replay():
    """What misses is read, and counted as the simulator counts it."""
    trace = os.path.join(cases.ROOT, "tests", "data", "trace", "demo.csv.gz")
    rows = sluice_json("bench", "--replay", trace, "-m", DEMO, "-n", "6", "--cache", "20,25%", "--json")
    assert [(r["policy"], r["slots"]) for r in rows] == [("no cache", 0)] + [(p, s) for s in (20, 80) for p in ("lru", "lfu", "odds", "lfu-ahead", "odds-ahead", "min")]
    expert = 3 * 64 * 256 + 3 * 2 * 4  # codes, and 128 x 128 scales as float32
    for r in rows:
        assert r["tokens"] == 6 and r["uses"] == 6 * 5 * 6 and r["bytes"] == (r["uses"] - r["hits"]) * expert and r["seconds"] > 0, r
    for flags, word in ((("--csv",), b"--csv"), (("--kernels",), b"--kernels"), (("--cache", "101%"), b"--cache"), (("-n", "0"), b"-n 0"), (("-n", "5,6"), b"-n 5,6"),
                        (("-p", "8"), b"-p")):
        assert word in sluice("bench", "--replay", trace, "-m", DEMO, *flags, status=2).stderr
    assert b"--replay" in sluice("bench", "-m", DEMO, "--cache", "10%", status=2).stderr


def test_doctor():
    found = sluice_json("doctor", "-m", DEMO, "--no-rates", "--json")
    topics = {f["topic"] for f in found["findings"]}
    assert {"processor", "kernels", "threads", "memory", "node", "huge pages", "io_uring", "gpu", "blas", "drive", "O_DIRECT"} <= topics, topics
    assert found["problems"] == 0 and all(f["level"] in ("ok", "note") for f in found["findings"])
    assert found["machine"]["cores"] >= 1 and found["machine"]["ram_read_gb_s"] == 0
    text = sluice("doctor", "--no-rates").stdout.decode()
    assert all(x.startswith(("ok ", "note ", "problem ", " ")) for x in text.strip("\n").split("\n"))
    run = sluice("doctor", "-m", "/nonexistent", "--no-rates", status=1)
    assert b"problem  model" in run.stdout and b"/nonexistent" in run.stdout


def test_recorded_machine_predicts_speed():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "machine.json")
        recorded = sluice("plan", "--record").stdout
        machine = json.loads(recorded)
        assert machine["ram_read_gb_s"] > 0 and machine["int8_gop_s"] > 0 and machine["fma_gop_s"] > 0 and machine["rate_threads"] >= 1
        with open(path, "wb") as f:
            f.write(recorded)
        plan = sluice_json("plan", "-m", DEMO, "--machine", path, "--json")
        assert near(plan["decode_tok_s"], float(f"{machine['ram_read_gb_s'] * 1e9 / plan['bytes_per_token']:.6g}"))
        assert plan["prefill_tok_s"] > 0
        assert machine["nvme_read_gb_s"] == 0 == machine["decode_read_gb_s"]
        model = sluice_json("plan", "--record", "-m", DEMO)
        assert model["nvme_read_gb_s"] == 0 < model["decode_read_gb_s"]  # its files are too small to tell; its kernels are not
        assert b"/nonexistent" in sluice("plan", "--record", "-m", "/nonexistent", status=1).stderr


if __name__ == "__main__":
    cases.main(globals())
