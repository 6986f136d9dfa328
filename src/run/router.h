/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: choosing experts: router product (exact in every row class) and selection. No cache awareness. */
#ifndef SLUICE_RUN_ROUTER_H
#define SLUICE_RUN_ROUTER_H

#include "src/run/product.h"

/* Fills work.ids and work.weights for all rows and calls on_route. */
int router_run(struct engine *g, const struct batch *b, uint32_t layer, struct activation *norm, struct error *e);

#endif
