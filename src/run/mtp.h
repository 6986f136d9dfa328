/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the multi-token-prediction layer: row i joins the embedding of token i + 1 and the main state of position i.
 * Spec: docs/formats.md, MTP. Must not know: drafting. */
#ifndef SLUICE_RUN_MTP_H
#define SLUICE_RUN_MTP_H

#include "src/run/product.h"

/* One row: state after the final norm, next token. */
struct mtp_row {
    const float *state; /* [hidden] */
    int32_t next;
};

/* b->x = the layer's output after its norm, what the head reads, for every row of b. States may lie in b->x. */
int mtp_run(struct engine *g, struct batch *b, const struct mtp_row *rows, struct error *e);

/* Only the rows of the layer's cache, which are all that later rows need: a small part of the work. b->x is scratch. */
int mtp_append(struct engine *g, struct batch *b, const struct mtp_row *rows, struct error *e);

#endif
