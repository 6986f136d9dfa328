/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: expert_slots.h. Must not know: which expert is in which slot. */
#include "src/tier/expert_slots.h"

#include <assert.h>
#include <stdlib.h>

#include "common/intmath.h"

static const struct weight_ref *part_ref(const struct expert_refs *x, int part)
{
    return part == 0 ? &x->gate : part == 1 ? &x->up : &x->down;
}

/* Takes the places of the matrices of one expert. */
static void take(struct slot_cursor *c, const struct expert_refs *x, struct slot_place ret[EXPERT_PARTS])
{
    for (int part = 0; part < EXPERT_PARTS; part++) {
        const struct weight_ref *ref = part_ref(x, part);
        ret[part] = slot_take(c, ref, weight_tile_rows(ref->rows, ref->cols));
    }
}

/* Calls of `at` for every expert, in order of layer and number. */
static void walk(const struct weights *w, void (*at)(void *ctx, uint32_t layer, uint32_t expert), void *ctx)
{
    for (uint32_t i = 0; i < shape_all_layers(&w->shape); i++) {
        for (uint32_t j = 0; w->layers[i].experts != NULL && j < w->shape.experts; j++) {
            at(ctx, i, j);
        }
    }
}

/* ---- sizes ---- */

struct measure {
    const struct weights *w;
    struct slot_cursor all;
    struct expert_slots_sizes *sizes;
};

static void measure_expert(void *ctx, uint32_t layer, uint32_t expert)
{
    struct measure *m = ctx;
    struct slot_place place[EXPERT_PARTS];
    struct slot_cursor one = {.nodes = m->all.nodes};
    take(&m->all, &m->w->layers[layer].experts[expert], place);
    take(&one, &m->w->layers[layer].experts[expert], place);
    m->sizes->experts++;
    for (uint32_t k = 0; k < one.nodes; k++) {
        m->sizes->each[k] = max_u64(m->sizes->each[k], slot_node_bytes(&one, k));
    }
}

void expert_slots_measure(const struct weights *w, uint32_t nodes, struct expert_slots_sizes *ret)
{
    *ret = (struct expert_slots_sizes){0};
    struct measure m = {.w = w, .all.nodes = nodes, .sizes = ret};
    walk(w, measure_expert, &m);
    for (uint32_t k = 0; k < nodes; k++) {
        ret->all[k] = slot_node_bytes(&m.all, k);
    }
    ret->scales = slot_scales_bytes(&m.all);
}

uint64_t expert_slots_table_bytes(const struct weights *w, uint32_t nodes, uint64_t n)
{
    uint64_t layers = shape_all_layers(&w->shape);
    return n * nodes * sizeof(uint64_t) + layers * w->shape.experts * sizeof(uint64_t) + layers * sizeof(uint32_t);
}

/* ---- create ---- */

struct layout {
    struct expert_slots *s;
    struct slot_cursor cursor;
    uint32_t next;
};

static void lay_out_expert(void *ctx, uint32_t layer, uint32_t expert)
{
    struct layout *l = ctx;
    struct expert_slots *s = l->s;
    struct slot_place place[EXPERT_PARTS];
    s->first[layer] = expert == 0 ? l->next : s->first[layer];
    s->scale_at[(size_t)layer * s->weights->shape.experts + expert] = l->cursor.scales;
    for (uint32_t k = 0; s->own && k < l->cursor.nodes; k++) {
        s->base[(size_t)l->next * l->cursor.nodes + k] = l->cursor.node[k];
    }
    take(&l->cursor, &s->weights->layers[layer].experts[expert], place);
    l->next++;
}

/* Where slots begin; returns the bytes of all. */
static struct slot_cursor lay_out(struct expert_slots *s, const struct expert_slots_sizes *sizes, uint32_t nodes)
{
    struct layout l = {.s = s, .cursor.nodes = nodes};
    walk(s->weights, lay_out_expert, &l);
    for (uint32_t k = 0; !s->own && k < nodes; k++) {
        for (uint32_t i = 0; i < s->n; i++) {
            s->base[(size_t)i * nodes + k] = i * sizes->each[k];
        }
        l.cursor.node[k] = s->n * sizes->each[k];
    }
    return l.cursor;
}

int expert_slots_init(struct expert_slots *s, const struct weights *w, uint32_t n, const struct loader *loader, struct error *e)
{
    uint32_t layers = shape_all_layers(&w->shape), nodes = loader->nodes;
    struct expert_slots_sizes sizes;
    expert_slots_measure(w, nodes, &sizes);
    *s = (struct expert_slots){.weights = w, .n = n == EXPERT_SLOTS_OWN ? (uint32_t)sizes.experts : n, .own = n == EXPERT_SLOTS_OWN};
    s->base = calloc((size_t)s->n * nodes + 1, sizeof(*s->base)); /* a model of dense layers only has none */
    s->scale_at = calloc((size_t)layers * w->shape.experts + 1, sizeof(*s->scale_at));
    s->first = calloc(layers, sizeof(*s->first));
    if (s->base == NULL || s->scale_at == NULL || s->first == NULL) {
        return error_nomem(e, "table of expert slots", expert_slots_table_bytes(w, nodes, s->n));
    }
    struct slot_cursor end = lay_out(s, &sizes, nodes);
    return slot_buffers_init(&s->buffers, &end, loader, PURPOSE_EXPERTS, e);
}

void expert_slots_deinit(struct expert_slots *s)
{
    slot_buffers_deinit(&s->buffers);
    free(s->base);
    free(s->scale_at);
    free(s->first);
    *s = (struct expert_slots){0};
}

/* ---- an expert in a slot ---- */

static const struct expert_refs *refs_of(const struct expert_slots *s, struct expert_key key)
{
    return &s->weights->layers[key.layer].experts[key.expert];
}

static void places(const struct expert_slots *s, struct expert_key key, uint32_t slot, struct slot_place ret[EXPERT_PARTS])
{
    struct slot_cursor c = {.nodes = s->buffers.nodes, .scales = s->scale_at[(size_t)key.layer * s->weights->shape.experts + key.expert]};
    assert(slot < s->n && (!s->own || slot == expert_slots_index(s, key)));
    for (uint32_t k = 0; k < c.nodes; k++) {
        c.node[k] = s->base[(size_t)slot * c.nodes + k];
    }
    take(&c, refs_of(s, key), ret);
}

const struct weight_ref *expert_slots_ref(const struct expert_slots *s, struct expert_key key, int part) { return part_ref(refs_of(s, key), part); }

uint64_t expert_slots_bytes(const struct expert_slots *s, struct expert_key key)
{
    uint64_t bytes = 0;
    for (int part = 0; part < EXPERT_PARTS; part++) {
        const struct weight_ref *ref = expert_slots_ref(s, key, part);
        bytes += ref->bytes + load_scale_count(ref) * sizeof(float);
    }
    return bytes;
}

void expert_slots_view(const struct expert_slots *s, struct expert_key key, uint32_t slot, struct weight_view ret[EXPERT_PARTS])
{
    struct slot_place place[EXPERT_PARTS];
    places(s, key, slot, place);
    for (int part = 0; part < EXPERT_PARTS; part++) {
        ret[part] = slot_view(&s->buffers, expert_slots_ref(s, key, part), &place[part]);
    }
}

size_t expert_slots_reads(const struct expert_slots *s, struct expert_key key, uint32_t slot, struct load_item *items)
{
    struct slot_place place[EXPERT_PARTS];
    size_t n = 0;
    places(s, key, slot, place);
    for (int part = 0; part < EXPERT_PARTS; part++) {
        n += slot_reads(&s->buffers, expert_slots_ref(s, key, part), &place[part], &items[n]);
    }
    return n;
}

size_t expert_slots_scale_reads(const struct expert_slots *s, struct expert_key key, struct load_floats_item *items)
{
    struct slot_cursor c = {.nodes = s->buffers.nodes, .scales = s->scale_at[(size_t)key.layer * s->weights->shape.experts + key.expert]};
    struct slot_place place[EXPERT_PARTS];
    size_t n = 0;
    take(&c, refs_of(s, key), place);
    for (int part = 0; part < EXPERT_PARTS; part++) {
        const struct weight_ref *ref = expert_slots_ref(s, key, part);
        if (ref->scale != NULL) {
            items[n++] = (struct load_floats_item){*ref, slot_scales(&s->buffers, &place[part]), true};
        }
    }
    return n;
}
