/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the input of the multi-token-prediction layer: row i joins the embedding of token i + 1 and the main state of
 * position i. Spec: docs/formats.md, MTP. Must not know: drafting. */
#ifndef SLUICE_RUN_MTP_H
#define SLUICE_RUN_MTP_H

#include "src/run/product.h"

/* One row: state after the final norm, next token. */
struct mtp_row {
    const float *state; /* [hidden] */
    int32_t next;
};

/* b->x = eh_proj [enorm(embed); hnorm(state)] for every row of b. */
int mtp_embed(struct engine *g, struct batch *b, const struct mtp_row *rows, uint32_t layer, struct error *e);

#endif
