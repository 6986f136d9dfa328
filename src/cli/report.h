/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: figures of a run as JSON and as a line for people. Must not know: how they came about. */
#ifndef SLUICE_CLI_REPORT_H
#define SLUICE_CLI_REPORT_H

#include <stdint.h>

#include "sluice/sluice.h"
#include "src/base/str.h"
#include "src/cli/term.h"

struct timings {
    size_t prompt_n; /* tokens computed before the first answer token */
    double prompt_s;
    size_t answer_n; /* tokens of the answer; the last one needs no step */
    uint32_t decode_n; /* steps of one token */
    double decode_s;
    uint64_t decode_ram;  /* bytes of weights that kernels read meanwhile */
    uint64_t decode_nvme; /* bytes of experts read from a drive meanwhile, ahead or for nothing too */
};

/* A finite number, or null. */
void report_number(struct str *out, double value);
/* The object "timings" (design: one row of sluice bench, too). */
void report_timings(struct str *out, const struct sluice_engine *engine, const struct timings *t);
void report_line(struct term *term, const struct sluice_engine *engine, const struct timings *t);

#endif
