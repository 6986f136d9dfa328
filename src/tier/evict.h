/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: which routed experts lie in the slots of a tier: who is in which slot, who is let in, who leaves. State changes only by
 * the calls below, and the same calls give the same state: an engine and a replay of its trace agree. Nothing is allocated after
 * init. Must not know: bytes, clocks, where expectations come from.
 *
 * A visit is one layer of one step. Visits are numbered from 1, rising, as for heat. Its experts are looked up (evict_visit); those
 * that missed ask for a slot one by one, in the order given (evict_admit). Experts of a visit never leave during it.
 *
 * Worth of an expert:
 *   EVICT_LRU, EVICT_LFU: an expected use beats none; of two expected, the nearer is worth more; of two that are not, the one used in
 *     a later visit (LRU) or the hotter one (LFU).
 *   EVICT_ODDS: (p + rate / 2) / (distance + 1/2): p the chance of the expected use, distance how far that is in cycles, rate the use
 *     per cycle by heat, which counts for all that comes after. Without an expected use: p = rate, distance 1.
 * The least worth leaves first; of equals, who came in first. LRU lets everybody in. The others let in only who is worth more than
 * the one who would leave - ODDS: a fifth more, since a move has a price; who is refused is computed where it was read to. */
#ifndef SLUICE_TIER_EVICT_H
#define SLUICE_TIER_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "src/tier/heat.h"
#include "src/tier/key.h"

enum evict_policy { EVICT_LRU, EVICT_LFU, EVICT_ODDS };

struct evict_options {
    enum evict_policy policy;
    uint32_t slots;           /* may be 0 */
    uint32_t layers, experts; /* keys are below these */
    uint32_t cycle;           /* visits from a layer to the same layer of the next step */
    const struct heat *heat;  /* for LFU and ODDS; borrowed; the caller counts a visit before evict_admit */
};

#define EVICT_NO_SLOT UINT32_MAX

/* What is known of one expert. */
struct evict_entry {
    uint64_t last, next; /* visits: of its last use, and of the expected one; 0: none */
    float chance;        /* of the expected use */
    uint32_t slot;       /* or EVICT_NO_SLOT */
};

struct evict_slot {
    struct expert_key key;
    uint64_t came; /* number of its admission */
};

struct evict_worth {
    bool expected;
    double value;
};

struct evict {
    struct evict_options options;
    struct evict_entry *entries;  /* [layers][experts] */
    struct evict_slot *slots;     /* [slots] */
    uint32_t *free;               /* [slots]: the last of n_free is taken first */
    uint32_t n_free;
    uint64_t visit, admissions;
    double per_use;               /* of heat: a steady use per cycle */
    uint32_t *leaving;            /* [experts]: slots, least worth first */
    struct evict_worth *worth;    /* [experts]: theirs */
};

/* Every slot is free; they are taken from 0 up. */
int evict_init(struct evict *c, const struct evict_options *o, struct error *e);
void evict_deinit(struct evict *c);
void evict_clear(struct evict *c); /* as after evict_init; visits begin at 1 again */

/* Makes `to` what `from` is, expectations included; both were given the same numbers of slots, layers and experts. */
void evict_copy(struct evict *to, const struct evict *from);

/* Begins a visit: n distinct keys of one layer. ret_slots [n]: where each lies, or EVICT_NO_SLOT. */
void evict_visit(struct evict *c, uint64_t visit, const struct expert_key *keys, uint32_t n, uint32_t *ret_slots);

/* The expert is expected to be used in visit `at`, with this chance (LRU and LFU: any above 0 is as good). Replaces what was expected
 * of it. Chance 0, or a visit that has begun: nothing is expected. */
void evict_expect(struct evict *c, struct expert_key key, uint64_t at, float chance);

/* Whether the expert is in a slot. */
static inline bool evict_has(const struct evict *c, struct expert_key key)
{
    return c->entries[(size_t)key.layer * c->options.experts + key.expert].slot != EVICT_NO_SLOT;
}

struct evict_answer {
    uint32_t slot; /* the expert's from now on; EVICT_NO_SLOT: it is not let in */
    bool evicted;
    struct expert_key victim; /* who left the slot, if evicted */
};

/* Keys of the visit that have no slot; answers [n] in their order. */
void evict_admit(struct evict *c, const struct expert_key *keys, uint32_t n, struct evict_answer *answers);

/* Gives an expert that is in none a slot that is free, outside of any visit. */
void evict_place(struct evict *c, struct expert_key key);

/* Frees the slot of an expert that is in one: its bytes could not be read. */
void evict_drop(struct evict *c, struct expert_key key);

#endif
