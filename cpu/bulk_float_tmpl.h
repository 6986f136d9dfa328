/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/bulk_<isa>.h. Owns: products of many activation rows with dequantised weights: sixteen weight rows
 * by BULK_F32_COLS columns of float32 in the first cache. Must not know: how a format is packed, but for those whose values
 * are cheaper to transpose before they are widened. */
#ifndef SLUICE_CPU_BULK_FLOAT_TMPL_H
#define SLUICE_CPU_BULK_FLOAT_TMPL_H

#include "cpu/bulk_unpack_tmpl.h"

struct bulk_f32_panel {
    float w[BULK_F32_COLS][BULK_LANES];
};

/* `rows` activation rows times the panel: one chain of FMA per output, which is then added to y. */
SIMD_INLINE void bulk_f32_rows(const struct bulk_f32_panel *p, uint32_t cols, const float *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    struct vf sum[BULK_F32_ROWS];
    SIMD_UNROLL
    for (uint32_t i = 0; i < rows; i++) {
        sum[i] = vf_zero();
    }
    for (size_t k = 0; k < cols; k++) {
        struct vf w = vf_load(p->w[k]);
        SIMD_UNROLL
        for (uint32_t i = 0; i < rows; i++) {
            sum[i] = vf_fma(w, vf_set1(x[i * x_stride + k]), sum[i]);
        }
    }
    SIMD_UNROLL
    for (uint32_t i = 0; i < rows; i++) {
        vf_store(y + i * y_stride, vf_add(vf_load(y + i * y_stride), sum[i]));
    }
}

/* Transposes floats of 16 rows, row_bytes apart; up to 3 floats beyond the columns are read. */
static void bulk_f32_transpose(const uint8_t *rows, size_t row_bytes, uint32_t cols, struct bulk_f32_panel *ret)
{
    for (uint32_t k = 0; k < cols; k += 4) {
        struct vi line[4];
        bulk_transpose(rows + (size_t)k * sizeof(float), row_bytes, line);
        SIMD_UNROLL
        for (uint32_t q = 0; q < 4; q++) {
            vi_store(ret->w[k + q], line[q]);
        }
    }
}

/* Any format: dequantised by rows, of which there are `lanes`. */
static void bulk_f32_unpack_any(const struct matrix_view *w, uint32_t r, uint32_t lanes, uint32_t col, uint32_t cols, dequantise_fn *dequantise, struct bulk_f32_panel *ret)
{
    const struct weight_format_info *info = weight_format_info(w->format);
    float rows[BULK_LANES * BULK_F32_COLS + 4] = {0};
    struct matrix_view part = matrix_view_rows(*w, r, lanes);
    part.data = (const uint8_t *)part.data + (size_t)(col / info->block_elems) * info->block_bytes;
    part.scale = part.scale ? part.scale + col / FORMAT_SCALE_BLOCK : NULL;
    part.cols = cols;
    dequantise(&(struct dequantise_args){.w = part, .y = rows, .row_begin = 0, .row_end = lanes});
    bulk_f32_transpose((const uint8_t *)rows, cols * sizeof(float), cols, ret);
}

static void bulk_f32_unpack_bf16(const uint8_t *w, size_t row_bytes, uint32_t cols, struct bulk_f32_panel *ret)
{
    struct vi high = vi_shl32(vi_set1_32(0xffff), 16);
    for (uint32_t k = 0; k < cols; k += 8, w += 16) {
        struct vi line[4];
        bulk_transpose(w, row_bytes, line);
        SIMD_UNROLL
        for (uint32_t q = 0; q < 4; q++) {
            vi_store(ret->w[k + 2 * q], vi_shl32(line[q], 16));
            vi_store(ret->w[k + 2 * q + 1], vi_and(line[q], high));
        }
    }
}

static void bulk_f32_unpack(const struct matrix_view *w, uint32_t r, uint32_t lanes, uint32_t col, uint32_t cols, dequantise_fn *dequantise, struct bulk_f32_panel *ret)
{
    const uint8_t *data = (const uint8_t *)w->data + (size_t)r * w->row_bytes;
    if (w->format == FORMAT_F32 && lanes == BULK_LANES && cols % 4 == 0) {
        bulk_f32_transpose(data + (size_t)col * 4, w->row_bytes, cols, ret);
    } else if (w->format == FORMAT_BF16 && lanes == BULK_LANES && cols % 8 == 0) {
        bulk_f32_unpack_bf16(data + (size_t)col * 2, w->row_bytes, cols, ret);
    } else {
        bulk_f32_unpack_any(w, r, lanes, col, cols, dequantise, ret);
    }
}

/* n activation rows over one panel; y is at the panel's first weight row. */
static void bulk_f32_panel_product(const struct bulk_f32_panel *p, uint32_t cols, const float *x, size_t x_stride, uint32_t n, float *y, size_t y_stride)
{
    uint32_t i = 0;
    for (; n - i >= BULK_F32_ROWS; i += BULK_F32_ROWS) {
        bulk_f32_rows(p, cols, x + i * x_stride, x_stride, BULK_F32_ROWS, y + i * y_stride, y_stride);
    }
    for (; n - i >= 3; i += 3) {
        bulk_f32_rows(p, cols, x + i * x_stride, x_stride, 3, y + i * y_stride, y_stride);
    }
    for (; i < n; i++) {
        bulk_f32_rows(p, cols, x + i * x_stride, x_stride, 1, y + i * y_stride, y_stride);
    }
}

/* Fewer than 16 weight rows: into a y of 16 columns. */
static void bulk_f32_last(const struct bulk_f32_panel *p, uint32_t lanes, uint32_t cols, const float *x, size_t x_stride, uint32_t n, float *y, size_t y_stride)
{
    for (uint32_t i = 0; i < n; i += BULK_PADDED_ROWS) {
        float part[BULK_PADDED_ROWS][BULK_LANES] = {{0}};
        uint32_t rows = min_u32(BULK_PADDED_ROWS, n - i);
        for (uint32_t k = 0; k < rows; k++) {
            memcpy(part[k], y + (i + k) * y_stride, lanes * sizeof(float));
        }
        bulk_f32_panel_product(p, cols, x + i * x_stride, x_stride, rows, part[0], BULK_LANES);
        for (uint32_t k = 0; k < rows; k++) {
            memcpy(y + (i + k) * y_stride, part[k], lanes * sizeof(float));
        }
    }
}

static void bulk_f32(const struct matvec_args *a, dequantise_fn *dequantise)
{
    struct bulk_f32_panel panel;
    for (uint32_t r = a->row_begin, lanes; r < a->row_end; r += lanes) {
        lanes = min_u32(BULK_LANES, a->row_end - r);
        for (uint32_t i = 0; i < a->n; i++) {
            memset(a->y + i * a->y_stride + r, 0, lanes * sizeof(float));
        }
        for (uint32_t col = 0, cols; col < a->w.cols; col += cols) {
            cols = min_u32(BULK_F32_COLS, a->w.cols - col);
            bulk_f32_unpack(&a->w, r, lanes, col, cols, dequantise, &panel);
            if (lanes == BULK_LANES) {
                bulk_f32_panel_product(&panel, cols, a->act.x + col, a->act.stride, a->n, a->y + r, a->y_stride);
            } else {
                bulk_f32_last(&panel, lanes, cols, a->act.x + col, a->act.stride, a->n, a->y + r, a->y_stride);
            }
        }
    }
}

#endif
