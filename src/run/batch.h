/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the rows that go through a layer together and how they are grouped: exact rows (8 at a time) and bulk chunks
 * (each by itself). Must not know: where rows come from. */
#ifndef SLUICE_RUN_BATCH_H
#define SLUICE_RUN_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "src/run/session.h"

struct batch_row {
    struct session *session;
    uint32_t position;
    bool keep_kv; /* the cached row of this position is already there and stays (session_refresh) */
    bool shadow;  /* a guess at the position after the row before: computes only experts of that row, no hook sees it */
};

/* Rows [begin, end) of a batch. All exact rows of a step are one span; every bulk chunk is one. */
struct span {
    uint32_t begin, end;
    bool bulk;
};

/* Exact rows first. */
struct batch {
    struct batch_row *rows; /* [n] */
    struct span *spans;     /* [n_spans] */
    uint32_t n, n_spans;
    bool quiet;             /* on_route is not told */
    float *x;               /* [n, stride(hidden)] residual stream */
};

/* The last n rows of b: bulk ones are a span of their own, exact ones join those before. */
static inline void batch_span(struct batch *b, uint32_t n, bool bulk)
{
    struct span *last = b->n_spans > 0 ? &b->spans[b->n_spans - 1] : NULL;
    if (n > 0 && !bulk && last && !last->bulk) {
        last->end = b->n;
    } else if (n > 0) {
        b->spans[b->n_spans++] = (struct span){b->n - n, b->n, bulk};
    }
}

#endif
