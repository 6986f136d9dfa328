/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: recall.h. Must not know: whose scores they are. */
#include "src/tier/recall.h"

#include <assert.h>
#include <stdlib.h>

#include "common/intmath.h"

int recall_init(struct recall *r, uint32_t lists, uint32_t layers, uint32_t experts, uint32_t used, struct error *e)
{
    assert(used > 0 && used <= experts);
    *r = (struct recall){.lists = lists, .layers = layers, .experts = experts, .used = used};
    for (uint32_t i = 0; i < RECALL_BUDGETS; i++) {
        r->budget[i] = min_u32(experts, (used * (2 + i) + 1) / 2);
    }
    r->cells = calloc((size_t)lists * layers, sizeof(*r->cells));
    return r->cells != NULL ? 0 : error_nomem(e, "counters of recall", (uint64_t)lists * layers * sizeof(*r->cells));
}

void recall_deinit(struct recall *r)
{
    free(r->cells);
    *r = (struct recall){0};
}

/* How many experts are better than this one. */
static uint32_t rank_of(const float *scores, uint32_t n, uint32_t id)
{
    uint32_t better = 0;
    for (uint32_t x = 0; x < n; x++) {
        better += scores[x] > scores[id] || (scores[x] == scores[id] && x < id);
    }
    return better;
}

void recall_count(struct recall *r, uint32_t list, uint32_t layer, const float *scores, const int32_t *ids, const float *weights)
{
    assert(list < r->lists && layer < r->layers);
    struct recall_cell *c = &r->cells[(size_t)list * r->layers + layer];
    double all = 0;
    for (uint32_t k = 0; k < r->used; k++) {
        all += weights[k];
    }
    for (uint32_t k = 0; k < r->used; k++) {
        uint32_t rank = rank_of(scores, r->experts, (uint32_t)ids[k]);
        for (uint32_t i = 0; i < RECALL_BUDGETS; i++) {
            c->hits[i] += rank < r->budget[i];
            c->mass[i] += rank < r->budget[i] && all > 0 ? weights[k] / all : 0;
        }
    }
    c->rows++;
}

double recall_plain(const struct recall *r, const struct recall_cell *c, uint32_t budget)
{
    return (double)c->hits[budget] / ((double)c->rows * r->used);
}

double recall_weighted(const struct recall_cell *c, uint32_t budget) { return c->mass[budget] / (double)c->rows; }

double recall_precision(const struct recall *r, const struct recall_cell *c, uint32_t budget)
{
    return (double)c->hits[budget] / ((double)c->rows * r->budget[budget]);
}
