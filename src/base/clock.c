/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the system clock and the manual one. Must not know: what is timed. */
#include "src/base/clock.h"

#include <stddef.h>
#include <time.h>

#include "common/attr.h"

static uint64_t system_now(void *ctx ATTR_UNUSED)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct clock clock_system(void) { return (struct clock){ .now_ns = system_now, .ctx = NULL }; }

static uint64_t manual_now(void *ctx) { return ((const struct clock_manual *)ctx)->ns; }

struct clock clock_manual_as_clock(struct clock_manual *m) { return (struct clock){ .now_ns = manual_now, .ctx = m }; }

double clock_seconds_since(const struct clock *c, uint64_t start_ns)
{
    return (double)(clock_now_ns(c) - start_ns) * 1e-9;
}
