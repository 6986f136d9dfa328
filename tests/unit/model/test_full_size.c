/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: DeepSeek-V3 in its true size, as headers without data: counts, sums and sizes of spec section 9, written from the
 * published tensor list and not through src/model/names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/gguf_write.h"
#include "io/safetensors_write.h"
#include "tests/unit/model/model_test.h"

enum { LAYERS = 61, EXPERTS = 256, DENSE = 3 };

struct entry {
    const char *name; /* without the layer's prefix */
    uint64_t rows, cols; /* rows 0: a vector */
    const char *dtype;
};

static const struct entry attention[] = {
    { "input_layernorm.weight", 0, 7168, "BF16" },
    { "post_attention_layernorm.weight", 0, 7168, "BF16" },
    { "self_attn.q_a_proj.weight", 1536, 7168, "F8_E4M3" },
    { "self_attn.q_a_layernorm.weight", 0, 1536, "BF16" },
    { "self_attn.q_b_proj.weight", 24576, 1536, "F8_E4M3" },
    { "self_attn.kv_a_proj_with_mqa.weight", 576, 7168, "F8_E4M3" },
    { "self_attn.kv_a_layernorm.weight", 0, 512, "BF16" },
    { "self_attn.kv_b_proj.weight", 32768, 512, "F8_E4M3" },
    { "self_attn.o_proj.weight", 7168, 16384, "F8_E4M3" },
};
static const struct entry dense[] = {
    { "mlp.gate_proj.weight", 18432, 7168, "F8_E4M3" },
    { "mlp.up_proj.weight", 18432, 7168, "F8_E4M3" },
    { "mlp.down_proj.weight", 7168, 18432, "F8_E4M3" },
};
static const struct entry moe[] = {
    { "mlp.gate.weight", 256, 7168, "BF16" },
    { "mlp.gate.e_score_correction_bias", 0, 256, "F32" },
    { "mlp.shared_experts.gate_proj.weight", 2048, 7168, "F8_E4M3" },
    { "mlp.shared_experts.up_proj.weight", 2048, 7168, "F8_E4M3" },
    { "mlp.shared_experts.down_proj.weight", 7168, 2048, "F8_E4M3" },
};
static const struct entry expert[] = {
    { "gate_proj.weight", 2048, 7168, "F8_E4M3" },
    { "up_proj.weight", 2048, 7168, "F8_E4M3" },
    { "down_proj.weight", 7168, 2048, "F8_E4M3" },
};
static const struct entry mtp[] = {
    { "embed_tokens.weight", 129280, 7168, "BF16" }, { "enorm.weight", 0, 7168, "BF16" },
    { "hnorm.weight", 0, 7168, "BF16" },             { "eh_proj.weight", 7168, 14336, "BF16" },
    { "shared_head.norm.weight", 0, 7168, "BF16" },  { "shared_head.head.weight", 129280, 7168, "BF16" },
};

static void declare(struct safetensors_writer *w, const char *prefix, const struct entry *x)
{
    struct error e = { 0 };
    uint64_t dims[2] = { x->rows, x->cols }, scale[2] = { (x->rows + 127) / 128, (x->cols + 127) / 128 };
    const char *name = text("%s%s", prefix, x->name);
    bool vector = x->rows == 0;
    assert_int_equal(safetensors_writer_declare(w, name, x->dtype, vector ? dims + 1 : dims, vector ? 1 : 2, &e), 0);
    if (strcmp(x->dtype, "F8_E4M3") == 0) {
        assert_int_equal(safetensors_writer_declare(w, text("%s_scale_inv", name), "F32", scale, 2, &e), 0);
    }
}

static void declare_all(struct safetensors_writer *w, const char *prefix, const struct entry *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        declare(w, prefix, &x[i]);
    }
}

static void write_hf(const char *folder)
{
    struct safetensors_writer *w;
    struct error e = { 0 };
    const struct entry model[] = { { "model.embed_tokens.weight", 129280, 7168, "BF16" }, { "model.norm.weight", 0, 7168, "BF16" },
                                   { "lm_head.weight", 129280, 7168, "BF16" } };
    assert_int_equal(safetensors_writer_create(text("%s/model.safetensors", folder), &w, &e), 0);
    declare_all(w, "", model, ARRAY_LEN(model));
    for (unsigned l = 0; l <= LAYERS; l++) {
        char prefix[32], of_expert[64];
        snprintf(prefix, sizeof(prefix), "model.layers.%u.", l);
        declare_all(w, prefix, attention, ARRAY_LEN(attention));
        if (l < DENSE) {
            declare_all(w, prefix, dense, ARRAY_LEN(dense));
            continue;
        }
        declare_all(w, prefix, moe, ARRAY_LEN(moe));
        for (unsigned j = 0; j < EXPERTS; j++) {
            snprintf(of_expert, sizeof(of_expert), "%smlp.experts.%u.", prefix, j);
            declare_all(w, of_expert, expert, ARRAY_LEN(expert));
        }
        if (l == LAYERS) {
            declare_all(w, prefix, mtp, ARRAY_LEN(mtp));
        }
    }
    assert_int_equal(safetensors_writer_begin(w, &e), 0);
    assert_int_equal(safetensors_writer_finish(w, true, &e), 0);
    safetensors_writer_destroy(w);
}

static void test_checkpoint_of_671b(void **state)
{
    size_t len;
    char *config = read_text(V3_CONFIG, &len);
    write_text(text("%s/config.json", (const char *)*state), config);
    free(config);
    write_hf(*state);
    struct weights *w;
    struct error e;
    if (open_weights(*state, NULL, true, &w, &e) != 0) {
        fail_msg("%s", e.text);
    }
    const struct container *c = w->containers[0];
    uint64_t bytes = 0, of_mtp = 0, weights = 0, copies = 0;
    size_t n_mtp = 0;
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct tensor *t = &c->tensors[i];
        bytes += t->bytes;
        if (names_layer(t->name) == LAYERS) {
            of_mtp += t->bytes;
            n_mtp++;
            copies += t->dims[0] == 129280 ? t->bytes : 0;
        }
        uint64_t n = 1;
        for (uint32_t d = 0; d < t->n_dims; d++) {
            n *= t->dims[d];
        }
        weights += strstr(t->name, "_scale_inv") == NULL ? n : 0;
    }
    assert_int_equal(c->n_tensors, 91991);
    assert_int_equal(n_mtp, 1564);
    assert_int_equal(bytes, 688574839360);
    assert_int_equal(of_mtp, 15424227552);
    assert_int_equal(of_mtp - copies, 11717511392);
    assert_int_equal(weights, 684489845504);
    /* every byte is bound, as weight or scale, but the two copies */
    assert_int_equal(weights_resident_bytes(w) + weights_expert_bytes(w) + weights_scale_bytes(w), bytes - copies);
    assert_int_equal(weights_expert_bytes(w), 59ull * EXPERTS * 44040192);
    assert_int_equal(weights_max_expert_bytes(w), 44040192);
    assert_int_equal(w->n_notes, 1);
    assert_contains(w->notes[0], "2 copies of embedding and head");
    const struct weight_ref *kv_a = &w->layers[5].role[ROLE_KV_A];
    assert_int_equal(kv_a->bytes, 4128768);
    assert_int_equal(kv_a->scale->dims[0], 5);
    assert_int_equal(kv_a->scale->dims[1], 56);
    assert_int_equal(kv_a->scale->bytes, 1120);
    assert_int_equal(575 / 128 * 56 + 7167 / 128, 279);
    assert_int_equal(w->layers[61].role[ROLE_MTP_EH].bytes, 205520896);
    weights_close(w);
}

/* ---- GGUF ---- */

static void add(struct gguf_writer *w, const char *name, enum weight_format format, uint64_t n2, uint64_t rows, uint64_t cols)
{
    struct error e = { 0 };
    uint64_t dims[3] = { n2, rows, cols };
    unsigned skip = n2 > 0 ? 0 : rows > 0 ? 1 : 2;
    assert_int_equal(gguf_writer_tensor(w, name, format, dims + skip, 3 - skip, &e), 0);
}

static void add_attention(struct gguf_writer *w, unsigned l, bool newer)
{
    add(w, text("blk.%u.attn_norm.weight", l), FORMAT_F32, 0, 0, 7168);
    add(w, text("blk.%u.ffn_norm.weight", l), FORMAT_F32, 0, 0, 7168);
    add(w, text("blk.%u.attn_q_a.weight", l), FORMAT_Q8_0, 0, 1536, 7168);
    add(w, text("blk.%u.attn_q_a_norm.weight", l), FORMAT_F32, 0, 0, 1536);
    add(w, text("blk.%u.attn_q_b.weight", l), FORMAT_Q8_0, 0, 24576, 1536);
    add(w, text("blk.%u.attn_kv_a_mqa.weight", l), FORMAT_Q8_0, 0, 576, 7168);
    add(w, text("blk.%u.attn_kv_a_norm.weight", l), FORMAT_F32, 0, 0, 512);
    if (newer) {
        add(w, text("blk.%u.attn_k_b.weight", l), FORMAT_Q8_0, 128, 512, 128);
        add(w, text("blk.%u.attn_v_b.weight", l), FORMAT_Q8_0, 128, 128, 512);
    } else {
        add(w, text("blk.%u.attn_kv_b.weight", l), FORMAT_Q8_0, 0, 32768, 512);
    }
    add(w, text("blk.%u.attn_output.weight", l), FORMAT_Q4_K, 0, 7168, 16384);
}

static void add_moe(struct gguf_writer *w, unsigned l)
{
    add(w, text("blk.%u.ffn_gate_inp.weight", l), FORMAT_F32, 0, 256, 7168);
    add(w, text("blk.%u.exp_probs_b.bias", l), FORMAT_F32, 0, 0, 256);
    add(w, text("blk.%u.ffn_gate_exps.weight", l), FORMAT_Q4_K, 256, 2048, 7168);
    add(w, text("blk.%u.ffn_up_exps.weight", l), FORMAT_Q4_K, 256, 2048, 7168);
    add(w, text("blk.%u.ffn_down_exps.weight", l), FORMAT_Q6_K, 256, 7168, 2048);
    add(w, text("blk.%u.ffn_gate_shexp.weight", l), FORMAT_Q4_K, 0, 2048, 7168);
    add(w, text("blk.%u.ffn_up_shexp.weight", l), FORMAT_Q4_K, 0, 2048, 7168);
    add(w, text("blk.%u.ffn_down_shexp.weight", l), FORMAT_Q6_K, 0, 7168, 2048);
}

static const char *write_v3_gguf(const char *folder, bool newer)
{
    struct gguf_writer *w;
    struct error e = { 0 };
    struct meta m;
    meta_v3(&m, newer);
    assert_int_equal(gguf_writer_create(text("%s/v3.gguf", folder), 32, &w, &e), 0);
    for (size_t i = 0; i < m.meta.n; i++) {
        gguf_writer_value(w, &m.values[i]);
    }
    add(w, "token_embd.weight", FORMAT_Q4_K, 0, 129280, 7168);
    add(w, "output_norm.weight", FORMAT_F32, 0, 0, 7168);
    add(w, "output.weight", FORMAT_Q6_K, 0, 129280, 7168);
    for (unsigned l = 0; l < LAYERS; l++) {
        add_attention(w, l, newer);
        if (l >= DENSE) {
            add_moe(w, l);
            continue;
        }
        add(w, text("blk.%u.ffn_gate.weight", l), FORMAT_Q4_K, 0, 18432, 7168);
        add(w, text("blk.%u.ffn_up.weight", l), FORMAT_Q4_K, 0, 18432, 7168);
        add(w, text("blk.%u.ffn_down.weight", l), FORMAT_Q6_K, 0, 7168, 18432);
    }
    assert_int_equal(gguf_writer_begin(w, &e), 0);
    assert_int_equal(gguf_writer_finish(w, true, &e), 0);
    gguf_writer_destroy(w);
    return text("%s/v3.gguf", folder);
}

static void test_gguf_of_671b(void **state)
{
    for (int newer = 0; newer < 2; newer++) {
        struct weights *w;
        struct error e;
        if (open_weights(write_v3_gguf(*state, newer), NULL, true, &w, &e) != 0) {
            fail_msg("%s", e.text);
        }
        const struct container *c = w->containers[0];
        size_t floats = 0;
        for (size_t i = 0; i < c->n_tensors; i++) {
            floats += c->tensors[i].format == FORMAT_F32;
        }
        assert_int_equal(c->n_tensors, newer ? 1086 : 1025);
        assert_int_equal(floats, 361);
        const struct layer_refs *l = &w->layers[30];
        assert_int_equal(l->role[ROLE_KV_A].bytes, 4386816);
        assert_int_equal(l->role[ROLE_KV_A].bytes / 576, 7616);
        assert_int_equal(l->role[ROLE_K_B].bytes, newer ? 8912896 : 0);
        assert_int_equal(l->role[ROLE_K_B].rows, newer ? 65536 : 0);
        assert_int_equal(l->role[ROLE_V_B].rows, newer ? 16384 : 0);
        assert_int_equal(l->role[ROLE_KV_B].rows, newer ? 0 : 32768);
        assert_int_equal(l->experts[7].gate.bytes, 8257536);
        assert_int_equal(l->experts[7].gate.offset - l->experts[0].gate.offset, 7 * 8257536);
        assert_int_equal(l->experts[0].gate.bytes / 2048, 4032);
        assert_int_equal(l->experts[0].gate.bytes * EXPERTS, 2113929216);
        assert_int_equal(l->experts[255].down.bytes, 12042240);
        assert_int_equal(l->experts[0].down.bytes * EXPERTS, 3082813440);
        assert_int_equal(weights_max_expert_bytes(w), 2 * 8257536 + 12042240);
        assert_true(w->header_only);
        assert_int_equal(w->n_notes, 0);
        weights_close(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_checkpoint_of_671b, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_gguf_of_671b, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
