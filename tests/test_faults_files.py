#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: quick
"""Damaged, incomplete and contradictory model files, from outside: one message that names file, item and figures, exit status
1, never a signal, memory below 256 MB. (tests/unit/io cuts and mutates every byte of headers in the process, under sanitizers.)"""
import json
import os
import random
import resource
import struct
import subprocess

import cases
from model_files import GOLDEN, STRING, Gguf, Safetensors, edit_json, folder, golden, gguf_path, refused

MEMORY_KB = 256 << 10
ADVICE = ("download", "complete", "take", "get ", "convert", "get the", "pass ", "supported", "expected", "damaged", "name ", "--")


def peak(*args):
    """(exit status, stderr, peak resident kB) of one run."""
    run = subprocess.Popen([cases.BINARY, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    text = run.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(run.pid, 0)
    run.returncode = os.waitstatus_to_exitcode(status)
    return run.returncode, text, usage.ru_maxrss


def one_error(text):
    lines = [x for x in text.strip().split("\n") if x]
    return len(lines) == 1 and any(a in lines[0] for a in ADVICE)


def inspect(path):
    return cases.sluice_json("inspect", "-m", path, "--json")


# ---- cuts and mutations ----

def cuts(size, n):
    """n lengths below size, spread over the file, dense at its beginning and its end."""
    return sorted({*range(0, n // 6), *(size * i // n for i in range(n)), *(size - 1 - i for i in range(n // 6))} - {size})


def try_cuts(source, name, command, n=60):
    with folder(source) as path:
        file = os.path.join(path, name)
        with open(file, "rb") as f:
            data = f.read()
        for length in cuts(len(data), n):
            with open(file, "wb") as f:
                f.write(data[:length])
            if data[length:].strip() == b"":
                continue
            status, text, memory = peak(command, "-m", path if name != "model.gguf" else file)
            assert status == 1 and name in text and memory < MEMORY_KB, (name, length, status, text, memory)
            assert one_error(text), (length, text)


def test_cut_gguf():
    try_cuts(golden("kq-q4"), "model.gguf", "check")


def test_cut_shard():
    try_cuts(golden("v3-fp8"), "model-00002-of-000003.safetensors", "check")


def test_cut_index_and_config():
    try_cuts(golden("v3-fp8"), "model.safetensors.index.json", "inspect", 20)
    try_cuts(golden("v3-fp8"), "config.json", "inspect", 20)


def test_cut_tokenizer():
    with folder(golden("v3")) as path:
        file = os.path.join(path, "tokenizer.json")
        with open(file, "rb") as f:
            data = f.read()
        for length in cuts(len(data), 20):
            with open(file, "wb") as f:
                f.write(data[:length])
            status, text, _ = peak("tokenize", "-m", path, "text")
            if data[length:].strip() == b"":
                continue
            assert status == 1 and "tokenizer.json" in text and text.count("\n") == 1, (length, status, text)


def test_mutated_headers():
    random.seed(1)
    for source, name in ((golden("gguf-q4_0"), "model.gguf"), (golden("v3-f32"), "model.safetensors")):
        with folder(source) as path:
            file = os.path.join(path, name)
            with open(file, "rb") as f:
                data = f.read()
            for _ in range(60):
                bad = bytearray(data)
                for _ in range(random.randint(1, 8)):
                    bad[random.randrange(9000)] = random.choice((0, 1, 31, 127, 128, 255, random.randrange(256)))
                with open(file, "wb") as f:
                    f.write(bad)
                status, text, memory = peak("check", "-m", file)
                assert status in (0, 1) and memory < MEMORY_KB, (status, text, memory)


def test_costly_headers():
    """Counts and lengths that ask for more than there is."""
    huge = 2**62
    gguf = b"GGUF" + struct.pack("<I", 3)
    hostile = {
        "counts.gguf": gguf + struct.pack("<QQ", huge, huge),
        "tensors.gguf": gguf + struct.pack("<QQ", 2**24, 0) + bytes(4096),
        "keys.gguf": gguf + struct.pack("<QQ", 0, 2**24) + bytes(4096),
        "string.gguf": gguf + struct.pack("<QQQ", 0, 1, huge) + bytes(4096),
        "array.gguf": gguf + struct.pack("<QQQ", 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 8, 2**40) + bytes(4096),
        "length.safetensors": struct.pack("<Q", huge) + b"{}",
        "deep.safetensors": struct.pack("<Q", 900000) + b'{"a":' + b"[" * 899995,
        "empty.safetensors": b"", "empty.gguf": b"",
    }
    with folder() as path:
        for name, data in hostile.items():
            file = os.path.join(path, name)
            with open(file, "wb") as f:
                f.write(data)
            status, text, memory = peak("inspect", "-m", file)
            assert status == 1 and name in text and one_error(text) and memory < MEMORY_KB, (name, status, text, memory)


# ---- parts ----

def test_missing_shards_are_listed_at_once():
    with folder(golden("v3-fp8")) as path:
        os.unlink(os.path.join(path, "model-00001-of-000003.safetensors"))
        os.unlink(os.path.join(path, "model-00003-of-000003.safetensors"))
        refused(1, ["2 of 3", "model-00001-of-000003.safetensors", "model-00003-of-000003.safetensors"], "plan", "-m", path)
    with folder(golden("gguf-q8_0-split")) as path:
        os.unlink(os.path.join(path, "model-00001-of-00003.gguf"))
        os.unlink(os.path.join(path, "model-00002-of-00003.gguf"))
        refused(1, ["2 of 3", "model-00001-of-00003.gguf", "model-00002-of-00003.gguf"], "run", "-m",
                os.path.join(path, "model-00003-of-00003.gguf"), "--tokens", "1", "-n", "1")


def test_foreign_shard():
    with folder(golden("v3-fp8")) as path:
        second = os.path.join(path, "model-00002-of-000003.safetensors")
        os.replace(second, os.path.join(path, "model-00001-of-000003.safetensors"))
        with open(os.path.join(golden("v3"), "model-00001-of-00002.safetensors"), "rb") as f, open(second, "wb") as out:
            out.write(f.read())
        line = refused(1, ["model-00001-of-000003.safetensors"], "check", "-m", path)
        assert "model-00002-of-000003.safetensors" in line, line


def test_joined_parts_are_recognised():
    with folder() as path:
        joined = os.path.join(path, "joined.gguf")
        with open(joined, "wb") as out:
            for i in (1, 2, 3):
                with open(os.path.join(golden("gguf-q8_0-split"), f"model-0000{i}-of-00003.gguf"), "rb") as f:
                    out.write(f.read())
        line = refused(1, "joined.gguf", "inspect", "-m", joined)
        assert "part" in line, line


# ---- types ----

def with_type(kind, tensor="blk.1.ffn_gate_exps.weight", source="kq-q4"):
    g = Gguf(gguf_path(source))
    g.tensor(tensor)[2] = kind
    return g


def test_foreign_types_are_named():
    with folder() as path:
        file = os.path.join(path, "model.gguf")
        for kind, name in ((34, "TQ1_0"), (40, "NVFP4"), (200, "200")):
            with_type(kind).save(file)
            for command in ("inspect", "plan", "check"):
                run = cases.sluice(command, "-m", file, status=1)
                text = run.stderr.decode() + run.stdout.decode()
                assert "blk.1.ffn_gate_exps.weight" in text and name in text, (kind, command, text)
            refused(1, ["blk.1.ffn_gate_exps.weight", name, "Q4_K" if kind == 200 else "readable"], "run", "-m", file, "--tokens", "1", "-n", "1")


def test_supported_but_wrong_types_fail_by_their_size():
    with folder() as path:
        file = os.path.join(path, "model.gguf")
        for kind in (0, 1, 8, 13, 14, 30):  # all larger than the type in the file
            with_type(kind).save(file)
            line = refused(1, ["model.gguf", "blk.1.ffn_gate_exps.weight"], "inspect", "-m", file)
            assert any(c.isdigit() for c in line.split("weight")[1]), line
        for kind in (10, 19):  # smaller: the tensor ends before the next begins
            with_type(kind).save(file)
            refused(1, ["model.gguf", "blk.1.ffn_gate_exps.weight"], "inspect", "-m", file)


def test_wrong_dtype_of_a_shard():
    with folder(golden("v3-f32")) as path:
        file = os.path.join(path, "model.safetensors")
        s = Safetensors(file)
        name = "model.layers.1.mlp.experts.3.up_proj.weight"
        for dtype in ("BF16", "F64", "I32", "WHAT"):
            s.header[name]["dtype"] = dtype
            s.save(file)
            refused(1, ["model.safetensors", name, dtype], "plan", "-m", path)


# ---- metadata ----

REQUIRED = ["general.architecture", *("deepseek2." + k for k in (
    "block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count", "attention.kv_lora_rank",
    "attention.layer_norm_rms_epsilon", "rope.dimension_count", "rope.freq_base", "leading_dense_block_count", "expert_count",
    "expert_used_count", "expert_shared_count", "expert_feed_forward_length", "expert_group_count", "expert_group_used_count",
    "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.yarn_log_multiplier"))]
CONTRADICTED = {  # key: what is there against its absence
    "deepseek2.attention.q_lora_rank": "blk.0.attn_q_a.weight",
    "deepseek2.attention.key_length_mla": "key_length_mla",
    "deepseek2.attention.value_length_mla": "value_length_mla",
    "deepseek2.expert_gating_func": "blk.1.exp_probs_b.bias",
    "deepseek2.nextn_predict_layers": "blk.2.nextn.eh_proj.weight",
}
ASSUMED = {  # key: (field of inspect's shape, its value when absent)
    "deepseek2.vocab_size": ("vocab", 320),
    "deepseek2.expert_weights_scale": ("routed_factor", 1),
    "deepseek2.expert_weights_norm": ("normalise", False),
    "deepseek2.rope.scaling.yarn_beta_fast": ("yarn_beta_fast", 32),
    "deepseek2.rope.scaling.yarn_beta_slow": ("yarn_beta_slow", 1),
    "tokenizer.ggml.eos_token_id": ("eos", []),
    "tokenizer.ggml.bos_token_id": ("bos", -1),
    "tokenizer.ggml.add_bos_token": ("bos", 0),
}
TOKENIZER = ["tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges", "tokenizer.ggml.model"]
FREE = {  # not read, or without effect on this file
    "general.type", "general.name", "general.quantization_version", "general.file_type", "deepseek2.attention.head_count_kv",
    "deepseek2.attention.key_length", "deepseek2.attention.value_length", "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.add_eos_token", "tokenizer.chat_template"}
MTP_FILE = "gguf-f16-mtp"


def dropped(path, *keys, source=MTP_FILE):
    return Gguf(gguf_path(source)).drop(*keys).save(os.path.join(path, "model.gguf"))


def test_every_key_is_covered():
    assert set(Gguf(gguf_path(MTP_FILE)).keys()) == {*REQUIRED, *CONTRADICTED, *ASSUMED, *TOKENIZER, *FREE}


def test_absent_required_keys():
    with folder() as path:
        for key in REQUIRED:
            file = dropped(path, key)
            refused(1, ["model.gguf", key if key != "deepseek2.block_count" else "block_count"], "inspect", "-m", file)
        file = dropped(path, "deepseek2.context_length", "deepseek2.rope.freq_base")
        refused(1, ["deepseek2.context_length", "deepseek2.rope.freq_base"], "run", "-m", file, "--tokens", "1", "-n", "1")


def test_absent_keys_that_tensors_contradict():
    with folder() as path:
        for key, named in CONTRADICTED.items():
            refused(1, ["model.gguf", named], "plan", "-m", dropped(path, key))


def test_absent_keys_with_a_meaning():
    with folder() as path:
        for key, (field, value) in ASSUMED.items():
            file = dropped(path, key)
            report = inspect(file)
            assert report["shape"][field] == value, (key, report["shape"][field])
            assert sum(key in note for note in report["notes"]) == 1, (key, report["notes"])
            run = cases.sluice("run", "-m", file, "--tokens", "1,2", "-n", "1", "--temp", "0")
            assert run.stderr.decode().count(key) == 1, run.stderr.decode()
        report = inspect(dropped(path, "deepseek2.expert_group_count", "deepseek2.expert_group_used_count"))
        assert report["shape"]["groups"] == 1 and any("expert_group_count, assumed" in n for n in report["notes"]), report["notes"]
        scaling = ["deepseek2.rope.scaling." + k for k in ("type", "factor", "original_context_length", "yarn_log_multiplier",
                                                         "yarn_beta_fast", "yarn_beta_slow")]
        report = inspect(dropped(path, *scaling))
        assert report["shape"]["yarn"] is False and any("rope.scaling.type, assumed" in n for n in report["notes"]), report["notes"]


def test_absent_keys_of_old_v2_files():
    """Softmax: an absent score, an absent multiplier."""
    with folder() as path:
        report = inspect(gguf_path("gguf-v2-lite"))
        assert report["shape"]["score"] == "softmax" and any("expert_gating_func, assumed softmax" in n for n in report["notes"])
        file = dropped(path, "deepseek2.rope.scaling.yarn_log_multiplier", source="gguf-v2-lite")
        assert any("yarn_log_multiplier, assumed 0.0707" in n for n in inspect(file)["notes"])


def test_absent_tokenizer_keys():
    """Ids still work without a tokenizer; a broken one is named."""
    with folder() as path:
        for key in TOKENIZER:
            refused(1, ["model.gguf", key], "tokenize", "-m", dropped(path, key), "text")
        run = cases.sluice("run", "-m", dropped(path, "tokenizer.ggml.model"), "--tokens", "1,2", "-n", "1", "--temp", "0", "--json")
        assert b"only token ids" in run.stderr and json.loads(run.stdout)["text"] is None
        assert cases.sluice_json("tokenize", "-m", dropped(path, "tokenizer.ggml.pre"), "--pre-tokenizer", "deepseek-v3", "hello")


def test_contradictions():
    with folder() as path:
        file = os.path.join(path, "model.gguf")
        Gguf(gguf_path(MTP_FILE)).put("deepseek2.expert_gating_func", 4, 1).save(file)
        refused(1, ["model.gguf", "blk.1.exp_probs_b.bias", "softmax"], "run", "-m", file, "--tokens", "1", "-n", "1")
        changes = {"deepseek2.expert_shared_count": (0, "blk.1.ffn_gate_shexp.weight"), "deepseek2.expert_used_count": (99, "99"),
                   "deepseek2.expert_group_count": (3, "3"), "deepseek2.block_count": (2, "blk.1."), "deepseek2.expert_count": (9, "9"),
                   "deepseek2.leading_dense_block_count": (2, "blk.1.ffn_gate_inp.weight"), "deepseek2.embedding_length": (65, "65"),
                   "deepseek2.attention.head_count": (0, "head"), "deepseek2.vocab_size": (321, "321")}
        for key, (value, named) in changes.items():
            Gguf(gguf_path(MTP_FILE)).put(key, 4, value).save(file)
            refused(1, ["model.gguf", named], "inspect", "-m", file)
        for key, value, named in (("general.architecture", "llama", "llama"), ("deepseek2.rope.scaling.type", "linear", "linear"),
                                  ("tokenizer.ggml.pre", "unheard-of", "unheard-of")):
            Gguf(gguf_path(MTP_FILE)).put(key, STRING, value).save(file)
            refused(1, ["model.gguf", named], "run", "-m", file, "--tokens", "1", "-n", "1")


# ---- config.json ----

CONFIG_ASSUMED = {"moe_layer_freq", "scoring_func", "topk_method", "rope_scaling", "hidden_act", "eos_token_id"}
CONFIG_SILENT = {"num_nextn_predict_layers", "rope_interleave", "attention_bias", "bos_token_id", "tie_word_embeddings"}


def test_absent_keys_of_config():
    """Each key is required (one message), assumed (noted), or means what docs/formats.md says without a note."""
    with open(os.path.join(golden("v3"), "config.json"), encoding="utf-8") as f:
        keys = list(json.load(f))
    required = 0
    with folder(golden("v3")) as path:
        os.unlink(os.path.join(path, "generation_config.json"))
        file = os.path.join(path, "config.json")
        with open(file, encoding="utf-8") as f:
            original = f.read()
        for key in keys:
            with open(file, "w", encoding="utf-8") as f:
                f.write(original)
            edit_json(file, lambda c, k=key: c.pop(k))
            run = cases.sluice("inspect", "-m", path, "--json", status=None)
            if run.returncode == 0:
                notes = [n for n in json.loads(run.stdout)["notes"] if key in n]
                assert len(notes) == (key in CONFIG_ASSUMED), (key, notes)
            else:
                required += 1
                text = run.stderr.decode()
                assert run.returncode == 1 and "config.json" in text and key in text and text.count("\n") == 1, (key, text)
    assert required >= 18, required


def test_contradictions_of_config():
    with folder(golden("v3")) as path:
        file = os.path.join(path, "config.json")
        with open(file, encoding="utf-8") as f:
            original = f.read()
        changes = [("scoring_func", "softmax"), ("topk_method", "greedy"), ("model_type", "llama"), ("hidden_act", "gelu"),
                   ("n_group", 5), ("n_routed_experts", 7), ("num_hidden_layers", "2"), ("hidden_size", -1), ("hidden_size", 1 << 40),
                   ("vocab_size", 10.5), ("n_shared_experts", 0), ("attention_bias", True), ("qk_rope_head_dim", 15)]
        for key, value in changes:
            with open(file, "w", encoding="utf-8") as f:
                f.write(original)
            edit_json(file, lambda c, k=key, v=value: c.update({k: v}))
            run = cases.sluice("inspect", "-m", path, status=1)
            assert run.stderr.decode().count("\n") == 1, (key, value, run.stderr.decode())


# ---- numbers that are none ----

def test_nan_scale_of_fp8():
    """`check` names tensor, expert and block; running names layer and expert; no token comes out."""
    name = "model.layers.1.mlp.experts.4.down_proj.weight_scale_inv"
    for bits in (0x7fc00000, 0x7f800000, 0xbf800000):  # NaN, infinity, -1
        with folder(golden("v3-fp8")) as path:
            for shard in sorted(x for x in os.listdir(path) if x.endswith(".safetensors")):
                s = Safetensors(os.path.join(path, shard))
                if name in s.header:
                    s.tensor_data(name)[4:8] = struct.pack("<I", bits)
                    s.save(os.path.join(path, shard))
            run = cases.sluice("check", "-m", path, status=1)
            text = run.stdout.decode() + run.stderr.decode()
            assert name in text and "expert 4" in text and "block 1" in text, text
            refused(1, [name, "(0, 1)"], "run", "-m", path, "--tokens", "1,2", "-n", "2", "--temp", "0")


def test_nan_code_of_fp8():
    name = "model.layers.1.mlp.experts.2.up_proj.weight"
    with folder(golden("v3-fp8")) as path:
        for shard in sorted(x for x in os.listdir(path) if x.endswith(".safetensors")):
            s = Safetensors(os.path.join(path, shard))
            if name in s.header:
                s.tensor_data(name)[77] = 0x7f
                s.save(os.path.join(path, shard))
        run = cases.sluice("check", "-m", path, status=1)
        assert name in (run.stdout + run.stderr).decode()
        refused(1, [name], "run", "-m", path, "--tokens", "1,2", "-n", "2", "--temp", "0")


def plant(source, tensor, path, expert, block, at, raw):
    """Writes raw into one block of one expert of a stacked GGUF tensor."""
    g = Gguf(gguf_path(source))
    _, dims, _, offset = g.tensor(tensor)
    following = min((t[3] for t in g.tensors if t[3] > offset), default=len(g.data))
    with open(gguf_path(source), "rb"):
        size = (following - offset) // dims[2]
    start = offset + expert * size + block + at
    g.data[start:start + len(raw)] = raw
    return g.save(os.path.join(path, "model.gguf"))


def test_nan_scale_of_gguf_blocks():
    """All experts are poisoned in one block each, so that whatever is routed to meets it."""
    for source, block_bytes, at, raw in (("gguf-q4_0", 18, 0, b"\x00\x7e"), ("kq-q4", 144, 0, b"\x00\x7e"), ("gguf-mxfp4", 17, 0, b"\xff")):
        with folder() as path:
            tensor = "blk.1.ffn_up_exps.weight"
            experts = Gguf(gguf_path(source)).tensor(tensor)[1][2]
            file = plant(source, tensor, path, experts - 1, 2 * block_bytes, at, raw)
            run = cases.sluice("check", "-m", file, status=1)
            text = (run.stdout + run.stderr).decode()
            assert tensor in text and f"expert {experts - 1}" in text and "block" in text, text
            for expert in range(experts - 1):
                os.rename(file, file + ".old")
                g = Gguf(file + ".old")
                os.unlink(file + ".old")
                size = (min(t[3] for t in g.tensors if t[3] > g.tensor(tensor)[3]) - g.tensor(tensor)[3]) // experts
                start = g.tensor(tensor)[3] + expert * size + 2 * block_bytes + at
                g.data[start:start + len(raw)] = raw
                g.save(file)
            for command in (("run", "--tokens", "1,2", "-n", "2", "--temp", "0"), ("score", "--tokens", "1,2")):
                refused(1, ["layer 1", "expert "], command[0], "-m", file, *command[1:])


def test_overflow_is_no_token():
    """Finite weights whose products are not: the run ends and names the layer."""
    with folder() as path:
        g = Gguf(gguf_path("gguf-f32"))
        offset = g.tensor("blk.0.ffn_down.weight")[3]
        for i in range(2048):
            g.data[offset + 4 * i:offset + 4 * i + 4] = struct.pack("<f", 3e38)
        refused(1, "layer 0", "run", "-m", g.save(os.path.join(path, "model.gguf")), "--tokens", "1,2", "-n", "2", "--temp", "0")


def test_nan_in_dense_weights():
    with folder() as path:
        for tensor in ("token_embd.weight", "output_norm.weight", "output.weight", "blk.1.attn_norm.weight", "blk.1.ffn_gate_inp.weight"):
            g = Gguf(gguf_path("gguf-f32"))
            offset = g.tensor(tensor)[3]
            for i in range(64):
                g.data[offset + 4 * i:offset + 4 * i + 4] = struct.pack("<f", float("nan"))
            file = g.save(os.path.join(path, "model.gguf"))
            run = cases.sluice("check", "-m", file, status=1)
            assert tensor in (run.stdout + run.stderr).decode()
            run = cases.sluice("run", "-m", file, "--tokens", "0,1", "-n", "2", "--temp", "0", status=1)
            assert run.stdout.strip() == b"" and b"error: " in run.stderr, (tensor, run)


def test_nan_in_the_mtp_layer_costs_drafts_alone():
    with folder() as path:
        g = Gguf(gguf_path(MTP_FILE))
        offset = g.tensor("blk.2.nextn.eh_proj.weight")[3]
        g.data[offset:offset + 2] = struct.pack("<e", float("nan"))
        file = g.save(os.path.join(path, "model.gguf"))
        plain, drafted = (cases.sluice_json("run", "-m", file, "--tokens", "5,9,11", "-n", "12", "--temp", "0", "--ignore-eos", "--json", "--mtp", mtp) for mtp in ("off", "on"))
        assert drafted["tokens"] == plain["tokens"] and drafted["timings"]["draft"] == {"drafted": 0, "accepted": 0}
        said = [x["why"] for x in drafted["timings"]["steps_down"] if x["what"] == "mtp"]
        assert len(said) == 1 and "no more drafts" in said[0] and "layer 2" in said[0], said


# ---- what is no model ----

def test_things_that_are_no_model():
    with folder() as path:
        os.mkfifo(os.path.join(path, "pipe.gguf"))
        os.mkdir(os.path.join(path, "empty"))
        with open(os.path.join(path, "lfs.gguf"), "w", encoding="ascii") as f:
            f.write("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 100\n")
        os.symlink("loop.gguf", os.path.join(path, "loop.gguf"))
        for name, word in (("pipe.gguf", "regular"), ("empty", ".gguf"), ("lfs.gguf", "git lfs"), ("loop.gguf", "loop.gguf"), ("no.gguf", "no.gguf")):
            refused(1, word, "inspect", "-m", os.path.join(path, name))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    assert os.path.isdir(GOLDEN)
    cases.main(globals())
