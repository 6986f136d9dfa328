/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: GGUF metadata -> shape: true V3 (both layouts), assumed values, absences, refusals, golden files. */
#include <string.h>

#include "tests/unit/model/model_test.h"

static int read_shape(const struct meta *m, bool groups, struct shape *ret, struct error *e)
{
    *e = (struct error){ 0 };
    return shape_from_gguf(&m->meta, "model.gguf", groups, ret, e);
}

static void assert_note(const struct shape *s, const char *part)
{
    for (uint32_t i = 0; i < s->n_notes; i++) {
        if (strstr(s->notes[i], part) != NULL) {
            return;
        }
    }
    fail_msg("no note has \"%s\"; %u notes, the first is \"%s\"", part, s->n_notes, s->notes[0]);
}

static void test_v3_of_2025(void **state)
{
    (void)state;
    for (int newer = 0; newer < 2; newer++) {
        struct meta m;
        struct shape s;
        struct error e;
        meta_v3(&m, newer);
        assert_int_equal(read_shape(&m, true, &s, &e), 0);
        assert_int_equal(s.nope, 128);
        assert_int_equal(s.v_head, 128);
        assert_int_equal(s.heads, 128);
        assert_int_equal(s.layers, 61);
        assert_int_equal(s.mtp_layers, 0);
        assert_near(s.attn_scale, 0.1352338, 1e-6);
        assert_near(s.inner_eps, 1e-6f, 1e-9);
        assert_int_equal(s.groups, 8);
        assert_int_equal(s.groups_used, 4);
        assert_int_equal(s.group, ROUTER_GROUP_SUM2);
        assert_true(s.router_bias && s.normalise);
        assert_note(&s, "expert_group_count");
        assert_note(&s, "beta_fast");
        assert_int_equal(s.n_notes, 2);
        assert_int_equal(read_shape(&m, false, &s, &e), 0);
        assert_int_equal(s.groups, 1);
        assert_note(&s, "--expert-groups off");
        meta_u32(&m, "deepseek2.expert_group_count", 8);
        meta_u32(&m, "deepseek2.expert_group_used_count", 2);
        assert_int_equal(read_shape(&m, false, &s, &e), 0);
        assert_int_equal(s.groups, 8);
        assert_int_equal(s.groups_used, 2);
        meta_u32(&m, "deepseek2.block_count", 62);
        meta_u32(&m, "deepseek2.nextn_predict_layers", 1);
        assert_int_equal(read_shape(&m, true, &s, &e), 0);
        assert_int_equal(s.layers, 61);
        assert_int_equal(s.mtp_layers, 1);
    }
}

static void test_relatives(void **state)
{
    (void)state;
    struct meta m;
    struct shape s;
    struct error e;
    /* DeepSeek-V2 as in its oldest files */
    meta_v3(&m, false);
    meta_u32(&m, "deepseek2.expert_count", 160);
    meta_u32(&m, "deepseek2.expert_used_count", 6);
    meta_drop(&m, "deepseek2.expert_gating_func");
    meta_drop(&m, "deepseek2.expert_weights_norm");
    meta_drop(&m, "deepseek2.rope.scaling.yarn_log_multiplier");
    assert_int_equal(read_shape(&m, true, &s, &e), 0);
    assert_int_equal(s.score, ROUTER_SOFTMAX);
    assert_int_equal(s.groups, 8);
    assert_int_equal(s.groups_used, 3);
    assert_int_equal(s.group, ROUTER_GROUP_MAX);
    assert_false(s.router_bias || s.normalise);
    assert_near(s.attn_scale, 0.1147214, 1e-6);
    assert_note(&s, "softmax");
    assert_note(&s, "yarn_log_multiplier");
    /* Kimi-K2: by the number of experts, or by the pre-tokenizer */
    meta_v3(&m, true);
    meta_u32(&m, "deepseek2.expert_count", 384);
    meta_f32(&m, "deepseek2.rope.scaling.factor", 32);
    meta_f32(&m, "deepseek2.rope.freq_base", 50000);
    assert_int_equal(read_shape(&m, true, &s, &e), 0);
    assert_near(s.yarn_beta_fast, 1, 0);
    assert_int_equal(s.groups, 1);
    assert_near(s.attn_scale, 0.1308608, 1e-6);
    assert_note(&s, "Kimi-K2");
    meta_u32(&m, "deepseek2.expert_count", 128);
    assert_int_equal(read_shape(&m, true, &s, &e), 0);
    assert_near(s.yarn_beta_fast, 32, 0);
    meta_text(&m, "tokenizer.ggml.pre", "kimi-k2");
    assert_int_equal(read_shape(&m, true, &s, &e), 0);
    assert_near(s.yarn_beta_fast, 1, 0);
    meta_f32(&m, "deepseek2.rope.scaling.yarn_beta_fast", 32);
    assert_int_equal(read_shape(&m, true, &s, &e), 0);
    assert_near(s.yarn_beta_fast, 32, 0);
    /* GLM-4.7-Flash, without a word about its gating; with and without its MTP block */
    for (uint32_t blocks = 47; blocks < 50; blocks++) {
        meta_v3(&m, true);
        meta_u32(&m, "deepseek2.block_count", blocks);
        meta_u32(&m, "deepseek2.vocab_size", 154880);
        meta_u32(&m, "deepseek2.expert_count", 64);
        meta_u32(&m, "deepseek2.attention.key_length_mla", 256);
        meta_drop(&m, "deepseek2.rope.scaling.type");
        meta_drop(&m, "deepseek2.rope.scaling.factor");
        meta_u32(&m, "deepseek2.expert_gating_func", 0);
        assert_int_equal(read_shape(&m, true, &s, &e), 0);
        assert_int_equal(s.score, blocks < 49 ? ROUTER_SIGMOID : ROUTER_SOFTMAX);
        assert_near(s.attn_scale, 0.0625, 1e-9);
        assert_false(s.yarn);
    }
}

static void test_deleted_keys(void **state)
{
    (void)state;
    static const char *const required[] = {
        "general.architecture", "deepseek2.block_count", "deepseek2.context_length", "deepseek2.embedding_length",
        "deepseek2.feed_forward_length", "deepseek2.attention.head_count", "deepseek2.attention.kv_lora_rank",
        "deepseek2.attention.layer_norm_rms_epsilon", "deepseek2.leading_dense_block_count", "deepseek2.vocab_size",
        "deepseek2.expert_count", "deepseek2.expert_used_count", "deepseek2.expert_shared_count",
        "deepseek2.expert_feed_forward_length", "deepseek2.rope.dimension_count", "deepseek2.rope.freq_base",
        "deepseek2.rope.scaling.type", "deepseek2.rope.scaling.factor", "deepseek2.rope.scaling.original_context_length",
        "deepseek2.rope.scaling.yarn_log_multiplier",
    };
    static const char *const noted[] = { "deepseek2.expert_weights_scale", "deepseek2.expert_weights_norm",
                                         "deepseek2.expert_gating_func", "tokenizer.ggml.eos_token_id" };
    for (size_t i = 0; i < ARRAY_LEN(required); i++) {
        struct meta m;
        struct shape s;
        struct error e;
        meta_v3(&m, true);
        meta_drop(&m, required[i]);
        assert_int_equal(read_shape(&m, true, &s, &e), ERROR_FORMAT);
        assert_contains(e.text, required[i]);
        assert_contains(e.text, "model.gguf");
    }
    for (size_t i = 0; i < ARRAY_LEN(noted); i++) {
        struct meta m;
        struct shape s;
        struct error e;
        meta_v3(&m, true);
        meta_drop(&m, noted[i]);
        assert_int_equal(read_shape(&m, true, &s, &e), 0);
        assert_note(&s, noted[i]);
    }
    /* the older layout needs the plain lengths, the newer one both of its own */
    struct meta m;
    struct shape s;
    struct error e;
    meta_v3(&m, false);
    meta_drop(&m, "deepseek2.attention.key_length");
    meta_drop(&m, "deepseek2.attention.value_length");
    assert_int_equal(read_shape(&m, true, &s, &e), ERROR_FORMAT);
    assert_contains(e.text, "key_length");
    assert_contains(e.text, "value_length");
    meta_v3(&m, true);
    meta_drop(&m, "deepseek2.attention.value_length_mla");
    assert_int_equal(read_shape(&m, true, &s, &e), ERROR_FORMAT);
    assert_contains(e.text, "value_length_mla");
    meta_v3(&m, true);
    meta_drop(&m, "deepseek2.attention.q_lora_rank");
    assert_int_equal(read_shape(&m, true, &s, &e), 0);
    assert_int_equal(s.q_lora, 0);
    meta_v3(&m, true);
    meta_u32(&m, "deepseek2.expert_group_count", 8);
    assert_int_equal(read_shape(&m, true, &s, &e), ERROR_FORMAT);
    assert_contains(e.text, "expert_group_used_count");
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        const char *part;
    } rows[] = {
        { "deepseek2.expert_gating_func", 3, "expert_gating_func" },
        { "deepseek2.embedding_length", 0, "embedding_length" },
        { "deepseek2.block_count", 0, "block_count" },
        { "deepseek2.block_count", 4000000000u, "block_count" },
        { "deepseek2.attention.head_count", 5000, "head_count" },
        { "deepseek2.expert_count", 5000, "expert_count" },
        { "deepseek2.expert_used_count", 0, "per token" },
        { "deepseek2.rope.dimension_count", 192, "dimension_count" },
        { "deepseek2.rope.dimension_count", 63, "even" },
        { "deepseek2.rope.scaling.yarn_attn_factor", 2, "yarn_attn_factor" },
        { "deepseek2.rope.scaling.yarn_ext_factor", 0, "yarn_ext_factor" },
        { "deepseek2.attention.temperature_scale", 1, "temperature_scale" },
        { "deepseek2.nextn_predict_layers", 61, "nextn_predict_layers" },
        { "deepseek2.rope.scaling.type", 1, "rope.scaling.type" },
        { "deepseek2.expert_weights_norm", 7, "expert_weights_norm" },
        { "tokenizer.ggml.eos_token_id", 129280, "end token" },
    };
    struct meta m;
    struct shape s;
    struct error e;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        meta_v3(&m, true);
        meta_u32(&m, rows[i].key, rows[i].value);
        if (read_shape(&m, true, &s, &e) != ERROR_FORMAT) {
            fail_msg("%s %u was accepted", rows[i].key, rows[i].value);
        }
        assert_contains(e.text, rows[i].part);
        assert_contains(e.text, "model.gguf");
    }
    meta_v3(&m, true);
    meta_text(&m, "general.architecture", "llama");
    assert_int_equal(read_shape(&m, true, &s, &e), ERROR_FORMAT);
    assert_contains(e.text, "llama");
    assert_contains(e.text, "deepseek2");
    meta_v3(&m, true);
    meta_text(&m, "deepseek2.rope.scaling.type", "linear");
    assert_int_equal(read_shape(&m, true, &s, &e), ERROR_FORMAT);
    assert_contains(e.text, "linear");
    m.meta.n = 0;
    assert_int_equal(read_shape(&m, true, &s, &e), ERROR_FORMAT);
}

/* Every golden file says the same as the configuration its expectation was made from. */
static void test_golden_files(void **state)
{
    (void)state;
    static const char *const names[] = { "gguf-bf16", "gguf-f16-mtp", "gguf-f32", "gguf-iq4_nl", "gguf-mxfp4", "gguf-q4_0",
                                         "gguf-q4_1", "gguf-q5_0", "gguf-q5_1", "gguf-q8_0-split", "gguf-v2-lite", "kq-iq1",
                                         "kq-iq2", "kq-iq4xs", "kq-q2", "kq-q4" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_t *expect = json_load_file(text("%s/%s/expect.json", GOLDEN, names[i]), 0, NULL);
        struct shape a, b;
        struct error e = { 0 };
        assert_int_equal(shape_of_json(json_object_get(expect, "config"), &a, &e), 0);
        const char *file = json_string_value(json_array_get(json_object_get(expect, "files"), 0));
        struct container_options options = { 0 };
        struct container *c;
        if (container_open(text("%s/%s/%s", GOLDEN, names[i], file), &options, &c, &e) != 0) {
            fail_msg("%s", e.text);
        }
        json_decref(expect);
        assert_int_equal(shape_from_gguf(&c->meta, names[i], true, &b, &e), 0);
        container_close(c);
        b.n_notes = a.n_notes;
        assert_near(b.attn_scale, a.attn_scale, 1e-7);
        assert_near(b.rms_eps, a.rms_eps, 1e-6);
        b.attn_scale = a.attn_scale;
        memcpy(b.notes, a.notes, sizeof(a.notes));
        memcpy(b.family, a.family, sizeof(a.family));
        assert_memory_equal(&a.vocab, &b.vocab, offsetof(struct shape, score) - offsetof(struct shape, vocab));
        assert_int_equal(a.score, b.score);
        assert_int_equal(a.group, b.group);
        assert_int_equal(a.router_bias, b.router_bias);
        assert_int_equal(a.normalise, b.normalise);
        assert_near(a.routed_factor, b.routed_factor, 1e-9);
        assert_near(a.yarn_factor, b.yarn_factor, 0);
        assert_near(a.yarn_beta_fast, b.yarn_beta_fast, 0);
        assert_int_equal(a.yarn_original, b.yarn_original);
        assert_int_equal(a.max_positions, b.max_positions);
        assert_int_equal(a.eos[0], b.eos[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_v3_of_2025), cmocka_unit_test(test_relatives), cmocka_unit_test(test_deleted_keys),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_golden_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
