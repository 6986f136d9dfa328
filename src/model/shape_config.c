/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading a shape from config.json and generation_config.json: strict types, named absences, refusal of what the
 * graph does not cover. Fields and their defaults: docs/formats.md. Must not know: tensors, GGUF. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/json_text.h"
#include "src/model/shape.h"
#include "src/model/shape_build.h"

static const char advice[] = "the file is incomplete: take config.json from the model's repository again";

/* Inner norms use this whatever the config says (transformers' class default; docs/formats.md). */
static const float inner_eps = 1e-6f;

struct family {
    const char *model_type;
    bool v2; /* softmax unless said otherwise; else sigmoid and noaux_tc */
};

static const struct family families[] = {
    { "deepseek_v3", false },
    { "deepseek_v2", true },
    { "kimi_k2", false },
    { "glm4_moe_lite", false },
};

/* Keys that are read below or have no effect on inference; any other is named in a note. */
static const char *const known_keys[] = {
    "architectures", "model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_nextn_predict_layers",
    "first_k_dense_replace", "moe_layer_freq", "intermediate_size", "moe_intermediate_size", "n_routed_experts",
    "n_shared_experts", "num_experts_per_tok", "n_group", "topk_group", "scoring_func", "topk_method", "norm_topk_prob",
    "routed_scaling_factor", "num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim",
    "qk_rope_head_dim", "qk_head_dim", "head_dim", "v_head_dim", "rms_norm_eps", "hidden_act", "max_position_embeddings",
    "rope_theta", "rope_scaling", "rope_parameters", "rope_interleave", "attention_bias", "tie_word_embeddings",
    "bos_token_id", "eos_token_id", "pad_token_id", "torch_dtype", "dtype", "quantization_config", "auto_map", "ep_size",
    "pretraining_tp", "attention_dropout", "initializer_range", "aux_loss_alpha", "seq_aux", "use_cache",
    "transformers_version", "partial_rotary_factor", "_name_or_path", "unsloth_fixed",
};

/* ---- typed access; every failure is stored in r, the first one wins ---- */

static void refuse_value(struct shape_reader *r, const char *key, const json_t *value, const char *expected)
{
    if (r->code != 0) {
        return;
    }
    char *text = json_text_print(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    r->code = error_set(r->e, ERROR_FORMAT, "%s: %s is %.60s, expected %s; this model cannot be run as it is described", r->where,
                        key, text != NULL ? text : "?", expected);
    free(text);
}

/* NULL when absent or null. */
static const json_t *find(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return json_is_null(v) ? NULL : v;
}

static uint32_t to_u32(struct shape_reader *r, const char *key, const json_t *v)
{
    json_int_t i = json_integer_value(v);
    if (!json_is_integer(v) || i < 0 || i > INT32_MAX) {
        refuse_value(r, key, v, "a whole number from 0 to 2147483647");
        return 0;
    }
    return (uint32_t)i;
}

static double to_f64(struct shape_reader *r, const char *key, const json_t *v)
{
    if (!json_is_number(v)) {
        refuse_value(r, key, v, "a number");
        return 0;
    }
    return json_number_value(v);
}

static uint32_t need_u32(struct shape_reader *r, const json_t *o, const char *key, const char *meaning)
{
    const json_t *v = json_object_get(o, key);
    if (v == NULL) {
        shape_reader_missing(r, key, meaning);
        return 0;
    }
    return to_u32(r, key, v);
}

static double need_f64(struct shape_reader *r, const json_t *o, const char *key, const char *meaning)
{
    const json_t *v = json_object_get(o, key);
    if (v == NULL) {
        shape_reader_missing(r, key, meaning);
        return 0;
    }
    return to_f64(r, key, v);
}

static double get_f64(struct shape_reader *r, const json_t *o, const char *key, double absent)
{
    const json_t *v = find(o, key);
    return v != NULL ? to_f64(r, key, v) : absent;
}

static bool get_bool(struct shape_reader *r, const json_t *o, const char *key, bool absent)
{
    const json_t *v = find(o, key);
    if (v == NULL) {
        return absent;
    }
    if (!json_is_boolean(v)) {
        refuse_value(r, key, v, "true or false");
    }
    return json_is_true(v);
}

/* NULL when absent, or of a wrong type (stored). */
static const char *get_string(struct shape_reader *r, const json_t *o, const char *key)
{
    const json_t *v = find(o, key);
    if (v != NULL && !json_is_string(v)) {
        refuse_value(r, key, v, "a string");
    }
    return json_string_value(v);
}

/* ---- sections of the file ---- */

static const struct family *read_family(struct shape_reader *r, const json_t *root)
{
    const char *type = get_string(r, root, "model_type");
    if (type == NULL) {
        if (r->code == 0) {
            shape_reader_missing(r, "model_type", "the kind of model");
        }
        return NULL;
    }
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        if (strcmp(families[i].model_type, type) == 0) {
            strncpy(r->shape->family, type, sizeof(r->shape->family) - 1);
            return &families[i];
        }
    }
    refuse_value(r, "model_type", find(root, "model_type"),
                 "deepseek_v3 (V3, R1, V3.1, Moonlight), deepseek_v2, kimi_k2 or glm4_moe_lite: another model type has another graph");
    return NULL;
}

static void read_dimensions(struct shape_reader *r, const json_t *root)
{
    struct shape *s = r->shape;
    s->vocab = need_u32(r, root, "vocab_size", "rows of embedding and head");
    s->hidden = need_u32(r, root, "hidden_size", "width of the residual stream");
    s->layers = need_u32(r, root, "num_hidden_layers", "number of layers");
    s->heads = need_u32(r, root, "num_attention_heads", "number of heads");
    s->kv_lora = need_u32(r, root, "kv_lora_rank", "width of the latent");
    s->nope = need_u32(r, root, "qk_nope_head_dim", "head part without position");
    s->rope = need_u32(r, root, "qk_rope_head_dim", "rotated head part");
    s->v_head = need_u32(r, root, "v_head_dim", "value width of a head");
    s->dense_width = need_u32(r, root, "intermediate_size", "width of a dense layer");
    s->max_positions = need_u32(r, root, "max_position_embeddings", "longest context");
    s->rms_eps = (float)need_f64(r, root, "rms_norm_eps", "epsilon of the norms");
    s->inner_eps = inner_eps;
    if (json_object_get(root, "q_lora_rank") == NULL) {
        shape_reader_missing(r, "q_lora_rank", "width between q_a and q_b, null for a single q_proj");
    } else if (find(root, "q_lora_rank") != NULL) {
        s->q_lora = need_u32(r, root, "q_lora_rank", "");
    }
    const json_t *mtp = find(root, "num_nextn_predict_layers");
    s->mtp_layers = mtp != NULL ? to_u32(r, "num_nextn_predict_layers", mtp) : 0;
    s->tied_head = get_bool(r, root, "tie_word_embeddings", false);
    s->rope_half_split = !get_bool(r, root, "rope_interleave", true);
    const json_t *head = find(root, "qk_head_dim");
    if (head != NULL && r->code == 0 && to_u32(r, "qk_head_dim", head) != s->nope + s->rope) {
        refuse_value(r, "qk_head_dim", head, "qk_nope_head_dim + qk_rope_head_dim");
    }
}

/* Keys that would change the graph. */
static void read_switches(struct shape_reader *r, const json_t *root)
{
    const char *act = get_string(r, root, "hidden_act");
    if (act == NULL && r->code == 0) {
        shape_note(r->shape, "config.json: no hidden_act, assumed silu");
    } else if (act != NULL && strcmp(act, "silu") != 0) {
        refuse_value(r, "hidden_act", find(root, "hidden_act"), "silu");
    }
    if (get_bool(r, root, "attention_bias", false)) {
        refuse_value(r, "attention_bias", find(root, "attention_bias"), "false (no biases in this family)");
    }
    const json_t *partial = find(root, "partial_rotary_factor");
    if (partial != NULL && to_f64(r, "partial_rotary_factor", partial) != 1.0) {
        refuse_value(r, "partial_rotary_factor", partial, "1");
    }
    const json_t *quant = find(root, "quantization_config");
    if (quant == NULL) {
        return;
    }
    const char *method = get_string(r, quant, "quant_method"), *fmt = get_string(r, quant, "fmt");
    const json_t *block = json_object_get(quant, "weight_block_size");
    bool ok = method != NULL && strcmp(method, "fp8") == 0 && (fmt == NULL || strcmp(fmt, "e4m3") == 0) &&
              json_array_size(block) == 2 && json_integer_value(json_array_get(block, 0)) == FORMAT_SCALE_BLOCK &&
              json_integer_value(json_array_get(block, 1)) == FORMAT_SCALE_BLOCK;
    if (!ok) {
        refuse_value(r, "quantization_config", quant, "quant_method fp8, fmt e4m3, weight_block_size [128,128]");
    }
}

static void read_method(struct shape_reader *r, const json_t *root, const struct family *family)
{
    struct shape *s = r->shape;
    const char *score = get_string(r, root, "scoring_func"), *method = get_string(r, root, "topk_method");
    if (score == NULL && r->code == 0) {
        score = family->v2 ? "softmax" : "sigmoid";
        shape_note(s, "config.json: no scoring_func, assumed %s as in every %s", score, s->family);
    }
    if (method == NULL && family->v2) {
        shape_reader_missing(r, "topk_method", "rule of expert choice");
    } else if (method == NULL && r->code == 0) {
        method = "noaux_tc";
        shape_note(s, "config.json: no topk_method, assumed noaux_tc as in every %s", s->family);
    }
    if (r->code != 0 || score == NULL || method == NULL) {
        return;
    }
    bool sigmoid = strcmp(score, "sigmoid") == 0;
    if (!sigmoid && strcmp(score, "softmax") != 0) {
        refuse_value(r, "scoring_func", find(root, "scoring_func"), "sigmoid or softmax");
        return;
    }
    bool noaux = strcmp(method, "noaux_tc") == 0, limited = strcmp(method, "group_limited_greedy") == 0;
    if (!noaux && !limited && strcmp(method, "greedy") != 0) {
        refuse_value(r, "topk_method", find(root, "topk_method"), "noaux_tc, greedy or group_limited_greedy");
        return;
    }
    if (noaux != sigmoid) {
        r->code = error_set(r->e, ERROR_FORMAT,
                            "%s: topk_method %s together with scoring_func %s; expected noaux_tc with sigmoid, greedy or "
                            "group_limited_greedy with softmax",
                            r->where, method, score);
        return;
    }
    s->score = sigmoid ? ROUTER_SIGMOID : ROUTER_SOFTMAX;
    s->group = sigmoid ? ROUTER_GROUP_SUM2 : ROUTER_GROUP_MAX;
    s->router_bias = noaux;
    if (!noaux && !limited) {
        s->groups = s->groups_used = 1; /* the plain rule knows no groups, whatever n_group says */
    } else {
        s->groups = need_u32(r, root, "n_group", "number of routing groups");
        s->groups_used = need_u32(r, root, "topk_group", "routing groups kept per token");
    }
}

static void read_experts(struct shape_reader *r, const json_t *root, const struct family *family)
{
    struct shape *s = r->shape;
    s->moe_layer_freq = 1;
    if (json_is_null(json_object_get(root, "n_routed_experts"))) {
        s->dense_layers = s->layers;
        return;
    }
    s->experts = need_u32(r, root, "n_routed_experts", "number of routed experts, null for a dense model");
    s->experts_used = need_u32(r, root, "num_experts_per_tok", "experts chosen per token");
    s->expert_width = need_u32(r, root, "moe_intermediate_size", "width of an expert");
    s->dense_layers = need_u32(r, root, "first_k_dense_replace", "number of leading dense layers");
    s->routed_factor = (float)need_f64(r, root, "routed_scaling_factor", "factor of the expert weights");
    if (json_object_get(root, "norm_topk_prob") == NULL) {
        shape_reader_missing(r, "norm_topk_prob", "whether expert weights are normalised");
    }
    s->normalise = get_bool(r, root, "norm_topk_prob", false);
    const json_t *freq = find(root, "moe_layer_freq");
    if (freq != NULL) {
        s->moe_layer_freq = to_u32(r, "moe_layer_freq", freq);
    } else {
        shape_note(s, "config.json: no moe_layer_freq, assumed 1 (every layer after the dense ones has experts)");
    }
    uint32_t shared = 0;
    if (!json_is_null(json_object_get(root, "n_shared_experts"))) {
        shared = need_u32(r, root, "n_shared_experts", "number of shared experts, null for none");
    }
    uint64_t width = (uint64_t)shared * s->expert_width;
    s->shared_width = width > UINT32_MAX ? UINT32_MAX : (uint32_t)width;
    read_method(r, root, family);
    if (r->code == 0 && family->v2 && s->normalise && s->routed_factor != 1) {
        r->code = error_set(r->e, ERROR_FORMAT,
                            "%s: deepseek_v2 with norm_topk_prob true and routed_scaling_factor %g; implementations differ in "
                            "what that means, expected norm_topk_prob false or a factor of 1",
                            r->where, (double)s->routed_factor);
    }
}

static void read_yarn(struct shape_reader *r, const json_t *rope)
{
    struct shape *s = r->shape;
    s->yarn = true;
    s->yarn_factor = need_f64(r, rope, "factor", "YaRN stretch, in rope_scaling");
    s->yarn_original = need_u32(r, rope, "original_max_position_embeddings", "YaRN base length, in rope_scaling");
    s->yarn_beta_fast = get_f64(r, rope, "beta_fast", 32);
    s->yarn_beta_slow = get_f64(r, rope, "beta_slow", 1);
    s->yarn_truncate = get_bool(r, rope, "truncate", true);
    if (find(rope, "beta_fast") == NULL || find(rope, "beta_slow") == NULL) {
        shape_note(s, "config.json: rope_scaling without beta_fast or beta_slow, assumed %g and %g", s->yarn_beta_fast,
                   s->yarn_beta_slow);
    }
    double mscale = get_f64(r, rope, "mscale", 0), all = get_f64(r, rope, "mscale_all_dim", 0);
    double factor = s->yarn_factor;
    s->rope_magnitude = mscale != 0 && all != 0 ? shape_yarn_m(factor, mscale) / shape_yarn_m(factor, all)
                                                : shape_yarn_m(factor, 1);
    s->rope_magnitude = get_f64(r, rope, "attention_factor", s->rope_magnitude);
    if (all != 0) {
        shape_set_scale(s, shape_yarn_m(factor, all));
    } else if (r->code == 0) {
        shape_note(s, "config.json: rope_scaling without mscale_all_dim, attention scale without YaRN's square");
    }
}

static void read_rope(struct shape_reader *r, const json_t *root)
{
    struct shape *s = r->shape;
    const json_t *old = find(root, "rope_scaling"), *new = find(root, "rope_parameters"), *theta = find(root, "rope_theta");
    const json_t *rope = new != NULL ? new : old;
    if (rope != NULL && !json_is_object(rope)) {
        refuse_value(r, new != NULL ? "rope_parameters" : "rope_scaling", rope, "an object or null");
        return;
    }
    if (new != NULL && old != NULL && !json_equal(new, old)) {
        shape_note(s, "config.json: rope_scaling ignored, rope_parameters is there");
    }
    const json_t *inner = find(rope, "rope_theta");
    if (inner != NULL && theta != NULL && json_number_value(inner) != json_number_value(theta)) {
        refuse_value(r, "rope_theta inside rope_parameters", inner, "the value of the outer rope_theta");
    }
    if (theta == NULL && inner == NULL) {
        shape_reader_missing(r, "rope_theta", "base of the rotary frequencies");
    } else {
        s->rope_theta = to_f64(r, "rope_theta", theta != NULL ? theta : inner);
    }
    s->rope_magnitude = 1;
    if (s->nope + s->rope > 0) {
        shape_set_scale(s, 1);
    }
    if (json_object_get(root, "rope_scaling") == NULL && new == NULL) {
        shape_note(s, "config.json: no rope_scaling, assumed plain rotary embedding");
    }
    if (rope == NULL) {
        return;
    }
    const char *type = get_string(r, rope, "rope_type"), *other = get_string(r, rope, "type");
    if (type != NULL && other != NULL && strcmp(type, other) != 0) {
        refuse_value(r, "rope_type", find(rope, "rope_type"), "the same value as type");
        return;
    }
    type = type != NULL ? type : other;
    if (type == NULL) {
        if (r->code == 0) {
            shape_reader_missing(r, "rope_type", "kind of scaling, in rope_scaling or rope_parameters");
        }
    } else if (strcmp(type, "yarn") == 0) {
        read_yarn(r, rope);
    } else if (strcmp(type, "default") != 0) {
        refuse_value(r, "rope_type", find(rope, find(rope, "rope_type") != NULL ? "rope_type" : "type"), "yarn or default");
    }
}

/* A number or a list of numbers. */
static void read_eos(struct shape_reader *r, const json_t *root, const char *where)
{
    const json_t *v = find(root, "eos_token_id");
    if (v == NULL) {
        return;
    }
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(v) ? json_array_get(v, i) : v;
        shape_add_eos(r->shape, (int32_t)to_u32(r, where, id));
    }
}

static void note_unknown_keys(struct shape_reader *r, json_t *root)
{
    uint32_t n = 0;
    char first[3][40] = { "", "", "" };
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
        bool known = false;
        for (size_t i = 0; i < ARRAY_LEN(known_keys) && !known; i++) {
            known = strcmp(key, known_keys[i]) == 0;
        }
        if (!known && n < ARRAY_LEN(first)) {
            strncpy(first[n], key, sizeof(first[n]) - 1);
        }
        n += !known;
    }
    if (n > 0) {
        shape_note(r->shape, "config.json: %u keys are not used: %s%s%s%s%s%s", n, first[0], n > 1 ? ", " : "", first[1],
                   n > 2 ? ", " : "", first[2], n > ARRAY_LEN(first) ? ", ..." : "");
    }
}

/* NULL with r->code set when the text is no JSON object. */
static json_t *parse(struct shape_reader *r, const char *text, size_t len, const char *what)
{
    json_t *root = NULL;
    struct error failed = { 0 };
    int code = json_text_parse(text, len, JSON_REJECT_DUPLICATES, &root, &failed);
    if (code < 0) {
        r->code = error_set(r->e, code, "%s: %s%s%s", r->where, what, failed.text, code == ERROR_FORMAT ? "; expected a JSON object" : "");
    } else if (!json_is_object(root)) {
        r->code = error_set(r->e, ERROR_FORMAT, "%s: %sthe text is no JSON object; %s", r->where, what, advice);
        json_decref(root);
        root = NULL;
    }
    return root;
}

static void read_root(struct shape_reader *r, json_t *root)
{
    struct shape *s = r->shape;
    const struct family *family = read_family(r, root);
    if (r->code != 0) {
        return;
    }
    read_dimensions(r, root);
    read_switches(r, root);
    if (family != NULL) {
        read_experts(r, root, family);
    }
    read_rope(r, root);
    const json_t *bos = find(root, "bos_token_id");
    s->bos = bos != NULL ? (int32_t)to_u32(r, "bos_token_id", bos) : -1;
    read_eos(r, root, "eos_token_id");
    note_unknown_keys(r, root);
}

int shape_from_config(const char *config, size_t len, const char *generation, size_t generation_len, const char *where,
                      struct shape *ret, struct error *e)
{
    struct shape s = { .bos = -1 };
    struct shape_reader r = { .where = where, .shape = &s, .e = e };
    json_t *root = parse(&r, config, len, "");
    if (root != NULL) {
        read_root(&r, root);
        json_decref(root);
    }
    if (r.code == 0 && generation != NULL) {
        root = parse(&r, generation, generation_len, "generation_config.json beside it: ");
        if (root != NULL) {
            read_eos(&r, root, "eos_token_id of generation_config.json");
            json_decref(root);
        }
    }
    int code = shape_reader_finish(&r, advice);
    if (code == 0) {
        if (s.n_eos == 0) {
            shape_note(&s, "config.json: no eos_token_id, generation ends only at its length");
        }
        *ret = s;
    }
    return code;
}
