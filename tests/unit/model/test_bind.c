/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the weights table: golden models, missing and wrong tensors, both layouts, MTP from elsewhere. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/model/model_test.h"

static struct weights *must_open(const char *path, const char *mtp_from)
{
    struct weights *w;
    struct error e;
    if (open_weights(path, mtp_from, true, &w, &e) != 0) {
        fail_msg("%s", e.text);
    }
    return w;
}

static void must_refuse(const char *path, const char *mtp_from, struct error *e)
{
    struct weights *w;
    assert_int_equal(open_weights(path, mtp_from, true, &w, e), ERROR_FORMAT);
    assert_null(strchr(e->text, '\n'));
}

static bool has_note(const struct weights *w, const char *part)
{
    bool found = false;
    for (uint32_t i = 0; i < w->n_notes; i++) {
        found = found || strstr(w->notes[i], part) != NULL;
    }
    return found;
}

/* Every role a layer of this model needs is there, inside its file. */
static void check_ref(const struct weight_ref *r)
{
    uint64_t row;
    assert_true(r->rows > 0);
    assert_true(weight_row_bytes(r->format, r->cols, &row));
    assert_int_equal(r->bytes, row * r->rows);
    assert_true(r->offset + r->bytes <= r->file->size);
    assert_int_equal(r->format == FORMAT_F8_E4M3, r->scale != NULL);
}

static void test_golden_models(void **state)
{
    (void)state;
    static const char *const names[] = { "v3", "v3-fp8", "v3-f32", "v2", "v2-lite", "glm-flash", "gguf-bf16/model-k_b.gguf",
                                         "gguf-bf16/model-kv_b.gguf", "gguf-f16-mtp", "gguf-f32", "gguf-iq4_nl", "gguf-mxfp4",
                                         "gguf-q4_0", "gguf-q4_1", "gguf-q5_0", "gguf-q5_1", "gguf-q8_0-split", "gguf-v2-lite",
                                         "kq-iq1", "kq-iq2", "kq-iq4xs", "kq-q2", "kq-q4" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct weights *w = must_open(golden(names[i]), NULL);
        const struct shape *s = &w->shape;
        uint64_t experts = 0, max = 0;
        check_ref(&w->embed);
        check_ref(&w->head);
        check_ref(&w->final_norm);
        for (uint32_t l = 0; l < shape_all_layers(s); l++) {
            const struct layer_refs *x = &w->layers[l];
            check_ref(&x->role[ROLE_KV_A]);
            check_ref(&x->role[s->q_lora > 0 ? ROLE_Q_B : ROLE_Q]);
            check_ref(&x->role[x->role[ROLE_KV_B].rows > 0 ? ROLE_KV_B : ROLE_K_B]);
            assert_int_equal(x->role[ROLE_KV_B].rows > 0, x->role[ROLE_V_B].rows == 0);
            assert_int_equal(shape_layer_is_moe(s, l), x->experts != NULL);
            for (uint32_t j = 0; x->experts != NULL && j < s->experts; j++) {
                check_ref(&x->experts[j].gate);
                check_ref(&x->experts[j].up);
                check_ref(&x->experts[j].down);
                uint64_t bytes = x->experts[j].gate.bytes + x->experts[j].up.bytes + x->experts[j].down.bytes;
                experts += bytes;
                max = bytes > max ? bytes : max;
            }
        }
        assert_int_equal(weights_expert_bytes(w), experts);
        assert_int_equal(weights_max_expert_bytes(w), max);
        assert_int_equal(w->header_only, false);
        assert_false(has_note(w, "not used by the engine"));
        assert_false(has_note(w, "warning"));
        assert_int_equal(has_note(w, "copies"), strncmp(names[i], "v3", 2) == 0 && s->mtp_layers > 0);
        weights_close(w);
    }
}

static void test_details(void **state)
{
    (void)state;
    struct weights *w = must_open(golden("v3-fp8"), NULL);
    const struct weight_ref *q = &w->layers[1].role[ROLE_Q_B]; /* [128, 136] */
    assert_int_equal(q->scale->dims[0], (q->rows + 127) / 128);
    assert_int_equal(q->scale->dims[1], (q->cols + 127) / 128);
    bool elsewhere = false; /* some scales lie in another shard than their weight */
    for (uint32_t l = 0; l < shape_all_layers(&w->shape); l++) {
        for (unsigned r = 0; r < ROLE_COUNT; r++) {
            const struct weight_ref *x = &w->layers[l].role[r];
            elsewhere = elsewhere || (x->scale != NULL && x->scale_file != x->file);
        }
    }
    assert_true(elsewhere);
    assert_int_equal(w->shape.mtp_layers, 1);
    weights_close(w);
    /* expert j of a stack is its j-th slab */
    w = must_open(golden("gguf-f32"), NULL);
    const struct expert_refs *x = w->layers[1].experts;
    assert_int_equal(x[3].up.offset - x[0].up.offset, 3 * x[0].up.bytes);
    assert_int_equal(x[3].down.rows, w->shape.hidden);
    weights_close(w);
    /* MTP off */
    struct error e;
    assert_int_equal(open_weights(golden("v3"), NULL, false, &w, &e), 0);
    assert_int_equal(w->shape.mtp_layers, 0);
    assert_true(has_note(w, "MTP"));
    weights_close(w);
    weights_close(NULL);
}

static void test_missing_and_wrong(void **state)
{
    const char *folder = *state;
    struct error e;
    struct edit x = { .drop = "model.layers.1.mlp.experts.3.up_proj.weight", .drop2 = "model.layers.0.self_attn.o_proj.weight",
                      .rename = "model.layers.1.input_layernorm.weight", .to = "model.layers.1.input_layernorn.weight" };
    must_refuse(write_edited(folder, golden("v3-f32"), &x, NULL), NULL, &e);
    assert_contains(e.text, "model.layers.1.mlp.experts.3.up_proj.weight (expert up) is missing");
    assert_contains(e.text, "model.layers.0.self_attn.o_proj.weight (attention output) is missing");
    assert_contains(e.text, "model.layers.1.input_layernorm.weight");
    assert_contains(e.text, "input_layernorn"); /* the name nobody knows */
    x = (struct edit){ .reshape = "model.layers.0.mlp.gate_proj.weight", .dims = { 64, 112 }, .n_dims = 2 };
    must_refuse(write_edited(folder, golden("v3-f32"), &x, NULL), NULL, &e);
    assert_contains(e.text, "model.layers.0.mlp.gate_proj.weight (dense gate) in model.safetensors has shape [64, 112], expected [112, 64]");
    x = (struct edit){ .reshape = "model.norm.weight", .dims = { 1, 64 }, .n_dims = 2 };
    must_refuse(write_edited(folder, golden("v3-f32"), &x, NULL), NULL, &e);
    assert_contains(e.text, "expected [64]");
    x = (struct edit){ .retype = "lm_head.weight", .type = "I32" };
    must_refuse(write_edited(folder, golden("v3-f32"), &x, NULL), NULL, &e);
    assert_contains(e.text, "lm_head.weight");
    assert_contains(e.text, "I32");
    assert_contains(e.text, "q4_k");
    x = (struct edit){ .retype = "lm_head.weight", .type = "F8_E4M3" };
    must_refuse(write_edited(folder, golden("v3-f32"), &x, NULL), NULL, &e);
    assert_contains(e.text, "lm_head.weight_scale_inv");
    x = (struct edit){ .retype = "model.norm.weight", .type = "F8_E4M3" };
    must_refuse(write_edited(folder, golden("v3-f32"), &x, NULL), NULL, &e);
    assert_contains(e.text, "expected F32, F16 or BF16");
    /* many problems: eight are named, all are counted */
    size_t len;
    char *config = read_text(text("%s/v3-f32/config.json", GOLDEN), &len);
    char *hidden = strstr(config, "\"hidden_size\": 64");
    assert_non_null(hidden);
    memcpy(hidden, "\"hidden_size\": 65", 17);
    x = (struct edit){ 0 };
    must_refuse(write_edited(folder, golden("v3-f32"), &x, config), NULL, &e);
    assert_contains(e.text, "expected [320, 65]");
    assert_contains(e.text, "in all");
    free(config);
}

static void test_scales(void **state)
{
    const char *folder = *state;
    struct error e;
    struct edit x = { .drop = "model.layers.0.self_attn.kv_b_proj.weight_scale_inv" };
    must_refuse(write_edited(folder, golden("v3-fp8"), &x, NULL), NULL, &e);
    assert_contains(e.text, "model.layers.0.self_attn.kv_b_proj.weight_scale_inv");
    x = (struct edit){ .reshape = "model.layers.0.mlp.gate_proj.weight_scale_inv", .dims = { 2, 2 }, .n_dims = 2 };
    must_refuse(write_edited(folder, golden("v3-fp8"), &x, NULL), NULL, &e);
    assert_contains(e.text, "has shape [2, 2], expected [3, 2]");
    x = (struct edit){ .retype = "model.layers.0.mlp.gate_proj.weight_scale_inv", .type = "I32" };
    must_refuse(write_edited(folder, golden("v3-fp8"), &x, NULL), NULL, &e);
    assert_contains(e.text, "expected F32, BF16, F16 or F8_E8M0");
    static const char *const types[] = { "BF16", "F16", "F8_E8M0" };
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        x.type = types[i];
        struct weights *w = must_open(write_edited(folder, golden("v3-fp8"), &x, NULL), NULL);
        assert_true(w->header_only);
        assert_string_equal(w->layers[0].role[ROLE_GATE].scale->type_name, types[i]);
        weights_close(w);
    }
}

static void test_notes(void **state)
{
    const char *folder = *state;
    struct edit x = { .add = "model.layers.0.self_attn.rotary_emb.inv_freq", .retype = "model.layers.1.mlp.gate.e_score_correction_bias",
                      .type = "BF16" };
    struct weights *w = must_open(write_edited(folder, golden("v3-f32"), &x, NULL), NULL);
    assert_true(has_note(w, "1 tensors are not used by the engine, the first is model.layers.0.self_attn.rotary_emb.inv_freq"));
    assert_true(has_note(w, "selection biases"));
    weights_close(w);
    x = (struct edit){ .retype = "blk.1.ffn_gate_inp.weight", .type = "q4_0" };
    w = must_open(write_edited(folder, golden("gguf-f32"), &x, NULL), NULL);
    assert_true(has_note(w, "warning: 1 router matrices are quantised"));
    weights_close(w);
}

static void test_gguf_layouts(void **state)
{
    const char *folder = *state;
    struct error e;
    /* metadata of the older layout, tensors of the newer one */
    struct edit x = { .drop_key = "deepseek2.attention.key_length_mla" };
    must_refuse(write_edited(folder, golden("gguf-f32"), &x, NULL), NULL, &e);
    assert_contains(e.text, "key_length_mla");
    x = (struct edit){ .drop = "blk.0.attn_k_b.weight" };
    must_refuse(write_edited(folder, golden("gguf-f32"), &x, NULL), NULL, &e);
    assert_contains(e.text, "blk.0.attn_k_b.weight (key up) is missing");
    /* two dimensions instead of three */
    x = (struct edit){ .reshape = "blk.0.attn_k_b.weight", .dims = { 64, 32 }, .n_dims = 2 };
    struct weights *w = must_open(write_edited(folder, golden("gguf-f32"), &x, NULL), NULL);
    assert_int_equal(w->layers[0].role[ROLE_K_B].rows, 64);
    assert_int_equal(w->layers[0].role[ROLE_K_B].cols, 32);
    weights_close(w);
    x.dims[0] = 32;
    x.dims[1] = 64;
    must_refuse(write_edited(folder, golden("gguf-f32"), &x, NULL), NULL, &e);
    assert_contains(e.text, "expected [2, 32, 32]");
    /* kv_b beside k_b and v_b */
    x = (struct edit){ .rename = "blk.0.attn_output.weight", .to = "blk.0.attn_kv_b.weight" };
    must_refuse(write_edited(folder, golden("gguf-f32"), &x, NULL), NULL, &e);
    assert_contains(e.text, "blk.0.attn_kv_b.weight (key and value up) in model.gguf has shape [64, 64], expected [128, 32]");
    x = (struct edit){ .rename = "blk.1.ffn_gate_exps.weight", .to = "blk.1.ffn_gate_up_exps.weight" };
    must_refuse(write_edited(folder, golden("gguf-f32"), &x, NULL), NULL, &e);
    assert_contains(e.text, "gate and up in one tensor");
    x = (struct edit){ .drop = "output.weight" };
    w = must_open(write_edited(folder, golden("gguf-f32"), &x, NULL), NULL);
    assert_true(w->shape.tied_head);
    assert_int_equal(w->head.offset, w->embed.offset);
    weights_close(w);
    /* routing metadata lost: the bias tensors contradict softmax; the reverse needs biases */
    x = (struct edit){ .drop_key = "deepseek2.expert_gating_func" };
    must_refuse(write_edited(folder, golden("gguf-f32"), &x, NULL), NULL, &e);
    assert_contains(e.text, "exp_probs_b.bias");
    assert_contains(e.text, "expert_gating_func");
    x = (struct edit){ .drop = "blk.1.exp_probs_b.bias" };
    must_refuse(write_edited(folder, golden("gguf-f32"), &x, NULL), NULL, &e);
    assert_contains(e.text, "blk.1.exp_probs_b.bias (selection bias) is missing");
}

static void test_mtp(void **state)
{
    const char *folder = *state;
    struct error e;
    size_t len;
    /* re-published without the layer although the configuration names it */
    char *config = read_text(text("%s/v3-f32/config.json", GOLDEN), &len);
    char *mtp = strstr(config, "\"num_nextn_predict_layers\": 0");
    assert_non_null(mtp);
    mtp[strlen("\"num_nextn_predict_layers\": ")] = '1';
    struct edit x = { 0 };
    struct weights *w = must_open(write_edited(folder, golden("v3-f32"), &x, config), NULL);
    assert_int_equal(w->shape.mtp_layers, 0);
    assert_true(has_note(w, "--mtp-from"));
    weights_close(w);
    free(config);
    /* present in part */
    x = (struct edit){ .drop = "blk.2.nextn.eh_proj.weight" };
    must_refuse(write_edited(folder, golden("gguf-f16-mtp"), &x, NULL), NULL, &e);
    assert_contains(e.text, "blk.2.nextn.eh_proj.weight (MTP projection) is missing");
    x = (struct edit){ .drop = "blk.2.nextn.shared_head_norm.weight" };
    w = must_open(write_edited(folder, golden("gguf-f16-mtp"), &x, NULL), NULL);
    assert_int_equal(w->layers[2].role[ROLE_MTP_NORM].offset, w->final_norm.offset);
    assert_true(has_note(w, "shared_head_norm"));
    weights_close(w);
}

static void test_mtp_from(void **state)
{
    const char *folder = *state;
    struct error e;
    /* the model without its MTP layer, the layer from the original: only shards that hold it are opened */
    struct weights *w;
    struct edit x = { .drop = "model.layers.4.eh_proj.weight" };
    const char *partial = write_edited(folder, golden("v3"), &x, NULL);
    must_refuse(partial, NULL, &e);
    w = must_open(partial, golden("v3"));
    assert_int_equal(w->n_containers, 2);
    assert_int_equal(w->shape.mtp_layers, 1);
    assert_ptr_equal(w->layers[4].role[ROLE_MTP_EH].file, &w->containers[1]->files[0]);
    assert_true(w->layers[3].experts[0].up.file->device == w->containers[0]->files[0].device);
    assert_true(has_note(w, "copies of embedding and head"));
    weights_close(w);
    /* without the layer, of another shape, no such file */
    must_refuse(golden("v3-f32"), golden("v3-f32"), &e);
    assert_contains(e.text, "holds no MTP layer");
    must_refuse(golden("v3-f32"), golden("glm-flash"), &e);
    assert_contains(e.text, "--mtp-from");
    assert_contains(e.text, "heads is 3, the main model has 2");
    assert_true(open_weights(golden("v3"), golden("nowhere"), true, &w, &e) < 0);
    assert_contains(e.text, "nowhere");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_models),
        cmocka_unit_test(test_details),
        cmocka_unit_test_setup_teardown(test_missing_and_wrong, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_scales, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_notes, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_gguf_layouts, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_mtp, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_mtp_from, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
