/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a shape as GGUF keys. Must not know: tokenizers, tensors. */
#include "src/commands/gguf_keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void put_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    char full[96];
    snprintf(full, sizeof(full), "deepseek2.%s", key);
    gguf_writer_integer(w, full, GGUF_U32, value);
}

static void put_f32(struct gguf_writer *w, const char *key, double value)
{
    char full[96];
    snprintf(full, sizeof(full), "deepseek2.%s", key);
    gguf_writer_float(w, full, GGUF_F32, value);
}

static void put_text(struct gguf_writer *w, const char *key, const char *text) { gguf_writer_string(w, key, text, strlen(text)); }

/* general.file_type of the format most weights have; informative. 0 where there is no number for it. */
static uint32_t file_type(enum weight_format f)
{
    static const uint32_t numbers[FORMAT_COUNT] = {
        [FORMAT_F16] = 1, [FORMAT_Q4_0] = 2, [FORMAT_Q4_1] = 3, [FORMAT_Q8_0] = 7, [FORMAT_Q5_0] = 8, [FORMAT_Q5_1] = 9, [FORMAT_Q2_K] = 10,
        [FORMAT_Q3_K] = 12, [FORMAT_Q4_K] = 15, [FORMAT_Q5_K] = 17, [FORMAT_Q6_K] = 18, [FORMAT_IQ2_XXS] = 19, [FORMAT_IQ2_XS] = 20,
        [FORMAT_IQ3_XXS] = 23, [FORMAT_IQ1_S] = 24, [FORMAT_IQ4_NL] = 25, [FORMAT_IQ3_S] = 26, [FORMAT_IQ2_S] = 28, [FORMAT_IQ4_XS] = 30,
        [FORMAT_IQ1_M] = 31, [FORMAT_BF16] = 32, [FORMAT_MXFP4] = 38};
    return numbers[f];
}

static void write_architecture(struct gguf_writer *w, const struct shape *s, const char *name, enum weight_format type)
{
    put_text(w, "general.architecture", "deepseek2");
    put_text(w, "general.type", "model");
    put_text(w, "general.name", name);
    gguf_writer_integer(w, "general.file_type", GGUF_U32, file_type(type));
    gguf_writer_integer(w, "general.quantization_version", GGUF_U32, 2);
    put_u32(w, "block_count", shape_all_layers(s));
    put_u32(w, "context_length", s->max_positions);
    put_u32(w, "embedding_length", s->hidden);
    put_u32(w, "feed_forward_length", s->dense_width);
    put_u32(w, "vocab_size", s->vocab);
    put_u32(w, "leading_dense_block_count", s->dense_layers);
    if (s->mtp_layers > 0) {
        put_u32(w, "nextn_predict_layers", s->mtp_layers);
    }
}

/* What attn_scale holds beside the width of a head: the square of 1 + it * ln(factor). */
static double log_multiplier(const struct shape *s)
{
    double m = sqrt(s->attn_scale * sqrt((double)s->nope + s->rope));
    return s->yarn_factor > 1 ? (m - 1) / log(s->yarn_factor) : 0;
}

static void write_rope(struct gguf_writer *w, const struct shape *s)
{
    put_u32(w, "rope.dimension_count", s->rope);
    put_f32(w, "rope.freq_base", s->rope_theta);
    put_text(w, "deepseek2.rope.scaling.type", s->yarn ? "yarn" : "none");
    if (s->yarn) {
        put_f32(w, "rope.scaling.factor", s->yarn_factor);
        put_u32(w, "rope.scaling.original_context_length", s->yarn_original);
        put_f32(w, "rope.scaling.yarn_log_multiplier", log_multiplier(s));
        put_f32(w, "rope.scaling.yarn_beta_fast", s->yarn_beta_fast);
        put_f32(w, "rope.scaling.yarn_beta_slow", s->yarn_beta_slow);
    }
}

static void write_attention(struct gguf_writer *w, const struct shape *s)
{
    put_u32(w, "attention.head_count", s->heads);
    put_u32(w, "attention.head_count_kv", 1);
    put_u32(w, "attention.key_length", s->kv_lora + s->rope);
    put_u32(w, "attention.value_length", s->kv_lora);
    put_u32(w, "attention.key_length_mla", shape_q_head(s));
    put_u32(w, "attention.value_length_mla", s->v_head);
    if (s->q_lora > 0) {
        put_u32(w, "attention.q_lora_rank", s->q_lora);
    }
    put_u32(w, "attention.kv_lora_rank", s->kv_lora);
    put_f32(w, "attention.layer_norm_rms_epsilon", s->rms_eps);
}

static void write_experts(struct gguf_writer *w, const struct shape *s)
{
    put_u32(w, "expert_count", s->experts);
    if (s->experts == 0) {
        return;
    }
    put_u32(w, "expert_used_count", s->experts_used);
    put_u32(w, "expert_shared_count", s->shared_width / s->expert_width);
    put_u32(w, "expert_feed_forward_length", s->expert_width);
    put_f32(w, "expert_weights_scale", s->routed_factor);
    put_u32(w, "expert_gating_func", s->score == ROUTER_SIGMOID ? 2 : 1);
    put_u32(w, "expert_group_count", s->groups);
    put_u32(w, "expert_group_used_count", s->groups_used);
    gguf_writer_integer(w, "deepseek2.expert_weights_norm", GGUF_BOOL, s->normalise);
}

void gguf_keys_write(struct gguf_writer *w, const struct shape *s, const char *name, enum weight_format type)
{
    write_architecture(w, s, name, type);
    write_attention(w, s);
    write_rope(w, s);
    write_experts(w, s);
}

int gguf_keys_check(const struct shape *s, const char *where, struct error *e)
{
    const char *what = s->rope_half_split                       ? "rope_interleave false (rotary pairs half a head apart)"
                       : s->rope_magnitude != 1                 ? "a YaRN magnitude of cos and sin other than 1 (mscale and mscale_all_dim differ)"
                       : s->yarn && !s->yarn_truncate           ? "truncate false of YaRN"
                       : s->experts > 0 && s->moe_layer_freq > 1 ? "moe_layer_freq above 1"
                                                                : NULL;
    return what == NULL ? 0
                        : error_set(e, ERROR_FORMAT, "%s: %s has no key in GGUF files of this architecture: the file would describe another model",
                                    where, what);
}
