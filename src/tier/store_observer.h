/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what one observer is told of a store: each call with its arguments, and within it what has arrived. The same calls with the
 * same arrivals give the same state and the same counters. Must not know: who observes, and why. */
#ifndef SLUICE_TIER_STORE_OBSERVER_H
#define SLUICE_TIER_STORE_OBSERVER_H

#include "src/tier/store.h"

enum store_call_kind { STORE_BEGIN, STORE_HINT, STORE_EXPECT, STORE_NEXT, STORE_RELEASE, STORE_END, STORE_CALLS };

struct store_call {
    enum store_call_kind kind;
    uint32_t lease;                  /* number, below STORE_LEASES; STORE_HINT, STORE_EXPECT: 0 */
    const struct store_visit *visit; /* STORE_BEGIN, else NULL */
    const struct prediction *hints;  /* STORE_HINT: [n], else NULL */
    const uint8_t *chances;          /* STORE_EXPECT: [n] of the experts of `layer`, `ahead` visits away, else NULL */
    uint32_t layer, ahead;
    uint32_t n, max;                 /* STORE_NEXT: n experts handed out of at most max; STORE_RELEASE: n given back */
};

struct store_observer {
    void (*enter)(void *ctx);   /* a call begins */
    void (*collect)(void *ctx); /* within a call: what has arrived since the last time is about to be booked */
    void (*arrive)(void *ctx, struct expert_key key, int status); /* part of it; 0, or why nothing is there */
    void (*leave)(void *ctx, const struct store_call *call); /* the call has ended, without an error */
    void *ctx;
};

/* From now on; NULL: nobody. Borrowed. Pointers of calls die when they end. */
void store_observe(struct store *s, const struct store_observer *o);

/* What store_create was given: cached, staging, requests; no reader. */
struct store_options store_options_of(const struct store *s);

#endif
