/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: one layer: norm, attention, residual, norm, FFN or experts, residual. Must not know: steps, timelines. */
#ifndef SLUICE_RUN_BLOCK_H
#define SLUICE_RUN_BLOCK_H

#include "src/run/batch.h"

/* b->x is replaced by the residual after `layer`. A non-finite state is ERROR_FORMAT naming layer, position (and expert). */
int block_run(struct engine *g, struct batch *b, uint32_t layer, struct error *e);

/* Only the rows of b in the cache of `layer`; b->x stays. */
int block_append(struct engine *g, struct batch *b, uint32_t layer, struct error *e);

#endif
