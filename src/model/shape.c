/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the limits of a shape and its consistency, rotary frequencies, helpers of the two readers.
 * Must not know: JSON, GGUF, tensors. */
#include "src/model/shape.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/str.h"
#include "src/model/shape_build.h"

/* Products of any three of these stay below 2^63, rows and columns of every matrix below 2^31. */
enum {
    MAX_VOCAB = 1 << 24,
    MAX_HIDDEN = 65536,
    MAX_LAYERS = 1024,
    MAX_MTP_LAYERS = 1, /* no model of the family has more, and src/run evaluates one */
    MAX_HEADS = 1024,
    MAX_LORA = 65536,
    MAX_HEAD_DIM = 4096,
    MAX_WIDTH = 1 << 20,
    MAX_EXPERTS = 4096,
    MAX_POSITIONS = 1 << 28,
    MAX_EXPERTS_ALL = 1 << 18, /* layers * experts: bounds the tables a header can ask for */
};

struct limit {
    const char *hf, *gguf; /* key names */
    size_t offset;
    uint32_t min, max;
};

#define LIMIT(hf, gguf, field, min, max) { hf, gguf, offsetof(struct shape, field), min, max }

static const struct limit limits[] = {
    LIMIT("vocab_size", "vocab_size", vocab, 1, MAX_VOCAB),
    LIMIT("hidden_size", "embedding_length", hidden, 1, MAX_HIDDEN),
    LIMIT("num_hidden_layers", "block_count", layers, 1, MAX_LAYERS),
    LIMIT("num_nextn_predict_layers", "nextn_predict_layers", mtp_layers, 0, MAX_MTP_LAYERS),
    LIMIT("first_k_dense_replace", "leading_dense_block_count", dense_layers, 0, MAX_LAYERS),
    LIMIT("moe_layer_freq", "moe_layer_freq", moe_layer_freq, 1, MAX_LAYERS),
    LIMIT("num_attention_heads", "attention.head_count", heads, 1, MAX_HEADS),
    LIMIT("q_lora_rank", "attention.q_lora_rank", q_lora, 0, MAX_LORA),
    LIMIT("kv_lora_rank", "attention.kv_lora_rank", kv_lora, 1, MAX_LORA),
    LIMIT("qk_nope_head_dim", "attention.key_length_mla less rope.dimension_count", nope, 1, MAX_HEAD_DIM),
    LIMIT("qk_rope_head_dim", "rope.dimension_count", rope, 2, MAX_HEAD_DIM),
    LIMIT("v_head_dim", "attention.value_length_mla", v_head, 1, MAX_HEAD_DIM),
    LIMIT("intermediate_size", "feed_forward_length", dense_width, 0, MAX_WIDTH),
    LIMIT("moe_intermediate_size", "expert_feed_forward_length", expert_width, 0, MAX_WIDTH),
    LIMIT("n_shared_experts * moe_intermediate_size", "expert_shared_count * expert_feed_forward_length", shared_width, 0,
          MAX_WIDTH),
    LIMIT("n_routed_experts", "expert_count", experts, 0, MAX_EXPERTS),
    LIMIT("max_position_embeddings", "context_length", max_positions, 1, MAX_POSITIONS),
};

static bool in_range(double value, double above, double max) { return value > above && value <= max; }

static int check_limits(const struct shape *s, const char *where, struct error *e)
{
    bool gguf = strcmp(s->family, "deepseek2") == 0;
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        const struct limit *l = &limits[i];
        uint32_t value;
        memcpy(&value, (const char *)s + l->offset, sizeof(value));
        if (value < l->min || value > l->max) {
            return error_set(e, ERROR_FORMAT, "%s: %s%s is %u, expected %u..%u; this model's shape is not supported", where,
                             gguf ? "deepseek2." : "", gguf ? l->gguf : l->hf, value, l->min, l->max);
        }
    }
    return 0;
}

static int check_numbers(const struct shape *s, const char *where, struct error *e)
{
    const struct {
        const char *name;
        double value, above, max;
    } numbers[] = {
        { "rms norm epsilon", s->rms_eps, 0, 0.1 },
        { "inner norm epsilon", s->inner_eps, 0, 0.1 },
        { "rope theta", s->rope_theta, 1, 1e12 },
        { "attention scale", s->attn_scale, 0, 1e6 },
        { "rope magnitude", s->rope_magnitude, 0, 1e6 },
    };
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        if (!in_range(numbers[i].value, numbers[i].above, numbers[i].max)) {
            return error_set(e, ERROR_FORMAT, "%s: %s is %g, expected a number above %g and at most %g", where, numbers[i].name,
                             numbers[i].value, numbers[i].above, numbers[i].max);
        }
    }
    if (s->rope % 2 != 0) {
        return error_set(e, ERROR_FORMAT, "%s: rotary dimension is %u, expected an even number", where, s->rope);
    }
    if (!s->yarn) {
        return 0;
    }
    if (!in_range(s->yarn_factor, 0, 1e6) || s->yarn_factor < 1 || s->yarn_original < 1 || s->yarn_original > MAX_POSITIONS ||
        !in_range(s->yarn_beta_fast, 0, 1e6) || !in_range(s->yarn_beta_slow, 0, 1e6)) {
        return error_set(e, ERROR_FORMAT,
                         "%s: YaRN has factor %g over %u positions, beta %g and %g; expected a factor of at least 1 and "
                         "positive numbers",
                         where, s->yarn_factor, s->yarn_original, s->yarn_beta_fast, s->yarn_beta_slow);
    }
    return 0;
}

static int check_routing(const struct shape *s, const char *where, struct error *e)
{
    if (s->experts == 0) {
        return 0;
    }
    if ((uint64_t)s->experts * (s->layers + s->mtp_layers) > MAX_EXPERTS_ALL) {
        return error_set(e, ERROR_FORMAT, "%s: %u experts in %u layers, expected at most %d in all; this shape is not supported",
                         where, s->experts, s->layers, MAX_EXPERTS_ALL);
    }
    if (s->expert_width == 0) {
        return error_set(e, ERROR_FORMAT, "%s: the width of an expert is 0 although there are %u experts", where, s->experts);
    }
    if (s->experts_used < 1 || s->experts_used > s->experts) {
        return error_set(e, ERROR_FORMAT, "%s: %u experts per token, expected 1..%u (the number of experts)", where,
                         s->experts_used, s->experts);
    }
    if (s->groups < 1 || s->experts % s->groups != 0) {
        return error_set(e, ERROR_FORMAT, "%s: %u routing groups do not divide %u experts", where, s->groups, s->experts);
    }
    if (s->groups_used < 1 || s->groups_used > s->groups) {
        return error_set(e, ERROR_FORMAT, "%s: %u routing groups are kept, expected 1..%u (the number of groups)", where,
                         s->groups_used, s->groups);
    }
    uint32_t group = s->experts / s->groups;
    if (s->experts_used > s->groups_used * group) {
        return error_set(e, ERROR_FORMAT, "%s: %u experts per token, but the %u kept groups hold only %u", where, s->experts_used,
                         s->groups_used, s->groups_used * group);
    }
    if (s->groups > 1 && s->group == ROUTER_GROUP_SUM2 && group < 2) {
        return error_set(e, ERROR_FORMAT, "%s: %u groups of one expert, but a group's score is the sum of its two best", where,
                         s->groups);
    }
    if (s->router_bias && s->score == ROUTER_SOFTMAX) {
        return error_set(e, ERROR_FORMAT, "%s: a selection bias (noaux_tc) together with softmax scores; expected sigmoid", where);
    }
    if (!in_range(s->routed_factor, 0, 1e6)) {
        return error_set(e, ERROR_FORMAT, "%s: the routed scaling factor is %g, expected a positive number", where,
                         (double)s->routed_factor);
    }
    return 0;
}

static int check_tokens(const struct shape *s, const char *where, struct error *e)
{
    if (s->bos < -1 || (s->bos >= 0 && (uint32_t)s->bos >= s->vocab)) {
        return error_set(e, ERROR_FORMAT, "%s: begin token %d, expected an id below the vocabulary size %u", where, s->bos,
                         s->vocab);
    }
    for (uint32_t i = 0; i < s->n_eos; i++) {
        if (s->eos[i] < 0 || (uint32_t)s->eos[i] >= s->vocab) {
            return error_set(e, ERROR_FORMAT, "%s: end token %d, expected an id below the vocabulary size %u", where, s->eos[i],
                             s->vocab);
        }
    }
    return 0;
}

int shape_check(const struct shape *s, const char *where, struct error *e)
{
    int r = check_limits(s, where, e);
    if (r == 0) {
        r = check_numbers(s, where, e);
    }
    if (r == 0) {
        r = check_routing(s, where, e);
    }
    if (r == 0) {
        r = check_tokens(s, where, e);
    }
    if (r == 0 && s->dense_layers > s->layers) {
        r = error_set(e, ERROR_FORMAT, "%s: %u leading dense layers, but only %u layers", where, s->dense_layers, s->layers);
    }
    for (uint32_t l = 0; r == 0 && l < shape_all_layers(s); l++) {
        if (!shape_layer_is_moe(s, l) && s->dense_width == 0) {
            r = error_set(e, ERROR_FORMAT, "%s: layer %u is dense, but the width of a dense layer is 0", where, l);
        }
    }
    return r;
}

void shape_rope_frequencies(const struct shape *s, double *ret_w)
{
    const double pi = 3.14159265358979323846;
    double d = s->rope, b = s->rope_theta, low = 0, high = 0;
    if (s->yarn) {
        double per = d / (2 * log(b));
        low = per * log(s->yarn_original / (2 * pi * s->yarn_beta_fast));
        high = per * log(s->yarn_original / (2 * pi * s->yarn_beta_slow));
        if (s->yarn_truncate) {
            low = floor(low);
            high = ceil(high);
        }
        low = fmax(low, 0);
        high = fmin(high, d - 1);
        if (low == high) {
            high += 0.001;
        }
    }
    for (uint32_t j = 0; j < s->rope / 2; j++) {
        double f = pow(b, -2.0 * j / d);
        if (s->yarn) {
            double g = fmin(fmax((j - low) / (high - low), 0), 1);
            f = f / s->yarn_factor * g + f * (1 - g);
        }
        ret_w[j] = f;
    }
}

void shape_rope_row(const struct shape *s, const double *w, uint32_t position, float *ret_cos_sin)
{
    for (uint32_t j = 0; j < s->rope / 2; j++) {
        double a = position * w[j];
        ret_cos_sin[2 * j] = (float)(cos(a) * s->rope_magnitude);
        ret_cos_sin[2 * j + 1] = (float)(sin(a) * s->rope_magnitude);
    }
}

void shape_note(struct shape *s, const char *fmt, ...)
{
    if (s->n_notes == SHAPE_MAX_NOTES) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(s->notes[s->n_notes], SHAPE_NOTE_BYTES, fmt, args);
    va_end(args);
    text_one_line(s->notes[s->n_notes++]); /* may hold names from the file */
}

void shape_reader_missing(struct shape_reader *r, const char *key, const char *meaning)
{
    size_t len = strlen(r->missing);
    snprintf(r->missing + len, sizeof(r->missing) - len, "%s%s (%s)", r->n_missing > 0 ? ", " : "", key, meaning);
    r->n_missing++;
}

int shape_reader_finish(struct shape_reader *r, const char *advice)
{
    if (r->code != 0) {
        return r->code;
    }
    if (r->n_missing > 0) {
        return error_set(r->e, ERROR_FORMAT, "%s: missing %s: %s; %s", r->where, r->n_missing == 1 ? "key" : "keys", r->missing,
                         advice);
    }
    return shape_check(r->shape, r->where, r->e);
}

void shape_add_eos(struct shape *s, int32_t id)
{
    for (uint32_t i = 0; i < s->n_eos; i++) {
        if (s->eos[i] == id) {
            return;
        }
    }
    if (s->n_eos < SHAPE_MAX_EOS) {
        s->eos[s->n_eos++] = id;
    }
}

double shape_yarn_m(double factor, double k) { return factor > 1 ? 0.1 * k * log(factor) + 1 : 1; }

void shape_set_scale(struct shape *s, double m)
{
    s->attn_scale = m * m / sqrt((double)s->nope + s->rope);
}
