#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""Conversion to GGUF: every byte against the `gguf` and `safetensors` packages, models that score as their source, runs that are
interrupted and continued, refusals."""
import json
import os
import shutil
import signal
import statistics
import subprocess
import time

import gguf
import numpy
import safetensors

import cases
from model_files import Safetensors, edit_json, errors, folder, golden, gguf_path, refused

MODELS = ("v3", "v3-fp8", "v3-f32", "v2", "v2-lite", "glm-flash")
TYPES = {"bf16": gguf.GGMLQuantizationType.BF16, "f16": gguf.GGMLQuantizationType.F16, "q8_0": gguf.GGMLQuantizationType.Q8_0}
F32 = gguf.GGMLQuantizationType.F32
IDS = list(range(3, 43))


def convert(source, out, kind, *more, **options):
    return cases.sluice("convert", "-m", source, "--type", kind, "-o", out, *more, **options)


# ---- an independent conversion ----

def e4m3(codes):
    table = []
    for code in range(256):
        e, m = code >> 3 & 15, code & 7
        x = m * 2.0 ** -9 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)
        table.append(-x if code & 128 else x)
    return numpy.array(table, dtype=numpy.float32)[codes]


def as_float32(entry):
    raw, shape = entry["data"], entry["shape"]
    if entry["dtype"] == "F8_E4M3":
        return e4m3(numpy.frombuffer(raw, numpy.uint8)).reshape(shape)
    if entry["dtype"] == "BF16":
        return (numpy.frombuffer(raw, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32).reshape(shape)
    return numpy.frombuffer(raw, {"F16": numpy.float16, "F32": numpy.float32}[entry["dtype"]]).astype(numpy.float32).reshape(shape)


def source_weights(path):
    """All tensors of a folder as float32, scales applied."""
    entries = {}
    for name in sorted(os.listdir(path)):
        if name.endswith(".safetensors") and not name.startswith("expect"):
            with open(os.path.join(path, name), "rb") as f:
                entries.update(safetensors.deserialize(f.read()))
    weights = {}
    for name, entry in entries.items():
        w = as_float32(entry)
        scale = entries.get(name + "_scale_inv")
        if scale is not None:
            s = as_float32(scale)
            rows, cols = w.shape
            w = w * s.repeat(128, 0)[:rows].repeat(128, 1)[:, :cols]
        weights[name] = w
    return weights


LAYER = {"attn_norm.weight": "input_layernorm.weight", "attn_q.weight": "self_attn.q_proj.weight", "attn_q_a.weight": "self_attn.q_a_proj.weight",
         "attn_q_a_norm.weight": "self_attn.q_a_layernorm.weight", "attn_q_b.weight": "self_attn.q_b_proj.weight",
         "attn_kv_a_mqa.weight": "self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_norm.weight": "self_attn.kv_a_layernorm.weight",
         "attn_output.weight": "self_attn.o_proj.weight", "ffn_norm.weight": "post_attention_layernorm.weight",
         "ffn_gate.weight": "mlp.gate_proj.weight", "ffn_up.weight": "mlp.up_proj.weight", "ffn_down.weight": "mlp.down_proj.weight",
         "ffn_gate_inp.weight": "mlp.gate.weight", "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
         "ffn_gate_shexp.weight": "mlp.shared_experts.gate_proj.weight", "ffn_up_shexp.weight": "mlp.shared_experts.up_proj.weight",
         "ffn_down_shexp.weight": "mlp.shared_experts.down_proj.weight", "nextn.eh_proj.weight": "eh_proj.weight",
         "nextn.enorm.weight": "enorm.weight", "nextn.hnorm.weight": "hnorm.weight", "nextn.shared_head_norm.weight": "shared_head.norm.weight"}


def expected(weights, config):
    """GGUF name to float32 array in C order."""
    out = {"token_embd.weight": weights["model.embed_tokens.weight"], "output_norm.weight": weights["model.norm.weight"]}
    if "lm_head.weight" in weights:
        out["output.weight"] = weights["lm_head.weight"]
    layers = config["num_hidden_layers"] + config.get("num_nextn_predict_layers", 0)
    heads, nope, v = config["num_attention_heads"], config["qk_nope_head_dim"], config["v_head_dim"]
    for n in range(layers):
        here = f"model.layers.{n}."
        for ours, theirs in LAYER.items():
            if here + theirs in weights:
                out[f"blk.{n}.{ours}"] = weights[here + theirs]
        kv_b = weights[here + "self_attn.kv_b_proj.weight"].reshape(heads, nope + v, -1)
        out[f"blk.{n}.attn_k_b.weight"] = kv_b[:, :nope].transpose(0, 2, 1).copy()
        out[f"blk.{n}.attn_v_b.weight"] = kv_b[:, nope:].copy()
        for part in ("gate", "up", "down"):
            experts = [weights.get(here + f"mlp.experts.{j}.{part}_proj.weight") for j in range(config["n_routed_experts"])]
            if experts[0] is not None:
                out[f"blk.{n}.ffn_{part}_exps.weight"] = numpy.stack(experts)
    return out


def is_float32(name):
    return "norm" in name or name.endswith((".bias", "ffn_gate_inp.weight"))


def test_bytes_are_those_of_an_independent_conversion():
    count = 0
    for model in MODELS:
        with open(os.path.join(golden(model), "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        want = expected(source_weights(golden(model)), config)
        for kind, quant in TYPES.items():
            with folder() as path:
                out = os.path.join(path, "m.gguf")
                run = convert(golden(model), out, kind, "--verify")
                assert b"every value is the source's" in run.stderr
                assert os.listdir(path) == ["m.gguf"]
                there = {t.name: t for t in gguf.GGUFReader(out).tensors}
                assert there.keys() == want.keys(), there.keys() ^ want.keys()
                for name, values in want.items():
                    q = F32 if is_float32(name) else quant if kind != "q8_0" or values.shape[-1] % 32 == 0 else TYPES["f16"]
                    t = there[name]
                    assert t.tensor_type == q and [int(n) for n in reversed(t.shape)] == list(values.shape), (model, kind, name, t.tensor_type, t.shape)
                    assert t.data.tobytes() == gguf.quants.quantize(values, q).tobytes(), (model, kind, name)
                    count += 1
    assert count > 900, count
    print(f"     {count} tensors", flush=True)


def fields(path):
    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}


def test_metadata():
    with folder() as path:
        out = os.path.join(path, "m.gguf")
        convert(golden("v3-fp8"), out, "q8_0")
        f = fields(out)
        assert f["general.architecture"] == "deepseek2" and f["general.file_type"] == 7 and f["general.name"] == "v3-fp8"
        for key, value in {"block_count": 3, "nextn_predict_layers": 1, "context_length": 1024, "embedding_length": 144, "vocab_size": 320,
                           "feed_forward_length": 264, "leading_dense_block_count": 1, "attention.head_count": 2, "attention.head_count_kv": 1,
                           "attention.key_length": 104, "attention.value_length": 72, "attention.key_length_mla": 64,
                           "attention.value_length_mla": 40, "attention.q_lora_rank": 136, "attention.kv_lora_rank": 72, "expert_count": 6,
                           "expert_used_count": 2, "expert_shared_count": 1, "expert_feed_forward_length": 136, "expert_weights_scale": 2.5,
                           "expert_weights_norm": True, "expert_gating_func": 2, "expert_group_count": 3, "expert_group_used_count": 2,
                           "rope.dimension_count": 32, "rope.freq_base": 10000, "rope.scaling.type": "yarn", "rope.scaling.factor": 16,
                           "rope.scaling.original_context_length": 64, "rope.scaling.yarn_beta_fast": 32,
                           "rope.scaling.yarn_beta_slow": 1}.items():
            assert f["deepseek2." + key] == value, (key, f.get("deepseek2." + key))
        assert f["deepseek2.rope.scaling.yarn_log_multiplier"] == float(numpy.float32(0.1))
        assert f["deepseek2.attention.layer_norm_rms_epsilon"] == float(numpy.float32(1e-6))
        with open(os.path.join(golden("v3-fp8"), "tokenizer.json"), encoding="utf-8") as t:
            tokenizer = json.load(t)
        with open(os.path.join(golden("v3-fp8"), "tokenizer_config.json"), encoding="utf-8") as t:
            template = json.load(t)["chat_template"]
        assert f["tokenizer.ggml.model"] == "gpt2" and f["tokenizer.ggml.pre"] == "deepseek-v3" and f["tokenizer.chat_template"] == template
        assert len(f["tokenizer.ggml.tokens"]) == len(f["tokenizer.ggml.token_type"]) == 320
        added = {a["id"]: a for a in tokenizer["added_tokens"]}
        for text, i in tokenizer["model"]["vocab"].items():
            assert f["tokenizer.ggml.tokens"][i] == text
        for i, kind in enumerate(f["tokenizer.ggml.token_type"]):
            text = f["tokenizer.ggml.tokens"][i]
            special = i in added and (added[i]["special"] or text.startswith("<｜"))
            assert kind == (3 if special else 4 if i in added else 1), (i, text, kind)
        merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
        assert f["tokenizer.ggml.merges"] == merges
        assert f["tokenizer.ggml.bos_token_id"] == 0 and f["tokenizer.ggml.eos_token_id"] == 1 and f["tokenizer.ggml.padding_token_id"] == 1
        assert f["tokenizer.ggml.add_bos_token"] is True


def test_padding_ids_and_several_end_tokens():
    with folder() as path:
        out = os.path.join(path, "m.gguf")
        convert(golden("v3"), out, "bf16")
        f = fields(out)
        assert f["tokenizer.ggml.tokens"][327] == "[PAD327]" and f["tokenizer.ggml.token_type"][320:] == [5] * 8
        convert(golden("glm-flash"), out, "bf16", "--force")
        f = fields(out)
        with open(os.path.join(golden("glm-flash"), "generation_config.json"), encoding="utf-8") as t:
            ends = json.load(t)["eos_token_id"]
        assert {f[k] for k in f if k in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")} >= set(ends)


# ---- models that score as their source ----

def score(model, *args):
    return cases.sluice_json("score", "-m", model, "--tokens", ",".join(map(str, IDS)), "--json", "-ub", 8, *args)


def test_scores_are_those_of_the_source():
    """By the median over positions: where random experts are chosen by a hair, rounding weights to Q8_0 chooses others."""
    limits = {"bf16": 0.02, "f16": 0.005, "q8_0": 0.15}
    for model in MODELS:
        want = score(golden(model))["logprobs"]
        for kind, limit in limits.items():
            with folder() as path:
                out = os.path.join(path, "m.gguf")
                convert(golden(model), out, kind)
                got = score(out)["logprobs"]
                off = statistics.median(abs(a - b) for a, b in zip(want, got))
                assert off < limit, (model, kind, off)


def test_demo_model_keeps_its_perplexity():
    text = "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife. " * 4
    want = cases.sluice_json("score", "-m", cases.DEMO, "--text", text, "--json")["nll_mean"]
    with folder() as path:
        out = os.path.join(path, "m.gguf")
        for kind in TYPES:
            convert(cases.DEMO, out, kind, "--force")
            got = cases.sluice_json("score", "-m", out, "--text", text, "--json")["nll_mean"]
            assert abs(got - want) < 0.005 * want, (kind, want, got)


def test_text_is_encoded_as_before():
    texts = ["It is a truth universally acknowledged", "  spaces\n\n\tand 12345 digits", "日本語 text 😀", "<｜User｜>x<｜Assistant｜>", "\x00\x7f"]
    with folder() as path:
        out, batch = os.path.join(path, "m.gguf"), os.path.join(path, "in.json")
        with open(batch, "w", encoding="utf-8") as f:
            json.dump(texts, f)
        for source in (cases.DEMO, golden("v3")):
            convert(source, out, "q8_0", "--force")
            for flags in ((), ("--no-special",), ("--bos",)):
                assert cases.sluice_json("tokenize", "-m", out, "--batch", batch, *flags) == \
                    cases.sluice_json("tokenize", "-m", source, "--batch", batch, *flags), (source, flags)


# ---- parts, splits ----

def content(path):
    with open(path, "rb") as f:
        return f.read()


def test_split_holds_the_same_tensors():
    with folder() as path:
        whole, parts = os.path.join(path, "w.gguf"), os.path.join(path, "s.gguf")
        convert(golden("v3"), whole, "bf16")
        convert(golden("v3"), parts, "bf16", "--split-size", "300K", "--verify")
        names = sorted(n for n in os.listdir(path) if n.startswith("s-"))
        assert len(names) > 3 and names[0] == f"s-00001-of-{len(names):05}.gguf", names
        want = {t.name: t.data.tobytes() for t in gguf.GGUFReader(whole).tensors}
        got = {}
        for i, name in enumerate(names):
            reader = gguf.GGUFReader(os.path.join(path, name))
            got.update({t.name: t.data.tobytes() for t in reader.tensors})
            assert reader.fields["split.no"].contents() == i and reader.fields["split.count"].contents() == len(names)
            assert reader.fields["split.tensors.count"].contents() == len(want)
            assert os.path.getsize(os.path.join(path, name)) < 300 * 1024 + 64 * 1024
        assert got == want
        assert score(os.path.join(path, names[0]))["logprobs"] == score(whole)["logprobs"]


def wait_for_journal(run, journal):
    end = time.monotonic() + 60
    while not os.path.exists(journal) and run.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    assert run.poll() is None, run.stderr.read()


def test_an_interrupted_run_goes_on():
    """Ctrl-C and kill -9; the end has the same bytes; other options and sources are refused."""
    if shutil.which("strace") is None:
        raise cases.Skip("no strace")
    slow = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=pwrite64:delay_enter=30000"]
    for how, status in ((signal.SIGINT, 130), (signal.SIGKILL, None)):
        with folder() as path:
            whole, out = os.path.join(path, "w.gguf"), os.path.join(path, "m.gguf")
            convert(cases.DEMO, whole, "bf16")
            command = ["convert", "-m", cases.DEMO, "--type", "bf16", "-o", out]
            run = subprocess.Popen([*slow, cases.BINARY, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
            wait_for_journal(run, out + ".journal")
            os.killpg(run.pid, how)
            stderr = run.communicate(timeout=60)[1]
            assert status is None or (run.returncode == status and b"the same command continues" in stderr), (run.returncode, stderr)
            assert sorted(os.listdir(path)) == ["m.gguf.journal", "m.gguf.part", "w.gguf"]
            refused(2, ["m.gguf.journal", "other options", "--force"], "convert", "-m", cases.DEMO, "--type", "f16", "-o", out)
            again = cases.sluice(*command)
            assert b"continuing an interrupted run" in again.stderr, again.stderr
            assert sorted(os.listdir(path)) == ["m.gguf", "w.gguf"] and content(out) == content(whole)


def test_force_starts_over():
    with folder() as path:
        out = os.path.join(path, "m.gguf")
        for name, text in ((out + ".journal", "{}"), (out + ".part", "x")):
            with open(name, "w", encoding="utf-8") as f:
                f.write(text)
        refused(2, "m.gguf.journal", "convert", "-m", golden("v2"), "--type", "bf16", "-o", out)
        convert(golden("v2"), out, "bf16", "--force")
        assert os.listdir(path) == ["m.gguf"]
        before = content(out)
        refused(2, ["m.gguf: is there already", "--force"], "convert", "-m", golden("v3"), "--type", "bf16", "-o", out)
        assert content(out) == before
        convert(golden("v3"), out, "bf16", "--force")
        assert content(out) != before


def test_force_leaves_the_source_alone():
    with folder() as d:
        source = os.path.join(d, "source")
        shutil.copytree(golden("v3"), source)
        names = sorted(os.listdir(source))
        before = {name: open(os.path.join(source, name), "rb").read() for name in names}
        for name in names:
            refused(2, [name, "name a new file"], "convert", "-m", source, "--type", "bf16", "-o", os.path.join(source, name), "--force")
        assert before == {name: open(os.path.join(source, name), "rb").read() for name in sorted(os.listdir(source))}


def test_bytes_do_not_depend_on_processors():
    with folder() as path:
        a, b = os.path.join(path, "a.gguf"), os.path.join(path, "b.gguf")
        convert(golden("v3-fp8"), a, "q8_0")
        cases.sluice("convert", "-m", golden("v3-fp8"), "--type", "q8_0", "-o", b, prefix=["taskset", "-c", "0"])
        assert content(a) == content(b)


# ---- MTP ----

def test_mtp_layer_is_kept_left_out_or_taken_from_elsewhere():
    with folder() as path:
        out = os.path.join(path, "m.gguf")
        convert(golden("v3"), out, "bf16")
        with_mtp = cases.sluice_json("inspect", "-m", out, "--json")
        assert with_mtp["shape"]["mtp_layers"] == 1
        names = {t["name"] for t in with_mtp["tensors"]}
        assert "blk.4.nextn.eh_proj.weight" in names and "blk.4.ffn_down_exps.weight" in names
        convert(golden("v3"), out, "bf16", "--force", "--mtp", "off")
        without = cases.sluice_json("inspect", "-m", out, "--json")
        assert without["shape"]["mtp_layers"] == 0 and not any("blk.4." in t["name"] for t in without["tensors"])
        convert(golden("v3"), out, "bf16", "--force", "--mtp-from", golden("v3"))
        assert {t["name"] for t in cases.sluice_json("inspect", "-m", out, "--json")["tensors"]} == names


# ---- refusals ----

def test_usage():
    for args, part in (((), "no model given"), (("-m", cases.DEMO), "--type and -o are needed"),
                       (("-m", cases.DEMO, "--type", "q4_k", "-o", "x"), "q4_k: not in this build; bf16, f16 and q8_0 are"),
                       (("-m", cases.DEMO, "--type", "bf16", "-o", "x", "--split-size", "many"), "--split-size many"),
                       (("-m", gguf_path("gguf-q4_0"), "--type", "bf16", "-o", "x"), "is a GGUF file already")):
        assert not os.path.exists("x")
        refused(2, part, "convert", *args)


def test_sources_that_cannot_be_converted():
    def config(change):
        def apply(path):
            edit_json(os.path.join(path, "config.json"), change)
        return apply

    def tokenizer(change):
        def apply(path):
            edit_json(os.path.join(path, "tokenizer.json"), change)
        return apply

    def no_tokenizer(path):
        os.remove(os.path.join(path, "tokenizer.json"))

    def missing(path):
        for n in (1, 3):
            os.remove(os.path.join(path, f"model-0000{n}-of-000003.safetensors"))

    def bad_scale(path):
        damage(path, "model.layers.1.mlp.experts.3.up_proj.weight_scale_inv", 4, b"\x00\x00\xc0\x7f")

    def bad_code(path):
        damage(path, "model.layers.1.mlp.experts.3.up_proj.weight", 144 + 7, b"\x7f")

    def damage(path, tensor, at, data):
        for name in os.listdir(path):
            if name.endswith(".safetensors"):
                s = Safetensors(os.path.join(path, name))
                if tensor in s.header:
                    s.tensor_data(tensor)[at:at + len(data)] = data
                    s.save(os.path.join(path, name))

    for change, parts in (
            (config(lambda c: c.update(model_type="llama")), ["model_type", "llama", "deepseek_v3"]),
            (config(lambda c: c.update(rope_interleave=False)), ["rope_interleave false"]),
            (config(lambda c: c["rope_scaling"].update(mscale_all_dim=0.5)), ["mscale and mscale_all_dim differ"]),
            (tokenizer(lambda t: t["pre_tokenizer"]["pretokenizers"].pop(0)), ["tokenizer.json", "2 patterns", "--pre-tokenizer"]),
            (tokenizer(lambda t: t["added_tokens"].append(dict(t["added_tokens"][0], id=4000, content="<x>"))), ["<x>", "4000", "320"]),
            (no_tokenizer, ["no tokenizer.json", "--no-tokenizer"]),
            (missing, ["model-00001-of-000003.safetensors", "model-00003-of-000003.safetensors"]),
            (bad_scale, ["experts.3.up_proj.weight_scale_inv", "NaN", "row 0, column 1"]),
            (bad_code, ["experts.3.up_proj.weight", "NaN code in row 1, column 7"])):
        with folder(golden("v3-fp8")) as path, folder() as place:
            change(path)
            out = os.path.join(place, "m.gguf")
            run = cases.sluice("convert", "-m", path, "--type", "bf16", "-o", out, status=1)
            lines = errors(run)
            assert len(lines) == 1 and all(p in lines[0] for p in parts), (parts, run.stderr)
            assert os.listdir(place) == [], os.listdir(place)


def test_without_tokenizer_and_with_a_named_one():
    with folder(golden("v3-fp8")) as path, folder() as place:
        out = os.path.join(place, "m.gguf")
        edit_json(os.path.join(path, "tokenizer.json"), lambda t: t["pre_tokenizer"]["pretokenizers"].pop(0))
        convert(path, out, "bf16", "--pre-tokenizer", "deepseek-v3")
        assert fields(out)["tokenizer.ggml.pre"] == "deepseek-v3"
        refused(1, ["unknown pre-tokenizer 'mine'", "kimi-k2"], "convert", "-m", path, "--type", "bf16", "-o", out, "--force", "--pre-tokenizer", "mine")
        os.remove(os.path.join(path, "tokenizer.json"))
        convert(path, out, "bf16", "--force", "--no-tokenizer")
        f = fields(out)
        assert "tokenizer.ggml.model" not in f and f["tokenizer.ggml.eos_token_id"] == 1
        score(out)


def test_values_too_large_for_a_half():
    with folder(golden("v3-f32")) as path, folder() as place:
        file = os.path.join(path, "model.safetensors")
        s = Safetensors(file)
        s.tensor_data("model.layers.0.mlp.up_proj.weight")[0:4] = numpy.float32(1e6).tobytes()
        s.save(file)
        out = os.path.join(place, "m.gguf")
        refused(1, ["blk.0.ffn_up.weight", "too large for f16", "--type bf16"], "convert", "-m", path, "--type", "f16", "-o", out)
        assert os.listdir(place) == []
        convert(path, out, "bf16", "--verify")


if __name__ == "__main__":
    cases.main(globals())
