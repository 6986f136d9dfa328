/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: how often each routed expert has been used lately: every use counts 1 and halves every `half_life` visits. A visit is
 * one layer of one step; visits are numbered. Must not know: what is decided by it. */
#ifndef SLUICE_TIER_HEAT_H
#define SLUICE_TIER_HEAT_H

#include <stddef.h>

#include "common/error.h"
#include "src/tier/key.h"

struct heat {
    uint32_t layers, experts;
    uint32_t half_life; /* visits */
    uint64_t now, base; /* visits; weights are in units of a use at `base` */
    double unit;        /* weight of a use at `now`: 2^((now - base) / half_life) */
    double *weight;     /* [layers][experts] */
};

/* Nothing has been used. half_life, layers and experts are at least 1. */
int heat_init(struct heat *h, uint32_t layers, uint32_t experts, uint32_t half_life, struct error *e);
void heat_deinit(struct heat *h);
void heat_clear(struct heat *h); /* as after heat_init */

/* Time goes on to this visit, never back. O(1), but for one pass over all weights every some hundred half-lives. */
void heat_advance(struct heat *h, uint64_t visit);

void heat_use(struct heat *h, struct expert_key key, double uses); /* now */

/* Orders experts by heat, whenever it is asked; a number to compare with others of the same moment only. Experts with the same
 * history are exactly equal. */
static inline double heat_weight(const struct heat *h, struct expert_key key)
{
    return h->weight[(size_t)key.layer * h->experts + key.expert];
}

/* Uses, each halved every half-life since; 0: never used, or long ago. */
static inline double heat_value(const struct heat *h, struct expert_key key) { return heat_weight(h, key) / h->unit; }

/* What heat_value is to be multiplied by to give uses per cycle of this many visits, for an expert in steady use. */
double heat_per_use(const struct heat *h, uint32_t cycle);

#endif
