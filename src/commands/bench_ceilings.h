/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the machine can do around each repeat of a test of `sluice bench`. Must not know: what is repeated. */
#ifndef SLUICE_COMMANDS_BENCH_CEILINGS_H
#define SLUICE_COMMANDS_BENCH_CEILINGS_H

#include "src/place/machine.h"
#include "src/run/probe_rates.h"

enum { CEILING_READ = PEAK_COUNT, CEILINGS };

/* By all threads, per second: operations of each peak_kind, bytes read. 0: not measured, or no such units. */
struct ceilings {
    double of[CEILINGS];
};

/* About 0.4 s. `r` NULL: all 0. 0 or ERROR_INTERRUPTED. */
int ceilings_measure(struct rates *r, struct ceilings *ret, struct error *e);

/* measured [n + 1]: before, between and after n repeats. ret_each [n]: of each repeat the higher of just before and just after
 * it, so that a repeat never looks better for a ceiling that a neighbour pressed down. ret_median: of each rate, over ret_each. */
void ceilings_pair(const struct ceilings *measured, uint32_t n, struct ceilings *ret_each, struct ceilings *ret_median);

/* A machine of which only these rates are known, as src/place/cost takes it. */
struct machine ceilings_machine(const struct ceilings *c);

#endif
