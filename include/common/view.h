/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a view of a weight matrix in its file layout. Never owns memory. Must not know which tier it lies in. */
#ifndef SLUICE_COMMON_VIEW_H
#define SLUICE_COMMON_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include "common/format.h"

/* Row-major [rows, cols]; y[r] = sum_c w(r, c) x[c]. `data` has no alignment beyond 1 byte. */
struct matrix_view {
    const void *data;         /* first row of the view */
    size_t row_bytes;         /* distance of rows */
    const float *scale;       /* F8_E4M3: [ceil(full rows/128), scale_cols] of the full matrix; else NULL */
    uint32_t scale_cols;      /* ceil(cols/128) */
    uint32_t row0;            /* index of row 0 of the view in the full matrix (selects the scale row) */
    uint32_t rows, cols;
    enum weight_format format;
};

/* Rows [first, first + rows) of v; the caller has checked the range. */
static inline struct matrix_view matrix_view_rows(struct matrix_view v, uint32_t first, uint32_t rows)
{
    v.data = (const unsigned char *)v.data + (size_t)first * v.row_bytes;
    v.row0 += first;
    v.rows = rows;
    return v;
}

#endif
