/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the command line of `sluice bench` asked for, as its two halves read it. Must not know: how it is done. */
#ifndef SLUICE_COMMANDS_BENCH_H
#define SLUICE_COMMANDS_BENCH_H

#include <stdbool.h>

#include "common/error.h"
#include "src/base/settings.h"

enum { BENCH_LIST_MAX = 256 };

struct bench_list {
    uint32_t value[BENCH_LIST_MAX];
    uint32_t n;
};

struct bench_options {
    struct settings settings;
    struct bench_list prompts, generated, depths, rows, threads; /* -p, -n, -d, --rows, -t; no threads: the default */
    uint32_t repeats;
    bool json, csv, cold, quiet; /* cold: --no-warmup */
    bool kernels, generated_set; /* generated_set: -n was given */
    const char *replay, *cache; /* --replay TRACE, --cache LIST; or NULL */
    const char *types; /* --type, or NULL: all */
};

/* Runs tests on a model, or operations alone; prints. 0 or a negative code. */
int bench_model(struct bench_options *o, const volatile int *cancel, struct error *e);
int bench_replay(const struct bench_options *o, const volatile int *cancel, struct error *e);
int bench_kernels(const struct bench_options *o, const volatile int *cancel, struct error *e);

#endif
