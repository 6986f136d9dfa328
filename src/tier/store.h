/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: access to routed experts by lease (design 5): begin names what a layer of a step will use, next hands out what is
 * ready in waves, release gives it back. In this build every expert lies in RAM, so all leases are ready at once; the
 * contract is the one the streaming tiers keep. One owner: the thread that drives steps. Must not know: arithmetic. */
#ifndef SLUICE_TIER_STORE_H
#define SLUICE_TIER_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/view.h"
#include "src/base/counters.h"
#include "src/model/names.h"
#include "src/tier/key.h"
#include "src/tier/load.h"

struct slot_buffers;
struct store;

enum tier { TIER_RAM, TIER_NVME, TIER_VRAM };

/* One expert, readable until released. */
struct expert_view {
    struct expert_key key;
    struct weight_view gate, up, down;
    enum tier where;
};

struct lease; /* one layer of one step; several may be open */

enum { STORE_LEASES = 16 }; /* leases open at once */

/* Bytes that store_create allocates, for the plan. */
struct store_sizes {
    uint64_t experts; /* slots, alignment included */
    uint64_t node[WEIGHT_NODES_MAX]; /* of experts, per node */
    uint64_t largest; /* one slot */
    uint64_t scales;  /* FP8 scales as float32 */
    uint64_t tables;  /* views of all experts, leases */
};
void store_measure(const struct weights *w, uint32_t nodes, struct store_sizes *ret);

/* Reads all experts into RAM (through `loader`). Refuses as load_* do. */
int store_create(const struct weights *w, struct loader *loader, struct counters *counters, struct store **ret, struct error *e);
void store_destroy(struct store *s);

const struct slot_buffers *store_buffers(const struct store *s);

/* Experts `keys` [n], all of one layer, rising and distinct. Never blocks, never allocates. -EBUSY: too many leases. */
int store_begin(struct store *s, const struct expert_key *keys, uint32_t n, struct lease **ret, struct error *e);

/* Waits until at least one not yet handed out expert is ready and hands out all that are, in rising order, at most
 * `max`. *ret_n == 0: all have been handed out. `cancel` is read while waiting (ERROR_INTERRUPTED). A failed read is an
 * error naming file, offset, layer and expert; the lease stays valid for cancel. */
int store_next(struct lease *l, const atomic_int *cancel, struct expert_view *views, uint32_t max, uint32_t *ret_n, struct error *e);

/* Gives back experts handed out; their views die. */
void store_release(struct lease *l, const struct expert_view *views, uint32_t n);

/* Ends the lease in any state; everything handed out has been released or is released now. */
void store_end(struct lease *l);

/* Advice: these experts are likely to be used soon. May do nothing. */
struct prediction {
    struct expert_key key;
    float probability;
};
void store_hint(struct store *s, const struct prediction *p, uint32_t n);

#endif
