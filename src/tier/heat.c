/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: heat.h. All weights share one growing unit, so a use touches one number and the order needs no clock. The unit is computed
 * from the visit, never accumulated, and weights are brought down by a power of two: errors do not grow with time.
 * Must not know: what is decided by it. */
#include "src/tier/heat.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SPAN = 512 }; /* half-lives after which weights are brought down; doubles reach twice as far */

int heat_init(struct heat *h, uint32_t layers, uint32_t experts, uint32_t half_life, struct error *e)
{
    assert(layers > 0 && experts > 0 && half_life > 0);
    *h = (struct heat){.layers = layers, .experts = experts, .half_life = half_life, .unit = 1};
    h->weight = calloc((size_t)layers * experts, sizeof(*h->weight));
    return h->weight != NULL ? 0 : error_nomem(e, "popularity of experts", (uint64_t)layers * experts * sizeof(*h->weight));
}

void heat_deinit(struct heat *h)
{
    free(h->weight);
    *h = (struct heat){0};
}

void heat_clear(struct heat *h)
{
    h->now = h->base = 0;
    h->unit = 1;
    memset(h->weight, 0, (size_t)h->layers * h->experts * sizeof(*h->weight));
}

/* 2^-SPAN is exact; after more than a few spans all is forgotten. */
static void bring_down(struct heat *h, uint64_t spans)
{
    for (size_t i = 0; i < (size_t)h->layers * h->experts; i++) {
        h->weight[i] = ldexp(h->weight[i], spans < 8 ? -(int)spans * SPAN : -8 * SPAN);
    }
    h->base += spans * SPAN * h->half_life;
}

void heat_advance(struct heat *h, uint64_t visit)
{
    assert(visit >= h->now);
    h->now = visit;
    uint64_t spans = (h->now - h->base) / ((uint64_t)SPAN * h->half_life);
    if (spans > 0) {
        bring_down(h, spans);
    }
    h->unit = exp2((double)(h->now - h->base) / h->half_life);
}

void heat_use(struct heat *h, struct expert_key key, double uses)
{
    assert(key.layer < h->layers && key.expert < h->experts);
    h->weight[(size_t)key.layer * h->experts + key.expert] += uses * h->unit;
}

/* A use in every cycle adds up to 1 / (1 - 2^(-cycle / half_life)). */
double heat_per_use(const struct heat *h, uint32_t cycle) { return 1 - exp2(-(double)cycle / h->half_life); }
