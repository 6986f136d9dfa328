#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""sluice tune from outside: the profile it writes, its trials, refusals, interruption. No speed is judged."""
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time

import cases
from cases import DEMO, sluice, sluice_json

QUICK = ("-n", "2", "-p", "0", "-r", "2", "--quiet")
FREE = {"SLUICE_BULK": "auto"}  # other tests fix it


def refused(status, part, *args):
    run = sluice("tune", *args, status=status)
    assert run.stdout == b"" and part in run.stderr.decode(), (part, run.stderr)


def tune(folder, *args, name="box.yaml", **options):
    path = os.path.join(folder, name)
    return path, sluice_json("tune", "-m", DEMO, "-o", path, *QUICK, *args, "--json", timeout=600, **options)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def settings_of(text):
    """name -> value of the section "settings" of a profile."""
    section = re.search(r"^settings:\n((?:  .*\n)*)", text, re.M)
    return dict(re.findall(r"^  ([a-z-]+): (.*)$", section.group(1), re.M)) if section else {}


def judge(trial):
    """The rule of docs/profiles.md."""
    ratios = [t / b for t, b in zip(trial["trial_tok_s"], trial["best_tok_s"])]
    ratio = statistics.median(ratios)
    return ratio, max(abs(r - ratio) for r in ratios)


def test_profile_is_one_that_plan_and_run_take():
    with tempfile.TemporaryDirectory() as folder:
        path, found = tune(folder, "--mtp", "off", "-c", "256")
        text = read(path)
        assert found["file"] == path and os.listdir(folder) == ["box.yaml"]
        assert text.startswith("name: box\n") and folder not in text and "/" + os.path.basename(DEMO) not in text
        said = settings_of(text)
        assert said["ctx"] == "256" and said["mtp"] in ("off", '"off"', "'off'") and said["bulk"] == "own", said
        plan = sluice_json("plan", "-m", DEMO, "--profile", path, "--json")
        assert plan["context"] == 256 and plan["fits"] is True
        assert sluice("run", "-m", DEMO, "--profile", path, "-p", "It is", "-n", "3").stdout
        speed = float(re.search(r"decode_tok_s: (.*)", text).group(1))
        assert abs(speed / statistics.median(found["decode_tok_s"]) - 1) < 1e-3  # four digits
        assert re.search(r"date: .?\d{4}-\d\d-\d\d", text) and "command: sluice tune -m demo -o box.yaml -n 2" in text
        assert "ram_read_gb_s:" in text and "prefill_tok_s" not in text


def test_trials_follow_the_rule():
    with tempfile.TemporaryDirectory() as folder:
        path, found = tune(folder, "-p", "16")
        tried = [(t["setting"], t["value"]) for t in found["trials"]]
        assert {("mtp", "off"), ("mtp", "1"), ("mtp", "2")} <= set(tried) and len(set(tried)) == len(tried), tried
        assert not [t for t in tried if t[0] in ("bulk", "prefetch", "io", "expert-ram")], tried  # given, or nothing is read
        said = settings_of(read(path))
        for t in found["trials"]:
            ratio, spread = judge(t)
            assert abs(t["ratio"] - ratio) < 1e-4 and abs(t["spread"] - spread) < 1e-4, t
            assert len(t["trial_tok_s"]) == len(t["best_tok_s"]) and t["goal"] == "decode"
            stopped = len(t["trial_tok_s"]) < 2
            assert not stopped or ratio <= 1 + 1e-5, t  # a pair without a gain ends the trial
            if t["verdict"] == "wins":
                assert ratio > 1.03 and ratio - 1 > spread
            elif t["verdict"] == "no faster":
                assert ratio <= 1.03 + 1e-5
        winners = {t["setting"]: t["value"] for t in found["trials"] if t["verdict"] == "wins"}
        assert {k: v.strip("'\"") for k, v in said.items() if k != "bulk"} == winners, (said, winners)


def test_what_streams_is_tried_where_experts_are_read():
    with tempfile.TemporaryDirectory() as folder:
        path, found = tune(folder, "--expert-ram", "40%", "--mtp", "off", "-t", "1", env=FREE)
        tried = [(t["setting"], t["value"]) for t in found["trials"]]
        assert tried == [("prefetch", "off"), ("prefetch", "on"), ("io", "pread")], tried
        text = read(path)
        assert settings_of(text)["expert-ram"] == "40%" and settings_of(text)["threads"] == "1"
        share, hits = (float(re.search(k + r": (.*)", text).group(1)) for k in ("expert_share", "hit_ratio"))
        assert 0.35 < share <= 0.4 and 0 < hits < 1
        assert sluice_json("plan", "-m", DEMO, "--profile", path, "--json")["hit_ratio"] > 0


def test_starts_from_a_profile():
    with tempfile.TemporaryDirectory() as folder:
        path, found = tune(folder, "--profile", "tiny", "--mtp", "off", "-t", "1")
        said = settings_of(read(path))
        assert said["ram"] == "256M" and said["ctx"] == "1024" and said["ubatch"] == "64", said
        assert found["trials"] == [] and found["settings"]["profile"] == "tiny"


def test_budget_leaves_trials_out():
    with tempfile.TemporaryDirectory() as folder:
        path, found = tune(folder, "--budget", "0")
        assert found["trials"] == [] and found["left_out"] >= 3 and len(found["decode_tok_s"]) == 1
        assert os.path.exists(path)
        text = sluice("tune", "-m", DEMO, "-o", path, "--force", *QUICK, "--budget", "0").stdout.decode()
        assert "settings are not tried" in text and text.startswith("start ") and f"the best is in {path}\n" in text


def test_file_is_kept_without_force():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "mine.yaml")
        with open(path, "w", encoding="utf-8") as f:
            f.write("name: mine\n")
        refused(2, "--force", "-m", DEMO, "-o", path, *QUICK)
        assert read(path) == "name: mine\n"
        refused(3, "does not fit", "-m", DEMO, "-o", path, "--force", "--ram", "1M", *QUICK)
        assert read(path) == "name: mine\n"
        sluice("tune", "-m", DEMO, "-o", path, "--force", *QUICK, "--budget", "0")
        assert "results:" in read(path)


def interrupt(folder, after):
    """Sends Ctrl-C once `after` has been printed; what came out, and the path."""
    path = os.path.join(folder, "cut.yaml")
    with subprocess.Popen([cases.BINARY, "tune", "-m", DEMO, "-o", path, "-n", "200", "-c", "2048", "-p", "0", "-r", "16"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as p:
        cases.wait_until_caught(p.pid, signal.SIGINT)
        line = p.stdout.readline() if after else b""
        assert line.startswith(after), line
        time.sleep(0.3)
        p.send_signal(signal.SIGINT)
        try:
            _, err = p.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            p.kill()
            raise
        assert p.returncode == 130, (p.returncode, err)
    return path, err.decode()


def test_interrupted():
    with tempfile.TemporaryDirectory() as folder:
        path, _ = interrupt(folder, b"")
        assert os.listdir(folder) == []  # the start had not been measured
        path, err = interrupt(folder, b"start ")
        assert "has the best so far" in err and os.listdir(folder) == ["cut.yaml"]
        assert sluice_json("plan", "-m", DEMO, "--profile", path, "--json")["fits"] is True
        assert settings_of(read(path))["ctx"] == "2048"


def test_wrong_usage():
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "x.yaml")
        refused(2, "no model given", "-o", out)
        refused(2, "no file given", "-m", DEMO)
        refused(2, ".yaml", "-m", DEMO, "-o", os.path.join(folder, "x.json"))
        refused(2, "name: two words", "-m", DEMO, "-o", os.path.join(folder, "two words.yaml"))
        refused(1, "nowhere", "-m", DEMO, "-o", os.path.join(folder, "nowhere", "x.yaml"))
        refused(2, "-r 1", "-m", DEMO, "-o", out, "-r", "1")
        refused(2, "-n x", "-m", DEMO, "-o", out, "-n", "x")
        refused(2, "--budget", "-m", DEMO, "-o", out, "--budget", "-1")
        refused(2, "nothing to measure", "-m", DEMO, "-o", out, "-n", "0", "-p", "0")
        refused(2, "context of 64", "-m", DEMO, "-o", out, "-c", "64", "-p", "65")
        refused(2, "--machine", "-m", DEMO, "-o", out, "--machine", "x.json")
        refused(2, "--frobnicate", "--frobnicate")
        refused(2, "known:", "-m", DEMO, "-o", out, "--profile", "no-such-profile")
        refused(1, "/nonexistent", "-m", "/nonexistent", "-o", out)
        assert os.listdir(folder) == []


if __name__ == "__main__":
    cases.main(globals())
