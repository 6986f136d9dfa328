/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: selection biases that give the experts of a synthetic model a popularity of rank^-s. Must not know: tensors. */
#ifndef SLUICE_COMMANDS_SYNTH_ROUTER_H
#define SLUICE_COMMANDS_SYNTH_ROUTER_H

#include "common/error.h"
#include "common/ops.h"
#include "src/model/shape.h"

struct synth_router {
    const struct shape *shape;
    double zipf;
    float *bias; /* [experts] by rank, dealt over the groups; malloc'd; NULL: no skew */
};

/* Finds the biases by routing random scores with `ops`: groups and their rule have a part in what is chosen. */
int synth_router_init(struct synth_router *r, const struct shape *shape, double zipf, const struct ops *ops, struct error *e);
void synth_router_deinit(struct synth_router *r);

/* The bias of one layer, [experts]: the experts in an order of the seed. */
void synth_router_layer(const struct synth_router *r, uint64_t seed, float *out);

/* Chance to be chosen wanted for each rank, [experts]; adds up to `used`, none above 0.95. */
void synth_router_targets(double zipf, uint32_t experts, uint32_t used, double *out);

#endif
