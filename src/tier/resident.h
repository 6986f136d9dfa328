/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: dense weights (attention, shared experts, routers, embedding, head, MTP): loaded once by plan, never evicted.
 * Matrices keep their file layout; vectors are float32. Must not know: arithmetic. */
#ifndef SLUICE_TIER_RESIDENT_H
#define SLUICE_TIER_RESIDENT_H

#include <stdint.h>

#include "common/error.h"
#include "common/view.h"
#include "src/model/names.h"
#include "src/tier/load.h"

struct slot_buffers;

struct resident_layer {
    struct weight_view matrix[ROLE_COUNT]; /* rows == 0: absent */
    const float *vector[ROLE_COUNT];       /* NULL: absent */
};

struct resident {
    struct weight_view embed, head;
    const float *final_norm;        /* [hidden] */
    struct resident_layer *layers;  /* [shape_all_layers] */
    struct slot_buffers *storage;
};

/* Bytes that resident_create allocates, for the plan. */
struct resident_sizes {
    uint64_t weights; /* matrices and vectors, alignment included */
    uint64_t node[WEIGHT_NODES_MAX]; /* of weights, per node */
    uint64_t scales;  /* FP8 scales as float32 */
    uint64_t idle;    /* of weights: not read for every token (embedding table unless tied, MTP layers) */
};
void resident_measure(const struct weights *w, uint32_t nodes, struct resident_sizes *ret);

int resident_create(const struct weights *w, struct loader *loader, struct resident **ret, struct error *e);
void resident_destroy(struct resident *r);

#endif
