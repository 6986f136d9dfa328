/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: events_model.h. Must not know: what is played through it. */
#include "src/commands/events_model.h"

#include <stdlib.h>

#include "common/attr.h"
#include "io/reader.h"

enum { ALIGN = 4096 };

/* One row; as many columns as the scales need. No format that is checked when it arrives. */
static struct weight_ref ref_of(const struct events_model *m, const struct events_layer *l, int part, uint64_t *at)
{
    struct weight_ref r = {.file = &m->file, .offset = *at, .bytes = l->bytes[part], .name = "expert", .rows = 1, .cols = 1, .format = FORMAT_Q8_0};
    if (l->scales[part] > 0) {
        r.cols = FORMAT_SCALE_BLOCK * l->scales[part];
        r.scale = &m->scale;
        r.scale_file = &m->file;
    }
    *at += r.bytes;
    return r;
}

static void lay_out(struct events_model *m, const struct events_setting *s)
{
    struct expert_refs *next = m->experts;
    uint64_t at = 0;
    for (uint32_t i = 0; i < s->layers + s->mtp_layers; i++) {
        if (!events_has_experts(s, i)) {
            continue;
        }
        m->layers[i].experts = next;
        for (uint32_t k = 0; k < s->experts; k++, next++) {
            next->gate = ref_of(m, &s->layer[i], 0, &at);
            next->up = ref_of(m, &s->layer[i], 1, &at);
            next->down = ref_of(m, &s->layer[i], 2, &at);
        }
    }
    m->file.size = at;
}

int events_model_init(struct events_model *m, const struct events_setting *s, uint32_t cached, struct reader *reader, struct error *e)
{
    uint32_t layers = s->layers + s->mtp_layers, with = 0;
    *m = (struct events_model){.reader = reader, .file = {.path = (char *)"events", .fd = -1, .direct_fd = -1, .direct_align = ALIGN}};
    for (uint32_t i = 0; i < layers; i++) {
        with += events_has_experts(s, i);
    }
    m->layers = calloc(layers, sizeof(*m->layers));
    m->experts = calloc((size_t)with * s->experts, sizeof(*m->experts));
    if (m->layers == NULL || m->experts == NULL) {
        return error_nomem(e, "table of experts", (uint64_t)with * s->experts * sizeof(*m->experts));
    }
    m->weights.shape = (struct shape){.layers = s->layers, .mtp_layers = s->mtp_layers, .dense_layers = s->dense_layers, .moe_layer_freq = s->moe_layer_freq, .experts = s->experts, .experts_used = s->experts_used};
    m->weights.layers = m->layers;
    lay_out(m, s);
    struct loader loader = {.nodes = 1, .bare = true};
    struct store_options o = {.cached = cached, .staging = s->staging, .reader = reader, .requests = s->room * EXPERT_PARTS};
    return store_create(&m->weights, &loader, &o, &m->counters, &m->store, e);
}

void events_model_deinit(struct events_model *m)
{
    store_destroy(m->store);
    reader_destroy(m->reader);
    free(m->layers);
    free(m->experts);
    *m = (struct events_model){0};
}

void events_model_range(const struct events_model *m, struct expert_key key, uint64_t *ret_begin, uint64_t *ret_end)
{
    const struct expert_refs *x = &m->layers[key.layer].experts[key.expert];
    *ret_begin = x->gate.offset;
    *ret_end = x->down.offset + x->down.bytes;
}

void events_model_counted(const struct events_model *m, uint64_t ret[EVENTS_COUNTERS])
{
    for (uint32_t i = 0; i < EVENTS_COUNTERS; i++) {
        ret[i] = counter_get(counters_find(&m->counters, events_counter(i)));
    }
}
