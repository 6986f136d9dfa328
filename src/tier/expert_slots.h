/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the RAM that routed experts lie in: slots, allocated once, of one size for any expert - or, when there is one for each,
 * of the size of each. Knows how the three matrices of an expert lie in a slot. FP8 scales are no part of a slot: those of all
 * experts have a buffer. Must not know: which expert is in which slot, when it is read. */
#ifndef SLUICE_TIER_EXPERT_SLOTS_H
#define SLUICE_TIER_EXPERT_SLOTS_H

#include <stdint.h>

#include "common/error.h"
#include "common/view.h"
#include "src/model/names.h"
#include "src/tier/key.h"
#include "src/tier/slot.h"

enum { EXPERT_PARTS = 3 }; /* gate, up, down */

/* Bytes by node; `scales` of all experts. */
struct expert_slots_sizes {
    uint64_t experts;                 /* routed experts, all layers */
    uint64_t all[WEIGHT_NODES_MAX];   /* a slot for each expert */
    uint64_t each[WEIGHT_NODES_MAX];  /* one slot for any */
    uint64_t scales;
};
void expert_slots_measure(const struct weights *w, uint32_t nodes, struct expert_slots_sizes *ret);

struct expert_slots {
    const struct weights *weights;    /* borrowed */
    uint32_t n;                       /* slots */
    bool own;                         /* slot i is for the i-th expert only, in order of layer and number */
    struct slot_buffers buffers;
    uint64_t *base;                   /* [n][nodes] where slots begin */
    uint64_t *scale_at;               /* [layers][experts] */
    uint32_t *first;                  /* [layers] number of expert 0 of the layer among all */
};

/* Memory of the tables, for the plan. */
uint64_t expert_slots_table_bytes(const struct weights *w, uint32_t nodes, uint64_t n);

/* n slots for any expert; EXPERT_SLOTS_OWN: one of its own for each. Memory is accounted through `loader`; nothing is read. */
enum { EXPERT_SLOTS_OWN = 0 };
int expert_slots_init(struct expert_slots *s, const struct weights *w, uint32_t n, const struct loader *loader, struct error *e);
void expert_slots_deinit(struct expert_slots *s);

/* Number of an expert among all, in order of layer and number. */
static inline uint32_t expert_slots_index(const struct expert_slots *s, struct expert_key key) { return s->first[key.layer] + key.expert; }

const struct weight_ref *expert_slots_ref(const struct expert_slots *s, struct expert_key key, int part);

/* Bytes of an expert: weights, and scales as float32. */
uint64_t expert_slots_bytes(const struct expert_slots *s, struct expert_key key);

/* The matrices of `key` as they lie in `slot`. */
void expert_slots_view(const struct expert_slots *s, struct expert_key key, uint32_t slot, struct weight_view ret[EXPERT_PARTS]);

/* The reads that bring `key` into `slot`: at most EXPERT_PARTS * nodes; returns how many. */
size_t expert_slots_reads(const struct expert_slots *s, struct expert_key key, uint32_t slot, struct load_item *items);

/* The reads of its scales, at most EXPERT_PARTS; returns how many. */
size_t expert_slots_scale_reads(const struct expert_slots *s, struct expert_key key, struct load_floats_item *items);

#endif
