/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading a shape from GGUF metadata of architecture deepseek2, and the meaning of absent keys
 * (docs/formats.md). Must not know: tensors, JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/gguf.h"
#include "src/model/shape.h"
#include "src/model/shape_build.h"

static const char architecture[] = "deepseek2";
static const char advice[] = "the metadata is incomplete: convert the model again or take another file";

/* Inner norms use this; GGUF stores only one epsilon (docs/formats.md). */
static const float inner_eps = 1e-6f;

struct gguf_reader {
    struct shape_reader r;
    const struct gguf_meta *meta;
};

enum { KEY_BYTES = 96 };

/* Short names get the architecture's prefix. */
static const char *full_key(const char *key, char *out)
{
    bool foreign = strncmp(key, "tokenizer.", 10) == 0 || strncmp(key, "general.", 8) == 0;
    snprintf(out, KEY_BYTES, "%s%s%s", foreign ? "" : architecture, foreign ? "" : ".", key);
    return out;
}

static void fail(struct gguf_reader *g, int code)
{
    if (g->r.code == 0) {
        g->r.code = error_prefix(g->r.e, code, "%s", g->r.where);
    }
}

static void refuse(struct gguf_reader *g, const char *key, const char *found, const char *expected)
{
    char name[KEY_BYTES];
    if (g->r.code == 0) {
        g->r.code = error_set(g->r.e, ERROR_FORMAT, "%s: %s is %s, expected %s; this model cannot be run as it is described",
                              g->r.where, full_key(key, name), found, expected);
    }
}

static bool get_u32(struct gguf_reader *g, const char *key, uint32_t *ret)
{
    char name[KEY_BYTES];
    uint64_t v;
    int found = gguf_get_u64(g->meta, full_key(key, name), &v, g->r.code == 0 ? g->r.e : NULL);
    if (found < 0) {
        fail(g, found);
    } else if (found > 0 && v > INT32_MAX) {
        refuse(g, key, "too large", "a number up to 2147483647");
    } else if (found > 0) {
        *ret = (uint32_t)v;
        return true;
    }
    return false;
}

static bool get_f64(struct gguf_reader *g, const char *key, double *ret)
{
    char name[KEY_BYTES];
    double v;
    int found = gguf_get_f64(g->meta, full_key(key, name), &v, g->r.code == 0 ? g->r.e : NULL);
    if (found < 0) {
        fail(g, found);
    } else if (found > 0) {
        *ret = v;
        return true;
    }
    return false;
}

static bool get_bool(struct gguf_reader *g, const char *key, bool *ret)
{
    char name[KEY_BYTES];
    int found = gguf_get_bool(g->meta, full_key(key, name), ret, g->r.code == 0 ? g->r.e : NULL);
    if (found < 0) {
        fail(g, found);
    }
    return found > 0;
}

/* Empty text when absent. */
static void get_text(struct gguf_reader *g, const char *key, char *out, size_t out_bytes)
{
    char name[KEY_BYTES];
    struct gguf_string s;
    int found = gguf_get_string(g->meta, full_key(key, name), &s, g->r.code == 0 ? g->r.e : NULL);
    out[0] = '\0';
    if (found < 0) {
        fail(g, found);
    } else if (found > 0) {
        snprintf(out, out_bytes, "%.*s", (int)(s.len < out_bytes ? s.len : out_bytes - 1), s.data);
    }
}

static uint32_t need_u32(struct gguf_reader *g, const char *key, const char *meaning)
{
    char name[KEY_BYTES];
    uint32_t v = 0;
    if (!get_u32(g, key, &v)) {
        shape_reader_missing(&g->r, full_key(key, name), meaning);
    }
    return v;
}

static double need_f64(struct gguf_reader *g, const char *key, const char *meaning)
{
    char name[KEY_BYTES];
    double v = 0;
    if (!get_f64(g, key, &v)) {
        shape_reader_missing(&g->r, full_key(key, name), meaning);
    }
    return v;
}

static void read_architecture(struct gguf_reader *g)
{
    char arch[sizeof(g->r.shape->family)];
    get_text(g, "general.architecture", arch, sizeof(arch));
    if (arch[0] == '\0') {
        if (g->r.code == 0) {
            shape_reader_missing(&g->r, "general.architecture", "kind of model");
        }
        return;
    }
    if (strcmp(arch, architecture) != 0) {
        refuse(g, "general.architecture", arch,
               "deepseek2 (DeepSeek-V2, V3, R1, V3.1, Kimi-K2, Moonlight, GLM-4.7-Flash): another architecture has another graph");
        return;
    }
    memcpy(g->r.shape->family, arch, sizeof(arch));
}

/* Width of a head and of its value: from the _mla keys when both are there, else from the older ones. */
static void read_heads(struct gguf_reader *g)
{
    struct shape *s = g->r.shape;
    uint32_t key = 0, value = 0;
    get_u32(g, "attention.key_length_mla", &key);
    get_u32(g, "attention.value_length_mla", &value);
    if ((key != 0) != (value != 0)) {
        refuse(g, key != 0 ? "attention.value_length_mla" : "attention.key_length_mla", "absent",
               "both attention.key_length_mla and attention.value_length_mla, or neither");
    }
    if (key == 0) {
        key = need_u32(g, "attention.key_length", "width of a head");
        value = need_u32(g, "attention.value_length", "value width of a head");
    }
    s->rope = need_u32(g, "rope.dimension_count", "rotated part of a head");
    if (g->r.code == 0 && g->r.n_missing == 0 && key <= s->rope) {
        refuse(g, "rope.dimension_count", "not smaller than the head", "less than attention.key_length_mla (or key_length)");
    }
    s->nope = key - s->rope;
    s->v_head = value;
}

static void read_dimensions(struct gguf_reader *g)
{
    struct shape *s = g->r.shape;
    const struct gguf_value *tokens = gguf_find(g->meta, "tokenizer.ggml.tokens");
    if (!get_u32(g, "vocab_size", &s->vocab)) {
        if (tokens != NULL && tokens->type == GGUF_ARRAY && tokens->count <= INT32_MAX) {
            s->vocab = (uint32_t)tokens->count;
            shape_note(s, "no deepseek2.vocab_size, assumed %u, the number of tokenizer.ggml.tokens", s->vocab);
        } else {
            shape_reader_missing(&g->r, "deepseek2.vocab_size", "rows of embedding and head");
        }
    }
    s->hidden = need_u32(g, "embedding_length", "width of the residual stream");
    s->layers = need_u32(g, "block_count", "number of layers, the MTP layer included");
    get_u32(g, "nextn_predict_layers", &s->mtp_layers);
    if (s->mtp_layers >= s->layers && s->mtp_layers > 0) {
        refuse(g, "nextn_predict_layers", "not smaller than block_count", "fewer MTP layers than blocks");
    }
    s->layers -= s->mtp_layers < s->layers ? s->mtp_layers : 0;
    s->heads = need_u32(g, "attention.head_count", "number of heads");
    get_u32(g, "attention.q_lora_rank", &s->q_lora); /* absent: a single attn_q */
    s->kv_lora = need_u32(g, "attention.kv_lora_rank", "width of the latent");
    s->dense_width = need_u32(g, "feed_forward_length", "width of a dense layer");
    s->max_positions = need_u32(g, "context_length", "longest context");
    s->rms_eps = (float)need_f64(g, "attention.layer_norm_rms_epsilon", "epsilon of the norms");
    s->inner_eps = inner_eps;
    read_heads(g);
    double temperature = 0;
    if (get_f64(g, "attention.temperature_scale", &temperature) && temperature != 0) {
        refuse(g, "attention.temperature_scale", "set", "absent or 0 (attention temperature belongs to another family)");
    }
}

static void read_gating(struct gguf_reader *g)
{
    struct shape *s = g->r.shape;
    uint32_t func = 0;
    bool there = get_u32(g, "expert_gating_func", &func);
    if (func == 0) {
        uint32_t blocks = s->layers + s->mtp_layers;
        bool glm = (blocks == 47 || blocks == 48) && s->vocab == 154880;
        func = glm ? 2 : 1;
        shape_note(s, "%s deepseek2.expert_gating_func, assumed %s", there ? "0 in" : "no",
                   glm ? "sigmoid (47 or 48 blocks and 154880 tokens: GLM-4.7-Flash)" : "softmax, as in files of DeepSeek-V2");
    }
    if (func > 2) {
        refuse(g, "expert_gating_func", "a value above 2", "1 (softmax) or 2 (sigmoid)");
    }
    s->score = func == 2 ? ROUTER_SIGMOID : ROUTER_SOFTMAX;
    s->group = func == 2 ? ROUTER_GROUP_SUM2 : ROUTER_GROUP_MAX;
    s->router_bias = func == 2;
    if (!get_bool(g, "expert_weights_norm", &s->normalise)) {
        shape_note(s, "no deepseek2.expert_weights_norm, assumed false%s", func == 2 ? " (unusual with sigmoid scores)" : "");
    }
}

static void read_groups(struct gguf_reader *g, bool group_routing)
{
    struct shape *s = g->r.shape;
    uint32_t groups = 0, used = 0;
    get_u32(g, "expert_group_count", &groups);
    if (groups == 0 && get_u32(g, "expert_group_used_count", &used) && used > 1) {
        shape_reader_missing(&g->r, "deepseek2.expert_group_count", "routing groups, there is an expert_group_used_count");
        return;
    }
    if (groups != 0) {
        s->groups = groups;
        s->groups_used = need_u32(g, "expert_group_used_count", "routing groups kept per token");
        return;
    }
    s->groups = s->groups_used = 1;
    bool v3 = s->experts == 256 && s->score == ROUTER_SIGMOID, v2 = s->experts == 160 && s->score == ROUTER_SOFTMAX;
    if (!v3 && !v2) {
        shape_note(s, "no deepseek2.expert_group_count, assumed one group of all experts");
        return;
    }
    if (group_routing) {
        s->groups = 8;
        s->groups_used = v3 ? 4 : 3;
        shape_note(s, "no deepseek2.expert_group_count, assumed 8 groups of which %u (%s); --expert-groups off: one group",
                   s->groups_used, v3 ? "256 experts, sigmoid: DeepSeek-V3" : "160 experts, softmax: DeepSeek-V2");
    } else {
        shape_note(s, "no deepseek2.expert_group_count, one group (--expert-groups off); the model was trained with 8");
    }
}

static void read_experts(struct gguf_reader *g, bool group_routing)
{
    struct shape *s = g->r.shape;
    s->moe_layer_freq = 1;
    s->groups = s->groups_used = 1;
    s->experts = need_u32(g, "expert_count", "number of routed experts, 0 for none");
    s->dense_layers = need_u32(g, "leading_dense_block_count", "number of leading dense layers");
    if (s->experts == 0) {
        s->dense_layers = s->layers;
        return;
    }
    s->experts_used = need_u32(g, "expert_used_count", "experts chosen per token");
    s->expert_width = need_u32(g, "expert_feed_forward_length", "width of an expert");
    uint64_t width = (uint64_t)need_u32(g, "expert_shared_count", "number of shared experts") * s->expert_width;
    s->shared_width = width > UINT32_MAX ? UINT32_MAX : (uint32_t)width;
    double factor = 1;
    if (!get_f64(g, "expert_weights_scale", &factor)) {
        shape_note(s, "no deepseek2.expert_weights_scale, assumed 1");
    }
    s->routed_factor = (float)factor;
    read_gating(g);
    read_groups(g, group_routing);
}

/* Absent means 32 and 1; Kimi-K2 wants 1 and 1, and its files do not say so. */
static void read_betas(struct gguf_reader *g)
{
    struct shape *s = g->r.shape;
    char pre[32];
    get_text(g, "tokenizer.ggml.pre", pre, sizeof(pre));
    bool kimi = s->experts == 384 || strcmp(pre, "kimi-k2") == 0;
    s->yarn_beta_fast = kimi ? 1 : 32;
    s->yarn_beta_slow = 1;
    bool fast = get_f64(g, "rope.scaling.yarn_beta_fast", &s->yarn_beta_fast);
    bool slow = get_f64(g, "rope.scaling.yarn_beta_slow", &s->yarn_beta_slow);
    if (!fast || !slow) {
        shape_note(s, "no deepseek2.rope.scaling.%s, assumed beta_fast %g and beta_slow %g%s",
                   fast ? "yarn_beta_slow" : slow ? "yarn_beta_fast" : "yarn_beta_fast/slow", s->yarn_beta_fast,
                   s->yarn_beta_slow, kimi ? " (384 experts or pre-tokenizer kimi-k2: Kimi-K2)" : "");
    }
}

static void read_yarn(struct gguf_reader *g)
{
    struct shape *s = g->r.shape;
    s->yarn = true;
    s->yarn_truncate = true;
    s->yarn_factor = need_f64(g, "rope.scaling.factor", "YaRN stretch");
    s->yarn_original = need_u32(g, "rope.scaling.original_context_length", "YaRN base length");
    read_betas(g);
    double multiplier = 0, extra = 1;
    if (!get_f64(g, "rope.scaling.yarn_log_multiplier", &multiplier)) {
        if (s->score == ROUTER_SIGMOID) {
            shape_reader_missing(&g->r, "deepseek2.rope.scaling.yarn_log_multiplier", "0.1 * mscale_all_dim of YaRN");
        } else {
            multiplier = 0.0707;
            shape_note(s, "no deepseek2.rope.scaling.yarn_log_multiplier, assumed 0.0707 (the oldest DeepSeek-V2 files lack it)");
        }
    }
    if (s->yarn_factor > 1) {
        shape_set_scale(s, 1 + multiplier * log(s->yarn_factor));
    }
    if (get_f64(g, "rope.scaling.yarn_ext_factor", &extra) && extra != 1) {
        refuse(g, "rope.scaling.yarn_ext_factor", "another value", "absent or 1");
    }
    if (get_f64(g, "rope.scaling.yarn_attn_factor", &extra) && extra != 1) {
        refuse(g, "rope.scaling.yarn_attn_factor", "another value", "absent or 1");
    }
}

static void read_rope(struct gguf_reader *g)
{
    struct shape *s = g->r.shape;
    s->rope_theta = need_f64(g, "rope.freq_base", "base of the rotary frequencies");
    s->rope_magnitude = 1;
    if (s->nope + s->rope > 0) {
        shape_set_scale(s, 1);
    }
    char type[24];
    double factor = 1;
    get_text(g, "rope.scaling.type", type, sizeof(type));
    if (strcmp(type, "yarn") == 0) {
        read_yarn(g);
    } else if (type[0] == '\0' && get_f64(g, "rope.scaling.factor", &factor) && factor != 1) {
        shape_reader_missing(&g->r, "deepseek2.rope.scaling.type", "kind of scaling, there is a factor");
    } else if (type[0] == '\0') {
        shape_note(s, "no deepseek2.rope.scaling.type, assumed plain rotation");
    } else if (strcmp(type, "none") != 0) {
        refuse(g, "rope.scaling.type", type, "yarn, none or no such key");
    }
}

static void read_tokens(struct gguf_reader *g)
{
    static const char *const ends[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id" };
    struct shape *s = g->r.shape;
    uint32_t id;
    bool tokenizer = gguf_find(g->meta, "tokenizer.ggml.model") != NULL, add_bos = false;
    s->bos = get_u32(g, "tokenizer.ggml.bos_token_id", &id) ? (int32_t)id : -1;
    if (tokenizer && s->bos < 0) {
        shape_note(s, "no tokenizer.ggml.bos_token_id: there is no begin token");
    } else if (tokenizer && !get_bool(g, "tokenizer.ggml.add_bos_token", &add_bos)) {
        shape_note(s, "no tokenizer.ggml.add_bos_token, assumed false: text starts without a begin token");
    }
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        if (get_u32(g, ends[i], &id)) {
            shape_add_eos(s, (int32_t)id);
        }
    }
    if (s->n_eos == 0) {
        shape_note(s, "no tokenizer.ggml.eos_token_id, generation ends only at its length");
    }
}

int shape_from_gguf(const struct gguf_meta *meta, const char *where, bool group_routing, struct shape *ret, struct error *e)
{
    struct shape s = { .bos = -1 };
    struct gguf_reader g = { .r = { .where = where, .shape = &s, .e = e }, .meta = meta };
    read_architecture(&g);
    if (g.r.code == 0) {
        read_dimensions(&g);
        read_experts(&g, group_routing);
        read_rope(&g);
        read_tokens(&g);
    }
    int code = shape_reader_finish(&g.r, advice);
    if (code == 0) {
        *ret = s;
    }
    return code;
}
