/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/bulk_<isa>.h. Owns: sixteen weight rows as every panel starts from them: bytes transposed, four of a
 * row to a lane, or rows of float32. Must not know: panels. */
#ifndef SLUICE_CPU_BULK_ROWS_TMPL_H
#define SLUICE_CPU_BULK_ROWS_TMPL_H

#include "common/ops.h"

/* 16 bytes of each of 16 rows: line q holds bytes 4q..4q+3 of every row. */
SIMD_INLINE void bulk_transpose(const uint8_t *p, size_t row_bytes, struct vi ret[4])
{
    struct vi r0 = vi_load_quad(p, 4 * row_bytes), r1 = vi_load_quad(p + row_bytes, 4 * row_bytes);
    struct vi r2 = vi_load_quad(p + 2 * row_bytes, 4 * row_bytes), r3 = vi_load_quad(p + 3 * row_bytes, 4 * row_bytes);
    struct vi low01 = vi_zip32_low(r0, r1), low23 = vi_zip32_low(r2, r3);
    struct vi high01 = vi_zip32_high(r0, r1), high23 = vi_zip32_high(r2, r3);
    ret[0] = vi_zip64_low(low01, low23);
    ret[1] = vi_zip64_high(low01, low23);
    ret[2] = vi_zip64_low(high01, high23);
    ret[3] = vi_zip64_high(high01, high23);
}

/* y[j, k] = w(r + j, col + k) for j < rows, k < cols; col is where a block and a scale start. */
static inline void bulk_dequantise(const struct matrix_view *w, uint32_t r, uint32_t rows, uint32_t col, uint32_t cols, dequantise_fn *dequantise, float *y)
{
    const struct weight_format_info *info = weight_format_info(w->format);
    struct matrix_view part = matrix_view_rows(*w, r, rows);
    part.data = (const uint8_t *)part.data + (size_t)(col / info->block_elems) * info->block_bytes;
    part.scale = part.scale ? part.scale + col / FORMAT_SCALE_BLOCK : NULL;
    part.cols = cols;
    dequantise(&(struct dequantise_args){.w = part, .y = y, .row_begin = 0, .row_end = rows});
}

#endif
