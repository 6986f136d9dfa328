/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: checks and rates of bulk products in every format. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/exact.h"
#include "common/intmath.h"
#include "tests/kernel/check.h"
#include "tests/kernel/product.h"
#include "tests/kernel/weights.h"

/* ---- random products ---- */

enum way { WAY_INT8, WAY_F32, WAY_BF16 };

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

/* A weight has three roundings, and so have the factors of an integer sum; each float step is one, of a partial sum that no sum
 * of sizes is below. To bfloat16 both factors are rounded. */
static bool near_doubles(struct check *c, const struct product *p, enum way way, const float *y)
{
    uint32_t cols = p->args.w.cols;
    double factors = way == WAY_BF16 ? 0x1p-7 + 0x1p-16 : 0, flushed = way == WAY_BF16 ? 0x1p-100 * cols : 0;
    double steps = way == WAY_BF16 ? cols : p->block != 0 ? 2.0 * cols / p->block : BULK_F32_COLS + (double)cols / BULK_F32_COLS;
    double minimum = p->block != 0 ? 4 : 1; /* one is taken off larger numbers than the weight it leaves */
    return product_near_doubles(c, p, y, ((steps + 8) * 0x1p-24 + factors) * minimum, 1e-30 + flushed);
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
    uint32_t rows = check_below(c, 56), cols = random_cols(c, format);
    struct product p = product_random(c, format, rows, cols, random_n(c, way), way == WAY_INT8);
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
    return check_same(c, "y", expected, got, n) && (!p.ordinary || near_doubles(c, &p, way, got));
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
