/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: who computes the products of bulk rows: our kernels or OpenBLAS on dequantised weights, for each format of the model.
 * Fixed when the model opens: bits depend on it. Must not know: when products are computed. */
#ifndef SLUICE_RUN_BULK_CHOICE_H
#define SLUICE_RUN_BULK_CHOICE_H

#include "src/run/engine.h"

/* Fills engine.bulk_own from --bulk; auto measures both, some milliseconds, and takes OpenBLAS only where it is clearly
 * faster, so that chance does not decide. */
int bulk_choose(struct engine *g, struct error *e);

#endif
