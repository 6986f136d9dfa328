/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the byte sums of a bound model as the tiers will allocate them. Must not know: limits. */
#include "src/tier/sizes.h"

#include "src/tier/resident.h"
#include "src/tier/store.h"

static uint64_t count_tensors(const struct weights *w)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < w->n_containers; i++) {
        n += w->containers[i]->n_tensors;
    }
    return n;
}

void sizes_fill(const struct weights *w, struct plan_input *in)
{
    enum { TENSOR_BYTES = sizeof(struct tensor) + 2 * NAME_BYTES }; /* entry, name, index */
    struct resident_sizes resident;
    struct store_sizes store;
    resident_measure(w, &resident);
    store_measure(w, &store);
    uint64_t layer_bytes = sizeof(struct layer_refs) + sizeof(struct resident_layer) + w->shape.experts * sizeof(struct expert_refs);
    in->shape = &w->shape;
    in->resident_bytes = resident.weights;
    in->scale_bytes = resident.scales + store.scales;
    in->idle_bytes = resident.idle;
    in->expert_bytes = store.experts;
    in->max_expert_bytes = store.largest;
    in->table_bytes = store.tables + shape_all_layers(&w->shape) * layer_bytes + count_tensors(w) * TENSOR_BYTES;
}
