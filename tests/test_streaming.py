# SPDX-License-Identifier: Apache-2.0
# suite: full
"""Experts that are read when they are used: the same tokens and logits, bit for bit, whatever part of them stays in RAM, however they
are read, by however many threads; budgets that hold; failures that cost one answer."""
import functools
import hashlib
import itertools
import json
import os
import subprocess
import tempfile

import cases
import ways
from model_files import golden, gguf_path

V3 = os.path.join(cases.ROOT, "tests", "data", "golden", "v3")
PROMPT = "It is a truth universally acknowledged, that a single man in possession of a good fortune"
TOKENS = ("--tokens", "1,2,3,4,5,6,7,8,9,10,11,12")
BUDGETS = ("0", "1x", "5%", "25%", "50%", "100%")


def answer(model, *flags, tokens=48, temp=("--temp", "0"), **options):
    """Tokens, and a digest of the logits of each."""
    with tempfile.TemporaryDirectory(prefix="sluice-test-") as home:
        dump = os.path.join(home, "logits.safetensors")
        text = TOKENS if model == V3 else ("--raw", "-p", PROMPT)
        out = cases.sluice_json("run", "-m", model, *text, "-n", tokens, *temp, "--ignore-eos", "--json", "--dump", dump, *flags, **options)
        with open(dump, "rb") as f:
            return out["tokens"], hashlib.sha256(f.read()).hexdigest(), out


@functools.lru_cache
def answer_of_demo():
    return answer(cases.DEMO)[:2]


def check_reads(reads, totals):
    """Each read ahead came to one end, or is under way when the answer ends; leads and layers add up. Hints at a token's start are for the first layer."""
    ends, leads = ("useful", "late", "wasted", "cancelled"), {x["lead"]: x for x in reads}
    assert set(leads) >= {"token start", "one layer"} and [x["layer"] for x in leads["token start"]["layers"]] == [1], reads
    assert [x["layer"] for x in leads["one layer"]["layers"]] == [2, 3, 4, 5], reads
    for unit in ("", "_bytes"):
        for name in ("begun", *ends):
            assert totals[name + unit] == sum(x[name + unit] for x in reads), (name, totals, reads)
            assert all(x[name + unit] == sum(layer[name + unit] for layer in x["layers"]) for x in reads), (name, reads)
        for x in reads:
            assert 0 <= x["begun" + unit] - sum(x[end + unit] for end in ends) <= (64 if unit == "" else 64 * 49176), x


def test_reading_ahead():
    """Experts with a chance that is worth a read are counted, and read only if asked to; what is named and who stays does not depend on when reads end."""
    def figures(mode):
        out = answer(cases.DEMO, "--expert-ram", "10%", "--prefetch", mode, "--mtp", "off", tokens=200)[2]["timings"]
        return out["prefetch"], out["cache"]["ram"], out["prediction"]
    off, ghost, on = (figures(mode) for mode in ("off", "ghost", "on"))
    assert off[0]["named"] == off[0]["useful"] == ghost[0]["useful"] == ghost[0]["late"] == 0 and off[1] == ghost[1] and off[2] is None, (off, ghost)
    assert ghost[0]["named"] == on[0]["named"] > 199 * 5 * 3 and ghost[0]["right"] == on[0]["right"], ghost
    assert 0.65 < ghost[0]["right"] / ghost[0]["named"] < 0.9, ghost
    reads = {mode: figures_of[2].pop("reads") for mode, figures_of in (("ghost", ghost), ("on", on))}
    check_reads(reads["on"], on[0])
    assert ghost[2] == on[2] and on[2]["tokens"] == 198 and [x["lead"] for x in reads["ghost"]] in ([], ["prompt"]), (on[2], reads)  # the first of 200 tokens needs no step, the last one is not learned from
    leads = {x["lead"]: x["recall"] for x in on[2]["leads"]}
    gate = next(x["recall"] for x in on[2]["predictors"] if x["name"] == "gate")
    assert 0.25 < leads["one token"][0] < leads["token start"][0] < leads["one layer"][0] and gate[0] < leads["one layer"][0], (leads, gate)
    assert on[0]["useful"] + on[0]["late"] > 400, on
    assert on[1]["hits"] - on[0]["useful"] == off[1]["hits"] and on[1]["admitted"] == off[1]["admitted"], (on, off)  # who stays is the same
    text = cases.sluice("run", "-m", cases.DEMO, "--tokens", "5", "-n", "8", "--ignore-eos", "--expert-ram", "10%", "--prefetch", "on").stderr
    assert b" experts read ahead " in text and b" were there in time, " in text, text


def test_bytes_from_the_drive():
    """Where no expert stays each use is one that was read, ahead or when it was asked for."""
    for mode in ("off", "on"):
        out = cases.sluice_json("run", "-m", cases.DEMO, "--tokens", "5", "-n", "48", "--temp", "0", "--ignore-eos", "--json", "--expert-ram", "0", "--prefetch", mode, "--mtp", "off")
        timings = out["timings"]
        expert, tokens = 3 * 64 * 256, timings["decode_n"]  # scales stay in RAM
        least, wasted = 5 * 6 * expert, timings["prefetch"]["wasted"] * expert / tokens
        assert timings["cache"]["nvme"]["bytes"] >= tokens * least, timings  # what came ahead is counted too
        assert tokens == 47 and least <= timings["bytes_per_token"]["nvme"] <= least + wasted + 1, (mode, timings)


def test_same_bits():
    """Any three choices meet in some run (test_streaming_long.py: all of them)."""
    for model, text in ((cases.DEMO, ("--raw", "-p", PROMPT)), (V3, TOKENS)):
        want = ways.answer(model, {}, *text, "-n", "48", "--temp", "0")
        for way in ways.covering(3):
            assert ways.answer(model, way, *text, "-n", "48", "--temp", "0") == want, (model, way)


def test_same_bits_of_reference_models():
    """Any two choices meet in some run: other formats, both layouts of attention, routers that are quantised, no draft layer."""
    for model, mtp in ((golden("v3-fp8"), True), (gguf_path("gguf-f16-mtp"), True), (golden("v2-lite"), False), (gguf_path("gguf-mxfp4"), False), (gguf_path("kq-q4"), False)):
        want = ways.answer(model, {}, *TOKENS, "-n", "48", "--temp", "0")
        for way in ways.covering(2, mtp):
            assert ways.answer(model, way, *TOKENS, "-n", "48", "--temp", "0") == want, (model, way)


def test_same_bits_of_other_choices():
    for budget, prefetch, threads in itertools.product(("0", "5%", "50%"), ("off", "ghost", "on", "auto"), ("1", "2")):
        assert answer(cases.DEMO, "--expert-ram", budget, "--prefetch", prefetch, "-t", threads)[:2] == answer_of_demo(), (budget, prefetch, threads)
    for flags in (("--merge", "off"), ("--io-limit", "100M")):
        assert answer(cases.DEMO, "--expert-ram", "5%", *flags)[:2] == answer_of_demo(), flags
    want = answer(cases.DEMO, temp=("--temp", "0.8", "--seed", "3"))[:2]
    for budget in BUDGETS:
        assert answer(cases.DEMO, "--expert-ram", budget, temp=("--temp", "0.8", "--seed", "3"))[:2] == want, budget


def test_prompts_of_every_kind():
    """Exact rows, one bulk chunk, several of them."""
    with open(os.path.join(cases.ROOT, "README.md"), encoding="utf-8") as f:
        text = f.read()
    for size, rows in ((30, "512"), (4000, "512"), (4000, "128"), (4000, "8")):
        command = ("score", "-m", cases.DEMO, "--text", text[:size], "--json", "-ub", rows)
        want = cases.sluice(*command).stdout
        for budget in ("0", "1x", "25%"):
            assert cases.sluice(*command, "--expert-ram", budget).stdout == want, (size, rows, budget)


def test_least_memory():
    """The least that a plan names is enough, and the plan says how many experts stay."""
    plan = json.loads(cases.sluice("plan", "-m", cases.DEMO, "--json", "--ram", "1M", status=3).stdout)
    ram = plan["needed"]
    want = answer(cases.DEMO, "-c", "64")[:2]
    assert answer(cases.DEMO, "-c", "64", "--ram", ram)[:2] == want
    there = cases.sluice_json("plan", "-m", cases.DEMO, "--json", "--ram", ram + (8 << 20))
    assert 0 <= there["expert_slots"] < there["experts"] == 384 and there["staging_slots"] >= 1 and there["nvme_bytes_per_token"] > 0, there
    assert answer(cases.DEMO, "--ram", ram + (8 << 20))[:1] == answer(cases.DEMO)[:1]


def test_budget_changes_between_runs():
    """What a run with one budget found popular is taken over by runs with others."""
    need = json.loads(cases.sluice("plan", "-m", cases.DEMO, "--json", "--ram", "1M", "-c", "64", status=3).stdout)["needed"]
    want = answer(cases.DEMO, "-c", "64")[:2]
    with tempfile.TemporaryDirectory(prefix="sluice-test-") as home:
        for more in (12 << 20, 0, 2 << 20, 40 << 20, 4 << 20):
            assert answer(cases.DEMO, "-c", "64", "--ram", need + more, "--heat", os.path.join(home, "heat"))[:2] == want, more


def test_popularity_is_kept():
    """A second run finds in RAM what the first one used; a file that is none is refused before anything is computed."""
    with tempfile.TemporaryDirectory(prefix="sluice-test-") as home:
        heat = os.path.join(home, "heat")
        first = answer(cases.DEMO, "--expert-ram", "50%", "--heat", heat)
        second = answer(cases.DEMO, "--expert-ram", "50%", "--heat", heat)
        assert first[:2] == second[:2] == answer(cases.DEMO)[:2]
        misses = [x[2]["timings"]["cache"]["ram"]["misses"] for x in (first, second)]
        assert misses[1] < misses[0], misses
        sizes = []
        for mtp in ("off", "on", "off", "on"):  # one file serves all; the MTP layer's part comes with the first run that has it, and stays
            assert answer(cases.DEMO, "--expert-ram", "50%", "--heat", heat, "--mtp", mtp)[:1] == first[:1]
            sizes.append(os.path.getsize(heat))
        assert len(set(sizes)) == 1, sizes
        plain = os.path.join(home, "plain")
        sizes = []
        for mtp in ("off", "on"):
            answer(cases.DEMO, "--expert-ram", "50%", "--heat", plain, "--mtp", mtp)
            sizes.append(os.path.getsize(plain))
        assert sizes[1] == sizes[0] + 64 * 4, sizes
        cases.sluice("run", "-m", V3, "--tokens", "1,2", "-n", "1", "--temp", "0", "--heat", heat, status=1)
        readme = os.path.join(cases.ROOT, "README.md")
        run = cases.sluice("run", "-m", cases.DEMO, "--raw", "-p", "a", "-n", "1", "--heat", readme, status=1)
        assert b"README.md" in run.stderr, run.stderr
        run = cases.sluice("run", "-m", cases.DEMO, "--raw", "-p", "a", "-n", "1", "--heat", os.path.join(home, "no", "heat"), status=1)
        assert b"no/heat" in run.stderr and run.stdout == b"", run.stderr


def test_what_predictors_learned_is_kept():
    """The first tokens of a later run are predicted with what an earlier run, of another text, learned; a file without that part serves as before."""
    def figures(*flags, prompt, tokens=16):
        run = cases.sluice("run", "-m", cases.DEMO, "--raw", "-p", prompt, "-n", tokens + 1, "--temp", "0.7", "--seed", "3", "--ignore-eos", "--json", "--expert-ram", "25%", "--prefetch", "ghost", "--mtp", "off", *flags)
        timings = json.loads(run.stdout)["timings"]
        return timings["prediction"], timings["prefetch"], run.stderr
    with tempfile.TemporaryDirectory(prefix="sluice-test-") as home:
        heat, old = os.path.join(home, "heat"), os.path.join(home, "old")
        without, named, _ = figures(prompt="The weather")
        assert without["kept"] == 0, without
        assert figures("--heat", heat, prompt=PROMPT, tokens=200)[0]["kept"] == 0  # there was no such file
        cases.sluice("run", "-m", cases.DEMO, "--raw", "-p", "a", "-n", "4", "--expert-ram", "25%", "--prefetch", "off", "--heat", heat)  # predicts nothing, and leaves what was learned
        got, more, _ = figures("--heat", heat, prompt="The weather")
        assert 12 < got["kept"] <= 64, got
        before, after = ({x["lead"]: x["recall"][0] for x in p["leads"]} for p in (without, got))
        assert all(after[lead] > before[lead] for lead in before) and more["right"] > 1.2 * named["right"], (before, after, named, more)
        cases.sluice("run", "-m", cases.DEMO, "--raw", "-p", "a", "-n", "4", "--expert-ram", "25%", "--prefetch", "off", "--heat", old)
        got, more, told = figures("--heat", old, prompt="The weather")
        assert got["kept"] == 0 and more == named and b"predict" not in told and b"learned" not in told, (got, told)


def test_simulator_counts_what_the_engine_counts():
    """The recorded routing of an answer, played through `trace simulate`, gives the engine's own hits, misses and admissions, to the last one."""
    with tempfile.TemporaryDirectory(prefix="sluice-test-") as home:
        tokens, trace = os.path.join(home, "tokens.json"), os.path.join(home, "trace.csv.gz")
        for slots in (10, 32, 100, 200):
            out = cases.sluice_json("run", "-m", cases.DEMO, "--tokens", "5", "-n", "200", "--temp", "0.7", "--seed", slots, "--ignore-eos", "--mtp", "off",
                                    "--prefetch", "off", "--expert-ram", f"{slots}x", "--json")
            with open(tokens, "w", encoding="ascii") as f:
                json.dump((out["prompt_tokens"] + out["tokens"])[:-1], f)  # the last one was not computed
            cases.sluice("trace", "record", "-m", cases.DEMO, "--tokens-file", tokens, "-o", trace, "-ub", "8")
            (found,) = cases.sluice_json("trace", "simulate", trace, "--cache", slots, "--policy", "odds", "--experts", "64", "--json")["results"]
            ram = out["timings"]["cache"]["ram"]
            assert (found["hits"], found["uses"] - found["hits"], found["admitted"]) == (ram["hits"], ram["misses"], ram["admitted"]), (slots, found, ram)
            nvme = out["timings"]["cache"]["nvme"]
            assert nvme["missed_bytes"] == ram["misses"] * (3 * 64 * 256 + 3 * 2 * 4) and nvme["bytes"] == ram["misses"] * 3 * 64 * 256, nvme
            plan = cases.sluice_json("plan", "-m", cases.DEMO, "--trace", trace, "--mtp", "off", "--expert-ram", f"{slots}x", "-c", "256", "--json")
            assert plan["expert_slots"] == slots and abs(plan["hit_ratio"] * found["uses"] - found["hits"]) < 0.01, (plan, found)
            assert abs(plan["nvme_bytes_per_token"] * 200 - nvme["bytes"]) <= 200, (plan, nvme)
            memory = cases.sluice_json("run", "-m", cases.DEMO, "--tokens", "5", "-n", "1", "--mtp", "off", "--expert-ram", f"{slots}x", "-c", "256", "--json")["memory"]["purposes"]
            planned = plan["tiers"]["ram"]["purposes"]
            exact = [("resident", "resident weights"), ("experts", "experts"), ("scales", "fp8 scales"), ("kv", "kv cache")]
            assert [planned[x] for x, _ in exact] == [memory[x] for _, x in exact] and memory["work"] <= planned["work"], (planned, memory)
        run = cases.sluice("plan", "-m", V3, "--trace", trace, "--expert-ram", "1x", status=1)
        assert b"routing of another model" in run.stderr, run.stderr


def test_what_reads_ahead_is_planned_and_counted():
    """Tables of predictors and what they have learned: the plan's bytes, and of them at least nine tenths in the account."""
    for mtp, least in (("auto", 0.9), ("off", 0)):  # without the MTP layer a part of the learned file is not read
        def tables(prefetch, flags=("--expert-ram", "80x", "-c", "256", "--json"), mtp=mtp):
            flags += ("--mtp", mtp, "--prefetch", prefetch)
            planned = cases.sluice_json("plan", "-m", cases.DEMO, *flags)["tiers"]["ram"]["purposes"]["tables"]
            return planned, cases.sluice_json("run", "-m", cases.DEMO, "--tokens", "5", "-n", "1", *flags)["memory"]["purposes"]["tables"]
        planned, found = (a - b for a, b in zip(tables("on"), tables("off")))
        assert 1 << 20 < found and least * planned < found <= planned, (mtp, planned, found)


def test_simulator_with_a_clock_of_its_own():
    """A run that waits for a limited drive, played with the rate that it measured: hits, bytes and seconds within two in a hundred."""
    with tempfile.TemporaryDirectory(prefix="sluice-test-") as home:
        tokens, events = os.path.join(home, "tokens.json"), os.path.join(home, "events.gz")
        with open(tokens, "w", encoding="ascii") as f:
            json.dump([(7 * i * i + 11) % 390 + 10 for i in range(20)], f)
        for prefetch in ("off", "on"):
            cases.sluice("trace", "record", "-m", cases.DEMO, "--tokens-file", tokens, "-o", os.path.join(home, "t.csv"), "--step", "--expert-ram", "25%", "--mtp", "off",
                         "--prefetch", prefetch, "--io-limit", "512K", "--events", events)
            got = cases.sluice_json("trace", "play", events, "--prefetch", prefetch, "--json")
            (found,) = got["results"]
            assert got["same"] and got["waiting_s"] > 0.9 * got["seconds"], got
            for name in ("expert.ram.hits", "expert.ram.misses", "expert.ram.bytes", "expert.nvme.bytes", "expert.ram.admitted", "expert.nvme.drive_bytes"):
                assert abs(found["counted"][name] / got["counted"][name] - 1) < 0.02, (prefetch, name, got)
            assert abs(found["seconds"] / got["seconds"] - 1) < 0.02, (prefetch, got)


def test_damaged_expert_costs_one_answer():
    """A file that becomes shorter while the program runs: the answer that needs the lost expert fails by name, what was said before stays."""
    with tempfile.TemporaryDirectory(prefix="sluice-test-") as home:
        model = os.path.join(home, "model.gguf")
        cases.sluice("synth", "--shape", "demo", "-o", model)
        chat = subprocess.Popen([cases.BINARY, "run", "-m", model, "--raw", "-p", "a", "-n", "2000", "--ignore-eos", "--expert-ram", "0", "--temp", "0"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        chat.stdout.read(1)
        os.truncate(model, os.path.getsize(model) // 2)
        _, err = chat.communicate(timeout=120)
        assert chat.returncode == 1, (chat.returncode, err)
        assert b"model.gguf" in err and b"expert" in err and b"shorter than its header says" in err, err


def test_file_that_is_overwritten():
    """Another model is copied over the file while the program runs: nothing of it becomes an answer."""
    with tempfile.TemporaryDirectory(prefix="sluice-test-") as home:
        model, other = os.path.join(home, "model.gguf"), os.path.join(home, "other.gguf")
        cases.sluice("synth", "--shape", "demo", "--seed", "2", "-o", other)
        for io in ("uring", "pread", "mmap"):
            cases.sluice("synth", "--shape", "demo", "--force", "-o", model)
            command = [cases.BINARY, "run", "-m", model, "--raw", "-p", "a", "-n", "300", "--ignore-eos", "--expert-ram", "0", "--temp", "0", "--io", io]
            want = subprocess.run(command, capture_output=True, check=True).stdout
            run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            first = run.stdout.read(1)
            with open(other, "rb") as new, open(model, "r+b") as old:
                old.write(new.read())
            out, err = run.communicate(timeout=120)
            assert run.returncode == 1 and b"model.gguf" in err and b"was changed while it is in use" in err, (io, run.returncode, err)
            assert want.startswith((first + out).rstrip(b"\n")), io


if __name__ == "__main__":
    cases.main(globals())
