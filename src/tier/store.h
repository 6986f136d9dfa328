/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: access to routed experts by lease (design 5): begin names what a layer of a step will use, next hands out what is
 * ready in waves, release gives it back. Experts lie in RAM slots, all of them or as many as the plan has room for; the others
 * are read from the drive into staging slots when they are asked for, or before. Which of them stay is decided when a lease
 * begins, and only then. One owner: the thread that drives steps. Must not know: arithmetic, who predicts. */
#ifndef SLUICE_TIER_STORE_H
#define SLUICE_TIER_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/view.h"
#include "src/base/counters.h"
#include "src/model/names.h"
#include "src/tier/ahead.h"
#include "src/tier/key.h"
#include "src/tier/load.h"

struct slot_buffers;
struct store;

enum tier { TIER_RAM, TIER_NVME, TIER_VRAM };

/* One expert, readable until released. */
struct expert_view {
    struct expert_key key;
    struct weight_view gate, up, down;
    enum tier where; /* it was there already, or had to be read */
};

struct lease; /* one layer of one step; several may be open */

enum { STORE_LEASES = 16 }; /* leases open at once */

/* Bytes that store_create allocates, for the plan. */
struct store_sizes {
    uint64_t experts; /* routed experts, number */
    uint64_t all, all_node[WEIGHT_NODES_MAX];   /* slots of all experts, alignment included; per node */
    uint64_t slot, slot_node[WEIGHT_NODES_MAX]; /* one slot that takes any expert */
    uint64_t scales;  /* FP8 scales as float32, of all experts */
    uint64_t tables;  /* state of all experts, leases */
};
void store_measure(const struct weights *w, uint32_t nodes, struct store_sizes *ret);

struct store_options {
    uint64_t cached;       /* experts that may stay in RAM; as many as there are: all are read at create */
    uint32_t staging;      /* slots beside them, at least 1, unless all stay */
    struct reader *reader; /* of the reads after create; borrowed; NULL if all stay */
    uint32_t requests;     /* that it takes */
};

/* With a bare loader nothing is read, and views hold addresses that nobody may read: for simulations, in which not all stay.
 * Reads FP8 scales - and all experts, if they stay - into RAM through `loader`. Refuses as load_* do. */
int store_create(const struct weights *w, struct loader *loader, const struct store_options *o, struct counters *counters, struct store **ret, struct error *e);
void store_destroy(struct store *s); /* waits for reads in flight; accepts NULL */

const struct slot_buffers *store_buffers(const struct store *s);
bool store_streams(const struct store *s); /* not all experts stay */

/* Popularity of experts that an earlier run found, for a store in which nothing has been used: uses [layers][experts] of the first so
 * many layers. Those used most are read into RAM in the background. */
int store_warm(struct store *s, const float *uses, uint32_t layers, struct error *e);

/* Popularity so far: ret [all layers][experts], MTP layers included where the model has them. */
void store_uses(const struct store *s, float *ret);

/* What a layer of a step uses. */
struct store_visit {
    const struct expert_key *keys; /* [n] all of one layer, rising and distinct */
    const uint32_t *rows;          /* [n] rows of the step that use each; NULL: one */
    uint32_t n;
    bool passing;                  /* rows of a prompt: they count a quarter, and nothing leaves for what they use */
};

/* Never blocks, never allocates. -EBUSY: too many leases. */
int store_begin(struct store *s, const struct store_visit *v, struct lease **ret, struct error *e);

/* Waits until at least one not yet handed out expert is ready and hands out all that are, in rising order, at most
 * `max`. *ret_n == 0: all have been handed out. `cancel` is read while waiting (ERROR_INTERRUPTED). A failed read is an
 * error naming file, offset, layer and expert; the lease stays valid for store_end. -EBUSY: other leases hold all slots. */
int store_next(struct lease *l, const atomic_int *cancel, struct expert_view *views, uint32_t max, uint32_t *ret_n, struct error *e);

/* Experts of the lease that are not in RAM yet. */
uint32_t store_waiting(const struct lease *l);

/* Gives back experts handed out; their views die. */
void store_release(struct lease *l, const struct expert_view *views, uint32_t n);

/* Ends the lease in any state; everything handed out has been released or is released now. */
void store_end(struct lease *l);

/* Advice: this expert is likely to be used in the visit that is `ahead` visits from now (1: the next). */
struct prediction {
    struct expert_key key;
    float probability;
    uint32_t ahead;
    enum hint_lead lead;
};

/* Reads what it has idle slots for, in the order given, behind all that leases ask for; never moves out what stays. */
void store_hint(struct store *s, const struct prediction *p, uint32_t n);

/* What came of it so far. */
const struct ahead *store_ahead(const struct store *s);

/* Advice for who stays: with which chance the visit of `layer` that is `ahead` visits from now uses each of its experts, chances [experts]
 * in 255ths. Replaces what was expected of them; nothing is read for it. */
void store_expect(struct store *s, uint16_t layer, uint32_t ahead, const uint8_t *chances);

/* What store_expect is worth: from now on (on), until off, the store also keeps account of who would stay without it. */
void store_compare(struct store *s, bool on);

/* Since store_compare: uses by the main layers that found their expert among those that stay, less those that would have without advice
 * and without the MTP layer's uses, which are its price. */
int64_t store_spared(const struct store *s);

#endif
