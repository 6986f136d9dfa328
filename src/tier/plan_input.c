/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: plan_input.h. Must not know: limits, the machine. */
#include "src/tier/plan_input.h"

#include <string.h>

#include "io/container.h"
#include "src/tier/cost_input.h"
#include "src/tier/learned.h"
#include "src/tier/predict.h"
#include "src/tier/resident.h"
#include "src/tier/store.h"

static uint64_t table_bytes(const struct weights *w)
{
    enum { TENSOR_BYTES = sizeof(struct tensor) + 2 * NAME_BYTES }; /* entry, name, index */
    uint64_t layer_bytes = sizeof(struct layer_refs) + sizeof(struct resident_layer) + w->shape.experts * sizeof(struct expert_refs);
    uint64_t sum = shape_all_layers(&w->shape) * layer_bytes;
    for (uint32_t i = 0; i < w->n_containers; i++) {
        sum += w->containers[i]->n_tensors * TENSOR_BYTES;
    }
    return sum;
}

static enum kv_type kv_type_by_name(const char *name)
{
    int t = 0;
    while (t < KV_TYPE_COUNT - 1 && strcmp(kv_type_name((enum kv_type)t), name) != 0) { /* settings allow known names only */
        t++;
    }
    return (enum kv_type)t;
}

/* What reading ahead holds (src/run/expect): tables of predictors, what they have learned, rows of the MTP layer. */
static uint64_t ahead_bytes(const struct weights *w, const struct settings *settings)
{
    enum { EXTRA = 64 }; /* rows of a step beside a prompt's chunk */
    const struct shape *s = &w->shape;
    const struct predict_options o = {.layers = s->layers, .experts = s->experts, .used = s->experts_used};
    if (strcmp(settings->prefetch, "off") == 0 || s->experts == 0) {
        return 0;
    }
    uint64_t rows = s->mtp_layers > 0 ? settings->ubatch + EXTRA : 0;
    return predict_bytes(&o) + learned_file_bytes(w->containers[0]) + rows * align_up_u64(2ull * s->hidden, 256) * sizeof(float);
}

void plan_input_init(struct plan_input *ret, const struct weights *w, const struct settings *settings, uint32_t nodes)
{
    struct resident_sizes resident;
    struct store_sizes store;
    bool governed;
    resident_measure(w, nodes, &resident);
    store_measure(w, nodes, &store);
    *ret = (struct plan_input){
        .shape = &w->shape,
        .resident_bytes = resident.weights,
        .idle_bytes = resident.idle,
        .scale_bytes = resident.scales + store.scales,
        .expert_bytes = store.all,
        .max_expert_bytes = store.slot,
        .table_bytes = store.tables + table_bytes(w),
        .ram_setting = settings->ram,
        .expert_ram = settings->expert_ram,
        .ahead_bytes = ahead_bytes(w, settings),
        .threads = settings->threads,
        .ubatch = settings->ubatch,
        .context = settings->context,
        .sessions = settings->parallel,
        .kv = kv_type_by_name(settings->kv_type),
        .drafts = w->shape.mtp_layers > 0 ? settings_drafts(settings, &governed) : 0,
    };
    for (uint32_t k = 0; k < nodes; k++) {
        ret->node_bytes[k] = resident.node[k] + store.all_node[k];
        ret->node_expert_bytes[k] = store.all_node[k];
        ret->node_slot_bytes[k] = store.slot_node[k];
    }
    cost_input_init(&ret->cost, w);
}
