/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/simd_<isa>.h. Owns: weights that are floats of 32, 16 and 8 bits. Must not know: activations
 * other than float32. */
#ifndef SLUICE_CPU_FLOAT_TMPL_H
#define SLUICE_CPU_FLOAT_TMPL_H

#include "cpu/matvec_tmpl.h"

enum { FLOAT_STEP = 32 }; /* elements */

/* 32 weights or activations as two vectors: elements 0-15 and 16-31, or (paired) the even and the odd ones. */
struct float_step {
    struct vf first, second;
};

/* Which lanes of the two vectors exist when only the first n elements do. */
SIMD_INLINE uint32_t first_lanes(bool paired, uint32_t n) { return paired ? (n + 1) / 2 : min_u32(n, 16); }
SIMD_INLINE uint32_t second_lanes(bool paired, uint32_t n) { return paired ? n / 2 : n - min_u32(n, 16); }

SIMD_INLINE struct float_step load_f32(const uint8_t *w)
{
    const float *f = (const void *)w; /* read without regard to alignment */
    return (struct float_step){vf_load(f), vf_load(f + 16)};
}

SIMD_INLINE struct float_step load_f16(const uint8_t *w)
{
    return (struct float_step){vf_from_halves(w), vf_from_halves(w + 32)};
}

SIMD_INLINE struct float_step load_bf16(const uint8_t *w)
{
    struct vi pairs = vi_load(w);
    return (struct float_step){vf_bits(vi_shl32(pairs, 16)), vf_bits(vi_and(pairs, vi_set1_32((int32_t)0xffff0000)))};
}

SIMD_INLINE struct float_step load_activations(const float *x, bool paired)
{
    struct float_step s;
    if (paired) {
        vf_load_paired(x, &s.first, &s.second);
    } else {
        s = (struct float_step){vf_load(x), vf_load(x + 16)};
    }
    return s;
}

SIMD_INLINE void store_step(float *y, struct float_step s, bool paired)
{
    if (paired) {
        vf_store_paired(y, s.first, s.second);
    } else {
        vf_store(y, s.first);
        vf_store(y + 16, s.second);
    }
}

SIMD_INLINE struct vf add_step(struct float_step w, struct float_step x, struct vf acc)
{
    return vf_fma(w.second, x.second, vf_fma(w.first, x.first, acc));
}

/* The last n < 32 elements; lanes without elements are left as they are. */
SIMD_INLINE struct vf add_last(struct float_step w, const float *x, uint32_t n, bool paired, struct vf acc)
{
    float padded[FLOAT_STEP] = {0};
    memcpy(padded, x, n * sizeof(float));
    struct float_step a = load_activations(padded, paired);
    acc = vf_select(vi_first(first_lanes(paired, n)), vf_fma(w.first, a.first, acc), acc);
    return vf_select(vi_first(second_lanes(paired, n)), vf_fma(w.second, a.second, acc), acc);
}

/* ---- products: FLOAT_BLOCK columns at a time. Weights with scales (FP8 E4M3, taken times 2^-8) have sums of their own
 * in each block, which then meet the scale ---- */

enum {
    FLOAT_BLOCK = FORMAT_SCALE_BLOCK,
    FLOAT_STEPS = FLOAT_BLOCK / FLOAT_STEP,
    FLOAT_ROWS = 4,        /* weight rows at a time: so many streams need no prefetching of ours */
    FLOAT_ROWS_OF_TWO = 2, /* with two activation rows: as many sums as registers hold */
};

struct float_format {
    struct float_step (*load)(const uint8_t *);
    bool paired, scaled;
    uint32_t bytes; /* of an element */
};

SIMD_INLINE const float *scale_row(const struct matrix_view *w, uint32_t r)
{
    return w->scale + (size_t)((w->row0 + r) / FORMAT_SCALE_BLOCK) * w->scale_cols;
}

/* The sum of one block where a row's accumulator continues it, and the accumulator after it. */
SIMD_INLINE struct vf block_sum(bool scaled, struct vf acc) { return scaled ? vf_zero() : acc; }

SIMD_INLINE struct vf add_block_sum(bool scaled, float scale, struct vf sum, struct vf acc)
{
    return scaled ? vf_fma(vf_set1(scale), sum, acc) : sum;
}

/* A block of `rows` weight rows times one or two (literal) activation rows; scale: of each row, times 256. */
SIMD_INLINE void add_block_few(const uint8_t *w, size_t stride, uint32_t rows, const float *x, size_t x_stride,
                               uint32_t n, struct float_format f, const float *scale, struct vf *acc)
{
    struct vf sum[2 * FLOAT_ROWS];
    SIMD_UNROLL
    for (uint32_t i = 0; i < rows * n; i++) {
        sum[i] = block_sum(f.scaled, acc[i]);
    }
    for (uint32_t c = 0; c < FLOAT_BLOCK; c += FLOAT_STEP) {
        struct float_step a[2];
        SIMD_UNROLL
        for (uint32_t i = 0; i < n; i++) {
            a[i] = load_activations(x + i * x_stride + c, f.paired);
        }
        SIMD_UNROLL
        for (uint32_t j = 0; j < rows; j++) {
            struct float_step s = f.load(w + j * stride + (size_t)c * f.bytes);
            SIMD_UNROLL
            for (uint32_t i = 0; i < n; i++) {
                sum[i * rows + j] = add_step(s, a[i], sum[i * rows + j]);
            }
        }
    }
    SIMD_UNROLL
    for (uint32_t i = 0; i < rows * n; i++) {
        acc[i] = add_block_sum(f.scaled, scale[i % rows], sum[i], acc[i]);
    }
}

/* The same with any number of activation rows: the weights are unpacked once. */
SIMD_INLINE void add_block_many(const uint8_t *w, size_t stride, uint32_t rows, const float *x, size_t x_stride,
                                uint32_t n, struct float_format f, const float *scale, struct vf *acc)
{
    struct float_step panel[FLOAT_ROWS][FLOAT_STEPS];
    for (uint32_t j = 0; j < rows; j++) {
        for (uint32_t s = 0; s < FLOAT_STEPS; s++) {
            panel[j][s] = f.load(w + j * stride + (size_t)s * FLOAT_STEP * f.bytes);
        }
    }
    for (uint32_t i = 0; i < n; i++, x += x_stride, acc += rows) {
        struct vf sum[FLOAT_ROWS];
        SIMD_IN_MEMORY(panel);
        SIMD_UNROLL
        for (uint32_t j = 0; j < rows; j++) {
            sum[j] = block_sum(f.scaled, acc[j]);
        }
        for (uint32_t s = 0; s < FLOAT_STEPS; s++) {
            struct float_step a = load_activations(x + s * FLOAT_STEP, f.paired);
            SIMD_UNROLL
            for (uint32_t j = 0; j < rows; j++) {
                sum[j] = add_step(panel[j][s], a, sum[j]);
            }
        }
        SIMD_UNROLL
        for (uint32_t j = 0; j < rows; j++) {
            acc[j] = add_block_sum(f.scaled, scale[j], sum[j], acc[j]);
        }
    }
}

/* The last `count` < FLOAT_BLOCK columns of one weight row times one activation row. */
SIMD_INLINE struct vf add_last_block(const uint8_t *w, const float *x, uint32_t count, struct float_format f,
                                     float scale, struct vf acc)
{
    const uint32_t whole = count - count % FLOAT_STEP;
    uint8_t padded[FLOAT_STEP * sizeof(float)] = {0};
    struct vf sum = block_sum(f.scaled, acc);
    memcpy(padded, w + (size_t)whole * f.bytes, (size_t)(count - whole) * f.bytes);
    for (uint32_t c = 0; c < whole; c += FLOAT_STEP) {
        sum = add_step(f.load(w + (size_t)c * f.bytes), load_activations(x + c, f.paired), sum);
    }
    sum = add_last(f.load(padded), x + whole, count - whole, f.paired, sum);
    return vf_select(vi_first((count + 1) / 2), add_block_sum(f.scaled, scale, sum, acc), f.scaled ? acc : sum);
}

/* `rows` weight rows, the first r, `span` apart, times n activation rows. */
SIMD_INLINE void tile_floats(const struct matvec_args *a, uint32_t r, uint32_t rows, uint32_t span, uint32_t n,
                             struct float_format f)
{
    struct vf acc[OPS_MAX_ROWS * FLOAT_ROWS];
    const uint32_t cols = a->w.cols, whole = cols - cols % FLOAT_BLOCK;
    const uint8_t *w = row_data(&a->w, r);
    const size_t stride = span * a->w.row_bytes;
    float scale[FLOAT_ROWS] = {0};
    for (uint32_t i = 0; i < rows * n; i++) {
        acc[i] = vf_zero();
    }
    for (uint32_t c = 0; c < cols; c += FLOAT_BLOCK) {
        const uint8_t *at = w + (size_t)c * f.bytes;
        const float *x = a->act.x + c;
        SIMD_UNROLL
        for (uint32_t j = 0; j < rows; j++) {
            scale[j] = f.scaled ? 256.0f * scale_row(&a->w, r + j * span)[c / FLOAT_BLOCK] : 0;
        }
        if (c < whole && SIMD_LITERAL(n)) {
            add_block_few(at, stride, rows, x, a->act.stride, n, f, scale, acc);
        } else if (c < whole) {
            add_block_many(at, stride, rows, x, a->act.stride, n, f, scale, acc);
        } else {
            for (uint32_t i = 0; i < rows * n; i++) {
                acc[i] = add_last_block(at + i % rows * stride, x + i / rows * a->act.stride, cols - c, f,
                                        scale[i % rows], acc[i]);
            }
        }
    }
    SIMD_UNROLL
    for (uint32_t j = 0; j < rows; j++) {
        for (uint32_t i = 0; i < n; i++) {
            a->y[i * a->y_stride + r + j * span] = vf_sum(acc[i * rows + j]);
        }
    }
}

SIMD_INLINE void matvec_floats(const struct matvec_args *a, struct float_format f)
{
    const uint32_t rows = a->n == 2 ? FLOAT_ROWS_OF_TWO : FLOAT_ROWS, span = row_span(a, rows);
    uint32_t r = a->row_begin;
    for (; r < a->row_begin + span; r++) {
        if (a->n == 1) {
            tile_floats(a, r, FLOAT_ROWS, span, 1, f);
        } else if (a->n == 2) {
            tile_floats(a, r, FLOAT_ROWS_OF_TWO, span, 2, f);
        } else {
            tile_floats(a, r, FLOAT_ROWS, span, a->n, f);
        }
    }
    for (r += (rows - 1) * span; r < a->row_end; r++) {
        tile_floats(a, r, 1, 1, a->n, f);
    }
}

/* ---- dequantised ---- */

SIMD_INLINE void piece_floats(const struct matrix_view *view, uint32_t r, uint32_t col, uint32_t count, float *y,
                              struct float_step (*load)(const uint8_t *), bool paired, uint32_t bytes)
{
    const uint8_t *w = row_data(view, r) + (size_t)col * bytes;
    uint32_t c = 0;
    for (; c + FLOAT_STEP <= count; c += FLOAT_STEP) {
        store_step(y + c, load(w + (size_t)c * bytes), paired);
    }
    if (c < count) {
        uint8_t padded[FLOAT_STEP * sizeof(float)] = {0};
        float last[FLOAT_STEP];
        memcpy(padded, w + (size_t)c * bytes, (size_t)(count - c) * bytes);
        store_step(last, load(padded), paired);
        memcpy(y + c, last, (count - c) * sizeof(float));
    }
}

#define FLOAT_FORMAT(name, paired, bytes)                                                                            \
    static void matvec_##name(const struct matvec_args *a)                                                           \
    {                                                                                                                \
        matvec_floats(a, (struct float_format){load_##name, paired, false, bytes});                                  \
    }                                                                                                                \
    SIMD_INLINE PIECE_FUNCTION(piece_##name) { piece_floats(w, r, col, count, y, load_##name, paired, bytes); }

FLOAT_FORMAT(f32, false, 4)
FLOAT_FORMAT(f16, false, 2)
FLOAT_FORMAT(bf16, true, 2)

/* ---- FP8 E4M3 ---- */

SIMD_INLINE struct float_step load_e4m3(const uint8_t *w)
{
    struct float_step s;
    vf_from_e4m3(w, &s.first, &s.second);
    return s;
}

static void matvec_f8_e4m3(const struct matvec_args *a)
{
    matvec_floats(a, (struct float_format){load_e4m3, true, true, 1});
}

/* w*2^-8 times 256 times the scale; a NaN code (480 until here) becomes NaN. */
SIMD_INLINE struct vf e4m3_values(struct vf w, struct vf scale)
{
    struct vf size = vf_bits(vi_and(vi_bits(w), vi_set1_32(0x7fffffff)));
    struct vi nan = vf_lt(vf_set1(448.0f / 256.0f), size);
    return vf_bits(vi_or(nan, vi_bits(vf_mul(vf_mul(vf_set1(256.0f), w), scale))));
}

SIMD_INLINE PIECE_FUNCTION(piece_f8_e4m3)
{
    const uint8_t *codes = row_data(w, r) + col;
    const float *scales = scale_row(w, r);
    for (uint32_t c = 0; c < count; c += FLOAT_STEP) { /* a step never straddles two scales */
        struct vf scale = vf_set1(scales[(col + c) / FORMAT_SCALE_BLOCK]);
        uint8_t padded[FLOAT_STEP] = {0};
        float last[FLOAT_STEP];
        uint32_t n = min_u32(FLOAT_STEP, count - c);
        const bool whole = n == FLOAT_STEP;
        if (!whole) {
            memcpy(padded, codes + c, n);
        }
        struct float_step s = load_e4m3(whole ? codes + c : padded);
        vf_store_paired(whole ? y + c : last, e4m3_values(s.first, scale), e4m3_values(s.second, scale));
        if (!whole) {
            memcpy(y + c, last, n * sizeof(float));
        }
    }
}

#endif
