/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: measuring what the machine can do at best - reading memory, multiplying - with loops that do
 * nothing else (cpu_peak). The best sample is the ceiling; the others tell how steady the machine is. Units
 * keep their rate and short samples find it; memory that others use, too, is sampled for longer than their pauses last.
 * Must not know: models, plans. */
#ifndef SLUICE_RUN_PROBE_RATES_H
#define SLUICE_RUN_PROBE_RATES_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/error.h"
#include "cpu/cpu.h"
#include "src/base/clock.h"
#include "src/base/numa.h"
#include "src/place/machine.h"

enum { RATES_SAMPLES_MAX = 64 };

/* Per second: bytes, or operations. All zero: not measured. */
struct rate {
    double best, median, worst;
    uint32_t samples;
};

struct rates; /* threads pinned to cores, and a buffer far larger than the caches, first touched by its readers */

struct rates_options {
    const struct topology *topology;
    uint32_t threads;             /* at most the topology's cores are used, evenly from its nodes as the token loop does */
    enum cpu_isa isa;
    uint64_t memory;              /* most bytes the buffer may take; 0: no limit but what the machine has free */
    struct clock clock;
    const atomic_int *cancel;     /* may be NULL; read between samples */
};

/* ERROR_DOES_NOT_FIT when `memory` is too little for a buffer that the caches cannot hold. */
int rates_create(const struct rates_options *o, struct rates **ret, struct error *e);
void rates_destroy(struct rates *r);

uint32_t rates_threads(const struct rates *r);
const struct cpu_peak *rates_peak(const struct rates *r);
uint64_t rates_buffer_bytes(const struct rates *r);

/* Each worker's share of the buffer, for benches that bring work of their own. */
void *rates_part(const struct rates *r, uint32_t worker, size_t *ret_bytes);

typedef void (*rates_fn)(void *ctx, uint32_t worker);

/* Who takes part: all workers, worker 0 alone, or those of the memory node with an index >= 0. */
enum { RATES_ALL = -1, RATES_ONE = -2 };
uint32_t rates_count(const struct rates *r, int who);

/* Calls fn on each of them, all starting together; returns the seconds from the start to the last end. */
double rates_time(struct rates *r, int who, rates_fn fn, void *ctx);

/* The functions below return 0 or ERROR_INTERRUPTED; with `seconds` they take about so long, at least three samples. */

/* Bytes per second that they read from their parts: after short samples that find the two best stream counts, samples of
 * about 50 ms with these in turn. Where `seconds` is too little for three of them they are shorter. */
int rates_read(struct rates *r, int who, double seconds, struct rate *ret, struct error *e);

/* The first half of rates_read alone, some 50 ms, for benches that take samples between work of their own. */
struct read_way {
    uint32_t streams[2]; /* the best counts, the best one first */
    double bytes_s;      /* bytes per second of the best short sample */
};
int rates_read_way(struct rates *r, int who, struct read_way *ret, struct error *e);

/* One of those samples: about `bytes` in all, in so many streams, from byte `from` of each part on and round and round. Returns bytes
 * per second. */
double rates_read_once(struct rates *r, int who, uint32_t streams, uint64_t from, double bytes);

/* Operations per second; all zero where there are no such units. */
int rates_compute(struct rates *r, enum peak_kind kind, int who, double seconds, struct rate *ret, struct error *e);

/* Memory and peaks into the facts of a machine; rates of its drive are left alone. About 2 s. */
int rates_machine(struct rates *r, struct machine *m, struct error *e);

/* Sorts the samples and sums them up. */
struct rate rate_of(double *samples, uint32_t n);

#endif
