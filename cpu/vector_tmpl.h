/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/simd_<isa>.h. Owns: operations on activation rows. Must not know: weights, caches. */
#ifndef SLUICE_CPU_VECTOR_TMPL_H
#define SLUICE_CPU_VECTOR_TMPL_H

#include <math.h>

#include "common/exact.h"
#include "common/intmath.h"
#include "common/ops.h"

/* ---- dot product, exp ---- */

/* Adds the products of elements i..n-1, fewer than 16; lanes without elements are left as they are. */
SIMD_INLINE struct vf dot_rest(const float *a, const float *b, size_t i, size_t n, struct vf acc)
{
    uint32_t rest = (uint32_t)(n - i);
    if (rest == 0) {
        return acc;
    }
    struct vf sum = vf_fma(vf_load_first(a + i, rest), vf_load_first(b + i, rest), acc);
    return vf_select(vi_first(rest), sum, acc);
}

static float dot16(const float *a, const float *b, size_t n)
{
    struct vf acc = vf_zero();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        acc = vf_fma(vf_load(a + i), vf_load(b + i), acc);
    }
    return vf_sum(dot_rest(a, b, i, n, acc));
}

/* exp_exact of common/exact.h, sixteen times. */
SIMD_INLINE struct vf vf_exp(struct vf x)
{
    struct vf shift = vf_set1(EXACT_EXP_SHIFT), one = vf_set1(1.0f);
    struct vf t = vf_fma(x, vf_set1(EXACT_EXP_LOG2E), shift);
    struct vf n = vf_sub(t, shift);
    struct vf r = vf_fma(n, vf_set1(-EXACT_EXP_LN2_HI), x);
    r = vf_fma(n, vf_set1(-EXACT_EXP_LN2_LO), r);
    struct vf p = vf_fma(vf_set1(EXACT_EXP_C6), r, vf_set1(EXACT_EXP_C5));
    p = vf_fma(p, r, vf_set1(EXACT_EXP_C4));
    p = vf_fma(p, r, vf_set1(EXACT_EXP_C3));
    p = vf_fma(p, r, vf_set1(EXACT_EXP_C2));
    p = vf_fma(p, r, one);
    p = vf_fma(p, r, one);
    struct vf y = vf_bits(vi_add32(vi_bits(p), vi_shl32(vi_bits(t), 23)));
    y = vf_select(vf_lt(x, vf_set1(EXACT_EXP_MIN)), vf_zero(), y);
    y = vf_select(vf_lt(vf_set1(EXACT_EXP_MAX), x), vf_set1(INFINITY), y);
    return vf_select(vf_unordered(x, x), x, y);
}

/* ---- activations to int8 ---- */

SIMD_INLINE struct vi quantise_16(const float *x, struct vf inverse) { return vi_round(vf_mul(vf_load(x), inverse)); }

/* One block of 32 or 256: codes, and their sums by 16; returns its scale. */
static float quantise_block(const float *x, int8_t *q, int16_t *bsum16, uint32_t n)
{
    struct vi magnitude = vi_set1_32(0x7fffffff), largest = vi_zero();
    for (uint32_t i = 0; i < n; i += 16) { /* as integers floats without sign keep their order, NaN on top */
        largest = vi_max32(largest, vi_and(vi_bits(vf_load(x + i)), magnitude));
    }
    float amax = float_from_bits((uint32_t)vi_max(largest));
    bool finite = isfinite(amax);
    if (!finite || amax < 0x1p-100f) {
        memset(q, 0, n);
        memset(bsum16, 0, n / 16 * sizeof(*bsum16));
        return finite ? 0.0f : NAN;
    }
    struct vf inverse = vf_set1(127.0f / amax);
    for (uint32_t i = 0; i < n; i += 16) {
        struct vi codes = quantise_16(x + i, inverse);
        vi_store_bytes(q + i, codes);
        bsum16[i / 16] = (int16_t)vi_sum(codes);
    }
    return amax / 127.0f;
}

static void quantise(const struct quantise_args *a)
{
    for (uint32_t i = 0; i < a->n; i++) {
        for (uint32_t c = 0; c < a->cols; c += a->block) {
            size_t at = i * a->stride + c;
            a->scale[at / a->block] = quantise_block(a->x + at, a->q + at, a->bsum16 + at / 16, a->block);
        }
    }
}

/* ---- row operations: 16 at a time, the rest by partial vectors ---- */

static void rmsnorm(const struct rmsnorm_args *a)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const float *x = a->x + i * a->x_stride;
        float *y = a->y + i * a->y_stride;
        struct vf r = vf_set1(1.0f / sqrtf(dot16(x, x, a->cols) / (float)a->cols + a->eps));
        for (uint32_t c = 0; c < a->cols; c += 16) {
            uint32_t n = min_u32(16, a->cols - c);
            struct vf v = vf_mul(vf_load_first(x + c, n), r);
            vf_store_first(y + c, vf_mul(v, vf_load_first(a->w + c, n)), n);
        }
    }
}

/* Sixteen pairs (a, b), the cosines and sines of which lie interleaved. */
SIMD_INLINE void rotate(struct vf *a, struct vf *b, const float *cos_sin)
{
    struct vf cosine, sine, first = *a;
    vf_load_paired(cos_sin, &cosine, &sine);
    *a = vf_sub(vf_mul(first, cosine), vf_mul(*b, sine));
    *b = vf_add(vf_mul(first, sine), vf_mul(*b, cosine));
}

SIMD_INLINE void rotate_pairs(float *x, const float *cos_sin)
{
    struct vf a, b;
    vf_load_paired(x, &a, &b);
    rotate(&a, &b, cos_sin);
    vf_store_paired(x, a, b);
}

SIMD_INLINE void rotate_halves(float *x, float *y, const float *cos_sin, uint32_t n)
{
    struct vf a = vf_load_first(x, n), b = vf_load_first(y, n);
    rotate(&a, &b, cos_sin);
    vf_store_first(x, a, n);
    vf_store_first(y, b, n);
}

static void rope(const struct rope_args *a)
{
    const uint32_t half = a->dim / 2;
    for (uint32_t j = 0; j < half; j += 16) {
        const uint32_t n = min_u32(16, half - j);
        float cos_sin[32] = {0};
        memcpy(cos_sin, a->cos_sin + 2 * (size_t)j, 2 * n * sizeof(float));
        for (uint32_t h = 0; h < a->heads; h++) {
            float *x = a->x + h * a->head_stride;
            if (a->half_split) {
                rotate_halves(x + j, x + half + j, cos_sin, n);
            } else if (n == 16) {
                rotate_pairs(x + 2 * (size_t)j, cos_sin);
            } else {
                float last[32] = {0};
                memcpy(last, x + 2 * (size_t)j, 2 * n * sizeof(float));
                rotate_pairs(last, cos_sin);
                memcpy(x + 2 * (size_t)j, last, 2 * n * sizeof(float));
            }
        }
    }
}

static void swiglu(const struct swiglu_args *a)
{
    struct vf one = vf_set1(1.0f), minus = vf_bits(vi_set1_32(INT32_MIN));
    for (size_t i = 0; i < a->n; i += 16) {
        uint32_t n = (uint32_t)min_u64(16, a->n - i);
        struct vf g = vf_load_first(a->gate + i, n);
        struct vf negative = vf_bits(vi_xor(vi_bits(g), vi_bits(minus)));
        struct vf sigmoid = vf_div(one, vf_add(one, vf_exp(negative)));
        vf_store_first(a->y + i, vf_mul(vf_mul(g, sigmoid), vf_load_first(a->up + i, n)), n);
    }
}

static void exp_all(const struct exp_args *a)
{
    struct vf minus = vf_set1(a->minus), over = vf_set1(a->over);
    for (size_t i = 0; i < a->n; i += 16) {
        uint32_t n = (uint32_t)min_u64(16, a->n - i);
        vf_store_first(a->y + i, vf_exp(vf_div(vf_sub(vf_load_first(a->x + i, n), minus), over)), n);
    }
}

static void expert_sum(const struct expert_sum_args *a)
{
    for (uint32_t c = 0; c < a->cols; c += 16) {
        uint32_t n = min_u32(16, a->cols - c);
        struct vf sum = vf_zero();
        for (uint32_t i = 0; i < a->k; i++) {
            sum = vf_fma(vf_set1(a->w[i]), vf_load_first(a->e + i * a->e_stride + c, n), sum);
        }
        if (a->shared != NULL) {
            sum = vf_add(sum, vf_load_first(a->shared + c, n));
        }
        vf_store_first(a->y + c, vf_add(sum, vf_load_first(a->residual + c, n)), n);
    }
}

static void add(const struct add_args *a)
{
    for (size_t i = 0; i < a->n; i += 16) {
        uint32_t n = (uint32_t)min_u64(16, a->n - i);
        vf_store_first(a->y + i, vf_add(vf_load_first(a->y + i, n), vf_load_first(a->x + i, n)), n);
    }
}

#endif
