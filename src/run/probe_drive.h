/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: measuring how fast a drive reads, past the page cache. Must not know: models. */
#ifndef SLUICE_RUN_PROBE_DRIVE_H
#define SLUICE_RUN_PROBE_DRIVE_H

#include <stdatomic.h>

#include "common/error.h"
#include "src/base/clock.h"
#include "src/run/probe_rates.h"

struct drive_options {
    const char *path;         /* a large file on it; read only */
    double seconds;           /* about so long in all */
    struct clock clock;
    const atomic_int *cancel; /* may be NULL; read between reads */
};

/* A way of reading, and what came of it. */
struct drive_way {
    uint32_t depth, chunk; /* reads in flight; bytes of each */
    struct rate rate;      /* bytes per second */
};

/* Ways are in the order of depths, then of chunks: the first that reaches 97 % of the fastest. The fewer reads are in flight, the
 * sooner is one done that comes in between. n is not 0. */
const struct drive_way *drive_way_choose(const struct drive_way *ways, size_t n);

/* *ret: the rate of the fastest of depths 8, 16, 32, 64 and reads of 256K, 512K, 1M, 2M, with its samples, and the depth and chunk
 * that drive_way_choose takes. All zero where the file is small or the file system refuses O_DIRECT: then `why` says so, as part of
 * a sentence. ERROR_INTERRUPTED when cancelled. */
int probe_drive(const struct drive_options *o, struct drive_way *ret, char *why, size_t why_bytes, struct error *e);

#endif
