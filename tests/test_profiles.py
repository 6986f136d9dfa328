#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: quick
"""Profiles that come with the program are whole and plan; names and paths are found in their order; flags and environment are stronger
than a profile, a profile stronger than a default; mistakes name file, line and key."""
import glob
import json
import os
import shutil

import cases
from model_files import folder, refused

CONFIGS = os.path.join(cases.ROOT, "configs")
NAMES = sorted(os.path.basename(p)[:-len(".yaml")] for p in glob.glob(os.path.join(CONFIGS, "*.yaml")))
GIB = 1 << 30


def plan(*args, status=0, **options):
    return json.loads(cases.sluice("plan", *args, "--json", status=status, **options).stdout)


def header_only(path, shape="v3"):
    out = os.path.join(path, shape + ".gguf")
    cases.sluice("synth", "--shape", shape, "--header-only", "-o", out)
    return out


def write(path, name, text):
    os.makedirs(path, exist_ok=True)
    file = os.path.join(path, name)
    with open(file, "w", encoding="utf-8") as f:
        f.write(text)
    return file


def test_every_profile_plans_for_its_machine():
    """A name and its file say the same; the limit is that of the profile, wherever it runs."""
    assert len(NAMES) >= 7, NAMES
    with folder() as path:
        v3 = header_only(path)
        for name in NAMES:
            p = plan("-m", v3, "--profile", name, status=None)
            assert p["profile"]["name"] == name and p["profile"]["description"], p["profile"]
            assert p == plan("-m", v3, "--profile", os.path.join(CONFIGS, name + ".yaml"), status=None), name
            assert p["tiers"]["ram"]["total"] == sum(p["tiers"]["ram"]["purposes"].values())
            demo = plan("-m", cases.DEMO, "--profile", name)
            assert demo["fits"] and demo["decode_tok_s"] > 0, (name, demo)


def test_what_plans_say():
    """Sizes follow from the files: 58 x 256 experts of 24.77 MB, memory and settings as the profiles have them."""
    with folder() as path:
        v3 = header_only(path)
        p = plan("-m", v3, "--profile", "cpu-only-768g")
        assert p["fits"] and p["tiers"]["ram"]["limit"] == 752 * GIB and p["context"] == 32768
        assert p["expert_slots"] == 58 * 256
        assert abs(p["decode_tok_s"] / (500e9 / p["bytes_per_token"]) - 1) < 1e-5
        p = plan("-m", v3, "--profile", "dual-socket-24g-or-32g-gpu")
        assert p["fits"] and [n["node"] for n in p["nodes"]] == [0, 1] and p["profile"]["unused_gpus"] == 1
        tiny = plan("-m", cases.DEMO, "--profile", "tiny")
        assert tiny["limit_name"] == "--ram" and tiny["tiers"]["ram"]["limit"] == 256 << 20 and tiny["context"] == 1024
        assert plan("-m", v3, "--profile", "tiny", status=3)["fits"] is False
        text = cases.sluice("plan", "-m", v3, "--profile", "8-gpu-node").stdout.decode()
        assert "profile            8-gpu-node\n" in text and text.count("H200, 141.00 GiB: this build does not use it\n") == 8, text


def test_what_streams_is_explained():
    """A laptop: the drive's share of 464 experts of 24.77 MB, at 6.8 GB/s, and RAM at 100 GB/s, worked out from the slots it has."""
    with folder() as path:
        v3 = header_only(path)
        p = plan("-m", v3, "--profile", "laptop-64g-nvme")
        share, routed = p["expert_slots"] / p["experts"], 464 * 24772608
        assert p["fits"] and 0.098 < share < 0.123, p
        hit = 0.46 + (share - 0.098) / (0.123 - 0.098) * (0.51 - 0.46)
        missed = (1 - hit) * routed
        assert abs(p["hit_ratio"] - hit) < 1e-5 and abs(p["nvme_bytes_per_token"] / missed - 1) < 1e-4
        ram, drive = (p["bytes_per_token"] + missed) / 100e9, missed / 6.8e9
        assert abs(p["decode_tok_s"] * drive - 1) < 1e-4 and abs(p["decode_serial_tok_s"] * (ram + drive) - 1) < 1e-4
        assert "drive reads" in p["binding"] and p["more"]["ram_gib_tok_s"] > 0
        assert abs(p["more"]["nvme_gb_s_tok_s"] - (7.8e9 / missed - 6.8e9 / missed)) < 1e-4
        assert p["tiers"]["nvme"]["total"] == p["tiers"]["nvme"]["purposes"]["experts"]
        assert abs(p["tiers"]["nvme"]["total"] / ((p["experts"] - p["expert_slots"]) * 24772608) - 1) < 1e-4
        assert plan("-m", v3, "--profile", "laptop-64g-nvme", "-ub", 1024)["prefill_tok_s"] > 1.9 * p["prefill_tok_s"]
        measured = write(path, "m.yaml", "name: m\nresults: [{command: c, version: v, date: 2026-11-30, expert_share: %.17g, hit_ratio: 0.7}]\n" % share)
        machine = write(path, "m.json", '{"cores": 8, "limits": {"available": "60G", "setting": "58G"}, "ram_read_gb_s": 100, "nvme_read_gb_s": 6.8}')
        there = plan("-m", v3, "--profile", measured, "--machine", machine, "-c", p["context"])
        assert there["expert_slots"] == p["expert_slots"] and abs(there["hit_ratio"] - 0.7) < 1e-5, there
        assert abs(there["decode_tok_s"] * 0.3 * routed / 6.8e9 - 1) < 1e-4
        text = cases.sluice("plan", "-m", v3, "--profile", "laptop-64g-nvme").stdout.decode()
        assert "of uses are expected to find theirs" in text and "for a GB/s of the drive" in text, text


def test_machine_goes_before_that_of_the_profile():
    with folder() as path:
        machine = write(path, "m.json", '{"cores": 4, "limits": {"available": "3G"}}')
        p = plan("-m", cases.DEMO, "--profile", "cpu-only-768g", "--machine", machine, "-c", 512)
        assert p["tiers"]["ram"]["limit"] == 3 * GIB and p["context"] == 512 and p["profile"]["name"] == "cpu-only-768g"
        p = plan("-m", cases.DEMO, "--profile", write(path, "s.yaml", "name: s\nsettings: {ctx: 192}\n"))
        assert p["context"] == 192 and p["limit_name"] != "--ram"  # no machine in it: this one


def test_flag_environment_profile_default():
    with folder() as path:
        file = write(path, "p.yaml", "name: p\nsettings: {ctx: 256, ubatch: 16, threads: 1}\n")

        def context(*args, **env):
            return plan("-m", cases.DEMO, *args, env=env)["context"]

        default = context()
        assert default not in (256, 320, 384)
        assert context("--profile", file) == context(SLUICE_PROFILE=file) == 256
        assert context("--profile", file, SLUICE_CTX="320") == 320
        assert context("-c", 384, "--profile", file, SLUICE_CTX="320") == context("--profile", file, "-c", 384, SLUICE_CTX="320") == 384
        assert context("--profile", "tiny", SLUICE_PROFILE=file) == 1024
        run = ("run", "-m", cases.DEMO, "--tokens", "0,2563,339", "-n", 4, "--temp", 0, "--json")
        plain, with_profile = cases.sluice_json(*run), cases.sluice_json(*run, "--profile", file)
        assert plain["tokens"] == with_profile["tokens"]
        refused_run = cases.sluice(*run, "-n", 400, "--profile", file, "-c", 64, status=None)
        assert refused_run.returncode == 0 and json.loads(refused_run.stdout)["finish_reason"] == "length"
        rows = cases.sluice_json("bench", "-m", cases.DEMO, "-p", 32, "-n", 2, "-r", 1, "-t", 2, "--json", "--profile", file)
        assert rows and all(row["threads"] == 2 for row in rows), rows


def test_experts_stream_as_a_profile_says():
    """60 of 384 experts in RAM: the plan counts them, the engine reads the others, the tokens stay."""
    with folder() as path:
        file = write(path, "p.yaml", "name: p\nsettings: {expert-ram: 60x, ubatch: 8}\n")
        assert plan("-m", cases.DEMO, "--profile", file)["expert_slots"] == 60
        run = ("run", "-m", cases.DEMO, "--tokens", "0,2563,339", "-n", 8, "--temp", 0, "--json")
        plain, streams = cases.sluice_json(*run, "-ub", 8), cases.sluice_json(*run, "--profile", file)
        assert plain["tokens"] == streams["tokens"] and len(plain["tokens"]) == 8
        assert streams["timings"]["bytes_per_token"]["nvme"] > 0 == plain["timings"]["bytes_per_token"]["nvme"], streams["timings"]


def test_reads_as_a_profile_says():
    """What a profile records of the drive is what weights are read with; the bits stay."""
    machine = "machine: {cores: 2, memory_total: 8G, memory_available: 7G, nvme_depth: 5, nvme_chunk: 128K}\n"
    with folder() as path:
        file = write(path, "p.yaml", "name: p\n" + machine)
        run = ("run", "-m", cases.DEMO, "--tokens", "0,2563,339", "-n", 4, "--temp", 0, "--json", "--expert-ram", "10%")
        plain, recorded = cases.sluice_json(*run), cases.sluice_json(*run, "--profile", file)
        assert plain["tokens"] == recorded["tokens"]
        ways = [[r["timings"]["drive"][k] for k in ("depth", "chunk", "source")] for r in (plain, recorded)]
        assert ways == [[32, 1 << 20, "default"], [5, 128 << 10, "profile"]], ways
        (row,) = cases.sluice_json("bench", "-m", cases.DEMO, "-p", 0, "-n", 2, "-r", 1, "--json", "--profile", file)
        assert "5 reads of 128.00 KiB in flight (profile)" in row["machine"], row["machine"]


def test_names_and_paths():
    with folder() as path:
        mine = os.path.join(path, "sluice", "profiles")
        write(mine, "mine.yaml", "name: mine\nsettings: {ctx: 64}\n")
        write(mine, "tiny.yaml", "name: tiny\nsettings: {ctx: 128}\n")
        env = {"XDG_CONFIG_HOME": path, "HOME": "/nonexistent"}
        assert plan("-m", cases.DEMO, "--profile", "mine", env=env)["context"] == 64
        assert plan("-m", cases.DEMO, "--profile", "tiny", env=env)["context"] == 128  # one's own goes first
        home = os.path.join(path, "home")
        shutil.copytree(mine, os.path.join(home, ".config", "sluice", "profiles"))
        assert plan("-m", cases.DEMO, "--profile", "mine", env={"XDG_CONFIG_HOME": "", "HOME": home})["context"] == 64
        line = refused(2, ["--profile nine: no profile has this name", "mine", "tiny", "laptop-64g-nvme"], "plan", "-m", cases.DEMO,
                       "--profile", "nine", env=env)
        assert "./NAME" in line
        refused(1, "none.yaml", "plan", "-m", cases.DEMO, "--profile", os.path.join(path, "none.yaml"))
        file = write(path, "no-suffix", "name: x\nsettings: {ctx: 64}\n")
        assert plan("-m", cases.DEMO, "--profile", file)["context"] == 64


def test_mistakes_are_usage_errors_everywhere():
    with folder() as path:
        file = write(path, "bad.yaml", "name: bad\nsettings:\n  thread: 4\n")
        says = f"{file}:3: settings: unknown setting thread; did you mean threads?".encode()
        for args in (("plan",), ("run", "-n", 1, "-p", "x"), ("score", "--tokens", "1,2"), ("bench", "-n", 1)):
            run = cases.sluice(*args, "-m", cases.DEMO, "--profile", file, status=2)
            assert says in run.stderr and run.stdout == b"", (args, run.stderr)
        texts, narrow = write(path, "t.json", str(list(range(2, 102)))), write(path, "n.yaml", "name: n\nsettings: {ctx: 64}\n")
        record = ("trace", "record", "-m", cases.DEMO, "--tokens-file", texts, "-o", os.path.join(path, "t.csv"), "--profile")
        assert b"100 tokens" in cases.sluice(*record, narrow, status=2).stderr
        cases.sluice(*record, write(path, "w.yaml", "name: w\nsettings: {ubatch: 16}\n"))
        for text in ("name: x\nmachine: {cores: 1, memory_total: 1G, memory_available: 2G}\n", "name: [\n", "x" * 2000000):
            cases.sluice("plan", "-m", cases.DEMO, "--profile", write(path, "bad.yaml", text), status=None if len(text) > 10000 else 2)


if __name__ == "__main__":
    cases.main(globals())
