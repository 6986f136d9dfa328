/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: checks and rates of bulk products in every format. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/exact.h"
#include "common/intmath.h"
#include "tests/kernel/check.h"
#include "tests/kernel/weights.h"

/* ---- one random product ---- */

enum way { WAY_INT8, WAY_F32, WAY_BF16 };

struct product {
    enum way way;
    struct matvec_args args; /* y is not set */
    uint32_t block;          /* activations per int8 scale; 0 if not quantised */
    bool ordinary;           /* no odd values anywhere: doubles can tell whether it is right */
};

static void quantise_into(struct check *c, struct product *p)
{
    struct act_rows *act = &p->args.act;
    size_t n = p->args.n * act->stride;
    int8_t *q = check_bytes(c, n);
    float *scale = check_output(c, n / p->block);
    int16_t *bsum16 = check_bytes(c, n / 16 * sizeof(*bsum16));
    memset(q, 0x55, n);
    memset(bsum16, 0x55, n / 16 * sizeof(*bsum16));
    c->ref->quantise(&(struct quantise_args){act->x, q, scale, bsum16, act->stride, p->args.n, p->args.w.cols, p->block});
    act->q = q;
    act->scale = scale;
    act->bsum16 = bsum16;
}

/* Every now and then more columns than a panel has. */
static uint32_t random_cols(struct check *c, enum weight_format format)
{
    uint32_t block = weight_format_info(format)->block_elems;
    if (!check_one_in(c, 4)) {
        return weights_random_cols(c, format);
    }
    return block == 1 ? 200 + check_below(c, 900) : block * (700 / block + check_below(c, 1800 / block));
}

/* Now and then more than the rows that are rounded at a time. */
static uint32_t random_n(struct check *c, enum way way)
{
    return way == WAY_BF16 && check_one_in(c, 40) ? 500 + check_below(c, 40) : check_below(c, check_one_in(c, 4) ? 50 : 15);
}

static struct product random_product(struct check *c, enum weight_format format, enum way way)
{
    bool wild = check_one_in(c, 6);
    uint32_t rows = check_below(c, 56), cols = random_cols(c, format);
    struct product p = {.way = way, .ordinary = !wild, .block = way == WAY_INT8 ? weight_format_info(format)->act_block : 0};
    struct matvec_args *a = &p.args;
    a->w = weights_random(c, format, rows, cols, wild);
    a->n = random_n(c, way);
    a->row_begin = check_one_in(c, 2) ? 0 : check_below(c, rows + 1);
    a->row_end = a->row_begin + (check_one_in(c, 2) ? rows - a->row_begin : check_below(c, rows - a->row_begin + 1));
    a->y_stride = rows + check_below(c, 5);
    a->act.stride = p.block != 0 ? align_up_u64(cols, 256) + 256 * check_below(c, 2) : cols + check_below(c, 3);
    float *x = check_floats(c, a->n * a->act.stride);
    a->act.x = x;
    for (uint32_t i = 0; i < a->n; i++) {
        p.ordinary = check_fill_activations(c, x + i * a->act.stride, cols) && p.ordinary;
    }
    if (p.block != 0) {
        quantise_into(c, &p);
    }
    snprintf(c->shape, sizeof(c->shape), "%u x %u (row_bytes %zu, row0 %u), n %u, rows %u..%u, stride %zu%s", rows, cols,
             a->w.row_bytes, a->w.row0, a->n, a->row_begin, a->row_end, a->act.stride, wild ? ", wild" : "");
    return p;
}

/* The activation that meets weight `col` of row i. */
static double activation(const struct product *p, uint32_t i, uint32_t col)
{
    const struct act_rows *act = &p->args.act;
    size_t at = i * act->stride + col;
    return p->block != 0 ? (double)act->q[at] * (double)act->scale[at / p->block] : (double)act->x[at];
}

/* y against sums in double of dequantised weights. A weight has three roundings, and so have the factors of an integer
 * sum; each float step is one, of a partial sum that no sum of sizes is below. To bfloat16 both factors are rounded. */
static bool near_doubles(struct check *c, const struct product *p, const float *y)
{
    const struct matvec_args *a = &p->args;
    float *w = check_output(c, a->w.cols);
    double factors = p->way == WAY_BF16 ? 0x1p-7 + 0x1p-16 : 0, flushed = p->way == WAY_BF16 ? 0x1p-100 * a->w.cols : 0;
    double steps = p->way == WAY_BF16 ? a->w.cols : p->block != 0 ? 2.0 * a->w.cols / p->block : BULK_F32_COLS + (double)a->w.cols / BULK_F32_COLS;
    for (uint32_t r = a->row_begin; r < a->row_end; r++) {
        c->ref->dequantise[a->w.format](&(struct dequantise_args){a->w, w, r, r + 1});
        for (uint32_t i = 0; i < a->n; i++) {
            double sum = 0, size = 0;
            for (uint32_t col = 0; col < a->w.cols; col++) {
                double product = (double)w[col] * activation(p, i, col);
                sum += product;
                size += fabs(product);
            }
            /* A minimum is taken off larger numbers than the weight it leaves. */
            double bound = ((steps + 8) * 0x1p-24 + factors) * size * (p->block != 0 ? 4 : 1) + 1e-30 + flushed;
            if (!check_near(c, "against doubles", sum, (double)y[i * a->y_stride + r], bound)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- the definition of products in bfloat16 ---- */

static float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
static float bf16_fma(float a, float b, float c) { return flush(fmaf(a, b, c)); }

/* cols floats rounded, then zeros to a multiple of 32. */
static void bf16_round(const float *x, uint32_t cols, float *y)
{
    for (uint32_t k = 0; k < align_up_u64(cols, 32); k++) {
        y[k] = k < cols ? bf16_to_float(float_to_bf16(flush(x[k]))) : 0.0f;
    }
}

static float bf16_dot(const float *w, const float *x, uint32_t cols, bool amx)
{
    float y = 0.0f;
    for (uint32_t k = 0; k < cols; k += 32) {
        float even = 0.0f, odd = 0.0f;
        for (uint32_t j = k; amx && j < k + 32; j += 2) {
            even = bf16_fma(w[j], x[j], even);
            odd = bf16_fma(w[j + 1], x[j + 1], odd);
        }
        for (uint32_t j = k; !amx && j < k + 32; j += 2) {
            y = bf16_fma(w[j], x[j], bf16_fma(w[j + 1], x[j + 1], y));
        }
        y = amx ? flush(y + flush(even + odd)) : y;
    }
    return y;
}

static void define_bf16(struct check *c, const struct matvec_args *a)
{
    size_t stride = align_up_u64(a->w.cols, 32);
    float *row = check_output(c, a->w.cols), *w = check_output(c, stride), *x = check_output(c, a->n * stride);
    for (uint32_t i = 0; i < a->n; i++) {
        bf16_round(a->act.x + i * a->act.stride, a->w.cols, x + i * stride);
    }
    for (uint32_t r = a->row_begin; r < a->row_end; r++) {
        c->ref->dequantise[a->w.format](&(struct dequantise_args){a->w, row, r, r + 1});
        bf16_round(row, a->w.cols, w);
        for (uint32_t i = 0; i < a->n; i++) {
            a->y[i * a->y_stride + r] = bf16_dot(w, x + i * stride, a->w.cols, strcmp(c->ops->bf16_units, "amx") == 0);
        }
    }
}

/* ---- cases ---- */

static void run_product(const struct ops *ops, const struct matvec_args *a, enum way way)
{
    if (way == WAY_BF16) {
        ops->bulk_bf16[a->w.format](a, ops->dequantise[a->w.format]);
    } else if (way == WAY_INT8) {
        ops->bulk[a->w.format](a);
    } else {
        ops->bulk_f32(a, ops->dequantise[a->w.format]);
    }
}

static bool product_case(struct check *c, enum weight_format format, enum way way)
{
    struct product p = random_product(c, format, way);
    struct matvec_args *a = &p.args;
    size_t n = a->n * a->y_stride;
    float *expected = check_output(c, n), *got = check_output(c, n);
    a->y = expected;
    if (way == WAY_BF16) {
        define_bf16(c, a);
    } else {
        run_product(c->ref, a, way);
    }
    a->y = got;
    run_product(c->ops, a, way);
    return check_same(c, "y", expected, got, n) && (!p.ordinary || near_doubles(c, &p, got));
}

static bool bulk_case(struct check *c, int format) { return product_case(c, (enum weight_format)format, WAY_INT8); }
static bool bulk_f32_case(struct check *c, int format) { return product_case(c, (enum weight_format)format, WAY_F32); }
static bool bulk_bf16_case(struct check *c, int format) { return product_case(c, (enum weight_format)format, WAY_BF16); }

void check_bulk(struct check *c)
{
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const struct weight_format_info *info = weight_format_info((enum weight_format)f);
        if (info->act_block != 0) {
            check_slot(c, "bulk", info->name, f, c->ops->bulk[f] == c->ref->bulk[f], bulk_case);
        }
        check_slot(c, "bulk_f32", info->name, f, c->ops->bulk_f32 == c->ref->bulk_f32, bulk_f32_case);
    }
}

void check_bulk_bf16(struct check *c)
{
    char op[32];
    snprintf(op, sizeof(op), "bulk_bf16 %s", c->ops->bf16_units);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        if (c->ops->bulk_bf16[f] != NULL) {
            check_slot(c, op, weight_format_info((enum weight_format)f)->name, f, false, bulk_bf16_case);
        }
    }
}
