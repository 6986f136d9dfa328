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
    float rows[BULK_LANES * BULK_F32_COLS + 4] = {0};
    bulk_dequantise(w, r, lanes, col, cols, dequantise, rows);
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

/* E4M3: x * 2^-8 as half bits (exact), then 2^8; one more product by the scale, as dequantised weights have it. */
static void bulk_f32_unpack_f8_e4m3(const struct matrix_view *w, uint32_t r, uint32_t col, uint32_t cols, struct bulk_f32_panel *ret)
{
    const uint8_t *data = (const uint8_t *)w->data + (size_t)r * w->row_bytes + col;
    struct vi mask = vi_set1_32((int32_t)0xbf80bf80), largest = vi_set1_32(0x3f803f80); /* NaN */
    for (uint32_t k = 0; k < cols; k += 16) {
        struct vi line[4];
        float scale[BULK_LANES];
        for (uint32_t j = 0; j < BULK_LANES; j++) {
            scale[j] = w->scale[(size_t)((w->row0 + r + j) / FORMAT_SCALE_BLOCK) * w->scale_cols + (col + k) / FORMAT_SCALE_BLOCK];
        }
        struct vf s = vf_load(scale);
        bulk_transpose(data + k, w->row_bytes, line);
        SIMD_UNROLL
        for (uint32_t q = 0; q < 4; q++) {
            struct vi even = vi_and(vi_sar16(vi_shl16(line[q], 8), 1), mask), odd = vi_and(vi_sar16(line[q], 1), mask);
            struct vf v[4];
            vf_from_half_pairs(vi_or(even, vi_equal16(vi_and(even, largest), largest)), &v[0], &v[2]);
            vf_from_half_pairs(vi_or(odd, vi_equal16(vi_and(odd, largest), largest)), &v[1], &v[3]);
            SIMD_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                vf_store(ret->w[k + 4 * q + i], vf_mul(vf_mul(v[i], vf_set1(256.0f)), s));
            }
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
    } else if (w->format == FORMAT_F8_E4M3 && lanes == BULK_LANES && cols % 16 == 0) {
        bulk_f32_unpack_f8_e4m3(w, r, col, cols, ret);
    } else {
        bulk_f32_unpack_any(w, r, lanes, col, cols, dequantise, ret);
    }
}

typedef void bulk_f32_rows_fn(const struct bulk_f32_panel *p, uint32_t cols, const float *x, size_t x_stride, float *y, size_t y_stride);

#define BULK_F32_ROWS_FUNCTION(n)                                                                                    \
    static void bulk_f32_rows_##n(const struct bulk_f32_panel *p, uint32_t cols, const float *x, size_t x_stride,    \
                                  float *y, size_t y_stride)                                                         \
    {                                                                                                                \
        bulk_f32_rows(p, cols, x, x_stride, n, y, y_stride);                                                         \
    }
#define BULK_F32_ROWS_NAME(n) bulk_f32_rows_##n,
BULK_EACH_F32_ROWS(BULK_F32_ROWS_FUNCTION)

/* n activation rows over one panel; y is at the panel's first weight row. */
static void bulk_f32_panel_product(const struct bulk_f32_panel *p, uint32_t cols, const float *x, size_t x_stride, uint32_t n, float *y, size_t y_stride)
{
    static bulk_f32_rows_fn *const f[BULK_F32_ROWS] = {BULK_EACH_F32_ROWS(BULK_F32_ROWS_NAME)};
    for (uint32_t i = 0, rows; i < n; i += rows) {
        rows = bulk_share(n - i, BULK_F32_ROWS);
        f[rows - 1](p, cols, x + i * x_stride, x_stride, y + i * y_stride, y_stride);
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
    for (uint32_t i = 0, n; i < a->n; i += n) {
        const float *x = a->act.x + i * a->act.stride;
        float *y = a->y + i * a->y_stride;
        n = min_u32(BULK_ROW_BLOCK, a->n - i);
        for (uint32_t k = 0; k < n; k++) {
            memset(y + k * a->y_stride + a->row_begin, 0, (a->row_end - a->row_begin) * sizeof(float));
        }
        for (uint32_t col = 0, cols; col < a->w.cols; col += cols) {
            cols = min_u32(BULK_F32_COLS, a->w.cols - col);
            for (uint32_t r = a->row_begin, lanes; r < a->row_end; r += lanes) {
                lanes = min_u32(BULK_LANES, a->row_end - r);
                bulk_f32_unpack(&a->w, r, lanes, col, cols, dequantise, &panel);
                if (lanes == BULK_LANES) {
                    bulk_f32_panel_product(&panel, cols, x + col, a->act.stride, n, y + r, a->y_stride);
                } else {
                    bulk_f32_last(&panel, lanes, cols, x + col, a->act.stride, n, y + r, a->y_stride);
                }
            }
        }
    }
}

#endif
