#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: quick
"""The demo model as GGUF, made here by the gguf package with all weights in F32: the same tokens, the same routing and the same
logits within tolerance as from the Hugging Face folder. (cli_test.py holds it to the perplexity and greedy ids of its card.)"""
import json
import os

import gguf
import numpy as np
import safetensors
import safetensors.numpy

import cases
from model_files import folder

F32 = ["-ctk", "f32", "--activations", "f32"]
ARCHITECTURE = "deepseek2"
LOGIT_TOLERANCE = 1e-3  # of logits up to 20 or so
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight",
    "input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_a_proj.weight": "attn_q_a.weight", "self_attn.q_a_layernorm.weight": "attn_q_a_norm.weight",
    "self_attn.q_b_proj.weight": "attn_q_b.weight", "self_attn.kv_a_proj_with_mqa.weight": "attn_kv_a_mqa.weight",
    "self_attn.kv_a_layernorm.weight": "attn_kv_a_norm.weight", "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.shared_experts.gate_proj.weight": "ffn_gate_shexp.weight", "mlp.shared_experts.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_experts.down_proj.weight": "ffn_down_shexp.weight", "eh_proj.weight": "nextn.eh_proj.weight",
    "enorm.weight": "nextn.enorm.weight", "hnorm.weight": "nextn.hnorm.weight", "shared_head.norm.weight": "nextn.shared_head_norm.weight",
}


def read_json(name):
    with open(os.path.join(cases.DEMO, name), encoding="utf-8") as f:
        return json.load(f)


# ---- the checkpoint as float32 ----

def e4m3_table():
    codes = np.arange(256)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    size = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0**(exponent - 7.0))
    return np.where(codes & 128, -size, size).astype(np.float32)


def to_float(tensor):
    data, shape = tensor["data"], tensor["shape"]
    if tensor["dtype"] == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if tensor["dtype"] == "F32":
        return np.frombuffer(data, "<f4").reshape(shape)
    assert tensor["dtype"].startswith("F8_E4M3"), tensor["dtype"]
    return e4m3_table()[np.frombuffer(data, np.uint8)].reshape(shape)


def read_checkpoint():
    """Name -> float32 array; FP8 matrices times their scales, one for 128 x 128 weights."""
    raw = {}
    for name in sorted(os.listdir(cases.DEMO)):
        if name.endswith(".safetensors"):
            with open(os.path.join(cases.DEMO, name), "rb") as f:
                raw.update({n: to_float(t) for n, t in safetensors.deserialize(f.read())})
    weights = {}
    for name, w in raw.items():
        if not name.endswith("_scale_inv"):
            scale = raw.get(name + "_scale_inv")
            if scale is not None:
                w = w * np.repeat(np.repeat(scale, 128, 0), 128, 1)[:w.shape[0], :w.shape[1]]
            weights[name] = w
    return weights


# ---- GGUF ----

def add_metadata(w, config):
    c, rope = config, config["rope_scaling"]
    w.add_block_count(c["num_hidden_layers"] + c["num_nextn_predict_layers"])
    w.add_nextn_predict_layers(c["num_nextn_predict_layers"])
    w.add_vocab_size(c["vocab_size"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_leading_dense_block_count(c["first_k_dense_replace"])
    w.add_q_lora_rank(c["q_lora_rank"])
    w.add_kv_lora_rank(c["kv_lora_rank"])
    w.add_expert_count(c["n_routed_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_shared_count(c["n_shared_experts"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_weights_scale(c["routed_scaling_factor"])
    w.add_expert_weights_norm(c["norm_topk_prob"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_expert_group_count(c["n_group"])
    w.add_expert_group_used_count(c["topk_group"])
    w.add_rope_dimension_count(c["qk_rope_head_dim"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(rope["factor"])
    w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    w.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    w.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    w.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])


def add_heads(w, config, split):
    """Widths of a head as the newer layout (split) or the older one has them."""
    width, value = config["qk_nope_head_dim"] + config["qk_rope_head_dim"], config["v_head_dim"]
    if split:
        w.add_head_count_kv(1)
        w.add_key_length(config["kv_lora_rank"] + config["qk_rope_head_dim"])
        w.add_value_length(config["kv_lora_rank"])
        w.add_key_length_mla(width)
        w.add_value_length_mla(value)
    else:
        w.add_head_count_kv(config["num_attention_heads"])
        w.add_key_length(width)
        w.add_value_length(value)


def add_tokenizer(w, config):
    tokenizer = read_json("tokenizer.json")
    tokens = [f"[PAD{i}]" for i in range(config["vocab_size"])]
    types = [int(gguf.TokenType.UNUSED)] * len(tokens)
    for text, i in tokenizer["model"]["vocab"].items():
        tokens[i], types[i] = text, int(gguf.TokenType.NORMAL)
    for added in tokenizer["added_tokens"]:
        kind = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        tokens[added["id"]], types[added["id"]] = added["content"], int(kind)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("deepseek-v3")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges([" ".join(m) for m in tokenizer["model"]["merges"]])
    w.add_bos_token_id(config["bos_token_id"])
    w.add_eos_token_id(config["eos_token_id"])
    w.add_add_bos_token(True)


def add_layer(w, weights, config, layer, split):
    prefix, block = f"model.layers.{layer}.", f"blk.{layer}."
    experts = {kind: [] for kind in ("gate", "up", "down")}
    for i in range(config["n_routed_experts"]):
        for kind, rows in experts.items():
            rows.append(weights.pop(f"{prefix}mlp.experts.{i}.{kind}_proj.weight", None))
    for kind, rows in experts.items():
        if rows[0] is not None:
            w.add_tensor(f"{block}ffn_{kind}_exps.weight", np.stack(rows))
    kv_b = weights.pop(prefix + "self_attn.kv_b_proj.weight")
    if split:
        heads = kv_b.reshape(config["num_attention_heads"], -1, config["kv_lora_rank"])
        nope = config["qk_nope_head_dim"]
        w.add_tensor(block + "attn_k_b.weight", np.ascontiguousarray(heads[:, :nope].transpose(0, 2, 1)))
        w.add_tensor(block + "attn_v_b.weight", np.ascontiguousarray(heads[:, nope:]))
    else:
        w.add_tensor(block + "attn_kv_b.weight", kv_b)
    for name in [n for n in weights if n.startswith(prefix)]:
        data = weights.pop(name)
        if name[len(prefix):] in NAMES:
            w.add_tensor(block + NAMES[name[len(prefix):]], data)
        else:
            assert name.endswith(("embed_tokens.weight", "shared_head.head.weight")), name  # copies


def write_gguf(path, split):
    config, weights = read_json("config.json"), read_checkpoint()
    w = gguf.GGUFWriter(path, ARCHITECTURE)
    add_metadata(w, config)
    add_heads(w, config, split)
    add_tokenizer(w, config)
    for layer in range(config["num_hidden_layers"] + config["num_nextn_predict_layers"]):
        add_layer(w, weights, config, layer, split)
    for name in list(weights):
        w.add_tensor(NAMES[name], weights.pop(name))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# ---- comparison ----

def scored(model, tokens, path):
    out = os.path.join(path, "dump.safetensors")
    report = cases.sluice_json("score", "-m", model, "--tokens", ",".join(map(str, tokens)), "--dump", out, "--json", *F32)
    return report, safetensors.numpy.load_file(out)


def compare(gguf_path, path):
    with open(os.path.join(cases.ROOT, "tests", "data", "demo", "reference.json"), encoding="utf-8") as f:
        texts = json.load(f)["texts"]
    worst, routed = 0.0, 0
    for text in texts[:3]:
        tokens = text["ids"][:160] if "ids" in text else cases.sluice_json("tokenize", "-m", cases.DEMO, "--bos", text["text"])[:160]
        ours, theirs = scored(gguf_path, tokens, path), scored(cases.DEMO, tokens, path)
        assert ours[1].keys() == theirs[1].keys() and "mtp.logits" in ours[1], ours[1].keys()
        for name, a in ours[1].items():
            b = theirs[1][name]
            if name.endswith(".ids"):
                assert np.array_equal(a, b), f"{name}: {np.sum(np.any(a != b, 1))} of {len(a)} rows are routed elsewhere"
                routed += len(a)
            elif "logits" in name:
                worst = max(worst, float(np.abs(a - b).max()))
                assert np.abs(a - b).max() < LOGIT_TOLERANCE, (name, np.abs(a - b).max())
            else:
                assert np.allclose(a, b, rtol=1e-3, atol=1e-3), (name, np.abs(a - b).max())
        assert abs(ours[0]["nll_mean"] - theirs[0]["nll_mean"]) < 1e-4
    print(f"     {routed} rows routed equally, logits differ by {worst:.2e} at most", flush=True)


def test_gguf_with_split_keys_and_values():
    with folder() as path:
        file = os.path.join(path, "demo.gguf")
        write_gguf(file, split=True)
        compare(file, path)
        batch = os.path.join(path, "texts.json")
        with open(batch, "w", encoding="utf-8") as f:
            json.dump(["It is a truth\n\n  universally 12345 acknowledged", "深度 é\u0000x", "<｜end▁of▁sentence｜>", "def f(x):\n\treturn x"], f)
        assert cases.sluice_json("tokenize", "-m", file, "--batch", batch) == cases.sluice_json("tokenize", "-m", cases.DEMO, "--batch", batch)
        assert cases.sluice("check", "-m", file).returncode == 0


def test_gguf_with_fused_keys_and_values():
    with folder() as path:
        file = os.path.join(path, "demo.gguf")
        write_gguf(file, split=False)
        compare(file, path)


if __name__ == "__main__":
    cases.main(globals())
