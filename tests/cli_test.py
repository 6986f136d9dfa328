#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""The program from outside: exit statuses, messages, JSON, files, signals, the terminal, against the demo model and golden models."""
import array
import glob
import json
import math
import os
import pty
import select
import signal
import struct
import subprocess
import tempfile
import time

import cases
from cases import DEMO, ROOT, sluice, sluice_json

GOLDEN = os.path.join(ROOT, "tests", "data", "golden")
CHAT = os.path.join(GOLDEN, "v3")
F32 = ("-ctk", "f32", "--activations", "f32")
COMMANDS = ["run", "score", "tokenize", "detokenize", "template", "plan", "bench", "doctor", "inspect", "check", "convert", "synth", "tune", "trace"]
LATER = ["serve", "top", "loadtest"]


def refused(status, parts, *args, **options):
    """Runs, and expects this status, no output, and one line on stderr with all the parts in it."""
    run = sluice(*args, status=status, **options)
    text = run.stderr.decode()
    assert run.stdout == b"", run.stdout
    line = [x for x in text.split("\n") if x.startswith("sluice: error: ")]
    assert len(line) == 1, text
    for part in [parts] if isinstance(parts, str) else parts:
        assert part in line[0], (part, line[0])


def run_json(*args, model=DEMO, **options):
    return sluice_json("run", "-m", model, "--json", *args, **options)


def load_safetensors(path):
    """name -> (shape, values)"""
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        data = f.read()
    out, end = {}, 0
    for name, t in sorted(head.items(), key=lambda item: item[1]["data_offsets"]):
        a, b = t["data_offsets"]
        assert a == end, f"{name} starts at {a}, expected {end}"
        end = b
        values = array.array({"F32": "f", "I32": "i"}[t["dtype"]], data[a:b])
        assert len(values) == math.prod(t["shape"])
        out[name] = (t["shape"], values)
    assert end == len(data)
    return out


def row(tensor, i):
    (_, cols), values = tensor
    return values[i * cols:(i + 1) * cols]


def reference():
    with open(os.path.join(ROOT, "tests", "data", "demo", "reference.json"), encoding="utf-8") as f:
        return json.load(f)


# ---- usage ----

def test_score_reads_a_file():
    text = "It was a truth, and\nthe LORD said unto him:\n"
    def scored(*args, **options):
        out = sluice_json("score", "-m", DEMO, *args, "--json", **options)
        return out["tokens"], out["logprobs"]

    given = scored("--text", text)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write(text)
        f.flush()
        assert scored("-f", f.name) == given
    assert scored("-f", "-", stdin=text.encode()) == given


def test_no_arguments():
    run = sluice(status=2)
    assert run.stdout == b"" and b"usage: sluice" in run.stderr


def test_help_and_version():
    text = sluice("--help").stdout.decode()
    for name in COMMANDS:
        assert f"\n  {name} " in text, name
        for args in ([name, "--help"], ["help", name]):
            assert b"sluice " + name.encode() in sluice(*args).stdout, args
    for name in LATER:
        assert f"\n  {name} " not in text, name
    for name in ("run", "score", "tokenize", "detokenize", "template"):
        assert b"examples:" in sluice(name, "--help").stdout
    assert sluice("--version").stdout.startswith(b"sluice ")


def test_unknown_commands():
    for name in LATER:
        refused(2, "not in this build", name)
    refused(2, "did you mean score?", "scorr")
    refused(2, "here it is sluice score", "perplexity")
    refused(2, "xyzzy", "xyzzy")


def test_unknown_flags_and_values():
    refused(2, "did you mean --temp?", "run", "-m", DEMO, "--tmep", "0")
    refused(2, "did you mean --threads?", "run", "--thread", "1")
    refused(2, ["-ngl", "--vram"], "run", "-ngl", "99")
    for command in ("bench", "plan", "tune", "inspect"):
        assert b"sluice has no such flag: weights are placed by the plan" in sluice(command, "-ngl", "99", status=2).stderr
        assert b"did you mean --json?" in sluice(command, "--jsno", status=2).stderr
        assert b"unexpected argument models/demo" in sluice(command, "models/demo", status=2).stderr
    refused(2, ["--draft-max", "--mtp N"], "run", "-m", DEMO, "-p", "x", "--draft-max", "3")
    refused(2, "value is missing", "run", "-m", DEMO, "-p")
    refused(2, "--temp", "run", "--temp", "warm")
    refused(2, "-n -7", "run", "-m", DEMO, "-p", "x", "-n", "-7")
    refused(2, "unexpected argument", "run", "-m", DEMO, "hello")
    refused(2, ["mtp: 9", "from 0 to 8"], "run", "-m", DEMO, "-p", "x", "--mtp", "9")
    refused(2, "top_p", "run", "-m", DEMO, "-p", "x", "--top-p", "1.5")
    refused(2, "logit_bias", "run", "-m", DEMO, "-p", "x", "--logit-bias", "5000+1")
    refused(2, "more than one prompt", "run", "-m", DEMO, "-p", "x", "--tokens", "1")
    refused(2, "--json", "run", "-m", DEMO, "-p", "x", "--logprobs", "2")
    refused(2, "--tokens", "run", "-m", DEMO, "--tokens", "1", "--system", "x")
    refused(2, "empty", "run", "-m", DEMO, stdin=b"")
    refused(2, "--tokens", "score", "-m", DEMO)
    refused(2, "no token", "score", "-m", DEMO, "--tokens", "")
    refused(2, "4096", "score", "-m", DEMO, "--tokens", "1,4096")
    refused(2, "SLUICE_THREDS", "run", "-m", DEMO, "-p", "x", env={"SLUICE_THREDS": "2"})
    refused(2, "-m", "tokenize", "x")
    refused(2, "-m", "run", "-p", "x")


def test_missing_files():
    refused(1, "/nonexistent", "run", "-m", "/nonexistent", "-p", "x")
    refused(1, f"did you mean {DEMO}?", "run", "-m", DEMO + "s", "-p", "x")
    refused(1, "there is no such name in /", "tokenize", "-m", "/nonexistent", "x")
    refused(1, "/nonexistent", "run", "-m", DEMO, "-f", "/nonexistent")
    refused(1, "/nonexistent", "score", "-m", DEMO, "--tokens-file", "/nonexistent")
    refused(1, "/nonexistent", "tokenize", "-m", "/nonexistent", "x")
    refused(1, "/nonexistent", "tokenize", "-m", DEMO, "--batch", "/nonexistent")
    refused(1, "expected JSON", "template", "-m", CHAT, stdin=b"{")
    refused(1, "item 1", "tokenize", "-m", DEMO, "--batch", "-", stdin=b'["a", 2]')
    refused(1, "item 0", "detokenize", "-m", DEMO, "--batch", "-", stdin=b'[["a"]]')


def test_settings_from_environment_and_flags():
    assert run_json("--tokens", "0", "-n", "1", env={"SLUICE_CTX": "64", "SLUICE_THREADS": "1"})["tokens"]
    refused(1, ["100", "64"], "score", "-m", DEMO, "--tokens", ",".join("0" * 100), env={"SLUICE_CTX": "64"})
    sluice("score", "-m", DEMO, "--tokens", ",".join("0" * 100), "-c", "128", env={"SLUICE_CTX": "64"})


# ---- tokens and templates ----

def test_tokenize_and_back():
    texts = ["It is a truth", "", "nul \u0000 in\u00e9 \U0001f600", "<｜begin▁of▁sentence｜>a"]
    batch = json.dumps(texts).encode()
    ids = sluice_json("tokenize", "-m", DEMO, "--batch", "-", stdin=batch)
    assert ids[1] == [] and ids[3][0] == 0
    plain = sluice_json("tokenize", "-m", DEMO, "--no-special", "--batch", "-", stdin=batch)
    assert plain[:3] == ids[:3] and 0 not in plain[3]
    for got in (ids, plain):
        back = sluice_json("detokenize", "-m", DEMO, "--batch", "-", stdin=json.dumps(got).encode())
        assert [bytes.fromhex(x["hex"]).decode() for x in back] == texts
    bos = sluice_json("tokenize", "-m", DEMO, "--bos", "It is a truth")
    assert bos == [0] + ids[0]
    assert sluice_json("tokenize", "-m", DEMO, stdin=b"It is a truth") == ids[0]
    assert sluice("detokenize", "-m", DEMO, ",".join(map(str, ids[0]))).stdout == b"It is a truth\n"


def test_single_bytes_survive():
    ids = sluice_json("tokenize", "-m", DEMO, stdin=bytes(range(256)))
    back = sluice_json("detokenize", "-m", DEMO, "--batch", "-", stdin=json.dumps([ids]).encode())
    assert bytes.fromhex(back[0]["hex"]) == bytes(range(256))


def test_template():
    user = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}
    run = sluice("template", "-m", CHAT, stdin=json.dumps([user, {"messages": [{"role": "wizard", "content": "x"}]}]).encode())
    texts = json.loads(run.stdout)
    assert texts[0].endswith("<｜User｜>Hi<｜Assistant｜>") and texts[1] is None, texts
    assert b"request 1" in run.stderr
    assert sluice_json("template", "-m", CHAT, stdin=json.dumps(user).encode()) == texts[:1]
    refused(2, "--template", "template", "-m", DEMO, stdin=json.dumps(user).encode())
    assert sluice_json("template", "-m", DEMO, "--template", "v3", stdin=json.dumps(user).encode())[0].count("Hi") == 1
    refused(2, "nosuch", "template", "-m", DEMO, "--template", "nosuch", stdin=json.dumps(user).encode())


# ---- run ----

def test_json_of_run():
    out = run_json("-p", "It is a truth", "-n", "5", "--temp", "0")
    assert out["prompt_tokens"] == sluice_json("tokenize", "-m", DEMO, "--bos", "It is a truth")
    assert len(out["tokens"]) == 5 and out["finish_reason"] == "length"
    t = out["timings"]
    assert set(t) == {"test", "prompt_n", "prompt_s", "decode_n", "decode_s", "prompt_tok_s", "decode_tok_s", "bytes_per_token", "read_gb_s",
                      "ceiling_gb_s", "ceiling_share", "cache", "draft", "drive", "prefetch", "prediction", "steps_down"}, set(t)
    assert t["prompt_n"] == len(out["prompt_tokens"]) and t["decode_n"] == 4
    assert set(t["bytes_per_token"]) == {"vram", "ram", "nvme"} and t["bytes_per_token"]["ram"] > 0
    assert set(t["draft"]) == {"drafted", "accepted"}
    assert all(set(x) == {"what", "why"} for x in t["steps_down"])
    text = b"".join(bytes.fromhex(x["hex"]) for x in sluice_json("detokenize", "-m", DEMO, "--batch", "-", stdin=json.dumps([out["tokens"]]).encode()))
    assert out["text"] == text.decode(errors="replace")


def test_drafts_change_nothing_but_speed():
    with tempfile.TemporaryDirectory() as d:
        def generated(*args):
            path = os.path.join(d, "x.safetensors")
            out = run_json("-p", "It is a truth", "-n", "60", "--dump", path, *args)
            with open(path, "rb") as f:
                return out["tokens"], out["finish_reason"], f.read(), out["timings"]

        for sampling in (("--temp", "0"), ("--temp", "0.8", "--seed", "3", "--repeat-penalty", "1.1"), ("--temp", "0", "--ignore-eos")):
            *plain, t = generated("--mtp", "off", *sampling)
            assert t["draft"] == {"drafted": 0, "accepted": 0}, t
            for mtp, *more in (("auto",), ("on",), ("3", "--expert-ram", "20%"), ("8", "-t", "1"), ("0",)):
                *drafted, t = generated("--mtp", mtp, *more, *sampling)
                assert drafted == plain, (sampling, mtp)
                draft = t["draft"]
                assert 0 <= draft["accepted"] <= draft["drafted"] and t["decode_n"] == len(plain[0]) - (plain[1] == "length"), t
                assert draft["drafted"] > 0 if mtp in ("on", "3", "8") else mtp == "auto" or draft["drafted"] == 0, (mtp, draft)
    with tempfile.TemporaryDirectory() as d:  # a kept context, continued with other drafts
        def two_turns(mtp, name):
            path = os.path.join(d, name)
            tokens = run_json("-p", "It is a truth", "-n", "20", "--temp", "0", "--session", path, "--mtp", mtp)
            ids = ",".join(map(str, tokens["prompt_tokens"] + tokens["tokens"] + [265, 493]))
            return tokens["tokens"], run_json("--tokens", ids, "-n", "20", "--temp", "0", "--session", path, "--mtp", mtp)["tokens"]

        assert two_turns("2", "a") == two_turns("auto", "b")
    assert b"drafts accepted" in sluice("run", "-m", DEMO, "-p", "It is a truth", "-n", "20", "--mtp", "on").stderr


def test_drafts_without_an_mtp_layer():
    model = os.path.join(GOLDEN, "gguf-f32", "model.gguf")
    for mtp in ("on", "2"):
        refused(2, [f"--mtp {mtp}", "no MTP layer", "--mtp-from"], "run", "-m", model, "--tokens", "1,2", "-n", "2", "--mtp", mtp)
    for mtp, said in (("auto", 1), ("off", 0)):
        t = run_json("--tokens", "1,2", "-n", "2", "--mtp", mtp, model=model)["timings"]
        assert [x["what"] for x in t["steps_down"]].count("mtp") == said and t["draft"] == {"drafted": 0, "accepted": 0}, t
    assert "mtp" not in [x["what"] for x in run_json("-p", "x", "-n", "1")["timings"]["steps_down"]]


def test_text_goes_to_stdout_and_the_rest_to_stderr():
    args = ("run", "-m", DEMO, "-p", "It is a truth", "-n", "8", "--temp", "0")
    run = sluice(*args)
    assert run.stdout.decode() == run_json(*args[3:])["text"] + "\n"
    assert run.stderr
    assert sluice(*args, "-q").stderr == b""
    assert sluice("run", "-m", DEMO, *args[5:], stdin=b"It is a truth").stdout == run.stdout
    with tempfile.NamedTemporaryFile() as f:
        f.write(b"It is a truth")
        f.flush()
        assert sluice("run", "-m", DEMO, "-f", f.name, *args[5:]).stdout == run.stdout


def test_zero_tokens_and_context_end():
    out = run_json("-p", "x", "-n", "0")
    assert out["tokens"] == [] and out["text"] == "" and out["finish_reason"] == "length"
    assert out["timings"]["decode_tok_s"] is None
    out = run_json("-p", "x", "-c", "32", "--ignore-eos", "--temp", "0")
    assert out["finish_reason"] == "length"
    assert len(out["tokens"]) == 32 - len(out["prompt_tokens"]) + 1
    refused(1, ["65", "64"], "run", "-m", DEMO, "--tokens", ",".join("0" * 65), "-c", "64")
    assert len(run_json("--tokens", ",".join("0" * 64), "-c", "64", "-n", "9")["tokens"]) == 1


def test_seeds_and_filters():
    args = ("-p", "It is a truth", "-n", "12")
    a = run_json(*args, "-s", "7")
    assert a["seed"] == 7
    assert a["tokens"] == run_json(*args, "-s", "7", "-t", "1")["tokens"]
    assert any(run_json(*args, "-s", s)["tokens"] != a["tokens"] for s in (8, 9))
    greedy = run_json(*args, "--temp", "0")["tokens"]
    assert run_json(*args, "--top-k", "1", "-s", "3")["tokens"] == greedy
    assert run_json(*args, "--top-p", "0.000001", "-s", "3")["tokens"] == greedy
    assert run_json(*args, "--min-p", "1", "-s", "3")["tokens"] == greedy
    banned = run_json(*args, "--temp", "0", "--logit-bias", f"{greedy[0]}-inf")["tokens"]
    assert greedy[0] not in banned
    assert run_json("-p", "x", "-n", "3", "--temp", "0", "--logit-bias", "77+1000")["tokens"] == [77] * 3
    out = run_json("-p", "x", "-n", "8", "--temp", "0", "--logit-bias", "77+1000", "--frequency-penalty", "600")["tokens"]
    assert out[0] == 77 and out[1] == 77 and out[2] != 77, out


def test_end_token():
    stop = run_json("-p", "x", "-n", "3", "--temp", "0", "--logit-bias", "1+1000")
    assert stop["tokens"] == [] and stop["finish_reason"] == "stop"
    out = run_json("-p", "x", "-n", "3", "--temp", "0", "--logit-bias", "1+1000", "--ignore-eos")
    assert len(out["tokens"]) == 3 and 1 not in out["tokens"] and out["finish_reason"] == "length"


def test_logprobs():
    out = run_json("-p", "It is a truth", "-n", "4", "--temp", "0", "--logprobs", "3")
    assert [x["token"] for x in out["logprobs"]] == out["tokens"]
    for x in out["logprobs"]:
        assert len(x["top"]) == 3 and x["top"][0] == {"token": x["token"], "logprob": x["logprob"]}
        assert 0 > x["top"][0]["logprob"] >= x["top"][1]["logprob"] >= x["top"][2]["logprob"]


def test_chat_prompt():
    spelled = run_json("-p", "<｜User｜>x", "-n", "0", model=CHAT)["prompt_tokens"]
    user = sluice_json("tokenize", "-m", CHAT, "<｜User｜>")[0]
    assert spelled.count(user) == 1, spelled
    raw = run_json("-p", "<｜User｜>x", "-n", "0", "--raw", model=CHAT)["prompt_tokens"]
    assert raw.count(user) == 1 and len(raw) < len(spelled)
    system = run_json("-p", "x", "--system", "be kind", "-n", "0", model=CHAT)["prompt_tokens"]
    assert len(system) > len(run_json("-p", "x", "-n", "0", model=CHAT)["prompt_tokens"])
    refused(2, "--raw", "run", "-m", CHAT, "-p", "x", "--raw", "--system", "y")
    refused(2, "--template", "run", "-m", DEMO, "-p", "x", "--system", "y")
    assert run_json("-p", "x", "--template", "v3", "-n", "0")["prompt_tokens"]
    refused(2, "nosuch", "run", "-m", DEMO, "-p", "x", "--template", "nosuch")


def test_unknown_template_matters_only_when_used():
    with tempfile.TemporaryDirectory() as d:
        for name in os.listdir(CHAT):
            os.symlink(os.path.join(CHAT, name), os.path.join(d, name))
        path = os.path.join(d, "tokenizer_config.json")
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        config["chat_template"] = "{{ my_own }}"
        os.unlink(path)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)
        refused(2, ["--raw", "--template"], "run", "-m", d, "-p", "x", "-n", "1")
        for args in (["-p", "x", "--raw"], ["-p", "x", "--template", "plain"], ["--tokens", "5"]):
            assert len(run_json(*args, "-n", "1", "--temp", "0", model=d)["tokens"]) <= 1


def test_dump_of_run():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x.safetensors")
        out = run_json("-p", "It is a truth", "-n", "6", "--temp", "0", "--dump", path)
        dump = load_safetensors(path)
        assert dump["logits"][0] == [6, 4096]
        for i, token in enumerate(out["tokens"]):
            r = row(dump["logits"], i)
            assert max(range(len(r)), key=r.__getitem__) == token
        assert os.listdir(d) == ["x.safetensors"]


def test_session_file():
    args = ("-n", "6", "--temp", "0", "-ub", "8")
    long = "It is a truth universally acknowledged, that a single man must be in want"
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "s")
        want = run_json("-p", long, *args)["tokens"]
        first = run_json("-p", long, *args, "--session", path)
        assert first["tokens"] == want
        again = run_json("-p", long, *args, "--session", path)
        assert again["tokens"] == want and again["timings"]["prompt_n"] < 2
        more = run_json("-p", long + " of a wife", *args, "--session", path)
        assert 0 < more["timings"]["prompt_n"] < len(more["prompt_tokens"]) / 2
        assert more["tokens"] == run_json("-p", long + " of a wife", *args)["tokens"]
        for policy in ("aligned", "off"):
            off = run_json("-p", long, *args, "--session", path, "--reuse", policy)
            assert off["tokens"] == want and off["timings"]["prompt_n"] == len(off["prompt_tokens"])
        with open(path, "r+b") as f:
            f.seek(os.path.getsize(path) // 2)
            f.write(b"\xff" * 64)
        run = sluice("run", "-m", DEMO, "-p", long, *args, "--json", "--session", path)
        assert b"warning" in run.stderr and json.loads(run.stdout)["tokens"] == want
        run = sluice("run", "-m", CHAT, "-p", "x", "-n", "1", "--session", path)
        assert b"warning" in run.stderr
        assert os.listdir(d) == ["s"]


def test_session_leaves_other_files_alone():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "notes")
        with open(path, "w", encoding="utf-8") as f:
            f.write("mine")
        for target in (path, d, "/dev/null"):
            refused(2, "no session file", "run", "-m", DEMO, "-p", "It is", "-n", "2", "--session", target)
        with open(path, encoding="utf-8") as f:
            assert f.read() == "mine" and os.listdir(d) == ["notes"]
        with open(path, "w", encoding="utf-8"):
            pass
        sluice("run", "-m", DEMO, "-p", "It is", "-n", "2", "--session", path)
        assert os.path.getsize(path) > 4096


def test_flags_are_checked_before_the_model_is_read():
    for flag, value in (("--temp", "-1"), ("--top-p", "2"), ("--min-p", "-1"), ("--repeat-penalty", "0")):
        refused(2, "expected", "run", "-m", "/nonexistent", "-p", "x", flag, value)
    refused(2, "--machine", "run", "-m", DEMO, "-p", "x", "--machine", "m.json")
    refused(2, "command comes first", "-m", DEMO)


def test_prompt_from_a_file_ends_without_its_line_end():
    for text, ids in ((b"It is", 3), (b"It is\n", 3), (b"It is\n\n", 4)):
        run = sluice("run", "-m", DEMO, "-n", "1", "--json", "-f", "-", stdin=text)
        assert len(json.loads(run.stdout)["prompt_tokens"]) == ids, text


# ---- references ----

def test_demo_perplexity():
    for text in reference()["texts"]:
        out = sluice_json("score", "-m", DEMO, "--tokens", ",".join(map(str, text["ids"])), "--json", *F32)
        assert abs(out["nll_mean"] / text["mean_nll"] - 1) < 0.005, (text["domain"], out["nll_mean"], text["mean_nll"])
        assert len(out["logprobs"]) == len(text["ids"]) - 1
        assert abs(out["perplexity"] - math.exp(out["nll_mean"])) < 1e-3 * out["perplexity"]


def test_demo_greedy():
    for g in reference()["greedy"]:
        n = len(g["greedy"])
        assert sluice_json("tokenize", "-m", DEMO, "--bos", g["prompt"]) == g["prompt_ids"]
        out = run_json("--tokens", ",".join(map(str, g["prompt_ids"])), "-n", n, "--temp", "0", "--logprobs", "2", *F32)
        sure = n
        for i, x in enumerate(out["logprobs"]):
            if x["top"][0]["logprob"] - x["top"][1]["logprob"] < 0.01:
                sure = i
                break
        assert out["tokens"][:sure] == g["greedy"][:sure], g["prompt"]
        assert sure == n or g["smallest_gap"] < 0.011


# ---- score ----

def test_score_text():
    out = sluice_json("score", "-m", DEMO, "--text", "It is a truth", "--json")
    assert out["tokens"][0] == 0
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(out["tokens"], f)
        f.flush()
        assert sluice_json("score", "-m", DEMO, "--tokens-file", f.name, "--json") == out
    assert b"perplexity" in sluice("score", "-m", DEMO, "--text", "It is a truth").stdout
    one = sluice_json("score", "-m", DEMO, "--tokens", "0", "--json")
    assert one == {"tokens": [0], "logprobs": [], "nll_mean": None, "perplexity": None}


def test_score_dump():
    tokens = list(range(3, 23))
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x.safetensors")
        args = ("score", "-m", CHAT, "--tokens", ",".join(map(str, tokens)), "--json", "--dump", path, "-ub", "8")
        out = sluice_json(*args)
        dump = load_safetensors(path)
        assert set(dump) == {"logits", "mtp.logits"} | {f"hidden.{i}" for i in range(4)} | {f"router.{i}.{k}" for i in (1, 2, 3, 4) for k in ("ids", "weights")}
        assert dump["logits"][0] == [20, 328] and dump["mtp.logits"][0] == [19, 328] and dump["hidden.2"][0] == [20, 96]
        assert dump["router.3.ids"][0] == [20, 4] and dump["router.4.ids"][0] == [19, 4]
        for i in range(19):
            r = row(dump["logits"], i)
            top = max(r)
            want = r[tokens[i + 1]] - top - math.log(math.fsum(math.exp(x - top) for x in r))
            assert abs(want - out["logprobs"][i]) < 1e-5
            ids = list(row(dump["router.4.ids"], i))
            assert ids == sorted(set(ids))
            assert any(row(dump["mtp.logits"], i))
        sluice(*args, "--mtp", "off")
        assert not any(k.startswith(("mtp", "router.4")) for k in load_safetensors(path))
        sluice("score", "-m", CHAT, "--tokens", "5", "--dump", path)
        assert load_safetensors(path)["mtp.logits"][0] == [0, 328]
        assert os.listdir(d) == ["x.safetensors"]


# ---- disks and pipes ----

def test_full_disk_and_missing_folder():
    refused(1, ["/dev/full", "space"], "score", "-m", DEMO, "--tokens", "1,2,3", "--dump", "/dev/full", "--json")
    refused(1, ["/dev/full", "space"], "run", "-m", DEMO, "--tokens", "1,2,3", "-n", "2", "--dump", "/dev/full")
    refused(1, "/nonexistent/x", "score", "-m", DEMO, "--tokens", "1,2,3", "--dump", "/nonexistent/x")
    refused(1, "/proc/x", "score", "-m", DEMO, "--tokens", "1,2,3", "--dump", "/proc/x")
    for args in (["--help"], ["score", "-m", DEMO, "--tokens", "1,2,3", "--json"], ["run", "-m", DEMO, "-p", "x", "-n", "3"]):
        with open("/dev/full", "wb") as full:
            run = subprocess.run([cases.BINARY, *args], stdout=full, stderr=subprocess.PIPE, timeout=60)
        assert run.returncode == 1 and b"stdout" in run.stderr, (args, run.stderr)


def test_existing_dump_survives_a_failed_run():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x")
        with open(path, "w") as f:
            f.write("old")
        sluice("run", "-m", DEMO, "--tokens", "1", "-n", "2", "--dump", path, "--session", "/nonexistent/s", status=1)
        refused(1, "100", "score", "-m", DEMO, "--tokens", ",".join("1" * 100), "-c", "64", "--dump", path)
        assert os.listdir(d) == ["x"]


def test_closed_pipe():
    p = subprocess.Popen([cases.BINARY, "run", "-m", DEMO, "-p", "x", "--ignore-eos", "-q"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.read(1)
    p.stdout.close()
    error = p.stderr.read()
    assert p.wait(timeout=10) == 1, p.returncode
    assert error.count(b"\n") == 1, error


# ---- signals ----

def signalled(args, delay, number=signal.SIGINT, stdin=subprocess.DEVNULL):
    p = subprocess.Popen([cases.BINARY, *args], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    cases.wait_until_caught(p.pid, number)
    time.sleep(delay)
    p.send_signal(number)
    start = time.monotonic()
    out, error = p.communicate(timeout=20)
    assert time.monotonic() - start < 2, time.monotonic() - start
    return p.returncode, out, error


def test_signals_end_any_phase():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x")
        args = ["run", "-m", DEMO, "-p", "x", "--ignore-eos", "-c", "4096", "--dump", path]
        for i in range(12):
            code, _, error = signalled(args, 0.05 + 0.06 * i, signal.SIGTERM if i % 3 == 0 else signal.SIGINT)
            assert code == 130, (i, code, error)
            assert os.listdir(d) == [], (i, os.listdir(d))
    tokens = ",".join(str(3 + i % 4000) for i in range(4000))
    for i in range(6):
        code, out, error = signalled(["score", "-m", DEMO, "--tokens", tokens, "--json"], 0.1 + 0.08 * i)
        assert code == 130 and out == b"", (code, error)


def test_signal_while_waiting_for_a_prompt():
    r, w = os.pipe()
    for args in (["run", "-m", DEMO], ["tokenize", "-m", DEMO]):
        code, out, _ = signalled(args, 0.4, stdin=r)
        assert code == 130 and out == b"", code
    os.close(r)
    os.close(w)


# ---- the terminal ----

class Terminal:
    """The program on a pseudo-terminal."""

    def __init__(self, *args, state, env=None):
        self.output, self.seen = b"", 0
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", "XDG_STATE_HOME": state, **(env or {})})
            os.execv(cases.BINARY, [cases.BINARY, *map(str, args)])

    def expect(self, text, timeout=30):
        """Waits for the text after what was seen before; returns what came until its end."""
        end = time.monotonic() + timeout
        while True:
            at = self.output.find(text.encode(), self.seen)
            if at >= 0:
                out = self.output[self.seen:at + len(text.encode())]
                self.seen = at + len(text.encode())
                return out.decode(errors="replace")
            assert time.monotonic() < end, f"no {text!r} in {self.output[self.seen:]!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.output += os.read(self.fd, 65536)
                except OSError:
                    assert text.encode() in self.output[self.seen:], f"ended without {text!r}: {self.output[self.seen:]!r}"

    def send(self, text, pause=0.15):
        """A moment later, so that the line editor has taken over the terminal."""
        time.sleep(pause)
        os.write(self.fd, text.encode())

    def wait(self):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.output += os.read(self.fd, 65536)
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError(f"still running: {self.output[-500:]!r}")


def test_interactive_text():
    with tempfile.TemporaryDirectory() as d:
        t = Terminal("run", "-m", DEMO, "-n", "8", "--temp", "0", state=d)
        t.expect("/help lists commands")
        t.expect("> ")
        t.send("It is a truth\n")
        want = run_json("-p", "It is a truth", "-n", "8", "--temp", "0")["text"]
        t.expect(want.split("\n")[0])
        t.expect("> ")
        t.send("/stats\n")
        t.expect("positions used")
        t.send("/regen\n")
        t.expect(want.split("\n")[0])
        t.send("/nosuch\n")
        t.expect("unknown command /nosuch")
        t.send("first\\\n")
        t.expect("... ")
        t.send("second\n")
        t.expect("> ")
        t.send("/save " + os.path.join(d, "kept") + "\n")
        t.expect("saved to")
        t.send("/reset\n")
        t.expect("starting anew")
        t.send("/load " + os.path.join(d, "kept") + "\n")
        t.expect("loaded")
        t.send("/quit\n")
        assert t.wait() == 0
        with open(os.path.join(d, "sluice", "history"), encoding="utf-8") as f:
            assert "truth" in f.read()
        assert os.stat(os.path.join(d, "sluice", "history")).st_mode & 0o77 == 0


def test_chat_save_leaves_foreign_files():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "talk")
        with open(path + ".json", "w", encoding="utf-8") as f:
            f.write("[1]")
        t = Terminal("run", "-m", CHAT, "-n", "8", "--temp", "0", state=d)
        t.expect(">>> ")
        t.send("hello there\n")
        t.expect("\n>>> ")
        t.send("/save " + path + "\n")
        t.expect("choose another name")
        t.send("/quit\n")
        assert t.wait() == 0
        with open(path + ".json", encoding="utf-8") as f:
            assert f.read() == "[1]"


def test_interactive_chat_keeps_its_timeline():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "talk")
        args = ("run", "-m", CHAT, "-n", "8", "--temp", "0", "--session", path)
        t = Terminal(*args, state=d)
        t.expect(">>> ")
        t.send("hello there\n")
        t.expect("\n>>> ")
        t.send("\x04")
        assert t.wait() == 0
        with open(path + ".json", encoding="utf-8") as f:
            assert [m["role"] for m in json.load(f)] == ["user", "assistant"]
        t = Terminal(*args, state=d)
        t.expect(">>> ")
        t.send("pasted\nlines\n")
        t.expect("\n>>> ")
        t.send("/system be kind\n")
        t.expect("starting anew")
        t.send("/quit\n")
        assert t.wait() == 0
        assert sorted(os.listdir(d)) == ["sluice", "talk", "talk.json"]


def test_interactive_interrupts():
    with tempfile.TemporaryDirectory() as d:
        t = Terminal("run", "-m", DEMO, "--ignore-eos", state=d)
        t.expect("> ")
        t.send("It is a truth\n")
        t.expect("truth")
        time.sleep(0.5)
        t.send("\x03")
        t.expect("stopped")
        t.expect("> ")
        t.send("abc", pause=0.3)
        t.send("\x03", pause=0.3)
        t.expect("> ")
        t.send("\x03", pause=0.3)
        assert t.wait() == 130


def test_colours_only_on_terminals():
    with tempfile.TemporaryDirectory() as d:
        for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
            t = Terminal("run", "-m", "/nonexistent", "-p", "x", state=d, env=env)
            assert t.wait() == 1
            assert (b"\x1b[31m" in t.output) == coloured, t.output
    assert b"\x1b" not in sluice("run", "-m", "/nonexistent", "-p", "x", status=1).stderr


def test_no_files_left_behind():
    assert not glob.glob(os.path.join(ROOT, "*.tmp")) and not glob.glob("/dev/*.tmp")


if __name__ == "__main__":
    cases.main(globals())
