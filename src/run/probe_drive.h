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

/* Bytes per second, best of several depths and sizes; the samples are those of the best. All zero where the file is small
 * or the file system refuses O_DIRECT: then `why` says so, as part of a sentence. ERROR_INTERRUPTED when cancelled. */
int probe_drive(const struct drive_options *o, struct rate *ret, char *why, size_t why_bytes, struct error *e);

#endif
