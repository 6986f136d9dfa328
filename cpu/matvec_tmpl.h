/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/simd_<isa>.h, which the including file names first. Owns: the loops over weight rows,
 * activation rows and steps of a matrix-times-row product. Must not know: how a format is packed. */
#ifndef SLUICE_CPU_MATVEC_TMPL_H
#define SLUICE_CPU_MATVEC_TMPL_H

#include "common/intmath.h"
#include "common/ops.h"

enum {
    BLOCKS_PER_STEP = 4, /* of 32 elements */
    STEP_MAX_BYTES = 4 * 34,
    PREFETCH_AHEAD = 8192, /* bytes; the processor's own prefetching stops at page boundaries */
    PIECE = 256,       /* elements decoded at a time */
    MATVEC_T_ROWS = 4, /* of a transposed product, at a time */
    ROW_GROUP = 4,     /* activation rows that share a weight while it is in a register */
};

/* Adds `blocks` blocks (of which only the first exist where it is below BLOCKS_PER_STEP) that start at column col to
 * the accumulators of n activation rows. */
#define STEP_FUNCTION(name)                                                                                          \
    void name(const uint8_t *w, uint32_t blocks, const struct act_rows *act, size_t col, uint32_t n, struct vf *acc)

/* y[0..count) = w(r, col + i) as float32; col is a multiple of PIECE. */
#define PIECE_FUNCTION(name) void name(const struct matrix_view *w, uint32_t r, uint32_t col, uint32_t count, float *y)

SIMD_INLINE const uint8_t *row_data(const struct matrix_view *w, uint32_t r)
{
    return (const uint8_t *)w->data + (size_t)r * w->row_bytes;
}

/* Weight rows that go together, `rows` at a time, lie so many rows apart: each of them then goes on where the one before it
 * ended, one long stream, which the processor's own prefetching follows. Of short rows side by side it loses track. */
SIMD_INLINE uint32_t row_span(const struct matvec_args *a, uint32_t rows)
{
    return (a->row_end - a->row_begin) / rows;
}

/* ---- blocks against int8 activations ---- */

/* `rows` weight rows, the first r, `span` apart, times n activation rows; rows is 1 where n is above 2. */
SIMD_INLINE void tile_blocks(const struct matvec_args *a, uint32_t r, uint32_t rows, uint32_t span, uint32_t n,
                             STEP_FUNCTION((*step)), uint32_t step_blocks, uint32_t elems, uint32_t bytes)
{
    struct vf acc[OPS_MAX_ROWS];
    const uint32_t blocks = a->w.cols / elems, whole = blocks - blocks % step_blocks;
    const uint8_t *w = row_data(&a->w, r);
    const size_t stride = span * a->w.row_bytes;
    for (uint32_t i = 0; i < rows * n; i++) {
        acc[i] = vf_zero();
    }
    for (uint32_t b = 0; b < whole; b += step_blocks) {
        SIMD_UNROLL
        for (uint32_t j = 0; j < rows; j++) {
            const uint8_t *at = w + j * stride + (size_t)b * bytes;
            prefetch(at + PREFETCH_AHEAD, (size_t)step_blocks * bytes);
            step(at, step_blocks, &a->act, (size_t)b * elems, n, acc + j * n);
        }
    }
    if (whole < blocks) {
        SIMD_UNROLL
        for (uint32_t j = 0; j < rows; j++) {
            uint8_t padded[STEP_MAX_BYTES] = {0};
            memcpy(padded, w + j * stride + (size_t)whole * bytes, (size_t)(blocks - whole) * bytes);
            step(padded, blocks - whole, &a->act, (size_t)whole * elems, n, acc + j * n);
        }
    }
    SIMD_UNROLL
    for (uint32_t j = 0; j < rows; j++) {
        for (uint32_t i = 0; i < n; i++) {
            a->y[i * a->y_stride + r + j * span] = vf_sum(acc[j * n + i]);
        }
    }
}

/* With one or two activation rows, which decoding has, `rows` weight rows go together; the numbers are literal: sums stay in
 * registers, and what is computed from the activations is shared. */
SIMD_INLINE void matvec_blocks(const struct matvec_args *a, STEP_FUNCTION((*step)), uint32_t step_blocks,
                               uint32_t elems, uint32_t bytes, uint32_t rows)
{
    const uint32_t together = a->n <= 2 ? rows : 1, span = row_span(a, together);
    uint32_t r = a->row_begin;
    for (; r < a->row_begin + span; r++) {
        if (a->n == 1) {
            tile_blocks(a, r, rows, span, 1, step, step_blocks, elems, bytes);
        } else if (a->n == 2) {
            tile_blocks(a, r, rows, span, 2, step, step_blocks, elems, bytes);
        } else {
            tile_blocks(a, r, 1, 1, a->n, step, step_blocks, elems, bytes);
        }
    }
    for (r += (together - 1) * span; r < a->row_end; r++) {
        tile_blocks(a, r, 1, 1, a->n, step, step_blocks, elems, bytes);
    }
}

/* ---- any format, dequantised ---- */

/* As F32 weights: element i to accumulator i % 16. */
static void matvec_pieces(const struct matvec_args *a, PIECE_FUNCTION((*piece)))
{
    for (uint32_t r = a->row_begin; r < a->row_end; r++) {
        struct vf acc[OPS_MAX_ROWS];
        float w[PIECE];
        for (uint32_t i = 0; i < a->n; i++) {
            acc[i] = vf_zero();
        }
        for (uint32_t col = 0, count; col < a->w.cols; col += count) {
            count = min_u32(PIECE, a->w.cols - col);
            piece(&a->w, r, col, count, w);
            for (uint32_t i = 0; i < a->n; i++) {
                const float *x = a->act.x + i * a->act.stride + col;
                struct vf sum = acc[i];
                for (uint32_t c = 0; c < count; c += 16) { /* blocks: count is a multiple of 32 */
                    sum = vf_fma(vf_load(w + c), vf_load(x + c), sum);
                }
                acc[i] = sum;
            }
        }
        for (uint32_t i = 0; i < a->n; i++) {
            a->y[i * a->y_stride + r] = vf_sum(acc[i]);
        }
    }
}

/* acc[c] += x[d] w(d, col + c) for `rows` rows d, at most MATVEC_T_ROWS, in rising order. */
SIMD_INLINE void add_rows(const struct matvec_t_args *a, PIECE_FUNCTION((*piece)), uint32_t d, uint32_t rows,
                          uint32_t col, uint32_t count, float *acc)
{
    float w[MATVEC_T_ROWS][PIECE];
    for (uint32_t j = 0; j < rows; j++) {
        memset(w[j] + count - count % 16, 0, 16 * sizeof(float) * (count % 16 != 0));
        piece(&a->w, d + j, col, count, w[j]);
    }
    for (uint32_t c = 0; c < count; c += 16) {
        struct vf sum = vf_load(acc + c);
        SIMD_UNROLL
        for (uint32_t j = 0; j < rows; j++) {
            sum = vf_fma(vf_set1(a->x[d + j]), vf_load(w[j] + c), sum);
        }
        vf_store(acc + c, sum);
    }
}

static void matvec_t_pieces(const struct matvec_t_args *a, PIECE_FUNCTION((*piece)))
{
    for (uint32_t col = 0, count; col < a->w.cols; col += count) {
        float acc[PIECE] = {0};
        uint32_t d = 0;
        count = min_u32(PIECE, a->w.cols - col);
        for (; d + MATVEC_T_ROWS <= a->w.rows; d += MATVEC_T_ROWS) {
            add_rows(a, piece, d, MATVEC_T_ROWS, col, count, acc);
        }
        for (; d < a->w.rows; d++) {
            add_rows(a, piece, d, 1, col, count, acc);
        }
        memcpy(a->y + col, acc, count * sizeof(float));
    }
}

static void dequantise_pieces(const struct dequantise_args *a, PIECE_FUNCTION((*piece)))
{
    for (uint32_t r = a->row_begin; r < a->row_end; r++) {
        piece(&a->w, r, 0, a->w.cols, a->y + (size_t)(r - a->row_begin) * a->w.cols);
    }
}

#endif
