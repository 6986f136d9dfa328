/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the end of the model: final norm and head, exact in every row class. Must not know: sampling. */
#ifndef SLUICE_RUN_HEAD_H
#define SLUICE_RUN_HEAD_H

#include "src/run/batch.h"
#include "src/run/engine.h"

/* y = rmsnorm(x) * w for n rows [n, stride(hidden)]; y may be x. */
void head_normalise(struct engine *g, const float *x, uint32_t n, const float *w, float *y);

/* Raw logits of n <= OPS_MAX_ROWS rows of states after the norm, into work.logits [n, vocab]. NaN or Inf is ERROR_FORMAT;
 * `rows` [n]: for the position in that message. */
int head_logits(struct engine *g, const float *state, uint32_t n, const struct batch_row *rows, struct error *e);

#endif
