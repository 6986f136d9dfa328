/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a budget of bytes per second, for one reader or several: their threads may take from it at once. Something may be taken,
 * whatever its size, when all that was taken before is paid for. Must not know: what is read. */
#ifndef SLUICE_IO_READ_RATE_H
#define SLUICE_IO_READ_RATE_H

#include <stdatomic.h>
#include <stdint.h>

#include "src/base/clock.h"

struct read_rate {
    uint64_t limit;   /* bytes per second; 0: none, the clock is not looked at */
    struct clock clock;
    _Atomic uint64_t paid_ns; /* when all that was taken is paid for */
};

/* Nanoseconds until something may be taken; 0: now. */
uint64_t read_rate_wait_ns(const struct read_rate *r);

/* Two that take at the same moment pay for both afterwards. */
void read_rate_take(struct read_rate *r, uint64_t bytes); /* up to 4 GiB at a time */

#endif
