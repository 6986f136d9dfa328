/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: checks and rates of matvec, matvec_f32, matvec_t and dequantise in every format. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "tests/kernel/check.h"
#include "tests/kernel/product.h"
#include "tests/kernel/weights.h"

/* ---- cases ---- */

static bool product_case(struct check *c, enum weight_format format, bool quantised)
{
    uint32_t rows = check_below(c, 20), cols = weights_random_cols(c, format), n = check_one_in(c, 30) ? 0 : 1 + check_below(c, OPS_MAX_ROWS);
    struct product p = product_random(c, format, rows, cols, n, quantised);
    struct matvec_args *a = &p.args;
    size_t all = n * a->y_stride;
    float *expected = check_output(c, all), *got = check_output(c, all);
    a->y = expected;
    (quantised ? c->ref->matvec : c->ref->matvec_f32)[format](a);
    a->y = got;
    (quantised ? c->ops->matvec : c->ops->matvec_f32)[format](a);
    return check_same(c, "y", expected, got, all) && (!p.ordinary || product_near_doubles(c, &p, got, 2e-5, 1e-30));
}

static bool matvec_case(struct check *c, int format) { return product_case(c, (enum weight_format)format, true); }
static bool matvec_f32_case(struct check *c, int format) { return product_case(c, (enum weight_format)format, false); }

static bool matvec_t_case(struct check *c, int format)
{
    bool wild = check_one_in(c, 6);
    uint32_t rows = check_below(c, 12), cols = weights_random_cols(c, (enum weight_format)format);
    struct matrix_view w = weights_random(c, (enum weight_format)format, rows, cols, wild);
    float *x = check_floats(c, rows), *expected = check_output(c, cols), *got = check_output(c, cols);
    bool ordinary = check_fill_activations(c, x, rows) && !wild;
    snprintf(c->shape, sizeof(c->shape), "%u x %u%s", rows, cols, wild ? ", wild" : "");
    c->ref->matvec_t[format](&(struct matvec_t_args){w, x, expected});
    c->ops->matvec_t[format](&(struct matvec_t_args){w, x, got});
    bool ok = check_same(c, "y", expected, got, cols);
    float *weights = check_output(c, (size_t)rows * cols);
    c->ref->dequantise[format](&(struct dequantise_args){w, weights, 0, rows});
    for (uint32_t col = 0; ok && ordinary && col < cols; col++) {
        double sum = 0, size = 0;
        for (uint32_t d = 0; d < rows; d++) {
            double product = (double)x[d] * (double)weights[(size_t)d * cols + col];
            sum += product;
            size += fabs(product);
        }
        ok = check_near(c, "against doubles", sum, (double)got[col], 1e-5 * size + 1e-30);
    }
    return ok;
}

static bool dequantise_case(struct check *c, int format)
{
    uint32_t rows = check_below(c, 8), cols = weights_random_cols(c, (enum weight_format)format);
    struct matrix_view w = weights_random(c, (enum weight_format)format, rows, cols, check_one_in(c, 3));
    uint32_t begin = check_below(c, rows + 1), end = begin + check_below(c, rows - begin + 1);
    size_t n = (size_t)(end - begin) * cols;
    float *expected = check_output(c, n), *got = check_output(c, n);
    snprintf(c->shape, sizeof(c->shape), "%u x %u, rows %u..%u", rows, cols, begin, end);
    c->ref->dequantise[format](&(struct dequantise_args){w, expected, begin, end});
    c->ops->dequantise[format](&(struct dequantise_args){w, got, begin, end});
    return check_same(c, "y", expected, got, n);
}

/* ---- rates ---- */

/* Bytes of a matrix that stays in the second-level cache, of one far beyond all caches, of one for the slow kernels. */
enum { BENCH_COLS = 7168, BENCH_CACHED = 192 << 10, BENCH_MEMORY = 96 << 20, BENCH_SLOW = 1 << 18, BENCH_READS = 4 };

struct bench {
    void (*matvec)(const struct matvec_args *);
    void (*matvec_t)(const struct matvec_t_args *);
    void (*dequantise)(const struct dequantise_args *);
    struct matvec_args args;
    struct matvec_t_args args_t;
    struct dequantise_args args_dequantise;
};

static void run_matvec(void *p) { ((struct bench *)p)->matvec(&((struct bench *)p)->args); }
static void run_matvec_t(void *p) { ((struct bench *)p)->matvec_t(&((struct bench *)p)->args_t); }
static void run_dequantise(void *p) { ((struct bench *)p)->dequantise(&((struct bench *)p)->args_dequantise); }

/* A matrix of `bytes` bytes, of which as many as fit a cache are random and the others repeat them. */
static struct product bench_product(struct check *c, enum weight_format format, bool quantised, uint32_t n,
                                    size_t bytes)
{
    uint64_t row_bytes;
    struct product p = {.block = quantised ? weight_format_info(format)->act_block : 0};
    weight_row_bytes(format, BENCH_COLS, &row_bytes);
    uint32_t rows = (uint32_t)(bytes / row_bytes), different = min_u32(rows, (uint32_t)(BENCH_CACHED / row_bytes));
    struct matrix_view w = weights_random(c, format, different, BENCH_COLS, false);
    uint8_t *data = check_bytes(c, rows * row_bytes);
    for (uint32_t r = 0; r < rows; r++) {
        memcpy(data + r * row_bytes, (const uint8_t *)w.data + r % different * w.row_bytes, row_bytes);
    }
    w.data = data;
    w.row_bytes = row_bytes;
    w.rows = rows;
    if (w.scale != NULL) {
        w.row0 = 0;
        w.scale = check_floats(c, (size_t)ceil_div_u64(rows, FORMAT_SCALE_BLOCK) * w.scale_cols);
    }
    p.args = (struct matvec_args){.w = w, .n = n, .row_end = rows, .y_stride = rows};
    p.args.act.stride = BENCH_COLS;
    p.args.act.x = check_floats(c, (size_t)n * BENCH_COLS);
    p.args.y = check_output(c, (size_t)n * rows);
    if (p.block != 0) {
        product_quantise(c, &p);
    }
    return p;
}

static void bench_product_of(struct check *c, enum weight_format format, bool quantised, uint32_t n, bool memory)
{
    const char *op = quantised ? "matvec" : "matvec_f32";
    struct bench b = {.matvec = (quantised ? c->ops->matvec : c->ops->matvec_f32)[format]};
    bool slow = b.matvec == (quantised ? c->ref->matvec : c->ref->matvec_f32)[format];
    char variant[32];
    snprintf(variant, sizeof(variant), "%s n=%u %s", weight_format_info(format)->name, n, memory ? "memory" : "cached");
    if ((memory && slow) || !check_wanted(c, op, variant)) {
        return;
    }
    struct product p = bench_product(c, format, quantised, n, memory ? BENCH_MEMORY : slow ? BENCH_SLOW : BENCH_CACHED);
    b.args = p.args;
    check_bench(c, op, variant,
                (struct check_timed){run_matvec, &b, (double)p.args.w.rows * (double)p.args.w.row_bytes});
}

static void bench_format(struct check *c, enum weight_format format)
{
    static const uint32_t batch[] = {1, 2, 4, OPS_MAX_ROWS};
    const char *name = weight_format_info(format)->name;
    for (int quantised = 1; quantised >= 0; quantised--) {
        for (size_t i = 0; i < ARRAY_LEN(batch) && (quantised || weight_format_info(format)->act_block != 0); i++) {
            bench_product_of(c, format, quantised, batch[i], false);
            if (batch[i] == 1 || batch[i] == OPS_MAX_ROWS) {
                bench_product_of(c, format, quantised, batch[i], true);
            }
        }
    }
    struct bench b = {.matvec_t = c->ops->matvec_t[format], .dequantise = c->ops->dequantise[format]};
    uint32_t cols = weight_format_info(format)->block_elems == 256 ? 512 : 128, rows = 128;
    b.args_t = (struct matvec_t_args){weights_random(c, format, rows, cols, false), check_floats(c, rows),
                                      check_output(c, cols)};
    check_bench(c, "matvec_t", name,
                (struct check_timed){run_matvec_t, &b, (double)rows * (double)b.args_t.w.row_bytes});
    b.args_dequantise = (struct dequantise_args){weights_random(c, format, 32, BENCH_COLS, false), NULL, 0, 32};
    b.args_dequantise.y = check_output(c, (size_t)32 * BENCH_COLS);
    check_bench(c, "dequantise", name,
                (struct check_timed){run_dequantise, &b, 32 * (double)b.args_dequantise.w.row_bytes});
}

/* Bytes read, several places at a time. */
static void run_read(void *p)
{
    const struct bench *b = p;
    const uint64_t *data = b->args.w.data;
    size_t words = BENCH_MEMORY / sizeof(*data) / BENCH_READS;
    uint64_t sum[BENCH_READS][8] = {0};
    for (size_t i = 0; i < words; i += 8) {
        for (size_t s = 0; s < BENCH_READS; s++) {
            const uint64_t *at = data + s * words + i;
            __builtin_prefetch(at + 512);
            for (size_t j = 0; j < 8; j++) {
                sum[s][j] ^= at[j];
            }
        }
    }
    for (size_t s = 0; s < BENCH_READS; s++) {
        for (size_t j = 0; j < 8; j++) {
            b->args.y[0] += (float)sum[s][j];
        }
    }
}

/* What a kernel can read at best. */
static void bench_read(struct check *c)
{
    struct bench b = {.args = {.w = {.data = check_output(c, BENCH_MEMORY / sizeof(float))}, .y = check_floats(c, 1)}};
    check_bench(c, "read", "memory", (struct check_timed){run_read, &b, BENCH_MEMORY});
}

void check_matvec(struct check *c)
{
    if (c->bench) {
        bench_read(c);
    }
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const char *name = weight_format_info((enum weight_format)f)->name;
        if (c->bench) {
            bench_format(c, (enum weight_format)f);
            continue;
        }
        check_slot(c, "matvec", name, f, c->ops->matvec[f] == c->ref->matvec[f], matvec_case);
        check_slot(c, "matvec_f32", name, f, c->ops->matvec_f32[f] == c->ref->matvec_f32[f], matvec_f32_case);
        check_slot(c, "matvec_t", name, f, c->ops->matvec_t[f] == c->ref->matvec_t[f], matvec_t_case);
        check_slot(c, "dequantise", name, f, c->ops->dequantise[f] == c->ref->dequantise[f], dequantise_case);
    }
}
