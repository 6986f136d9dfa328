/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: how many of the experts that a layer chose were among the best of a list of scores: counters per list (a predictor, a
 * lead) and layer, at three budgets: K, 1.5 K and 2 K experts, K = experts per token. Must not know: whose scores they are. */
#ifndef SLUICE_TIER_RECALL_H
#define SLUICE_TIER_RECALL_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum { RECALL_BUDGETS = 3 };

struct recall_cell {
    uint64_t rows;                 /* (layer, position) pairs counted */
    uint64_t hits[RECALL_BUDGETS]; /* chosen experts among the best `budget` scores */
    double mass[RECALL_BUDGETS];   /* the same, each weighted by its share of the row's gate weights */
};

struct recall {
    uint32_t lists, layers, experts, used;
    uint32_t budget[RECALL_BUDGETS];
    struct recall_cell *cells; /* [lists][layers] */
};

/* 1 <= used <= experts. Nothing is counted yet. */
int recall_init(struct recall *r, uint32_t lists, uint32_t layers, uint32_t experts, uint32_t used, struct error *e);
void recall_deinit(struct recall *r); /* accepts an all-zero one */

/* One row: scores [experts], chosen ids [used] and their weights [used]. Of equal scores the lower id is the better one. */
void recall_count(struct recall *r, uint32_t list, uint32_t layer, const float *scores, const int32_t *ids, const float *weights);

static inline const struct recall_cell *recall_at(const struct recall *r, uint32_t list, uint32_t layer) { return &r->cells[(size_t)list * r->layers + layer]; }

/* Shares in 0..1; the cell has rows. */
double recall_plain(const struct recall *r, const struct recall_cell *c, uint32_t budget);     /* of the chosen experts */
double recall_weighted(const struct recall_cell *c, uint32_t budget);                          /* of their gate weight */
double recall_precision(const struct recall *r, const struct recall_cell *c, uint32_t budget); /* of the best `budget`: chosen ones */

#endif
