/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: views of a weight matrix in its file layout: of rows that lie together, and of a whole matrix whose rows are spread over
 * memory nodes; the rule by which they are spread. Never owns memory. Must not know which tier it lies in. */
#ifndef SLUICE_COMMON_VIEW_H
#define SLUICE_COMMON_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include "common/format.h"
#include "common/intmath.h"

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

enum {
    WEIGHT_NODES_MAX = 8,
    WEIGHT_TILE_ROWS = 128,           /* most rows of a tile */
    WEIGHT_TILE_ELEMENTS = 1 << 20,   /* most elements of a tile: an unpacked one stays in cache */
};

/* A whole matrix. Part k, rows [end[k - 1], end[k]), lies on memory node k; with one node all rows are part 0. */
struct weight_view {
    const void *data[WEIGHT_NODES_MAX]; /* [parts] first row of each part */
    uint32_t end[WEIGHT_NODES_MAX];     /* [parts] */
    uint32_t parts;
    uint32_t rows, cols;
    size_t row_bytes;
    const float *scale; /* as in matrix_view, of the whole matrix */
    uint32_t scale_cols;
    enum weight_format format;
};

/* Bytes that a kernel reads for `rows` rows of w, FP8 scales included. */
static inline uint64_t weight_rows_bytes(const struct weight_view *w, uint32_t rows)
{
    uint64_t scales = w->scale != NULL ? ceil_div_u64(rows, FORMAT_SCALE_BLOCK) * w->scale_cols : 0;
    return (uint64_t)rows * w->row_bytes + scales * sizeof(float);
}

/* Rows of one tile: what a task computes, and where parts may end. A power of two, so that tiles of a matrix are the same ones
 * however many nodes it is spread over; small matrices have small ones, so that all threads get some. */
static inline uint32_t weight_tile_rows(uint32_t rows, uint32_t cols)
{
    uint32_t most = max_u32(8, rows / 8), tile = WEIGHT_TILE_ROWS;
    while (tile > 8 && (tile > most || (uint64_t)tile * cols > WEIGHT_TILE_ELEMENTS)) {
        tile /= 2;
    }
    return tile;
}

/* End of part k of `parts`: an equal share of the rows, a multiple of `granule` but for the last. */
static inline uint32_t weight_part_end(uint32_t rows, uint32_t granule, uint32_t parts, uint32_t k)
{
    return k + 1 == parts ? rows : (uint32_t)((uint64_t)rows * (k + 1) / parts / granule * granule);
}

/* Rows [first, first + rows) of w, which lie in one part. */
static inline struct matrix_view weight_rows(const struct weight_view *w, uint32_t first, uint32_t rows)
{
    uint32_t k = 0, begin = 0;
    while (first >= w->end[k]) {
        begin = w->end[k++];
    }
    return (struct matrix_view){
        .data = (const unsigned char *)w->data[k] + (size_t)(first - begin) * w->row_bytes,
        .row_bytes = w->row_bytes, .scale = w->scale, .scale_cols = w->scale_cols,
        .row0 = first, .rows = rows, .cols = w->cols, .format = w->format,
    };
}

#endif
