/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the routed experts, all in RAM: one slot per (layer, expert) with gate, up and down one after the other, and the
 * pool of leases. Must not know: arithmetic. */
#include "src/tier/store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/tier/slot.h"

enum { PARTS = 3 };

struct lease {
    struct store *store;
    uint16_t *experts; /* [store.experts] of which n are asked for, rising */
    uint32_t n, next;  /* next: first not handed out */
    uint32_t held;     /* handed out, not given back */
    uint16_t layer;
    bool open;
};

struct slot {
    struct weight_view part[PARTS]; /* gate, up, down */
    uint64_t bytes;                 /* weights and scales */
};

struct store {
    uint32_t layers, experts;
    uint32_t *first_slot;    /* [layers] index of expert 0, NO_SLOT in dense layers */
    struct slot *slots;      /* [n_slots] in `tables` */
    size_t n_slots;
    struct lease leases[STORE_LEASES];
    struct slot_buffers weights;
    struct buffer tables;
    struct counter *hits, *bytes_read;
};

enum { NO_SLOT = -1 };

static const struct weight_ref *part_ref(const struct expert_refs *x, int part)
{
    return part == 0 ? &x->gate : part == 1 ? &x->up : &x->down;
}

/* ---- layout ---- */

static struct slot_place take(struct slot_cursor *c, const struct weight_ref *ref)
{
    return slot_take(c, ref, weight_tile_rows(ref->rows, ref->cols));
}

static uint64_t expert_bytes(const struct slot_cursor *c)
{
    uint64_t sum = 0;
    for (uint32_t k = 0; k < c->nodes; k++) {
        sum += c->node[k];
    }
    return sum;
}

/* Takes the places of all experts. */
static uint64_t walk(struct slot_cursor *c, const struct weights *w, uint64_t *ret_largest)
{
    uint64_t n_slots = 0;
    for (uint32_t i = 0; i < shape_all_layers(&w->shape); i++) {
        const struct expert_refs *x = w->layers[i].experts;
        for (uint32_t j = 0; x != NULL && j < w->shape.experts; j++, n_slots++) {
            uint64_t before = expert_bytes(c);
            for (int part = 0; part < PARTS; part++) {
                take(c, part_ref(&x[j], part));
            }
            *ret_largest = max_u64(*ret_largest, expert_bytes(c) - before);
        }
    }
    return n_slots;
}

static uint64_t table_bytes(const struct shape *s, uint64_t n_slots)
{
    return align_up_u64(n_slots * sizeof(struct slot) + (uint64_t)STORE_LEASES * s->experts * sizeof(uint16_t) +
                        shape_all_layers(s) * sizeof(uint32_t), SLOT_PAGE);
}

void store_measure(const struct weights *w, uint32_t nodes, struct store_sizes *ret)
{
    struct slot_cursor c = {.nodes = nodes};
    struct store_sizes sizes = {0};
    sizes.tables = table_bytes(&w->shape, walk(&c, w, &sizes.largest));
    sizes.scales = slot_scales_bytes(&c);
    for (uint32_t k = 0; k < nodes; k++) {
        sizes.node[k] = slot_node_bytes(&c, k);
        sizes.experts += sizes.node[k];
    }
    *ret = sizes;
}

/* ---- create ---- */

struct fill {
    struct load_item *matrices;      /* [3 * slots * nodes] */
    struct load_floats_item *scales; /* [3 * slots] */
    size_t n_matrices, n_scales;
    struct slot_cursor cursor;
};

static void fill_slot(struct store *s, struct slot *slot, const struct expert_refs *x, struct fill *f)
{
    for (int i = 0; i < PARTS; i++) {
        const struct weight_ref *ref = part_ref(x, i);
        struct slot_place p = take(&f->cursor, ref);
        slot->part[i] = slot_view(&s->weights, ref, &p);
        slot->bytes += ref->bytes + load_scale_count(ref) * sizeof(float);
        f->n_matrices += slot_reads(&s->weights, ref, &p, &f->matrices[f->n_matrices]);
        if (ref->scale != NULL) {
            f->scales[f->n_scales++] = (struct load_floats_item){*ref, slot_scales(&s->weights, &p), true};
        }
    }
}

static int read_experts(struct store *s, const struct weights *w, struct loader *loader, struct error *e)
{
    size_t n = PARTS * s->n_slots;
    if (n == 0) {
        return 0; /* a model of dense layers only */
    }
    size_t reads = n * loader->nodes;
    struct fill f = {.matrices = calloc(reads, sizeof(*f.matrices)), .scales = calloc(n, sizeof(*f.scales)), .cursor.nodes = loader->nodes};
    int r = f.matrices != NULL && f.scales != NULL ? 0 : error_nomem(e, "list of reads", reads * sizeof(*f.matrices));
    for (uint32_t i = 0; r == 0 && i < s->layers; i++) {
        for (uint32_t j = 0; w->layers[i].experts != NULL && j < s->experts; j++) {
            fill_slot(s, &s->slots[s->first_slot[i] + j], &w->layers[i].experts[j], &f);
        }
    }
    r = r < 0 ? r : load_floats(loader, f.scales, f.n_scales, e);
    r = r < 0 ? r : load_matrices(loader, f.matrices, f.n_matrices, e);
    free(f.matrices);
    free(f.scales);
    return r;
}

static void carve_tables(struct store *s, const struct weights *w)
{
    s->slots = s->tables.data;
    s->first_slot = (uint32_t *)(void *)(s->slots + s->n_slots);
    uint16_t *experts = (uint16_t *)(void *)(s->first_slot + s->layers);
    uint32_t next = 0;
    for (uint32_t i = 0; i < s->layers; i++) {
        s->first_slot[i] = w->layers[i].experts != NULL ? next : (uint32_t)NO_SLOT;
        next += w->layers[i].experts != NULL ? s->experts : 0;
    }
    for (uint32_t i = 0; i < STORE_LEASES; i++) {
        s->leases[i] = (struct lease){.store = s, .experts = experts + (size_t)i * s->experts};
    }
}

static int allocate(struct store *s, const struct weights *w, const struct loader *loader, struct error *e)
{
    struct slot_cursor c = {.nodes = loader->nodes};
    uint64_t largest = 0, n_slots = walk(&c, w, &largest);
    int r = buffer_init(&s->tables, loader->account, PURPOSE_TABLES, table_bytes(&w->shape, n_slots), e);
    r = r < 0 ? r : slot_buffers_init(&s->weights, &c, loader, PURPOSE_EXPERTS, e);
    if (r == 0) {
        carve_tables(s, w);
    }
    return r;
}

int store_create(const struct weights *w, struct loader *loader, struct counters *counters, struct store **ret, struct error *e)
{
    struct store *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return error_nomem(e, "expert store", sizeof(*s));
    }
    s->layers = shape_all_layers(&w->shape);
    s->experts = w->shape.experts;
    for (uint32_t i = 0; i < s->layers; i++) {
        s->n_slots += w->layers[i].experts != NULL ? s->experts : 0;
    }
    s->hits = counters_register(counters, "expert.ram.hits", "experts used from RAM");
    s->bytes_read = counters_register(counters, "expert.ram.bytes", "bytes of experts used from RAM");
    int r = s->hits != NULL && s->bytes_read != NULL ? 0 : error_set(e, -ENOSPC, "the table of counters is full");
    r = r < 0 ? r : allocate(s, w, loader, e);
    r = r < 0 ? r : read_experts(s, w, loader, e);
    if (r < 0) {
        store_destroy(s);
        return r;
    }
    *ret = s;
    return 0;
}

const struct slot_buffers *store_buffers(const struct store *s) { return &s->weights; }

void store_destroy(struct store *s)
{
    if (s == NULL) {
        return;
    }
    slot_buffers_deinit(&s->weights);
    buffer_deinit(&s->tables);
    free(s);
}

/* ---- leases ---- */

static int check_keys(const struct store *s, const struct expert_key *keys, uint32_t n, struct error *e)
{
    if (n == 0 || n > s->experts) {
        return error_set(e, -EINVAL, "a lease of %u experts; 1 to %u are possible", n, s->experts);
    }
    if (keys[0].layer >= s->layers || s->first_slot[keys[0].layer] == (uint32_t)NO_SLOT) {
        return error_set(e, -EINVAL, "a lease of layer %u, which has no routed experts", keys[0].layer);
    }
    for (uint32_t i = 0; i < n; i++) {
        bool rising = i == 0 || keys[i].expert > keys[i - 1].expert;
        if (keys[i].layer != keys[0].layer || !rising || keys[i].expert >= s->experts) {
            return error_set(e, -EINVAL, "lease entry %u: layer %u, expert %u; one layer, rising experts below %u are expected", i,
                             keys[i].layer, keys[i].expert, s->experts);
        }
    }
    return 0;
}

int store_begin(struct store *s, const struct expert_key *keys, uint32_t n, struct lease **ret, struct error *e)
{
    int r = check_keys(s, keys, n, e);
    if (r < 0) {
        return r;
    }
    uint32_t i = 0;
    while (i < STORE_LEASES && s->leases[i].open) {
        i++;
    }
    if (i == STORE_LEASES) {
        return error_set(e, -EBUSY, "all %d leases are open", STORE_LEASES);
    }
    struct lease *l = &s->leases[i];
    for (uint32_t k = 0; k < n; k++) {
        l->experts[k] = keys[k].expert;
    }
    l->n = n;
    l->next = l->held = 0;
    l->layer = keys[0].layer;
    l->open = true;
    *ret = l;
    return 0;
}

int store_next(struct lease *l, const atomic_int *cancel, struct expert_view *views, uint32_t max, uint32_t *ret_n, struct error *e)
{
    if (cancel != NULL && atomic_load_explicit(cancel, memory_order_relaxed) != 0) {
        return error_set(e, ERROR_INTERRUPTED, "interrupted");
    }
    const struct store *s = l->store;
    uint32_t n = min_u32(max, l->n - l->next);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint16_t expert = l->experts[l->next + i];
        const struct slot *slot = &s->slots[s->first_slot[l->layer] + expert];
        views[i] = (struct expert_view){
            .key = {l->layer, expert}, .gate = slot->part[0], .up = slot->part[1], .down = slot->part[2], .where = TIER_RAM};
        bytes += slot->bytes;
    }
    l->next += n;
    l->held += n;
    counter_add(s->hits, n);
    counter_add(s->bytes_read, bytes);
    *ret_n = n;
    return 0;
}

void store_release(struct lease *l, const struct expert_view *views, uint32_t n)
{
    (void)views; /* experts in RAM stay where they are */
    assert(n <= l->held);
    l->held -= n;
}

void store_end(struct lease *l)
{
    if (l != NULL) {
        l->open = false;
    }
}

void store_hint(struct store *s, const struct prediction *p, uint32_t n)
{
    (void)s, (void)p, (void)n; /* nothing moves while every expert is in RAM */
}
