/* SPDX-License-Identifier: Apache-2.0 */
/* Loading the demo model: every byte where it belongs, damage named, interruption, the account against the plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <errno.h>

#include "common/exact.h"
#include "io/container.h"
#include "src/tier/plan_input.h"
#include "src/tier/resident.h"
#include "tests/unit/tier/fixture.h"

static void check_resident(uint32_t nodes)
{
    struct fixture f = {0};
    open_model(&f, DEMO);
    f.loader.nodes = nodes;
    const struct weights *w = f.weights;
    struct resident *r;
    struct error e = {0};
    assert_int_equal(resident_create(w, &f.loader, &r, &e), 0);
    struct resident_sizes sizes;
    resident_measure(w, nodes, &sizes);
    assert_int_equal(f.account.bytes[PURPOSE_RESIDENT], sizes.weights);
    assert_int_equal(f.account.bytes[PURPOSE_SCALES], sizes.scales);
    assert_true(f.calls >= 1 && f.last_done == f.last_total);
    assert_matrix(&w->embed, &r->embed);
    assert_matrix(&w->head, &r->head);
    for (uint32_t i = 0; i < shape_all_layers(&w->shape); i++) {
        for (int role = 0; role < ROLE_COUNT; role++) {
            const struct weight_ref *ref = &w->layers[i].role[role];
            bool loaded = ref->rows > 0 && role != ROLE_MTP_EMBED && role != ROLE_MTP_HEAD;
            if (role_is_vector((enum role)role)) {
                assert_int_equal(r->layers[i].vector[role] != NULL, loaded);
            } else if (loaded) {
                assert_matrix(ref, &r->layers[i].matrix[role]);
            } else {
                assert_int_equal(r->layers[i].matrix[role].rows, 0);
            }
        }
    }
    uint16_t raw[2];
    assert_int_equal(w->final_norm.format, FORMAT_BF16);
    assert_int_equal(file_read_at(w->final_norm.file, w->final_norm.offset + w->final_norm.bytes - 4, raw, 4, NULL), 0);
    assert_true(r->final_norm[w->shape.hidden - 1] == bf16_to_float(raw[1]));
    assert_true(r->final_norm[w->shape.hidden - 2] == bf16_to_float(raw[0]));
    resident_destroy(r);
    close_model(&f);
}

static void test_resident(void **state)
{
    (void)state;
    check_resident(1);
    check_resident(2);
    check_resident(3);
}

/* Parts are equal to a tile, tiles do not depend on the number of nodes. */
static void test_spread(void **state)
{
    (void)state;
    static const uint32_t shapes[][2] = {{2048, 7168}, {7168, 18432}, {576, 7168}, {64, 256}, {8, 8}, {1, 32}, {129280, 7168}};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        uint32_t rows = shapes[i][0], tile = weight_tile_rows(rows, shapes[i][1]);
        assert_true(tile >= 8 && (tile & (tile - 1)) == 0 && (tile == 8 || (uint64_t)tile * shapes[i][1] <= 1 << 20));
        for (uint32_t parts = 1; parts <= WEIGHT_NODES_MAX; parts++) {
            uint32_t before = 0;
            for (uint32_t k = 0; k < parts; k++) {
                uint32_t end = weight_part_end(rows, tile, parts, k);
                assert_true(end >= before && end <= rows);
                assert_true(end % tile == 0 || (k + 1 == parts && end == rows));
                assert_true((uint64_t)end * parts <= (uint64_t)rows * (k + 1));
                assert_true((uint64_t)(end + tile) * parts > (uint64_t)rows * (k + 1));
                before = end;
            }
            assert_int_equal(before, rows);
        }
    }
}

/* The plan's sums are what the tiers allocate. */
static void test_plan_input(void **state)
{
    (void)state;
    struct fixture f = {0};
    struct settings settings;
    struct plan_input in;
    struct resident *r;
    struct store *s;
    open_model(&f, DEMO);
    assert_int_equal(settings_init(&settings, NULL), 0);
    plan_input_init(&in, f.weights, &settings, 1);
    assert_int_equal(in.kv, KV_F16);
    assert_int_equal(in.ubatch, 512);
    assert_int_equal(resident_create(f.weights, &f.loader, &r, NULL), 0);
    assert_int_equal(create_all(&f, &s, NULL), 0);
    assert_int_equal(f.account.bytes[PURPOSE_RESIDENT], in.resident_bytes);
    assert_int_equal(f.account.bytes[PURPOSE_EXPERTS], in.expert_bytes);
    assert_int_equal(f.account.bytes[PURPOSE_SCALES], in.scale_bytes);
    assert_true(f.account.bytes[PURPOSE_TABLES] <= in.table_bytes);
    store_destroy(s);
    resident_destroy(r);
    settings_deinit(&settings);
    close_model(&f);
}

static void expect_refusal(struct fixture *f, bool experts, const char *a, const char *b)
{
    struct error e = {0};
    struct store *s;
    struct resident *r;
    int code = experts ? create_all(f, &s, &e) : resident_create(f->weights, &f->loader, &r, &e);
    assert_int_equal(code, ERROR_FORMAT);
    if (strstr(e.text, a) == NULL || strstr(e.text, b) == NULL) {
        fail_msg("%s", e.text);
    }
}

static void test_damage(void **state)
{
    (void)state;
    struct fixture f = {0};
    open_copy(&f);
    static const unsigned char code[] = {0x12, 0xff};
    static const float nan_scale = NAN, negative = -1.0f;
    const struct weight_ref *up = &f.weights->layers[3].experts[17].up;
    overwrite(up->file->path, up->offset + 5 * up->cols + 40, code, 2);
    expect_refusal(&f, true, up->name, "row 5, column 41");

    const struct weight_ref *q = &f.weights->layers[2].role[ROLE_Q_B];
    overwrite(q->scale_file->path, q->scale->offset + 4, &nan_scale, 4);
    expect_refusal(&f, false, q->scale->name, "block (1, 0)");
    overwrite(q->scale_file->path, q->scale->offset + 4, &negative, 4);
    expect_refusal(&f, false, q->scale->name, "-1");

    const struct weight_ref *norm = &f.weights->layers[2].role[ROLE_ATTN_NORM];
    overwrite(q->scale_file->path, q->scale->offset + 4, &(float){1}, 4);
    overwrite(norm->file->path, norm->offset + 2 * 7, &(uint16_t){0x7f80}, 2);
    expect_refusal(&f, false, norm->name, "element 7 is inf");
    close_copy(&f);
}

/* A file that became shorter after it was opened. */
static void test_short_file(void **state)
{
    (void)state;
    struct fixture f = {0};
    open_copy(&f);
    assert_int_equal(truncate(f.weights->embed.file->path, 1 << 20), 0);
    struct error e = {0};
    struct resident *r;
    assert_true(resident_create(f.weights, &f.loader, &r, &e) < 0);
    assert_non_null(strstr(e.text, f.weights->embed.file->path));
    close_copy(&f);
}

/* A second passes between two looks: progress is told at every turn of the loop. */
static uint64_t leaping_ns(void *ctx)
{
    uint64_t *now = ctx;
    return *now += 1000000000;
}

static void test_cancel(void **state)
{
    (void)state;
    struct fixture f = {.cancel_at_call = 2};
    struct resident *r;
    struct error e = {0};
    uint64_t now = 0;
    open_model(&f, DEMO);
    f.loader.clock = (struct clock){leaping_ns, &now};
    assert_int_equal(resident_create(f.weights, &f.loader, &r, &e), ERROR_INTERRUPTED);
    assert_true(f.last_done < f.last_total);
    assert_int_equal(resident_create(f.weights, &f.loader, &r, &e), ERROR_INTERRUPTED); /* from the start */
    close_model(&f);
}

/* Vectors and scales of every type the files may have. */
static void test_float_types(void **state)
{
    (void)state;
    struct fixture f = {0};
    open_copy(&f);
    struct weight_ref norm = f.weights->final_norm;
    uint32_t n = norm.cols;
    float *out = calloc(n, sizeof(*out));
    uint16_t *half = calloc(n, sizeof(*half));
    assert_true(out != NULL && half != NULL);
    for (uint32_t i = 0; i < n; i++) {
        half[i] = float_to_half(1.0f / (float)(i + 1));
    }
    overwrite(norm.file->path, norm.offset, half, n * 2);
    norm.format = FORMAT_F16;
    assert_int_equal(load_vector(&f.loader, &norm, out, NULL), 0);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(out[i] == half_to_float(half[i]));
    }
    struct tensor scale = {.name = "s", .type_name = "F8_E8M0", .format = FORMAT_NONE, .offset = norm.offset, .bytes = 4};
    struct weight_ref matrix = {.file = norm.file, .rows = 129, .cols = 200, .format = FORMAT_F8_E4M3, .scale = &scale, .scale_file = norm.file};
    overwrite(norm.file->path, norm.offset, (unsigned char[]){127, 0, 254, 130}, 4);
    assert_int_equal(load_scale_count(&matrix), 4);
    assert_int_equal(load_scales(&f.loader, &matrix, out, NULL), 0);
    assert_true(out[0] == 1.0f && out[1] == 0x1p-127f && out[2] == 0x1p127f && out[3] == 8.0f);
    overwrite(norm.file->path, norm.offset + 3, (unsigned char[]){255}, 1);
    assert_int_equal(load_scales(&f.loader, &matrix, out, NULL), ERROR_FORMAT);
    free(out);
    free(half);
    close_copy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resident),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_plan_input), cmocka_unit_test(test_damage),     cmocka_unit_test(test_short_file),
        cmocka_unit_test(test_cancel),     cmocka_unit_test(test_float_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
