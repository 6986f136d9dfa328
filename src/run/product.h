/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: matrix products of the token loop: exact matvecs (8 rows at a time) and bulk GEMMs on dequantised panels, cut into
 * tasks by weight rows. Tiles depend on the shape alone. Must not know: what the matrices are. */
#ifndef SLUICE_RUN_PRODUCT_H
#define SLUICE_RUN_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#include "src/run/batch.h"
#include "src/run/engine.h"

/* Block length of the int8 activations a format meets in this engine; 0: float32. */
uint32_t product_act_block(const struct engine *g, enum weight_format f);

/* Rows of float32 with the int8 forms made so far. */
struct activation {
    const float *x; /* [n, stride] */
    size_t stride;
    uint32_t n, cols;
    struct act_form *form; /* [FORM_COUNT] storage with the same stride */
    struct {
        uint32_t begin, end;
    } done[FORM_COUNT];    /* rows whose form is made */
};

/* Makes the form `format` needs for rows [begin, end) (in parallel when there are many). */
int activation_prepare(struct engine *g, struct activation *a, enum weight_format format, uint32_t begin, uint32_t end, struct error *e);

/* Rows [row, row + n) in the form `format` needs; activation_prepare was called. */
struct act_rows activation_rows(const struct engine *g, const struct activation *a, enum weight_format format, uint32_t row);

/* One matrix times all rows of a batch: y[i, r] for every row i of every span. */
struct product {
    const struct matrix_view *w;
    float *y;
    size_t y_stride;
};

/* Up to 4 products that read the same rows, in one parallel loop. Exact spans use exact kernels, bulk spans GEMM;
 * `all_exact` forces exact arithmetic for bulk spans too (router, head). */
int products_run(struct engine *g, const struct product *p, uint32_t n, struct activation *a, const struct span *spans, uint32_t n_spans, bool all_exact, struct error *e);

/* Tile [r0, r1) of w times n rows, into y [n, y_stride] at column 0. bulk: dequantised panel and GEMM, reads act.x. */
void product_tile(const struct engine *g, const struct matrix_view *w, struct act_rows act, uint32_t n, bool bulk, uint32_t r0, uint32_t r1, float *y, size_t y_stride, struct worker_scratch *ws);

#endif
