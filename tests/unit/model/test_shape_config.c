/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: config.json -> shape: golden models, the family table, absences, refusals, rotary numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/model/model_test.h"

static json_t *v3_json(void)
{
    json_t *root = json_load_file(V3_CONFIG, 0, NULL);
    assert_non_null(root);
    return root;
}

static struct shape v3_shape(void)
{
    json_t *c = v3_json();
    struct shape s;
    struct error e = { 0 };
    if (shape_of_json(c, &s, &e) != 0) {
        fail_msg("%s", e.text);
    }
    json_decref(c);
    return s;
}

static void test_true_v3(void **state)
{
    (void)state;
    struct shape s = v3_shape();
    assert_string_equal(s.family, "deepseek_v3");
    assert_int_equal(s.hidden, 7168);
    assert_int_equal(shape_all_layers(&s), 62);
    assert_int_equal(s.shared_width, 2048);
    assert_int_equal(s.score, ROUTER_SIGMOID);
    assert_int_equal(s.group, ROUTER_GROUP_SUM2);
    assert_true(s.router_bias && s.normalise && s.yarn && s.yarn_truncate);
    assert_false(s.rope_half_split || s.tied_head);
    assert_int_equal(s.n_notes, 0);
    assert_near(s.attn_scale, 0.1352338, 1e-6);
    assert_near(s.rope_magnitude, 1, 0);
    assert_int_equal(s.bos, 0);
    assert_int_equal(s.n_eos, 1);
    assert_int_equal(s.eos[0], 1);
    /* 7 numbers of the latent cache per token */
    assert_int_equal(s.layers * (s.kv_lora + s.rope), 35136);
    bool moe[3] = { shape_layer_is_moe(&s, 2), shape_layer_is_moe(&s, 3), shape_layer_is_moe(&s, 61) };
    assert_false(moe[0]);
    assert_true(moe[1] && moe[2]);
}

static void test_rope(void **state)
{
    (void)state;
    struct shape s = v3_shape();
    double w[32];
    shape_rope_frequencies(&s, w);
    static const struct {
        unsigned j;
        double w;
    } v3[] = { { 0, 1 }, { 1, 0.7498942 }, { 5, 0.2371374 }, { 9, 0.07498942 }, { 10, 0.05623413 }, { 11, 0.03900693 },
               { 12, 0.02687936 }, { 16, 0.005500000 }, { 20, 7.905694e-4 }, { 22, 1.778279e-4 }, { 23, 3.333804e-5 },
               { 31, 3.333804e-6 } };
    for (size_t i = 0; i < ARRAY_LEN(v3); i++) {
        assert_near(w[v3[i].j], v3[i].w, 3e-7);
    }
    static const struct {
        uint32_t p;
        unsigned j;
        double cos, sin;
    } rows[] = { { 100, 5, 0.1512099, -0.9885017 }, { 1000, 16, 0.7086698, -0.7055403 }, { 4096, 16, -0.8593232, -0.5114329 },
                 { 100000, 31, 0.9449416, 0.3272391 } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        float row[64];
        shape_rope_row(&s, w, rows[i].p, row);
        assert_near(row[2 * rows[i].j], rows[i].cos, 1e-6);
        assert_near(row[2 * rows[i].j + 1], rows[i].sin, 1e-6);
    }
    /* Kimi-K2 */
    s.rope_theta = 50000;
    s.yarn_factor = 32;
    s.yarn_beta_fast = 1;
    shape_rope_frequencies(&s, w);
    assert_near(w[1], 0.7131111, 3e-7);
    assert_near(w[18], 0.002274204, 3e-7);
    assert_near(w[19], 0.001621760, 3e-7);
    assert_near(w[20], 3.614047e-5, 3e-7);
    assert_near(w[31], 8.764413e-7, 3e-7);
    s.yarn = false;
    shape_rope_frequencies(&s, w);
    assert_near(w[16], 1 / 223.606797749979, 1e-12);
}

/* One line per column of the family table. */
static const struct relative {
    const char *type;
    unsigned hidden, layers, dense, heads, q_lora, nope, v_head, experts, used, shared, width, dense_width, groups, kept;
    const char *score, *method;
    bool norm;
    double factor, theta;
    double yarn, beta_fast, mscale; /* yarn 0: none */
    double scale;
} family[] = {
    { "deepseek_v2", 2048, 27, 1, 16, 0, 128, 128, 64, 6, 2, 1408, 10944, 1, 1, "softmax", "greedy", false, 1, 1e4, 40, 32,
      0.707, 0.1147214 },
    { "deepseek_v2", 5120, 60, 1, 128, 1536, 128, 128, 160, 6, 2, 1536, 12288, 8, 3, "softmax", "group_limited_greedy", false,
      16, 1e4, 40, 32, 0.707, 0.1147214 },
    { "deepseek_v2", 5120, 60, 1, 128, 1536, 128, 128, 160, 6, 2, 1536, 12288, 8, 3, "softmax", "group_limited_greedy", false,
      16, 1e4, 40, 32, 1.0, 0.1352338 },
    { "deepseek_v3", 7168, 61, 3, 128, 1536, 128, 128, 256, 8, 1, 2048, 18432, 8, 4, "sigmoid", "noaux_tc", true, 2.5, 1e4, 40,
      32, 1.0, 0.1352338 },
    { "deepseek_v3", 2048, 27, 1, 16, 0, 128, 128, 64, 6, 2, 1408, 11264, 1, 1, "sigmoid", "noaux_tc", true, 2.446, 5e4, 0, 0,
      0, 0.07216878 },
    { "kimi_k2", 7168, 61, 1, 64, 1536, 128, 128, 384, 8, 1, 2048, 18432, 1, 1, "sigmoid", "noaux_tc", true, 2.827, 5e4, 32, 1,
      1.0, 0.1308608 },
    { "kimi_k2", 7168, 61, 1, 64, 1536, 128, 128, 384, 8, 1, 2048, 18432, 1, 1, "sigmoid", "noaux_tc", true, 2.827, 5e4, 64, 1,
      1.0, 0.1446796 },
    { "glm4_moe_lite", 2048, 47, 1, 20, 768, 192, 256, 64, 4, 1, 1536, 10240, 1, 1, NULL, "noaux_tc", true, 1.8, 1e6, 0, 0, 0,
      0.0625 },
};

static json_t *relative_config(const struct relative *f)
{
    json_t *yarn = f->yarn == 0 ? json_null()
                                : json_pack("{ss, sf, si, sf, si, sf, sf}", "type", "yarn", "factor", f->yarn,
                                            "original_max_position_embeddings", 4096, "beta_fast", f->beta_fast, "beta_slow",
                                            1, "mscale", f->mscale, "mscale_all_dim", f->mscale);
    json_t *c = json_pack("{ss, si, si, si, si, si, si, si, si, si, si, si, si, si, si, si}", "model_type", f->type, "hidden_size",
                          f->hidden, "num_hidden_layers", f->layers, "first_k_dense_replace", f->dense, "num_attention_heads",
                          f->heads, "kv_lora_rank", 512, "qk_nope_head_dim", f->nope, "qk_rope_head_dim", 64, "v_head_dim",
                          f->v_head, "n_routed_experts", f->experts, "num_experts_per_tok", f->used, "n_shared_experts",
                          f->shared, "moe_intermediate_size", f->width, "intermediate_size", f->dense_width, "vocab_size",
                          150000, "max_position_embeddings", 131072);
    assert_non_null(c);
    json_object_set_new(c, "q_lora_rank", f->q_lora > 0 ? json_integer(f->q_lora) : json_null());
    json_object_set_new(c, "n_group", json_integer(f->groups));
    json_object_set_new(c, "topk_group", json_integer(f->kept));
    json_object_set_new(c, "topk_method", json_string(f->method));
    if (f->score != NULL) {
        json_object_set_new(c, "scoring_func", json_string(f->score));
    }
    json_object_set_new(c, "norm_topk_prob", json_boolean(f->norm));
    json_object_set_new(c, "routed_scaling_factor", json_real(f->factor));
    json_object_set_new(c, "rope_theta", json_real(f->theta));
    json_object_set_new(c, "rope_scaling", yarn);
    json_object_set_new(c, "rms_norm_eps", json_real(1e-5));
    json_object_set_new(c, "hidden_act", json_string("silu"));
    return c;
}

static void test_family_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(family); i++) {
        const struct relative *f = &family[i];
        json_t *c = relative_config(f);
        struct shape s;
        struct error e = { 0 };
        if (shape_of_json(c, &s, &e) != 0) {
            fail_msg("%s: %s", f->type, e.text);
        }
        json_decref(c);
        assert_near(s.attn_scale, f->scale, 1e-6);
        assert_int_equal(s.q_lora, f->q_lora);
        assert_int_equal(s.shared_width, f->shared * f->width);
        assert_int_equal(s.groups, f->groups);
        assert_int_equal(s.groups_used, f->kept);
        assert_int_equal(s.score, strcmp(f->method, "noaux_tc") == 0 ? ROUTER_SIGMOID : ROUTER_SOFTMAX);
        assert_int_equal(s.router_bias, strcmp(f->method, "noaux_tc") == 0);
        assert_int_equal(s.yarn, f->yarn != 0);
        assert_near(s.inner_eps, 1e-6f, 1e-9);
        assert_near(s.rms_eps, 1e-5f, 1e-9);
        assert_near(s.rope_magnitude, 1, 1e-12);
    }
}

static void test_golden_configs(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned layers, mtp, hidden, heads, q_lora, experts, used, groups, kept, n_eos, n_notes;
        double scale;
    } rows[] = {
        { "v3", 4, 1, 96, 3, 48, 16, 4, 4, 2, 1, 0, 0.2307086 },    { "v3-fp8", 2, 1, 144, 2, 136, 6, 2, 3, 2, 1, 0, 0.2039238 },
        { "v3-f32", 2, 0, 64, 2, 40, 8, 3, 1, 1, 1, 0, 0.1581139 }, { "v2", 3, 0, 80, 2, 48, 16, 3, 4, 2, 1, 0, 0.2513420 },
        { "v2-lite", 3, 0, 64, 2, 0, 10, 3, 1, 1, 1, 0, 0.2513420 }, { "glm-flash", 2, 1, 64, 3, 40, 8, 4, 1, 1, 2, 2, 0.1767767 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        size_t len, generation_len;
        char *config = read_text(text("%s/%s/config.json", GOLDEN, rows[i].name), &len);
        char *generation = read_text(text("%s/%s/generation_config.json", GOLDEN, rows[i].name), &generation_len);
        struct shape s;
        struct error e = { 0 };
        assert_int_equal(shape_from_config(config, len, generation, generation_len, rows[i].name, &s, &e), 0);
        free(config);
        free(generation);
        unsigned found[] = { s.layers, s.mtp_layers, s.hidden, s.heads, s.q_lora, s.experts, s.experts_used, s.groups,
                             s.groups_used, s.n_eos, s.n_notes };
        for (size_t k = 0; k < ARRAY_LEN(found); k++) {
            assert_int_equal(found[k], (&rows[i].layers)[k]);
        }
        assert_near(s.attn_scale, rows[i].scale, 1e-6);
    }
}

static void test_deleted_keys(void **state)
{
    (void)state;
    static const char *const required[] = {
        "model_type", "vocab_size", "hidden_size", "num_hidden_layers", "first_k_dense_replace", "intermediate_size",
        "moe_intermediate_size", "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "n_group", "topk_group",
        "norm_topk_prob", "routed_scaling_factor", "num_attention_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim",
        "qk_rope_head_dim", "v_head_dim", "rms_norm_eps", "max_position_embeddings", "rope_theta",
    };
    static const char *const noted[] = { "scoring_func", "topk_method", "moe_layer_freq", "hidden_act", "rope_scaling", "eos_token_id" };
    json_t *c = v3_json();
    struct shape s;
    for (size_t i = 0; i < ARRAY_LEN(required); i++) {
        struct error e = { 0 };
        assert_int_equal(shape_with(c, required[i], NULL, &s, &e), ERROR_FORMAT);
        assert_contains(e.text, required[i]);
        assert_contains(e.text, "missing key");
        assert_contains(e.text, "config.json");
    }
    for (size_t i = 0; i < ARRAY_LEN(noted); i++) {
        struct error e = { 0 };
        assert_int_equal(shape_with(c, noted[i], NULL, &s, &e), 0);
        assert_int_equal(s.n_notes, 1);
        assert_contains(s.notes[0], noted[i]);
    }
    /* all at once */
    json_object_del(c, "hidden_size");
    json_object_del(c, "v_head_dim");
    struct error e = { 0 };
    assert_int_equal(shape_of_json(c, &s, &e), ERROR_FORMAT);
    assert_contains(e.text, "hidden_size");
    assert_contains(e.text, "v_head_dim");
    json_decref(c);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *part;
    } rows[] = {
        { "model_type", "\"deepseek_v32\"", "glm4_moe_lite" },
        { "model_type", "3", "model_type" },
        { "hidden_size", "7168.0", "hidden_size" },
        { "hidden_size", "\"7168\"", "hidden_size" },
        { "hidden_size", "-1", "hidden_size" },
        { "hidden_size", "0", "hidden_size" },
        { "hidden_size", "70000", "hidden_size" },
        { "num_hidden_layers", "1025", "num_hidden_layers" },
        { "num_hidden_layers", "2", "leading dense" },
        { "vocab_size", "99999999999", "vocab_size" },
        { "n_routed_experts", "4097", "n_routed_experts" },
        { "n_routed_experts", "true", "n_routed_experts" },
        { "qk_rope_head_dim", "63", "even" },
        { "norm_topk_prob", "1", "norm_topk_prob" },
        { "rms_norm_eps", "0", "epsilon" },
        { "rms_norm_eps", "\"x\"", "rms_norm_eps" },
        { "rope_theta", "1", "rope theta" },
        { "scoring_func", "\"softmax\"", "noaux_tc" },
        { "scoring_func", "\"tanh\"", "scoring_func" },
        { "topk_method", "\"greedy\"", "sigmoid" },
        { "topk_method", "\"best\"", "topk_method" },
        { "n_group", "7", "do not divide" },
        { "topk_group", "9", "kept" },
        { "topk_group", "0", "kept" },
        { "n_group", "256", "hold only 4" },
        { "num_experts_per_tok", "129", "hold only 128" },
        { "num_experts_per_tok", "257", "per token" },
        { "routed_scaling_factor", "0", "factor" },
        { "moe_intermediate_size", "0", "expert" },
        { "intermediate_size", "0", "dense" },
        { "moe_layer_freq", "0", "moe_layer_freq" },
        { "hidden_act", "\"gelu\"", "silu" },
        { "attention_bias", "true", "attention_bias" },
        { "partial_rotary_factor", "0.5", "partial_rotary_factor" },
        { "qk_head_dim", "193", "qk_head_dim" },
        { "eos_token_id", "129280", "end token" },
        { "eos_token_id", "[1, \"x\"]", "eos_token_id" },
        { "bos_token_id", "200000", "begin token" },
        { "quantization_config", "{\"quant_method\": \"awq\"}", "weight_block_size" },
        { "quantization_config", "{\"quant_method\": \"fp8\", \"weight_block_size\": [64, 128]}", "weight_block_size" },
        { "rope_scaling", "{\"type\": \"linear\", \"factor\": 4}", "yarn" },
        { "rope_scaling", "{\"factor\": 4}", "rope_type" },
        { "rope_scaling", "{\"type\": \"yarn\", \"rope_type\": \"default\"}", "rope_type" },
        { "rope_scaling", "{\"type\": \"yarn\", \"original_max_position_embeddings\": 4096}", "factor" },
        { "rope_scaling", "{\"type\": \"yarn\", \"factor\": 40}", "original_max_position_embeddings" },
        { "rope_scaling", "{\"type\": \"yarn\", \"factor\": 0.5, \"original_max_position_embeddings\": 4096}", "YaRN" },
        { "rope_scaling", "7", "rope_scaling" },
        { "rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": 5000}", "rope_theta" },
    };
    json_t *c = v3_json();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct shape s = { .hidden = 1 };
        struct error e = { 0 };
        if (shape_with(c, rows[i].key, rows[i].value, &s, &e) != ERROR_FORMAT) {
            fail_msg("%s %s was accepted", rows[i].key, rows[i].value);
        }
        assert_contains(e.text, rows[i].part);
        assert_contains(e.text, "config.json");
        assert_int_equal(s.hidden, 1); /* nothing is written on failure */
    }
    json_decref(c);
}

static void test_variants(void **state)
{
    (void)state;
    json_t *c = v3_json();
    struct shape s;
    struct error e = { 0 };
    /* newer spelling: rope_parameters with theta inside, no rope_scaling */
    json_t *new = json_deep_copy(c);
    json_object_del(new, "rope_scaling");
    json_object_del(new, "rope_theta");
    assert_int_equal(shape_with(new, "rope_parameters",
                                "{\"rope_type\": \"yarn\", \"rope_theta\": 10000, \"factor\": 40, \"beta_fast\": 32, \"beta_slow\": 1,"
                                "\"mscale\": 1.0, \"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 4096}",
                                &s, &e), 0);
    assert_near(s.attn_scale, 0.1352338, 1e-6);
    assert_near(s.rope_theta, 10000, 0);
    assert_int_equal(s.n_notes, 0);
    json_decref(new);
    assert_int_equal(shape_with(c, "rope_scaling", "null", &s, &e), 0);
    assert_false(s.yarn);
    assert_int_equal(s.n_notes, 0);
    assert_near(s.attn_scale, 0.07216878, 1e-6);
    /* one magnitude alone: m(1) on cos and sin, no square on the scale without mscale_all_dim */
    assert_int_equal(shape_with(c, "rope_scaling",
                                "{\"type\": \"yarn\", \"factor\": 40, \"beta_fast\": 32, \"beta_slow\": 1, \"mscale\": 1.0,"
                                "\"original_max_position_embeddings\": 4096}", &s, &e), 0);
    assert_near(s.rope_magnitude, 1.36888795, 1e-8);
    assert_near(s.attn_scale, 0.07216878, 1e-6);
    assert_int_equal(shape_with(c, "n_routed_experts", "null", &s, &e), 0);
    assert_int_equal(s.experts, 0);
    assert_false(shape_layer_is_moe(&s, 60));
    assert_int_equal(shape_with(c, "n_shared_experts", "null", &s, &e), 0);
    assert_int_equal(s.shared_width, 0);
    assert_int_equal(shape_with(c, "rope_interleave", "false", &s, &e), 0);
    assert_true(s.rope_half_split);
    assert_int_equal(shape_with(c, "tie_word_embeddings", "true", &s, &e), 0);
    assert_true(s.tied_head);
    assert_int_equal(shape_with(c, "bos_token_id", NULL, &s, &e), 0);
    assert_int_equal(s.bos, -1);
    assert_int_equal(shape_with(c, "num_nextn_predict_layers", NULL, &s, &e), 0);
    assert_int_equal(s.mtp_layers, 0);
    assert_int_equal(shape_with(c, "index_topk", "2048", &s, &e), 0);
    assert_int_equal(s.n_notes, 1);
    assert_contains(s.notes[0], "index_topk");
    json_object_set_new(c, "n_group", json_integer(256));
    assert_int_equal(shape_with(c, "topk_group", "8", &s, &e), ERROR_FORMAT);
    assert_contains(e.text, "two best");
    json_decref(c);
}

static void test_text_that_is_no_config(void **state)
{
    (void)state;
    static const char *const texts[] = { "", "{", "[]", "7", "{\"a\": 1, \"a\": 2}", "{}", "\xff\xfe", "{\"model_type\": \"deepseek_v3\"}" };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct shape s;
        struct error e = { 0 };
        assert_int_equal(shape_from_config(texts[i], strlen(texts[i]), NULL, 0, "config.json", &s, &e), ERROR_FORMAT);
        assert_contains(e.text, "config.json");
    }
    size_t len;
    char *v3_config = read_text(V3_CONFIG, &len);
    struct shape s;
    struct error e = { 0 };
    const char generation[] = "{\"eos_token_id\": [1, 100, 1]}";
    assert_int_equal(shape_from_config(v3_config, len, generation, strlen(generation), "config.json", &s, &e), 0);
    assert_int_equal(s.n_eos, 2);
    assert_int_equal(s.eos[1], 100);
    assert_int_equal(shape_from_config(v3_config, len, "{", 1, "config.json", &s, &e), ERROR_FORMAT);
    assert_contains(e.text, "generation_config.json");
    free(v3_config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_true_v3),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_family_table),
        cmocka_unit_test(test_golden_configs),
        cmocka_unit_test(test_deleted_keys),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_text_that_is_no_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
