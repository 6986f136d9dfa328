/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the rate at which decoding can read a model's weights: its formats through their kernels, one activation row, out of memory.
 * Must not know: reports, what a token waits for. */
#ifndef SLUICE_COMMANDS_MEASURE_DECODE_H
#define SLUICE_COMMANDS_MEASURE_DECODE_H

#include "src/base/numa.h"
#include "src/model/names.h"
#include "src/place/machine.h"

/* Bytes of each format that a token reads. bytes [FORMAT_COUNT]. */
void decode_bytes(const struct weights *w, double *bytes);

/* m->decode_read_gb_s, by as many threads as the token loop would have here; about 0.3 s for each format. Left at 0 where there is too
 * little memory to get past the caches. 0, ERROR_INTERRUPTED or no memory. */
int measure_decode(const struct weights *w, const volatile int *cancel, struct machine *m, struct error *e);

#endif
