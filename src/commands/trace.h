/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what `sluice trace` was asked, and its two reports. Must not know: how they are made. */
#ifndef SLUICE_COMMANDS_TRACE_H
#define SLUICE_COMMANDS_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "src/base/str.h"
#include "src/commands/trace_csv.h"

struct trace_options {
    const char *path;
    uint32_t experts; /* per layer; at least those of the trace */
    uint32_t first_position, half_life, top;
    const char *cache, *policy; /* as typed */
    const char *plot;           /* path; NULL: none */
    bool json;
    const volatile int *cancel;
};

/* Hit ratios of policies over sizes of the cache, to standard output. */
int trace_simulate(const struct trace *t, const struct trace_options *o, struct error *e);

/* Use of experts, to standard output. */
int trace_report(const struct trace *t, const struct trace_options *o, struct error *e);

/* Commands that run a model; argv[0] is the verb. *ret_help: help was asked for. */
int trace_record(int argc, char **argv, const volatile int *cancel, bool *ret_help, struct error *e);
int trace_play(int argc, char **argv, const volatile int *cancel, bool *ret_help, struct error *e); /* runs none: plays an event file */
int trace_fit(int argc, char **argv, const volatile int *cancel, bool *ret_help, struct error *e);
int trace_predict(int argc, char **argv, const volatile int *cancel, bool *ret_help, struct error *e);

/* The first members of the JSON of both reports; counted: tokens from first_position on. */
void trace_json_head(const struct trace *t, const struct trace_options *o, uint64_t counted, struct str *out);

#endif
