/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: running the tests of `sluice bench` on an open engine, each between measurements of the ceilings. Must not know: how
 * results are shown. */
#ifndef SLUICE_COMMANDS_BENCH_RUN_H
#define SLUICE_COMMANDS_BENCH_RUN_H

#include <stdbool.h>

#include "src/commands/bench_report.h"
#include "src/run/engine.h"

/* What is run: a prompt of prompt_n tokens, or decode_n steps of `rows` timelines, from position `depth` on. */
struct bench_test {
    uint32_t prompt_n, decode_n, rows, depth;
    bool likely; /* decode the likeliest tokens, drafting as a run does; else only where --mtp asks for a number of drafts */
};

struct bench_run {
    struct engine *engine;
    struct rates *rates;      /* NULL: no ceilings */
    struct cost cost;         /* of the model: src/tier/cost_input.h */
    uint32_t repeats;
    double drive;             /* bytes per second that the drive of the model gives; 0: unknown, or nothing is read from it */
    bool progress;            /* a line on stderr */
};

/* The name in tables: "pp512", "tg128 x4 @ 4096". */
void bench_test_name(const struct bench_test *t, char *out, size_t bytes);

/* Reads all weights once, as a prompt and as decoding would. */
int bench_warm_up(struct bench_run *b, struct error *e);

int bench_test_run(struct bench_run *b, const struct bench_test *t, struct bench_row *ret, struct error *e);

#endif
