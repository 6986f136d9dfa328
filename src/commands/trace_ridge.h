/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: ridge regression from many rows: the sums of its normal equations, and solving them. Must not know: what is regressed. */
#ifndef SLUICE_COMMANDS_TRACE_RIDGE_H
#define SLUICE_COMMANDS_TRACE_RIDGE_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "src/run/engine.h"

struct ridge {
    uint32_t inputs, outputs; /* inputs without the constant */
    double *sums;             /* [inputs + 1][inputs + 1 + outputs]: X'X and X'Y, X with a last column of ones; then L and the solution */
    float *tiles;             /* [workers][RIDGE_TILE][inputs + 1 + outputs] */
};

enum { RIDGE_TILE = 32 };

int ridge_init(struct ridge *r, uint32_t inputs, uint32_t outputs, uint32_t workers, struct error *e);
void ridge_deinit(struct ridge *r); /* accepts an all-zero one */

static inline size_t ridge_width(const struct ridge *r) { return (size_t)r->inputs + 1 + r->outputs; }

/* Adds `rows` rows: columns [inputs + 1][rows] of X, its constant included, and the rows themselves with their outputs behind:
 * [rows][ridge_width]. Products run on g's threads. */
int ridge_add(struct ridge *r, struct engine *g, const float *columns, const float *rows, uint32_t n, struct error *e);

/* sums[i][inputs + 1 + k] becomes the weight of input i (inputs: the constant) for output k; `penalty` > 0 of each squared weight. */
int ridge_solve(struct ridge *r, double penalty, struct error *e);

#endif
