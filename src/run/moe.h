/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the experts of a layer: union of the rows' routed experts, leases in waves, the shared expert beside them, sum in
 * rising expert id. Must not know: I/O, who decided the placement. */
#ifndef SLUICE_RUN_MOE_H
#define SLUICE_RUN_MOE_H

#include "src/run/product.h"

/* norm: rows after the FFN norm; work.ids, work.weights hold the routing. Adds the shared experts (through work.out) and the
 * experts' sum to b->x. */
int moe_run(struct engine *g, struct batch *b, uint32_t layer, struct activation *norm, struct error *e);

/* Expert whose output for this row of the last moe_run is not finite, -1: none. For the message of a failed layer. */
int32_t moe_find_non_finite(const struct engine *g, uint32_t row);

#endif
