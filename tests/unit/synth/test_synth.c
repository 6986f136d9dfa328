/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic models: deviations of every block format, the published tensor counts and sizes, files that load, nothing left
 * behind by an interruption. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cpu/cpu.h"
#include "io/container.h"
#include "io/file.h"
#include "src/commands/commands.h"
#include "src/commands/synth_blocks.h"
#include "src/commands/synth_router.h"
#include "src/commands/synth_shape.h"
#include "src/commands/tensor_list.h"
#include "src/model/bind.h"
#include "src/model/tokenizer.h"

static void test_deviations(void **state)
{
    (void)state;
    enum { COLS = 2048, ROWS = 8 };
    struct cpu_flags flags;
    struct ops ops;
    cpu_detect(&flags);
    cpu_ops_init(&ops, CPU_SCALAR, &flags);
    static float values[ROWS * COLS];
    for (int f = 0; f < FORMAT_COUNT; f++) {
        float scales[COLS / FORMAT_SCALE_BLOCK]; /* of FP8 */
        uint64_t row_bytes;
        assert_true(weight_row_bytes((enum weight_format)f, COLS, &row_bytes));
        unsigned char *data = malloc(ROWS * row_bytes), *again = malloc(ROWS * row_bytes);
        assert_true(data != NULL && again != NULL);
        struct synth_filler filler;
        synth_filler_init(&filler, (enum weight_format)f, 0.012f, &ops);
        synth_filler_fill(&filler, 7, data, ROWS * row_bytes);
        synth_filler_fill(&filler, 7, again, ROWS * row_bytes);
        assert_memory_equal(data, again, ROWS * row_bytes);
        synth_fp8_scales(5, 0.012f, scales, ARRAY_LEN(scales));
        struct dequantise_args a = {.w = {.data = data, .row_bytes = row_bytes, .rows = ROWS, .cols = COLS, .format = (enum weight_format)f,
                                          .scale = scales, .scale_cols = COLS / FORMAT_SCALE_BLOCK},
                                    .y = values, .row_end = ROWS};
        ops.dequantise[f](&a);
        double sum = 0, squares = 0;
        for (int i = 0; i < ROWS * COLS; i++) {
            sum += values[i];
            squares += (double)values[i] * values[i];
        }
        double deviation = sqrt(squares / (ROWS * COLS)), slack = f == FORMAT_MXFP4 ? 1.5 : 1.15; /* scales of MXFP4 are powers of two */
        assert_true(deviation > 0.012 / slack && deviation < 0.012 * slack);
        assert_true(fabs(sum / (ROWS * COLS)) < 0.2 * 0.012);
        free(data);
        free(again);
    }
}

static struct tensor_list list_of(const char *name, enum tensor_form form, enum weight_format experts, enum weight_format dense, bool mtp)
{
    struct synth_reduction r = {UINT32_MAX, UINT32_MAX, UINT32_MAX, mtp};
    struct tensor_formats f = {experts, dense};
    struct synth_model m;
    struct tensor_list l;
    struct error e = {0};
    assert_int_equal(synth_model_find(name, &r, &m, &e), 0);
    assert_int_equal(tensor_list_build(&l, &m.shape, form, &f, &e), 0);
    return l;
}

static void test_published_numbers(void **state)
{
    (void)state;
    struct tensor_list l = list_of("v3", FORM_GGUF, FORMAT_Q4_K, FORMAT_Q8_0, false);
    uint64_t experts = 0, f32 = 0;
    for (size_t i = 0; i < l.n; i++) {
        experts += strstr(l.items[i].name, "_exps.") != NULL ? l.items[i].bytes : 0;
        f32 += l.items[i].format == FORMAT_F32;
        if (strcmp(l.items[i].name, "blk.7.attn_k_b.weight") == 0) {
            assert_int_equal(l.items[i].bytes, 8912896);
        }
        if (strcmp(l.items[i].name, "blk.7.ffn_gate_exps.weight") == 0) {
            assert_int_equal(l.items[i].bytes, 2113929216);
        }
    }
    assert_int_equal(l.n, 1086);
    assert_int_equal(f32, 361);
    assert_int_equal(experts, UINT64_C(24772608) * 14848);
    tensor_list_deinit(&l);

    l = list_of("v3", FORM_GGUF, FORMAT_BF16, FORMAT_BF16, false); /* 2 bytes a parameter, 4 for norms, routers and biases */
    assert_int_equal(l.bytes, 2 * UINT64_C(671026419200) + 2 * (UINT64_C(1006592) + 106445312));
    tensor_list_deinit(&l);
    l = list_of("v2-lite", FORM_GGUF, FORMAT_Q4_K, FORMAT_Q8_0, false);
    assert_int_equal(l.fallbacks, 26); /* rows of 1408 in ffn_down_exps */
    tensor_list_deinit(&l);
    l = list_of("v3", FORM_HF, FORMAT_F8_E4M3, FORMAT_F8_E4M3, true); /* the published folder, tensor for tensor */
    assert_int_equal(l.n, 91991);
    assert_int_equal(l.bytes, UINT64_C(688574839360));
    tensor_list_deinit(&l);
}

static int falling(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Experts chosen by scores that are not those of the search, most popular first. */
static void popularity(const struct shape *s, double zipf, uint32_t *counts)
{
    enum { TOKENS = 4000 };
    static float logits[512], bias[512], scratch[2048], weights[16];
    static int32_t ids[16];
    struct cpu_flags flags;
    struct ops ops;
    struct synth_router r;
    struct error e;
    cpu_detect(&flags);
    cpu_ops_init(&ops, CPU_SCALAR, &flags);
    assert_int_equal(synth_router_init(&r, s, zipf, &ops, &e), 0);
    synth_router_layer(&r, 99, bias);
    memset(counts, 0, s->experts * sizeof(*counts));
    for (int t = 0; t < TOKENS; t++) {
        synth_normals(synth_seed(12345, (uint64_t)t), logits, s->experts);
        ops.router(&(struct router_args){.logits = logits, .bias = bias, .scratch = scratch, .ids = ids, .weights = weights,
                                         .experts = s->experts, .k = s->experts_used, .groups = s->groups, .groups_used = s->groups_used,
                                         .score = s->score, .group = s->group, .normalise = s->normalise, .factor = 1});
        for (uint32_t i = 0; i < s->experts_used; i++) {
            counts[ids[i]]++;
        }
    }
    synth_router_deinit(&r);
    qsort(counts, s->experts, sizeof(*counts), falling);
}

static void test_popularity(void **state)
{
    (void)state;
    static const char *const names[] = {"v3", "kimi-k2", "demo"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct synth_reduction none = {UINT32_MAX, UINT32_MAX, UINT32_MAX, false};
        struct synth_model m;
        struct error e;
        uint32_t counts[512];
        double targets[512], sum = 0;
        assert_int_equal(synth_model_find(names[i], &none, &m, &e), 0);
        const struct shape *s = &m.shape;
        synth_router_targets(1, s->experts, s->experts_used, targets);
        popularity(s, 1, counts);
        for (uint32_t r = 0; r < s->experts; r++) {
            double found = counts[r] / 4000.0;
            sum += targets[r];
            assert_true(targets[r] <= 0.9501 && (r < 2 || targets[r] * (r + 1) > 0.99 * targets[1] * 2 || targets[1] > 0.94));
            assert_true(found > 0.5 * targets[r] - 0.002 && found < 1.5 * targets[r] + 0.002);
        }
        assert_true(fabs(sum - s->experts_used) < 1e-3);
        popularity(s, 0, counts);
        double mean = 4000.0 * s->experts_used / s->experts;
        assert_true(counts[0] < 1.6 * mean && counts[s->experts - 1] > 0.5 * mean);
    }
}

static void test_usage(void **state)
{
    (void)state;
    static const char *const bad[][8] = {
        {"synth", "--shape", "v9", "-o", "x"}, {"synth", "--shape", "demo"}, {"synth", "-o", "x"}, {"synth", "--shape", "demo", "-o"},
        {"synth", "--colour"}, {"synth", "--seed", "x"}, {"synth", "--zipf", "-1"}, {"synth", "--type", "q9"}, {"synth", "--shape", "demo", "--type", "fp8", "-o", "x"},
        {"synth", "--shape", "demo", "--type", "q4_k", "-o", "x/"},
        {"synth", "--moe", "1.5"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        int n = 0;
        while (n < 8 && bad[i][n] != NULL) {
            n++;
        }
        assert_int_equal(command_synth(n, (char **)(uintptr_t)bad[i], NULL), 2);
    }
}

static int make(const char *path, const char *const *more, const volatile int *cancel)
{
    const char *argv[24] = {"synth", "--shape", "demo", "-o", path};
    int n = 5;
    while (*more != NULL) {
        argv[n++] = *more++;
    }
    return command_synth(n, (char **)(uintptr_t)argv, cancel);
}

static void test_file_loads(void **state)
{
    const char *folder = *state;
    char path[200], part[210];
    snprintf(path, sizeof(path), "%s/a.gguf", folder);
    snprintf(part, sizeof(part), "%s.part", path);
    struct bind_options o = {.path = path, .mtp = true, .group_routing = true};
    struct weights *w;
    struct tokenizer *t;
    struct error e = {0};
    assert_int_equal(make(path, (const char *const[]){"--mtp", "--moe", "2", "--type", "iq2_xxs", "--zipf", "1", NULL}, NULL), 0);
    if (weights_open(&o, &w, &e) != 0 || tokenizer_open(path, NULL, &t, &e) != 0) {
        fail_msg("%s", e.text);
    }
    assert_int_equal(w->shape.layers, 3);
    assert_int_equal(w->shape.mtp_layers, 1);
    assert_int_equal(w->shape.experts, 64);
    assert_int_equal(w->layers[1].experts[0].gate.format, FORMAT_IQ2_XXS);
    assert_int_equal(w->layers[1].experts[0].down.format, FORMAT_IQ4_NL);
    assert_int_equal(w->layers[1].role[ROLE_O].format, FORMAT_Q8_0);
    struct token_list ids = {0};
    static const char text[] = "the \xE9\x8C\x96 th\0ing\n\xff";
    assert_int_equal(tokenizer_encode(t, text, sizeof(text) - 1, 0, &ids, &e), 0);
    char back[sizeof(text)];
    size_t used = 0;
    for (size_t i = 0; i < ids.n; i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(t, ids.ids[i], &len);
        assert_true(used + len < sizeof(back));
        memcpy(back + used, bytes, len);
        used += len;
    }
    assert_int_equal(used, sizeof(text) - 1);
    assert_memory_equal(back, text, used);
    assert_true(ids.n < used); /* something was merged */
    assert_false(tokenizer_has(t, 4000));
    token_list_deinit(&ids);
    tokenizer_close(t);
    weights_close(w);

    volatile int cancel = 1; /* an older file stays, the new one leaves nothing */
    struct file before, after;
    assert_int_equal(file_open(path, &before, &e), 0);
    assert_int_equal(make(path, (const char *const[]){NULL}, NULL), 2);
    assert_int_equal(make(path, (const char *const[]){"--force", NULL}, &cancel), 130);
    assert_int_equal(file_open(path, &after, &e), 0);
    assert_int_equal(after.inode, before.inode);
    assert_int_equal(after.size, before.size);
    file_close(&before);
    file_close(&after);
    assert_false(file_exists(part));

    assert_int_equal(make(path, (const char *const[]){"--header-only", "--force", NULL}, NULL), 0);
    assert_true(weights_open(&o, &w, &e) < 0);
    o.allow_header_only = true;
    assert_int_equal(weights_open(&o, &w, &e), 0);
    assert_true(w->header_only);
    weights_close(w);
}

/* Headers of both forms of every shape describe the same model, and nothing has to be assumed. */
static void test_every_shape_binds(void **state)
{
    const char *folder = *state;
    static const char *const shapes[] = {"v3", "v2", "v2-lite", "kimi-k2", "demo"};
    for (size_t i = 0; i < 2 * ARRAY_LEN(shapes); i++) {
        const char *name = shapes[i / 2];
        char path[200];
        snprintf(path, sizeof(path), "%s/%s.h%s", folder, name, i % 2 == 0 ? "gguf" : "hf/");
        const char *argv[] = {"synth", "--shape", name, "--header-only", "-o", path};
        struct synth_model m;
        struct synth_reduction none = {UINT32_MAX, UINT32_MAX, UINT32_MAX, false};
        struct bind_options o = {.path = path, .group_routing = true, .allow_header_only = true};
        struct weights *w = NULL;
        struct tokenizer *t = NULL;
        struct error e = {0};
        assert_int_equal(command_synth(6, (char **)(uintptr_t)argv, NULL), 0);
        if (weights_open(&o, &w, &e) != 0 || tokenizer_open(path, NULL, &t, &e) != 0) {
            fail_msg("%s: %s", path, e.text);
        }
        assert_int_equal(synth_model_find(name, &none, &m, &e), 0);
        const struct shape *a = &m.shape, *b = &w->shape;
        assert_true(a->layers == b->layers && a->dense_layers == b->dense_layers && a->experts == b->experts && a->groups == b->groups);
        assert_true(a->groups_used == b->groups_used && a->q_lora == b->q_lora && a->shared_width == b->shared_width && a->score == b->score);
        assert_true(a->yarn_beta_fast == b->yarn_beta_fast && a->rope_theta == b->rope_theta && a->routed_factor == b->routed_factor);
        assert_true(a->rope_magnitude == b->rope_magnitude && fabs(a->attn_scale - b->attn_scale) < 1e-6 * a->attn_scale);
        assert_int_equal(b->n_notes, 0);
        size_t ends;
        assert_int_equal(tokenizer_bos(t), a->bos);
        assert_int_equal(tokenizer_eos(t, &ends)[0], a->eos[0]);
        tokenizer_close(t);
        weights_close(w);
    }
}

static void test_folder(void **state)
{
    const char *folder = *state;
    char path[200], file[300];
    snprintf(path, sizeof(path), "%s/hf", folder);
    struct bind_options o = {.path = path, .mtp = true, .group_routing = true};
    struct weights *w;
    struct error e = {0};
    volatile int cancel = 1;
    assert_int_equal(make(path, (const char *const[]){"--hf", "--mtp", "--moe", "2", NULL}, &cancel), 130);
    snprintf(file, sizeof(file), "%s.part", path);
    assert_false(file_exists(path) || file_exists(file));
    assert_int_equal(make(path, (const char *const[]){"--hf", "--mtp", "--moe", "2", NULL}, NULL), 0);
    if (weights_open(&o, &w, &e) != 0) {
        fail_msg("%s", e.text);
    }
    assert_int_equal(w->shape.mtp_layers, 1);
    assert_int_equal(w->layers[1].experts[63].down.format, FORMAT_F8_E4M3);
    assert_int_equal(w->layers[1].role[ROLE_ROUTER].format, FORMAT_BF16);
    assert_int_equal(w->layers[3].role[ROLE_MTP_EH].format, FORMAT_BF16);
    weights_close(w);
    assert_int_equal(make(path, (const char *const[]){"--hf", NULL}, NULL), 2); /* it is there */
}

static int setup(void **state)
{
    static char folder[] = "/tmp/sluice-synth-XXXXXX";
    *state = mkdtemp(folder);
    return *state == NULL;
}

static int teardown(void **state)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", (const char *)*state);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deviations), cmocka_unit_test(test_published_numbers), cmocka_unit_test(test_popularity),
        cmocka_unit_test(test_usage),      cmocka_unit_test(test_file_loads),        cmocka_unit_test(test_every_shape_binds),
        cmocka_unit_test(test_folder),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
