/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: gated feed-forward networks - dense layers, shared and routed experts - as one fused pass: gate, up, SwiGLU and down of
 * all of them in one job, in which the down tiles of a network wait for that network alone. Must not know: routing, leases. */
#ifndef SLUICE_RUN_FFN_H
#define SLUICE_RUN_FFN_H

#include <stdatomic.h>

#include "src/run/product.h"

enum { FFN_UNITS_MAX = 65 }; /* a wave of routed experts and the shared one */

/* Middle activations, silu(gate x) * up x, with their int8 forms. */
struct ffn_mid {
    float *x; /* [rows, stride(width)] */
    struct act_form *form; /* [FORM_COUNT] */
};

/* One network for n rows. */
struct ffn_unit {
    const struct weight_view *gate, *up, *down; /* [width, hidden] x2, [hidden, width] */
    const uint32_t *row; /* [n] rows of the input; NULL: first_row, first_row + 1, ... */
    const uint32_t *to;  /* [n] rows of `out`; NULL: as `row` */
    uint32_t first_row, n;
    bool bulk;
    struct ffn_mid mid;
    uint32_t mid_row;    /* rows [mid_row, mid_row + n) of mid are this unit's */
    float *out;          /* [, stride(hidden)] */

    _Atomic uint32_t tiles_done, mid_ready; /* kept by ffn_run */
};

/* `in`: rows that all units read. At most FFN_UNITS_MAX units. */
int ffn_run(struct engine *g, struct activation *in, struct ffn_unit *units, uint32_t n, struct error *e);

/* Network of a span's rows, into work.out. */
struct ffn_unit ffn_span_unit(struct engine *g, const struct span *span, const struct weight_view *gate, const struct weight_view *up, const struct weight_view *down);

/* A dense layer for all rows of a batch, into work.out. */
int ffn_dense(struct engine *g, const struct batch *b, const struct resident_layer *l, struct activation *in, struct error *e);

#endif
