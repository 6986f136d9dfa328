/* SPDX-License-Identifier: Apache-2.0 */
/* Template over what multiplies bfloat16. Owns: products of many activation rows with weights of any format, both rounded to
 * bfloat16: two panels of sixteen weight rows in the first cache, activations of all rows rounded once in the second. Must
 * not know: the units.
 *
 * The including file has BF16_TILE_ROWS, BF16_BLOCK_ROWS (a multiple; activation rows of one call), bf16_round (32 floats),
 * bf16_begin and bf16_end around a product, and
 *     bf16_multiply(panels, steps, x, rows, y, y_stride): y[i, 0..32) += x row i . panels over 32 * steps columns
 * for rows <= BF16_BLOCK_ROWS; the rows up to a multiple of BF16_TILE_ROWS are there, in x and in y. */
#ifndef SLUICE_CPU_BULK_BF16_TMPL_H
#define SLUICE_CPU_BULK_BF16_TMPL_H

#include "common/intmath.h"
#include "cpu/bulk_bf16.h"
#include "cpu/bulk_rows_tmpl.h"

/* cols floats, then zeros to a multiple of BF16_STEP. */
static void bf16_round_row(const float *x, uint32_t cols, uint16_t *ret)
{
    uint32_t k = 0;
    for (; k + BF16_STEP <= cols; k += BF16_STEP) {
        vi_store(ret + k, bf16_round(vf_load(x + k), vf_load(x + k + 16)));
    }
    if (k < cols) {
        uint32_t low = min_u32(16, cols - k);
        vi_store(ret + k, bf16_round(vf_load_first(x + k, low), vf_load_first(x + k + low, cols - k - low)));
    }
}

static void bf16_transpose(const uint8_t *rows, size_t row_bytes, uint32_t cols, struct bf16_panel *ret)
{
    for (uint32_t k = 0; k < cols; k += 8, rows += 16) {
        struct vi line[4];
        bulk_transpose(rows, row_bytes, line);
        SIMD_UNROLL
        for (uint32_t q = 0; q < 4; q++) {
            vi_store(ret->w[k / 2 + q], line[q]);
        }
    }
}

/* Weight rows [r, r + lanes), zeros for the others. */
static void bf16_unpack(const struct matrix_view *w, uint32_t r, uint32_t lanes, uint32_t col, uint32_t cols, dequantise_fn *dequantise, struct bf16_panel *ret)
{
    float rows[BULK_LANES * BF16_COLS];
    uint16_t rounded[BULK_LANES][BF16_COLS];
    if (w->format == FORMAT_BF16 && lanes == BULK_LANES && cols % BF16_STEP == 0) {
        bf16_transpose((const uint8_t *)w->data + r * w->row_bytes + (size_t)col * 2, w->row_bytes, cols, ret);
        return;
    }
    bulk_dequantise(w, r, lanes, col, cols, dequantise, rows);
    for (uint32_t j = 0; j < BULK_LANES; j++) {
        if (j < lanes) {
            bf16_round_row(rows + (size_t)j * cols, cols, rounded[j]);
        } else {
            memset(rounded[j], 0, sizeof(rounded[j]));
        }
    }
    bf16_transpose((const uint8_t *)rounded, sizeof(rounded[0]), (uint32_t)align_up_u64(cols, BF16_STEP), ret);
}

/* n activation rows over the panels, of which `lanes` weight rows exist; y is at the first of them. */
static void bf16_blocks(const struct bf16_panel p[BF16_PANELS], uint32_t lanes, uint32_t steps, const struct bf16_rows *x, uint32_t n, float *y, size_t y_stride)
{
    for (uint32_t i = 0, rows; i < n; i += rows, y += rows * y_stride) {
        float part[BF16_BLOCK_ROWS][BF16_LANES];
        rows = min_u32(BF16_BLOCK_ROWS, n - i);
        if (lanes == BF16_LANES && rows % BF16_TILE_ROWS == 0) {
            bf16_multiply(p, steps, x->x[i], rows, y, y_stride);
            continue;
        }
        memset(part, 0, sizeof(part));
        for (uint32_t k = 0; k < rows; k++) {
            memcpy(part[k], y + k * y_stride, lanes * sizeof(float));
        }
        bf16_multiply(p, steps, x->x[i], rows, part[0], BF16_LANES);
        for (uint32_t k = 0; k < rows; k++) {
            memcpy(y + k * y_stride, part[k], lanes * sizeof(float));
        }
    }
}

/* Columns [col, col + cols) of n activation rows; rows of zeros to a multiple of BF16_TILE_ROWS. */
static void bf16_activations(const float *x, size_t stride, uint32_t n, uint32_t cols, struct bf16_rows *ret)
{
    for (uint32_t i = 0; i < n; i++) {
        bf16_round_row(x + i * stride, cols, ret->x[i]);
    }
    for (uint32_t i = n; i % BF16_TILE_ROWS != 0; i++) {
        memset(ret->x[i], 0, sizeof(ret->x[i]));
    }
}

static void bulk_bf16(const struct matvec_args *a, dequantise_fn *dequantise)
{
    struct bf16_rows x;
    struct bf16_panel panel[BF16_PANELS];
    bf16_begin();
    for (uint32_t i = 0, n; i < a->n; i += n) {
        float *y = a->y + i * a->y_stride;
        n = min_u32(BF16_ROWS, a->n - i);
        for (uint32_t k = 0; k < n; k++) {
            memset(y + k * a->y_stride + a->row_begin, 0, (a->row_end - a->row_begin) * sizeof(float));
        }
        for (uint32_t col = 0, cols; col < a->w.cols; col += cols) {
            cols = min_u32(BF16_COLS, a->w.cols - col);
            bf16_activations(a->act.x + i * a->act.stride + col, a->act.stride, n, cols, &x);
            for (uint32_t r = a->row_begin, lanes; r < a->row_end; r += lanes) {
                lanes = min_u32(BF16_LANES, a->row_end - r);
                for (uint32_t p = 0, first = 0; p < BF16_PANELS; p++, first += BULK_LANES) {
                    uint32_t some = min_u32(BULK_LANES, lanes - min_u32(first, lanes));
                    bf16_unpack(&a->w, r + first, some, col, cols, dequantise, &panel[p]);
                }
                bf16_blocks(panel, lanes, (uint32_t)ceil_div_u64(cols, BF16_STEP), &x, n, y + r, a->y_stride);
            }
        }
    }
    bf16_end();
}

#endif
