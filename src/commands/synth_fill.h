/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what fills each tensor of a synthetic model: ones, a bias, or random weights of a deviation that keeps activations near 1.
 * Must not know: files, block layouts. */
#ifndef SLUICE_COMMANDS_SYNTH_FILL_H
#define SLUICE_COMMANDS_SYNTH_FILL_H

#include "common/ops.h"
#include "src/commands/output.h"
#include "src/commands/synth_router.h"

struct synth_fill {
    const struct tensor_list *list;
    const struct shape *shape;
    uint64_t seed;
    struct synth_router router;
    struct ops ops; /* scalar: the same blocks on every machine */
};

int synth_fill_init(struct synth_fill *f, const struct tensor_list *list, const struct shape *shape, uint64_t seed, double zipf, struct error *e);
void synth_fill_deinit(struct synth_fill *f);

/* A piece of a tensor; output_job.make with a struct synth_fill. */
int synth_fill_piece(void *ctx, const struct output_piece *piece, void *out, uint32_t worker, struct error *e);

#endif
