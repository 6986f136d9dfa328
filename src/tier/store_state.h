/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the files of the expert store share: the state of each expert and of the store. For src/tier/store*.c only: store_open.c
 * makes it, store.c lends experts, store_ahead.c reads before they are asked for, store_calls.c tells who observes. */
#ifndef SLUICE_TIER_STORE_STATE_H
#define SLUICE_TIER_STORE_STATE_H

#include "src/tier/evict.h"
#include "src/tier/expert_slots.h"
#include "src/tier/fetch.h"
#include "src/tier/heat.h"
#include "src/tier/store_observer.h"

enum { STORE_HINTS = 256 };

_Static_assert(HINT_LEADS <= 4, "struct expert keeps a lead in two bits");

enum expert_state { ABSENT, READING, READY };

struct expert {
    uint32_t slot;    /* READING, READY */
    uint16_t users;   /* leases that ask for it or hold it */
    uint8_t state;
    bool predicted : 1;  /* was read for a hint, and no lease has asked for it since */
    bool given_up : 1;   /* READING: for a hint whose visit is past */
    uint8_t lead : 2;    /* predicted, given_up: of that hint */
    uint64_t expires;    /* predicted: the visit it is for */
};

enum entry_stage { ASKED, HELD, RETURNED };

struct lease {
    struct store *store;
    uint16_t *experts; /* [store.experts] of which n are asked for, rising */
    uint8_t *stage;    /* [store.experts] */
    bool *was_there;   /* [store.experts] in RAM when it was asked for */
    uint32_t n, handed_out;
    uint16_t layer;
    bool open;
};

struct store {
    const struct weights *weights;
    uint32_t layers, experts;
    bool all;                 /* every expert stays */
    uint32_t cycle;           /* visits of a token */
    struct expert_slots slots;
    struct expert *state;     /* [layers][experts] in `tables` */
    uint32_t *spare;          /* [slots.n] of which n_spare belong to nobody */
    uint32_t n_spare;
    struct expert_key *predicted; /* [slots.n] of which n_predicted were read for hints or are being read */
    uint32_t n_predicted, reserve; /* reserve: slots that no hint takes */
    struct hint {
        struct expert_key key;
        uint64_t expires;         /* the visit it is for */
        enum hint_lead lead;
    } *hints;                     /* [STORE_HINTS] of which n_hints wait for an idle slot, likeliest first */
    uint32_t n_hints;
    struct expert_key *warm;      /* [slots.n] of which n_warm stay and are still to be read, hottest last */
    uint32_t n_warm;
    struct evict evict;
    struct evict plain;           /* if `compares`: without what store_expect says */
    bool compares;
    int64_t spared;               /* store_spared */
    struct heat heat;
    struct fetch fetch;
    uint64_t visit;
    struct lease leases[STORE_LEASES];
    struct buffer tables;
    struct expert_key *missed;    /* [experts] of the visit */
    struct evict_answer *answers; /* [experts] */
    uint32_t *found;              /* [experts] */
    struct counter *hits, *hit_bytes, *misses, *read, *read_bytes, *admitted, *demand_us, *demand_bytes, *drive_bytes;
    struct ahead ahead;
    const struct store_observer *observer; /* or NULL */
    struct reader_load told; /* what the last three counted */
};

static inline struct expert *expert_of(const struct store *s, struct expert_key key) { return &s->state[(size_t)key.layer * s->experts + key.expert]; }

static inline bool stays(const struct store *s, struct expert_key key) { return s->all || evict_has(&s->evict, key); }

/* Calls `use` for every expert, in order of layer and number; index: which one it is. */
void store_each(const struct store *s, void (*use)(void *ctx, struct expert_key key, uint32_t index), void *ctx);

/* store.c, store_ahead.c: the calls of store.h of the same names, untold. */
int store_lease_begin(struct store *s, const struct store_visit *v, struct lease **ret, struct error *e);
int store_lease_next(struct lease *l, const atomic_int *cancel, struct expert_view *views, uint32_t max, uint32_t *ret_n, struct error *e);
void store_lease_release(struct lease *l, const struct expert_view *views, uint32_t n);
void store_lease_end(struct lease *l); /* an open one */
void store_take_hints(struct store *s, const struct prediction *p, uint32_t n);
void store_take_expected(struct store *s, uint16_t layer, uint32_t ahead, const uint8_t *chances);

/* store.c: begins to read an expert that is ABSENT into a spare slot; there is one, and room for its reads. */
void store_start(struct store *s, struct expert_key key, enum read_priority priority);

/* store.c: makes the slot of an expert spare when nobody has a claim to it. */
void store_let_go(struct store *s, struct expert_key key);

/* store.c: books experts that have arrived; failures of what nobody asks for are just not there. */
void store_take_arrivals(struct store *s);

/* store.c: starts what open leases ask for. Returns whether nothing of it waits for a slot. */
bool store_start_all(struct store *s);

/* store_ahead.c */
void store_read_hinted(struct store *s); /* what was hinted, into slots that nobody waits for */
void store_read_warm(struct store *s);   /* behind everything else, what stays because it was popular */
void store_expire_hints(struct store *s, bool all); /* gives up those whose visit is past, or all, for the slots */
void store_claim_hint(struct store *s, struct expert_key key); /* a lease asks for an expert that was predicted */

/* store_ahead.c: the read of an expert that a hint has claimed has failed; its slot is spare again. */
void store_drop_hint(struct store *s, struct expert_key key);

/* store_ahead.c: the read of an expert that was given up has ended like this. */
void store_settle(struct store *s, struct expert_key key, int status);

#endif
