/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: multi-head latent attention: projections, rope, cache append, absorbed attention of exact rows. Bulk chunks:
 * mla_bulk.c. Spec: docs/numerics.md, Attention. Must not know: residuals, placement. */
#ifndef SLUICE_RUN_MLA_H
#define SLUICE_RUN_MLA_H

#include "src/run/product.h"

/* norm: rows after the attention norm. Result in work.out [n, stride(hidden)]. */
int mla_run(struct engine *g, const struct batch *b, uint32_t layer, struct activation *norm, struct error *e);

/* Only what later rows need of these: their rows of the cache. */
int mla_append(struct engine *g, const struct batch *b, uint32_t layer, struct activation *norm, struct error *e);

/* Attention of one bulk chunk: work.q, KV -> work.heads. Absorbed or expanded by cost, a function of (shape, rows, context). */
int mla_bulk(struct engine *g, const struct batch *b, const struct span *chunk, uint32_t layer, struct error *e);

#endif
