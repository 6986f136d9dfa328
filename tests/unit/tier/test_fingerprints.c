/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of fingerprints of weights in memory: the values are those of the bytes in the file, whatever the rows are spread over. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/intmath.h"
#include "src/base/thread.h"
#include "src/model/bind.h"
#include "src/tier/fingerprints.h"
#include "src/tier/verify.h"
#include "tests/unit/io/io_test.h"

struct fixture {
    char *folder;
    struct weights *weights;
    struct bytes file; /* of the model, which is one */
};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    struct error e = {0};
    folder_setup((void **)&x->folder);
    copy_file(GOLDEN "/gguf-q4_0/model.gguf", in(x->folder, "model.gguf"), SIZE_MAX);
    x->file = read_bytes(in(x->folder, "model.gguf"));
    const struct bind_options o = {.path = in(x->folder, "model.gguf"), .mtp = true, .group_routing = true};
    if (weights_open(&o, &x->weights, &e) != 0) {
        fail_msg("%s", e.text);
    }
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    weights_close(x->weights);
    bytes_free(&x->file);
    folder_teardown((void **)&x->folder);
    free(x);
    return 0;
}

static struct fingerprints *write_and_open(const struct fixture *x)
{
    const struct container *c = x->weights->containers[0];
    uint64_t **values = calloc(c->n_tensors, sizeof *values);
    struct fingerprints *f = NULL;
    struct error e = {0};
    for (size_t i = 0; i < c->n_tensors; i++) {
        uint32_t parts = fingerprints_parts(c, &c->tensors[i]);
        uint64_t size = c->tensors[i].bytes / parts;
        values[i] = calloc(parts, sizeof **values);
        for (uint32_t k = 0; k < parts; k++) {
            values[i][k] = XXH3_64bits(x->file.data + c->tensors[i].offset + k * size, size);
        }
    }
    assert_int_equal(fingerprints_open(x->weights->containers, 1, &f, &e), 0);
    assert_null(f); /* none yet */
    assert_int_equal(fingerprints_write(c, (const uint64_t *const *)values, &e), 0);
    if (fingerprints_open(x->weights->containers, 1, &f, &e) != 0) {
        fail_msg("%s", e.text);
    }
    for (size_t i = 0; i < c->n_tensors; i++) {
        free(values[i]);
    }
    free(values);
    return f;
}

/* A copy of a matrix whose rows lie in `parts` pieces of memory. */
static struct weight_view spread(const struct fixture *x, const struct weight_ref *ref, uint32_t parts)
{
    struct weight_view v = {.parts = parts, .rows = ref->rows, .cols = ref->cols, .row_bytes = ref->bytes / ref->rows, .format = ref->format};
    for (uint32_t k = 0, begin = 0; k < parts; begin = v.end[k++]) {
        v.end[k] = weight_part_end(ref->rows, 8, parts, k);
        size_t bytes = (v.end[k] - begin) * v.row_bytes;
        void *data = malloc(bytes + 1);
        memcpy(data, x->file.data + ref->offset + begin * v.row_bytes, bytes);
        v.data[k] = data;
    }
    return v;
}

static void spread_free(struct weight_view *v)
{
    for (uint32_t k = 0; k < v->parts; k++) {
        free((void *)(uintptr_t)v->data[k]);
    }
}

static void test_experts(void **state)
{
    const struct fixture *x = *state;
    struct fingerprints *f = write_and_open(x);
    const struct weights *w = x->weights;
    uint32_t layer = 0, expert = w->shape.experts - 2;
    while (w->layers[layer].experts == NULL) {
        layer++;
    }
    const struct expert_refs *refs = &w->layers[layer].experts[expert];
    const struct weight_ref *const ref[3] = {&refs->gate, &refs->up, &refs->down};
    for (uint32_t parts = 1; parts <= 3; parts++) {
        struct weight_view v[3];
        for (int m = 0; m < 3; m++) {
            v[m] = spread(x, ref[m], parts);
        }
        assert_int_equal(fingerprints_check_expert(f, refs, v, NULL), 0);
        for (int m = 0; m < 3; m++) {
            char where[64];
            struct error e = {0};
            unsigned char *last = (unsigned char *)(uintptr_t)v[m].data[parts - 1];
            last[3] ^= 1;
            assert_int_equal(fingerprints_check_expert(f, refs, v, &e), ERROR_FORMAT);
            snprintf(where, sizeof(where), "layer %u, expert %u: its fingerprint is", layer, expert);
            check_error(&e, ERROR_FORMAT, "model.gguf: tensor", ref[m]->name, where, "expected is", "model.gguf.sluice-xxh", "damaged", NULL);
            assert_int_equal(fingerprints_check_expert(NULL, refs, v, NULL), 0);
            last[3] ^= 1;
        }
        for (int m = 0; m < 3; m++) {
            spread_free(&v[m]);
        }
    }
    fingerprints_close(f);
}

static void test_dense(void **state)
{
    const struct fixture *x = *state;
    struct fingerprints *f = write_and_open(x);
    const struct weight_ref *ref = &x->weights->layers[0].role[ROLE_O], *norm = &x->weights->final_norm;
    struct weight_view v = spread(x, ref, 2);
    assert_int_equal(fingerprints_check_matrix(f, ref, &v, NULL), 0);
    ((unsigned char *)(uintptr_t)v.data[0])[0] ^= 0x80;
    assert_int_equal(fingerprints_check_matrix(f, ref, &v, NULL), ERROR_FORMAT);
    spread_free(&v);
    assert_int_equal(fingerprints_check_bytes(f, norm->file, norm->offset, norm->name, x->file.data + norm->offset, norm->bytes, NULL), 0);
    assert_int_equal(fingerprints_check_bytes(f, norm->file, norm->offset, norm->name, x->file.data + norm->offset + 1, norm->bytes, NULL), ERROR_FORMAT);
    fingerprints_close(f);
    fingerprints_close(NULL);
}

static int fail_some(const void *ctx, uint32_t i, struct error *e)
{
    atomic_fetch_add((atomic_uint *)(uintptr_t)ctx, 1);
    return i % 100 == 57 ? error_set(e, ERROR_FORMAT, "number %u", i) : 0;
}

/* By several threads: each is checked once, the first in order is told. */
static void test_many(void **state)
{
    (void)state;
    struct pool *pool;
    struct error e = {0};
    atomic_uint calls = 0;
    atomic_int cancel = 0;
    assert_int_equal(pool_create(&(struct pool_options){.workers = 3}, &pool, NULL), 0);
    struct loader l = {.pool = pool, .cancel = &cancel};
    assert_int_equal(verify_all(&l, 1000, fail_some, &calls, &e), ERROR_FORMAT);
    assert_int_equal(calls, 1000);
    assert_string_equal(e.text, "number 57");
    assert_int_equal(verify_all(&l, 57, fail_some, &calls, &e), 0);
    assert_int_equal(verify_all(&(struct loader){.cancel = NULL}, 58, fail_some, &calls, &e), ERROR_FORMAT);
    cancel = 1;
    calls = 0;
    assert_int_equal(verify_all(&l, 1000, fail_some, &calls, &e), ERROR_INTERRUPTED);
    assert_int_equal(calls, 0);
    pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),
        cmocka_unit_test_setup_teardown(test_experts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dense, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
