/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a registry of named 64-bit counters, one per engine, read by reports and the server's metrics.
 * Must not know: what is counted. */
#ifndef SLUICE_BASE_COUNTERS_H
#define SLUICE_BASE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/error.h"

/* Names are dotted: "tokens.decode", "expert.ram.hits", "read.bytes". */
struct counter {
    const char *name; /* static string */
    const char *help; /* static string, one line with the unit */
    _Atomic uint64_t value;
};

enum { COUNTERS_MAX = 192 };

struct counters {
    uint32_t n;
    struct counter item[COUNTERS_MAX];
};

/* Finds or adds; at open time only. NULL when full (a programming error, asserted in tests). */
struct counter *counters_register(struct counters *c, const char *name, const char *help);
const struct counter *counters_find(const struct counters *c, const char *name);

static inline void counter_add(struct counter *c, uint64_t n) { atomic_fetch_add_explicit(&c->value, n, memory_order_relaxed); }
static inline uint64_t counter_get(const struct counter *c) { return atomic_load_explicit(&c->value, memory_order_relaxed); }

#endif
