/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the dense FFN down(silu(gate x) * (up x)): dense layers and shared experts. */
#ifndef SLUICE_RUN_DENSE_H
#define SLUICE_RUN_DENSE_H

#include "src/run/product.h"

/* Result in work.out [n, stride(hidden)]. `width`: rows of gate. */
int dense_run(struct engine *g, const struct batch *b, const struct matrix_view *gate, const struct matrix_view *up, const struct matrix_view *down, struct activation *norm, struct error *e);

#endif
