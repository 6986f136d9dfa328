/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: time as an injectable object. Must not know: what is timed. */
#ifndef SLUICE_BASE_CLOCK_H
#define SLUICE_BASE_CLOCK_H

#include <stdint.h>

struct clock {
    uint64_t (*now_ns)(void *ctx); /* monotonic */
    void *ctx;
};

struct clock clock_system(void);

/* A clock that moves only when told; for tests. */
struct clock_manual {
    uint64_t ns;
};
struct clock clock_manual_as_clock(struct clock_manual *m);

static inline uint64_t clock_now_ns(const struct clock *c) { return c->now_ns(c->ctx); }
double clock_seconds_since(const struct clock *c, uint64_t start_ns);

#endif
