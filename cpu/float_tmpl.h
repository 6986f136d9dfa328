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

enum { FLOAT_ROWS_OF_ONE = 4, FLOAT_ROWS = 2 }; /* weight rows at a time: with one activation row, with more */

/* The next FLOAT_STEP elements (first at w, `stride` bytes from row to row) of `rows` weight rows, at n activation rows
 * (first at x). Activations are made ready once for all weight rows. */
SIMD_INLINE void add_steps(const uint8_t *w, size_t stride, uint32_t rows, const float *x, size_t x_stride, uint32_t n,
                           struct float_step (*load)(const uint8_t *), bool paired, uint32_t bytes, struct vf *acc)
{
    struct float_step s[FLOAT_ROWS_OF_ONE];
    SIMD_UNROLL
    for (uint32_t j = 0; j < rows; j++) {
        prefetch(w + j * stride + PREFETCH_AHEAD, FLOAT_STEP * bytes);
        s[j] = load(w + j * stride);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct float_step a = load_activations(x + i * x_stride, paired);
        SIMD_UNROLL
        for (uint32_t j = 0; j < rows; j++) {
            acc[i * rows + j] = add_step(s[j], a, acc[i * rows + j]);
        }
    }
}

SIMD_INLINE void store_sums(const struct matvec_args *a, uint32_t r, uint32_t rows, uint32_t n, const struct vf *acc)
{
    for (uint32_t i = 0; i < n; i++) {
        SIMD_UNROLL
        for (uint32_t j = 0; j < rows; j++) {
            a->y[i * a->y_stride + r + j] = vf_sum(acc[i * rows + j]);
        }
    }
}

/* ---- F32, F16, BF16 ---- */

/* `rows` weight rows from r times n activation rows. */
SIMD_INLINE void tile_floats(const struct matvec_args *a, uint32_t r, uint32_t rows, uint32_t n,
                             struct float_step (*load)(const uint8_t *), bool paired, uint32_t bytes)
{
    struct vf acc[OPS_MAX_ROWS * FLOAT_ROWS];
    const uint32_t cols = a->w.cols, whole = cols - cols % FLOAT_STEP;
    const uint8_t *w = row_data(&a->w, r);
    for (uint32_t i = 0; i < rows * n; i++) {
        acc[i] = vf_zero();
    }
    for (uint32_t c = 0; c < whole; c += FLOAT_STEP) {
        add_steps(w + (size_t)c * bytes, a->w.row_bytes, rows, a->act.x + c, a->act.stride, n, load, paired, bytes,
                  acc);
    }
    for (uint32_t j = 0; whole < cols && j < rows; j++) {
        uint8_t padded[FLOAT_STEP * sizeof(float)] = {0};
        memcpy(padded, w + j * a->w.row_bytes + (size_t)whole * bytes, (size_t)(cols - whole) * bytes);
        struct float_step s = load(padded);
        for (uint32_t i = 0; i < n; i++) {
            struct vf *sum = acc + i * rows + j;
            *sum = add_last(s, a->act.x + i * a->act.stride + whole, cols - whole, paired, *sum);
        }
    }
    store_sums(a, r, rows, n, acc);
}

SIMD_INLINE void matvec_floats(const struct matvec_args *a, struct float_step (*load)(const uint8_t *), bool paired,
                               uint32_t bytes)
{
    uint32_t r = a->row_begin;
    for (; a->n == 1 && r + FLOAT_ROWS_OF_ONE <= a->row_end; r += FLOAT_ROWS_OF_ONE) {
        tile_floats(a, r, FLOAT_ROWS_OF_ONE, 1, load, paired, bytes);
    }
    for (; r + FLOAT_ROWS <= a->row_end; r += FLOAT_ROWS) {
        tile_floats(a, r, FLOAT_ROWS, a->n, load, paired, bytes);
    }
    for (; r < a->row_end; r++) {
        tile_floats(a, r, 1, a->n, load, paired, bytes);
    }
}

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
    static void matvec_##name(const struct matvec_args *a) { matvec_floats(a, load_##name, paired, bytes); }         \
    SIMD_INLINE PIECE_FUNCTION(piece_##name) { piece_floats(w, r, col, count, y, load_##name, paired, bytes); }

FLOAT_FORMAT(f32, false, 4)
FLOAT_FORMAT(f16, false, 2)
FLOAT_FORMAT(bf16, true, 2)

/* ---- FP8 E4M3: each block of 128 columns has sums of its own, of weights times 2^-8, then meets its scale ---- */

SIMD_INLINE struct float_step load_e4m3(const uint8_t *w)
{
    struct float_step s;
    vf_from_e4m3(w, &s.first, &s.second);
    return s;
}

SIMD_INLINE const float *scale_row(const struct matrix_view *w, uint32_t r)
{
    return w->scale + (size_t)((w->row0 + r) / FORMAT_SCALE_BLOCK) * w->scale_cols;
}

/* A whole block of `rows` weight rows times n activation rows. */
SIMD_INLINE void add_e4m3_block(const struct matvec_args *a, uint32_t r, uint32_t rows, uint32_t n, uint32_t col,
                                struct vf *acc)
{
    struct vf sum[OPS_MAX_ROWS * FLOAT_ROWS];
    for (uint32_t i = 0; i < rows * n; i++) {
        sum[i] = vf_zero();
    }
    for (uint32_t c = col; c < col + FORMAT_SCALE_BLOCK; c += FLOAT_STEP) {
        add_steps(row_data(&a->w, r) + c, a->w.row_bytes, rows, a->act.x + c, a->act.stride, n, load_e4m3, true, 1,
                  sum);
    }
    SIMD_UNROLL
    for (uint32_t j = 0; j < rows; j++) {
        struct vf scale = vf_set1(256.0f * scale_row(&a->w, r + j)[col / FORMAT_SCALE_BLOCK]);
        for (uint32_t i = 0; i < n; i++) {
            acc[i * rows + j] = vf_fma(scale, sum[i * rows + j], acc[i * rows + j]);
        }
    }
}

/* The last `count` < 128 columns of one weight row times one activation row. */
static struct vf add_e4m3_last(const uint8_t *w, float scale, const float *x, uint32_t count, struct vf acc)
{
    uint32_t whole = count - count % FLOAT_STEP;
    uint8_t padded[FLOAT_STEP] = {0};
    struct vf sum = vf_zero();
    memcpy(padded, w + whole, count - whole);
    for (uint32_t c = 0; c < whole; c += FLOAT_STEP) {
        sum = add_step(load_e4m3(w + c), load_activations(x + c, true), sum);
    }
    sum = add_last(load_e4m3(padded), x + whole, count - whole, true, sum);
    return vf_select(vi_first((count + 1) / 2), vf_fma(vf_set1(256.0f * scale), sum, acc), acc);
}

SIMD_INLINE void tile_e4m3(const struct matvec_args *a, uint32_t r, uint32_t rows, uint32_t n)
{
    struct vf acc[OPS_MAX_ROWS * FLOAT_ROWS];
    const uint32_t cols = a->w.cols, whole = cols - cols % FORMAT_SCALE_BLOCK;
    for (uint32_t i = 0; i < rows * n; i++) {
        acc[i] = vf_zero();
    }
    for (uint32_t c = 0; c < whole; c += FORMAT_SCALE_BLOCK) {
        add_e4m3_block(a, r, rows, n, c, acc);
    }
    for (uint32_t j = 0; whole < cols && j < rows; j++) {
        const uint8_t *w = row_data(&a->w, r + j) + whole;
        float scale = scale_row(&a->w, r + j)[whole / FORMAT_SCALE_BLOCK];
        for (uint32_t i = 0; i < n; i++) {
            struct vf *sum = acc + i * rows + j;
            *sum = add_e4m3_last(w, scale, a->act.x + i * a->act.stride + whole, cols - whole, *sum);
        }
    }
    store_sums(a, r, rows, n, acc);
}

static void matvec_f8_e4m3(const struct matvec_args *a)
{
    uint32_t r = a->row_begin;
    for (; a->n == 1 && r + FLOAT_ROWS_OF_ONE <= a->row_end; r += FLOAT_ROWS_OF_ONE) {
        tile_e4m3(a, r, FLOAT_ROWS_OF_ONE, 1);
    }
    for (; r + FLOAT_ROWS <= a->row_end; r += FLOAT_ROWS) {
        tile_e4m3(a, r, FLOAT_ROWS, a->n);
    }
    for (; r < a->row_end; r++) {
        tile_e4m3(a, r, 1, a->n);
    }
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
