/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: results of `sluice bench` as a table, CSV and JSON (docs/performance.md). Must not know: how they were measured. */
#ifndef SLUICE_COMMANDS_BENCH_REPORT_H
#define SLUICE_COMMANDS_BENCH_REPORT_H

#include <stdint.h>

#include "src/base/str.h"
#include "src/place/cost.h"
#include "src/run/probe_rates.h"

enum { BENCH_REPEATS_MAX = RATES_SAMPLES_MAX, BENCH_WINDOW = 100 };

/* Facts that all rows of a run share. */
struct bench_setting {
    const char *machine, *model; /* lines for people */
    const char *steps_down;      /* JSON list */
};

/* One test: a prompt of prompt_n tokens, or decode_n steps. */
struct bench_row {
    char test[40];                /* "pp512", "tg128", "tg128 x4", "tg128 @ 4096" */
    uint32_t threads, ubatch;
    uint32_t prompt_n, decode_n, rows, depth; /* rows: timelines that step together */
    double seconds[BENCH_REPEATS_MAX]; /* [repeats] in the order they ran */
    uint32_t repeats;
    double ram_bytes;             /* per token: weights and cached latents that have to be read */
    double nvme_bytes;            /* per token: what came from drives, counted by the kernel */
    double resident_share;        /* of the memory of the process that is not swapped out */
    uint32_t window;              /* tokens of the two below, 0: too few */
    double first_s, last_s;       /* median over the repeats: the first and the last `window` tokens */
    double ceiling[BENCH_REPEATS_MAX]; /* [repeats] memory reads around each, bytes per second; 0: not measured */
    double roof_s[BENCH_REPEATS_MAX];  /* [repeats] least seconds at the ceilings around each; 0: unknown */
    struct roof roof;             /* of one repeat, at the median ceilings */
    struct rate drift;            /* memory reads, all measurements of the test, bytes per second */
    uint64_t hits, misses, cache_bytes, drafted, accepted;
    uint64_t read_bytes, missed_bytes; /* of experts: what came from a drive, asked for or ahead; those that missed, scales included */
};

/* Tokens per second of each repeat. */
struct rate bench_speed(const struct bench_row *row);

void bench_text(const struct bench_setting *s, const struct bench_row *rows, uint32_t n, struct str *out);
void bench_csv(const struct bench_setting *s, const struct bench_row *rows, uint32_t n, struct str *out);
void bench_json(const struct bench_setting *s, const struct bench_row *rows, uint32_t n, struct str *out);

#endif
