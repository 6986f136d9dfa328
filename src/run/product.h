/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: matrix products of the token loop: exact matvecs (8 rows at a time) and bulk products (bulk_choice.h), cut into
 * tasks by weight rows. Tiles depend on the shape alone; a task is first offered to the workers of the node its tile lies on.
 * Must not know: what the matrices are. */
#ifndef SLUICE_RUN_PRODUCT_H
#define SLUICE_RUN_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#include "src/run/batch.h"
#include "src/run/engine.h"

/* Block length of the int8 activations that a product of this format and row class reads; 0: float32. */
uint32_t product_act_block(const struct engine *g, enum weight_format f, bool bulk);

/* Rows of float32 with the int8 forms made so far. */
struct activation {
    const float *x; /* [n, stride] */
    size_t stride;
    uint32_t n, cols;
    struct act_form *form; /* [FORM_COUNT] storage with the same stride */
    struct {
        uint32_t begin, end;
    } done[FORM_COUNT];    /* rows whose form is made by activation_prepare */
};

/* Makes the form that products of `format` read for rows [begin, end) (in parallel when there are many). */
int activation_prepare(struct engine *g, struct activation *a, enum weight_format format, bool bulk, uint32_t begin, uint32_t end, struct error *e);

/* The same in the calling worker. */
void activation_quantise(const struct engine *g, const struct activation *a, enum weight_format format, bool bulk, uint32_t begin, uint32_t end);

/* Rows from `row` on in the form that products of `format` read, which has been made. */
struct act_rows activation_rows(const struct engine *g, const struct activation *a, enum weight_format format, bool bulk, uint32_t row);

/* Rows [r0, r1) of source `source`. */
struct tile {
    uint32_t source, r0, r1;
};

enum { TILES_SOURCES_MAX = 80 };

/* Tiles of several matrices, numbered by the node they lie on, then matrix, then row: what a pool job counts. */
struct tiles {
    uint32_t n;
    struct {
        const struct weight_view *w;
        uint32_t rows;  /* of a tile */
        uint32_t tiles; /* on all nodes */
    } source[TILES_SOURCES_MAX];
    uint32_t nodes, count[WEIGHT_NODES_MAX];                    /* tiles of each node */
    uint32_t end[WEIGHT_NODES_MAX][TILES_SOURCES_MAX];          /* of them, those of sources up to this one */
};

/* Exact tiles are smaller: their work is reading, and the last ones of a job should be short. */
void tiles_add(struct tiles *t, const struct weight_view *w, bool bulk);
struct tile tiles_at(const struct tiles *t, uint32_t task);

/* One matrix times all rows of a batch: y[i, r] for every row i of every span. */
struct product {
    const struct weight_view *w;
    float *y;
    size_t y_stride;
};

/* Up to 4 products that read the same rows, in one parallel loop. Exact spans use exact kernels, bulk spans GEMM;
 * `all_exact` forces exact arithmetic for bulk spans too (router, head). */
int products_run(struct engine *g, const struct product *p, uint32_t n, struct activation *a, const struct span *spans, uint32_t n_spans, bool all_exact, struct error *e);

/* The rows of w times n activation rows, into y [n, y_stride] at column 0. bulk: at most a tile of weight_tile_rows rows. */
void product_tile(const struct engine *g, const struct matrix_view *w, struct act_rows act, uint32_t n, bool bulk, float *y, size_t y_stride, struct worker_scratch *ws);

#endif
