/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what `sluice trace predict` shows of predictors: a table, JSON, a plot. Must not know: how it was measured. */
#ifndef SLUICE_COMMANDS_TRACE_PREDICT_H
#define SLUICE_COMMANDS_TRACE_PREDICT_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "src/base/str.h"
#include "src/tier/predict.h"

struct predict_report {
    const struct predict *predict;
    const struct recall *exact; /* one list: the shadow row with every draft right; no rows: there was none */
    size_t texts;
    const char *learned;        /* path of the file of learned predictors; NULL: none */
    uint32_t first_position;
    uint64_t drafted, right;    /* positions with a draft, and with the right one */
};

void predict_report_text(const struct predict_report *r, struct str *out);
void predict_report_json(const struct predict_report *r, struct str *out);

/* Calibration of the fused chances as an SVG file. */
int predict_report_plot(const struct predict_report *r, const char *path, struct error *e);

#endif
