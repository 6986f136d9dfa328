/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: finding out what the machine allows this process - memory limits, cores, CPU quota - and the default number of
 * threads. Must not know: models, plans. */
#ifndef SLUICE_RUN_PROBE_H
#define SLUICE_RUN_PROBE_H

#include "common/error.h"
#include "src/base/numa.h"
#include "src/place/machine.h"

struct probe_options {
    const char *root;                /* put before /proc and /sys: recorded trees in tests; NULL: the real ones */
    const struct topology *topology; /* NULL: topology_read */
};

/* `options` may be NULL. Measured rates stay 0. What cannot be read counts as no limit, but for the memory itself. */
int probe_machine(const struct probe_options *options, struct machine *ret, struct error *e);

/* Threads when none are asked for: the physical cores allowed, at most the whole CPUs of the cgroup quota, at least 1.
 * `why` gets the reason for people: "8 physical cores". */
uint32_t probe_threads(const struct machine *m, char *why, size_t why_bytes);

#endif
