/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: making an expert store: sizes, tables, counters, and reading what stays from the start. Must not know: leases. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "src/tier/store_state.h"
#include "src/tier/verify.h"

enum { HALF_LIFE_TOKENS = 64 };

/* ---- sizes ---- */

static uint64_t own_tables_bytes(const struct weights *w, uint64_t slots)
{
    uint64_t experts = w->shape.experts, lease = sizeof(uint16_t) + sizeof(uint8_t) + sizeof(bool);
    uint64_t visit = sizeof(struct expert_key) + sizeof(struct evict_answer) + sizeof(uint32_t);
    return align_up_u64(STORE_HINTS * sizeof(struct hint) + shape_all_layers(&w->shape) * experts * sizeof(struct expert) + slots * (sizeof(uint32_t) + 2 * sizeof(struct expert_key)) +
                        experts * visit + STORE_LEASES * experts * lease, SLOT_PAGE);
}

void store_measure(const struct weights *w, uint32_t nodes, struct store_sizes *ret)
{
    struct expert_slots_sizes sizes;
    expert_slots_measure(w, nodes, &sizes);
    uint64_t slots = sizes.experts + 2ull * w->shape.experts_used; /* at most: all but one stay, and staging */
    uint64_t beside = slots * (sizeof(double) + 2 * sizeof(struct evict_entry) + 2 * sizeof(struct evict_slot) + sizeof(struct fetch_flight)) + (uint64_t)HINT_LEADS * shape_all_layers(&w->shape) * sizeof(struct ahead_cell);
    *ret = (struct store_sizes){.experts = sizes.experts, .scales = sizes.scales,
                                .tables = own_tables_bytes(w, slots) + expert_slots_table_bytes(w, nodes, slots) + beside};
    for (uint32_t k = 0; k < nodes; k++) {
        ret->all += ret->all_node[k] = sizes.all[k];
        ret->slot += ret->slot_node[k] = sizes.each[k];
    }
}

/* ---- create ---- */

static void *carve(char **at, size_t bytes)
{
    void *p = *at;
    *at += bytes;
    return p;
}

static int allocate_tables(struct store *s, struct account *account, struct error *e)
{
    int r = buffer_init(&s->tables, account, PURPOSE_TABLES, own_tables_bytes(s->weights, s->slots.n), e);
    if (r < 0) {
        return r;
    }
    char *at = s->tables.data;
    s->state = carve(&at, (size_t)s->layers * s->experts * sizeof(*s->state)); /* from the strictest alignment down */
    s->hints = carve(&at, STORE_HINTS * sizeof(*s->hints));
    s->answers = carve(&at, s->experts * sizeof(*s->answers));
    s->spare = carve(&at, s->slots.n * sizeof(*s->spare));
    s->predicted = carve(&at, s->slots.n * sizeof(*s->predicted));
    s->warm = carve(&at, s->slots.n * sizeof(*s->warm));
    s->missed = carve(&at, s->experts * sizeof(*s->missed));
    s->found = carve(&at, s->experts * sizeof(*s->found));
    for (uint32_t i = 0; i < STORE_LEASES; i++) {
        s->leases[i] = (struct lease){.store = s, .experts = carve(&at, s->experts * sizeof(uint16_t))};
    }
    for (uint32_t i = 0; i < STORE_LEASES; i++) {
        s->leases[i].stage = carve(&at, s->experts);
        s->leases[i].was_there = carve(&at, s->experts * sizeof(bool));
    }
    return 0;
}

static int register_counters(struct store *s, struct counters *c, struct error *e)
{
    struct {
        struct counter **at;
        const char *name, *help;
    } list[] = {
        {&s->hits, "expert.ram.hits", "experts used from RAM"},
        {&s->hit_bytes, "expert.ram.bytes", "bytes of experts used from RAM"},
        {&s->misses, "expert.ram.misses", "experts that were not in RAM when they were asked for"},
        {&s->read, "expert.nvme.hits", "of them read from a drive"},
        {&s->read_bytes, "expert.nvme.bytes", "bytes of those"},
        {&s->admitted, "expert.ram.admitted", "experts that came to stay in RAM"},
        {&s->demand_us, "expert.nvme.demand_us", "microseconds in which a lease waited for a drive"},
        {&s->demand_bytes, "expert.nvme.demand_bytes", "bytes that came in that time"},
        {&s->drive_bytes, "expert.nvme.drive_bytes", "bytes that came from a drive at any time, asked for or ahead"},
    };
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        *list[i].at = counters_register(c, list[i].name, list[i].help);
        if (*list[i].at == NULL) {
            return error_set(e, -ENOSPC, "the table of counters is full");
        }
    }
    return ahead_init(&s->ahead, s->layers, c, e);
}

void store_each(const struct store *s, void (*use)(void *ctx, struct expert_key key, uint32_t index), void *ctx)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->layers; i++) {
        for (uint32_t j = 0; s->weights->layers[i].experts != NULL && j < s->experts; j++) {
            use(ctx, (struct expert_key){(uint16_t)i, (uint16_t)j}, n++);
        }
    }
}

struct fill {
    struct store *s;
    struct load_item *matrices;      /* NULL: weights are not read */
    struct load_floats_item *scales;
    size_t n_matrices, n_scales;
};

static void fill_expert(void *ctx, struct expert_key key, uint32_t index)
{
    struct fill *f = ctx;
    f->n_scales += expert_slots_scale_reads(&f->s->slots, key, &f->scales[f->n_scales]);
    if (f->matrices != NULL) {
        f->n_matrices += expert_slots_reads(&f->s->slots, key, index, &f->matrices[f->n_matrices]);
        *expert_of(f->s, key) = (struct expert){.slot = index, .state = READY};
    }
}

struct check {
    const struct store *store;
    const struct fingerprints *fingerprints;
};

/* All are there, number `index` in the slot of this number. */
static int check_expert(const void *ctx, uint32_t index, struct error *e)
{
    const struct check *c = ctx;
    const struct store *s = c->store;
    struct weight_view part[EXPERT_PARTS];
    uint32_t layer = 0;
    while (s->weights->layers[layer].experts == NULL || index >= s->slots.first[layer] + s->experts) {
        layer++;
    }
    struct expert_key key = {(uint16_t)layer, (uint16_t)(index - s->slots.first[layer])};
    expert_slots_view(&s->slots, key, index, part);
    return fingerprints_check_expert(c->fingerprints, &s->weights->layers[layer].experts[key.expert], part, e);
}

/* Scales of all experts, and all experts if they stay. */
static int read_at_create(struct store *s, uint64_t experts, struct loader *loader, struct error *e)
{
    size_t scales = EXPERT_PARTS * experts, reads = s->all ? scales * loader->nodes : 0;
    struct fill f = {.s = s, .matrices = reads > 0 ? calloc(reads, sizeof(*f.matrices)) : NULL, .scales = calloc(scales + 1, sizeof(*f.scales))};
    int r = f.scales != NULL && (reads == 0 || f.matrices != NULL) ? 0 : error_nomem(e, "list of reads", reads * sizeof(*f.matrices));
    if (r == 0) {
        store_each(s, fill_expert, &f);
        r = load_floats(loader, f.scales, f.n_scales, e);
        r = r < 0 ? r : load_matrices(loader, f.matrices, f.n_matrices, e);
        const struct check check = {s, loader->fingerprints};
        r = r < 0 || !s->all || loader->fingerprints == NULL ? r : verify_all(loader, (uint32_t)experts, check_expert, &check, e);
    }
    free(f.matrices);
    free(f.scales);
    return r;
}

static uint32_t moe_layers(const struct shape *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->layers; i++) {
        n += shape_layer_is_moe(s, i);
    }
    return n;
}

/* What experts need that come and go. */
static int open_streaming(struct store *s, const struct store_options *o, const struct fingerprints *fingerprints, struct error *e)
{
    struct evict_options eo = {.policy = EVICT_ODDS, .slots = (uint32_t)o->cached, .layers = s->layers, .experts = s->experts, .cycle = s->cycle, .heat = &s->heat};
    for (uint32_t i = 0; i < s->slots.n; i++) {
        s->spare[s->n_spare++] = s->slots.n - 1 - i;
    }
    s->reserve = o->staging / 4;
    int r = evict_init(&s->evict, &eo, e);
    r = r < 0 ? r : evict_init(&s->plain, &eo, e);
    return r < 0 ? r : fetch_init(&s->fetch, o->reader, o->requests, &s->slots, fingerprints, e);
}

int store_create(const struct weights *w, struct loader *loader, const struct store_options *o, struct counters *counters, struct store **ret, struct error *e)
{
    struct store *s = calloc(1, sizeof(*s));
    struct expert_slots_sizes sizes;
    if (s == NULL) {
        return error_nomem(e, "expert store", sizeof(*s));
    }
    expert_slots_measure(w, loader->nodes, &sizes);
    s->weights = w;
    s->layers = shape_all_layers(&w->shape);
    s->experts = w->shape.experts;
    s->all = o->cached >= sizes.experts;
    assert(s->all || (o->staging > 0 && o->reader != NULL));
    int r = register_counters(s, counters, e);
    r = r < 0 ? r : expert_slots_init(&s->slots, w, s->all ? EXPERT_SLOTS_OWN : (uint32_t)o->cached + o->staging, loader, e);
    r = r < 0 ? r : allocate_tables(s, loader->account, e);
    s->cycle = max_u32(moe_layers(&w->shape), 1);
    r = r < 0 ? r : heat_init(&s->heat, s->layers, max_u32(s->experts, 1), HALF_LIFE_TOKENS * s->cycle, e);
    r = r < 0 || s->all ? r : open_streaming(s, o, loader->fingerprints, e);
    r = r < 0 || loader->bare ? r : read_at_create(s, sizes.experts, loader, e);
    if (r < 0) {
        store_destroy(s);
        return r;
    }
    *ret = s;
    return 0;
}

void store_destroy(struct store *s)
{
    if (s == NULL) {
        return;
    }
    if (s->fetch.flights != NULL) {
        fetch_deinit(&s->fetch);
    }
    evict_deinit(&s->evict);
    ahead_deinit(&s->ahead);
    evict_deinit(&s->plain);
    heat_deinit(&s->heat);
    expert_slots_deinit(&s->slots);
    buffer_deinit(&s->tables);
    free(s);
}

const struct slot_buffers *store_buffers(const struct store *s) { return &s->slots.buffers; }
bool store_streams(const struct store *s) { return !s->all; }
