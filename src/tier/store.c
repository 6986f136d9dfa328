/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: leases of routed experts, the state of each expert, and who gets a slot (store.h). An expert is read into a spare slot; if it
 * may stay, the slot is its own from then on and that of who left becomes spare: nothing is copied. Must not know: arithmetic. */
#include "src/tier/store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/tier/evict.h"
#include "src/tier/fetch.h"
#include "src/tier/heat.h"
#include "src/tier/heat_file.h"
#include "src/tier/verify.h"

enum { POLL_MS = 100, HALF_LIFE_TOKENS = 64, HINTS = 256 };

static const double PASSING_WEIGHT = 0.25; /* of a row of a prompt, against one of an answer */

enum expert_state { ABSENT, READING, READY };

struct expert {
    uint32_t slot;    /* READING, READY */
    uint16_t users;   /* leases that ask for it or hold it */
    uint8_t state;
    bool predicted;   /* was read for a hint, and no lease has asked for it since */
    uint64_t expires; /* predicted: the visit it is for */
};

enum entry_stage { ASKED, HELD, RETURNED };

struct lease {
    struct store *store;
    uint16_t *experts; /* [store.experts] of which n are asked for, rising */
    uint8_t *stage;    /* [store.experts] */
    bool *was_there;   /* [store.experts] in RAM when it was asked for */
    uint32_t n, handed_out;
    uint16_t layer;
    bool open;
};

struct store {
    const struct weights *weights;
    uint32_t layers, experts;
    bool all;                 /* every expert stays */
    uint32_t cycle;           /* visits of a token */
    struct expert_slots slots;
    struct expert *state;     /* [layers][experts] in `tables` */
    uint32_t *spare;          /* [slots.n] of which n_spare belong to nobody */
    uint32_t n_spare;
    struct expert_key *predicted; /* [slots.n] of which n_predicted were read for hints or are being read */
    uint32_t n_predicted, reserve; /* reserve: slots that no hint takes */
    struct hint {
        struct expert_key key;
        uint64_t expires;         /* the visit it is for */
    } *hints;                     /* [HINTS] of which n_hints wait for an idle slot, likeliest first */
    uint32_t n_hints;
    struct expert_key *warm;      /* [slots.n] of which n_warm stay and are still to be read, hottest last */
    uint32_t n_warm;
    struct evict evict;
    struct heat heat;
    struct fetch fetch;
    uint64_t visit;
    struct lease leases[STORE_LEASES];
    struct buffer tables;
    struct expert_key *missed;    /* [experts] of the visit */
    struct evict_answer *answers; /* [experts] */
    uint32_t *found;              /* [experts] */
    struct counter *hits, *hit_bytes, *misses, *read, *read_bytes, *admitted, *useful, *late, *wasted, *wasted_bytes, *demand_us, *demand_bytes;
    struct reader_load told; /* what the last two counted */
};

static struct expert *expert_of(const struct store *s, struct expert_key key) { return &s->state[(size_t)key.layer * s->experts + key.expert]; }

static bool stays(const struct store *s, struct expert_key key) { return s->all || evict_has(&s->evict, key); }

/* ---- sizes ---- */

static uint64_t own_tables_bytes(const struct weights *w, uint64_t slots)
{
    uint64_t experts = w->shape.experts, lease = sizeof(uint16_t) + sizeof(uint8_t) + sizeof(bool);
    uint64_t visit = sizeof(struct expert_key) + sizeof(struct evict_answer) + sizeof(uint32_t);
    return align_up_u64(HINTS * sizeof(struct hint) + shape_all_layers(&w->shape) * experts * sizeof(struct expert) + slots * (sizeof(uint32_t) + 2 * sizeof(struct expert_key)) +
                        experts * visit + STORE_LEASES * experts * lease, SLOT_PAGE);
}

void store_measure(const struct weights *w, uint32_t nodes, struct store_sizes *ret)
{
    struct expert_slots_sizes sizes;
    expert_slots_measure(w, nodes, &sizes);
    uint64_t slots = sizes.experts + 2ull * w->shape.experts_used; /* at most: all but one stay, and staging */
    uint64_t beside = slots * (sizeof(double) + sizeof(struct evict_entry) + sizeof(struct evict_slot) + sizeof(struct fetch_flight));
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
    s->hints = carve(&at, HINTS * sizeof(*s->hints));
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
        {&s->useful, "prefetch.useful", "experts read ahead that were there when asked for"},
        {&s->late, "prefetch.late", "experts read ahead that were on their way when asked for"},
        {&s->wasted, "prefetch.wasted", "experts read ahead that nobody asked for in time"},
        {&s->wasted_bytes, "prefetch.wasted_bytes", "bytes of those"},
        {&s->demand_us, "expert.nvme.demand_us", "microseconds in which a lease waited for a drive"},
        {&s->demand_bytes, "expert.nvme.demand_bytes", "bytes that came in that time"},
    };
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        *list[i].at = counters_register(c, list[i].name, list[i].help);
        if (*list[i].at == NULL) {
            return error_set(e, -ENOSPC, "the table of counters is full");
        }
    }
    return 0;
}

/* Every expert, in order of layer and number. */
static void for_each(const struct store *s, void (*use)(void *ctx, struct expert_key key, uint32_t index), void *ctx)
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
        for_each(s, fill_expert, &f);
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
    r = r < 0 ? r : read_at_create(s, sizes.experts, loader, e);
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
    heat_deinit(&s->heat);
    expert_slots_deinit(&s->slots);
    buffer_deinit(&s->tables);
    free(s);
}

const struct slot_buffers *store_buffers(const struct store *s) { return &s->slots.buffers; }
bool store_streams(const struct store *s) { return !s->all; }

/* ---- slots ---- */

/* Makes the slot of an expert spare when nobody has a claim to it. */
static void let_go(struct store *s, struct expert_key key)
{
    struct expert *x = expert_of(s, key);
    if (x->state == READY && x->users == 0 && !x->predicted && !stays(s, key)) {
        x->state = ABSENT;
        s->spare[s->n_spare++] = x->slot;
    }
}

/* Ends the claim that a hint gave. */
static void forget_prediction(struct store *s, uint32_t i, bool wasted)
{
    struct expert_key key = s->predicted[i];
    s->predicted[i] = s->predicted[--s->n_predicted];
    expert_of(s, key)->predicted = false;
    if (wasted) {
        counter_add(s->wasted, 1);
        counter_add(s->wasted_bytes, expert_slots_bytes(&s->slots, key));
        if (expert_of(s, key)->state == READING) {
            fetch_cancel(&s->fetch, expert_of(s, key)->slot);
        }
    }
    let_go(s, key);
}

/* Hints whose visit is past, or all, if a lease needs their slots. */
static void expire_predictions(struct store *s, bool all)
{
    for (uint32_t i = 0; i < s->n_predicted;) {
        if (all || expert_of(s, s->predicted[i])->expires < s->visit) {
            forget_prediction(s, i, true);
        } else {
            i++;
        }
    }
}

static void start(struct store *s, struct expert_key key, enum read_priority priority)
{
    struct expert *x = expert_of(s, key);
    x->slot = s->spare[--s->n_spare];
    x->state = READING;
    fetch_start(&s->fetch, key, x->slot, priority);
}

/* Books experts that have arrived, waiting up to timeout_ms for the first. Returns the first failure of one of `layer` that a lease
 * asks for; a failed hint is just not there. */
static int take_arrivals(struct store *s, int timeout_ms, uint16_t layer, struct error *e)
{
    struct fetch_arrival a;
    struct error failure;
    int r = 0;
    while (!s->all && fetch_collect(&s->fetch, timeout_ms, &a, &failure) > 0) {
        struct expert *x = expert_of(s, a.key);
        timeout_ms = 0;
        x->state = READY;
        if (a.status < 0) {
            if (a.status != -ECANCELED && x->users > 0 && a.key.layer == layer && r == 0) {
                r = error_set(e, failure.code, "%s", failure.text);
            }
            if (stays(s, a.key)) {
                evict_drop(&s->evict, a.key);
            }
            x->state = ABSENT;
            s->spare[s->n_spare++] = x->slot;
        }
        let_go(s, a.key);
    }
    return r;
}

/* ---- popularity of earlier runs ---- */

/* Reads on, behind everything else, what is to be there because it was popular. */
static void read_warm(struct store *s)
{
    while (s->n_warm > 0 && s->n_spare > s->reserve && fetch_has_room(&s->fetch)) {
        struct expert_key key = s->warm[--s->n_warm];
        if (expert_of(s, key)->state == ABSENT && stays(s, key)) {
            start(s, key, READ_BACKGROUND);
        }
    }
}

struct warm_list {
    struct store *s;
    struct warm_expert {
        struct expert_key key;
        double heat;
    } *item;
    uint32_t n;
};

static void list_used(void *ctx, struct expert_key key, uint32_t index)
{
    struct warm_list *l = ctx;
    (void)index;
    if (heat_weight(&l->s->heat, key) > 0) {
        l->item[l->n++] = (struct warm_expert){key, heat_weight(&l->s->heat, key)};
    }
}

static int hotter_first(const void *a, const void *b)
{
    const struct warm_expert *x = a, *y = b;
    return x->heat != y->heat ? (x->heat < y->heat ? 1 : -1) : x->key.layer != y->key.layer ? x->key.layer - y->key.layer : x->key.expert - y->key.expert;
}

/* The hottest that there is room for stay from now on. */
static int warm_up(struct store *s, struct error *e)
{
    size_t bytes = (size_t)s->layers * s->experts * sizeof(struct warm_expert);
    struct warm_list l = {.s = s, .item = malloc(bytes + 1)};
    if (l.item == NULL) {
        return error_nomem(e, "list of popular experts", bytes);
    }
    for_each(s, list_used, &l);
    qsort(l.item, l.n, sizeof(*l.item), hotter_first);
    uint32_t n = min_u32(l.n, s->evict.n_free);
    for (uint32_t i = 0; i < n; i++) {
        evict_place(&s->evict, l.item[i].key);
        s->warm[n - 1 - i] = l.item[i].key;
    }
    s->n_warm = n;
    free(l.item);
    read_warm(s);
    return 0;
}

int store_read_heat(struct store *s, const char *path, const char *fingerprint, struct error *e)
{
    int r = heat_file_read(&s->heat, path, fingerprint, e);
    return r < 0 || s->all ? r : warm_up(s, e);
}

int store_write_heat(const struct store *s, const char *path, const char *fingerprint, struct error *e)
{
    return heat_file_write(&s->heat, path, fingerprint, e);
}

/* ---- leases: begin ---- */

static int check_keys(const struct store *s, const struct expert_key *keys, uint32_t n, struct error *e)
{
    if (n == 0 || n > s->experts) {
        return error_set(e, -EINVAL, "a lease of %u experts; 1 to %u are possible", n, s->experts);
    }
    if (keys[0].layer >= s->layers || s->weights->layers[keys[0].layer].experts == NULL) {
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

/* Puts the n hottest of the missed experts first. */
static void hottest_first(struct store *s, uint32_t missed, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t best = i;
        for (uint32_t j = i + 1; j < missed; j++) {
            best = heat_weight(&s->heat, s->missed[j]) > heat_weight(&s->heat, s->missed[best]) ? j : best;
        }
        struct expert_key key = s->missed[best];
        s->missed[best] = s->missed[i];
        s->missed[i] = key;
    }
}

/* Who stays from now on. Those who leave give their slots back as soon as nobody holds them. */
static void admit(struct store *s, const struct store_visit *v)
{
    uint32_t n = 0;
    evict_visit(&s->evict, s->visit, v->keys, v->n, s->found);
    for (uint32_t i = 0; i < v->n; i++) {
        if (s->found[i] == EVICT_NO_SLOT) {
            s->missed[n++] = v->keys[i];
        }
    }
    if (v->passing) { /* into free slots only, the first layers do not take all of them */
        uint32_t share = max_u32(s->evict.options.slots / s->evict.options.cycle, 1), missed = n;
        n = min_u32(n, min_u32(s->evict.n_free, share));
        hottest_first(s, missed, n);
    }
    evict_admit(&s->evict, s->missed, n, s->answers);
    for (uint32_t i = 0; i < n; i++) {
        counter_add(s->admitted, s->answers[i].slot != EVICT_NO_SLOT);
        if (s->answers[i].evicted) {
            let_go(s, s->answers[i].victim);
        }
    }
}

static void count_uses(struct store *s, const struct store_visit *v)
{
    s->visit++;
    heat_advance(&s->heat, s->visit);
    for (uint32_t i = 0; i < v->n; i++) {
        double rows = v->rows != NULL ? v->rows[i] : 1;
        heat_use(&s->heat, v->keys[i], v->passing ? PASSING_WEIGHT * rows : rows);
    }
}

/* A lease asks for an expert. Returns whether it is in RAM. */
static bool ask(struct store *s, struct expert_key key)
{
    struct expert *x = expert_of(s, key);
    x->users++;
    if (x->predicted) {
        uint32_t i = 0;
        while (s->predicted[i].layer != key.layer || s->predicted[i].expert != key.expert) {
            i++;
        }
        counter_add(x->state == READY ? s->useful : s->late, 1);
        forget_prediction(s, i, false);
    }
    if (x->state == READING) {
        fetch_raise(&s->fetch, x->slot); /* it was only predicted, or popular */
    }
    return x->state == READY;
}

/* Reads on what was hinted, into slots that nobody waits for. */
static void read_hinted(struct store *s)
{
    uint32_t at = 0;
    for (; at < s->n_hints && s->n_spare > s->reserve && fetch_has_room(&s->fetch); at++) {
        const struct hint *h = &s->hints[at];
        struct expert *x = expert_of(s, h->key);
        if (x->state == ABSENT && x->users == 0 && h->expires > s->visit) {
            start(s, h->key, READ_PREDICTED);
            x->predicted = true;
            x->expires = h->expires;
            s->predicted[s->n_predicted++] = h->key;
        }
    }
    s->n_hints -= at;
    memmove(s->hints, s->hints + at, s->n_hints * sizeof(*s->hints));
}

static struct lease *free_lease(struct store *s)
{
    for (uint32_t i = 0; i < STORE_LEASES; i++) {
        if (!s->leases[i].open) {
            return &s->leases[i];
        }
    }
    return NULL;
}

/* Starts reads of what the lease asks for, as far as there are slots. Returns whether nothing of it waits for one. */
static bool start_reads(struct lease *l)
{
    struct store *s = l->store;
    for (uint32_t i = 0; i < l->n && !s->all; i++) {
        struct expert_key key = {l->layer, l->experts[i]};
        if (l->stage[i] != ASKED || expert_of(s, key)->state != ABSENT) {
            continue;
        }
        if (s->n_spare == 0) {
            expire_predictions(s, true);
        }
        if (s->n_spare == 0 || !fetch_has_room(&s->fetch)) {
            return false;
        }
        start(s, key, READ_DEMAND);
    }
    return true;
}

int store_begin(struct store *s, const struct store_visit *v, struct lease **ret, struct error *e)
{
    int r = check_keys(s, v->keys, v->n, e);
    struct lease *l = free_lease(s);
    if (r < 0 || l == NULL) {
        return r < 0 ? r : error_set(e, -EBUSY, "all %d leases are open", STORE_LEASES);
    }
    *l = (struct lease){.store = s, .experts = l->experts, .stage = l->stage, .was_there = l->was_there, .n = v->n, .layer = v->keys[0].layer, .open = true};
    if (!s->all) {
        take_arrivals(s, 0, (uint16_t)~0u, NULL);
    }
    for (uint32_t i = 0; i < v->n; i++) { /* before anybody leaves */
        l->experts[i] = v->keys[i].expert;
        l->stage[i] = ASKED;
        l->was_there[i] = ask(s, v->keys[i]);
    }
    count_uses(s, v);
    if (!s->all) {
        admit(s, v);
        expire_predictions(s, false);
        start_reads(l);
        read_warm(s);
    }
    *ret = l;
    return 0;
}

uint32_t store_waiting(const struct lease *l)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        n += l->stage[i] == ASKED && expert_of(l->store, (struct expert_key){l->layer, l->experts[i]})->state != READY;
    }
    return n;
}

/* ---- leases: hand out, give back ---- */

static void hand_out(struct lease *l, uint32_t i, struct expert_view *ret)
{
    struct store *s = l->store;
    struct expert_key key = {l->layer, l->experts[i]};
    struct weight_view part[EXPERT_PARTS];
    expert_slots_view(&s->slots, key, expert_of(s, key)->slot, part);
    *ret = (struct expert_view){.key = key, .gate = part[0], .up = part[1], .down = part[2], .where = l->was_there[i] ? TIER_RAM : TIER_NVME};
    counter_add(l->was_there[i] ? s->hits : s->misses, 1);
    counter_add(s->read, !l->was_there[i]);
    counter_add(l->was_there[i] ? s->hit_bytes : s->read_bytes, expert_slots_bytes(&s->slots, key));
    l->stage[i] = HELD;
    l->handed_out++;
}

/* What is ready, in rising order. */
static uint32_t collect_ready(struct lease *l, struct expert_view *views, uint32_t max)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n && n < max; i++) {
        if (l->stage[i] == ASKED && expert_of(l->store, (struct expert_key){l->layer, l->experts[i]})->state == READY) {
            hand_out(l, i, &views[n++]);
        }
    }
    return n;
}

int store_next(struct lease *l, const atomic_int *cancel, struct expert_view *views, uint32_t max, uint32_t *ret_n, struct error *e)
{
    struct store *s = l->store;
    *ret_n = 0;
    for (int timeout_ms = 0;; timeout_ms = POLL_MS) {
        if (cancel != NULL && atomic_load_explicit(cancel, memory_order_relaxed) != 0) {
            return error_set(e, ERROR_INTERRUPTED, "interrupted");
        }
        int r = take_arrivals(s, timeout_ms, l->layer, e);
        if (r < 0) {
            return r;
        }
        if (start_reads(l)) {
            read_hinted(s);
        }
        *ret_n = collect_ready(l, views, max);
        if (*ret_n > 0 || l->handed_out == l->n || max == 0) {
            return 0;
        }
        if (s->fetch.under_way == 0) {
            return error_set(e, -EBUSY, "layer %u: other leases hold all slots of experts", l->layer);
        }
    }
}

static void give_back(struct lease *l, uint32_t i)
{
    struct expert_key key = {l->layer, l->experts[i]};
    assert(l->stage[i] != RETURNED && expert_of(l->store, key)->users > 0);
    l->stage[i] = RETURNED;
    expert_of(l->store, key)->users--;
    if (!l->store->all) {
        let_go(l->store, key);
    }
}

void store_release(struct lease *l, const struct expert_view *views, uint32_t n)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++, at++) { /* in the order they were handed out */
        while (at < l->n && l->experts[at] != views[i].key.expert) {
            at++;
        }
        assert(at < l->n && l->stage[at] == HELD);
        give_back(l, at);
    }
}

static void count_load(struct store *s)
{
    if (s->all) {
        return;
    }
    struct reader_load now = reader_load(s->fetch.reader);
    uint64_t us = now.demand_ns / 1000 - s->told.demand_ns / 1000;
    counter_add(s->demand_us, us);
    counter_add(s->demand_bytes, now.demand_bytes - s->told.demand_bytes);
    s->told = now;
}

/* What is on its way and does not stay is given up. */
void store_end(struct lease *l)
{
    if (l == NULL || !l->open) {
        return;
    }
    count_load(l->store);
    for (uint32_t i = 0; i < l->n; i++) {
        struct expert_key key = {l->layer, l->experts[i]};
        const struct expert *x = expert_of(l->store, key);
        if (l->stage[i] != RETURNED) {
            give_back(l, i);
            if (x->state == READING && x->users == 0 && !stays(l->store, key)) {
                fetch_cancel(&l->store->fetch, x->slot);
            }
        }
    }
    l->open = false;
    if (!l->store->all) {
        read_hinted(l->store);
    }
}

/* ---- hints ---- */

void store_hint(struct store *s, const struct prediction *p, uint32_t n)
{
    if (s->all) {
        return; /* nothing moves */
    }
    take_arrivals(s, 0, (uint16_t)~0u, NULL);
    for (uint32_t i = 0; i < n; i++) {
        struct expert *x = expert_of(s, p[i].key);
        evict_expect(&s->evict, p[i].key, s->visit + p[i].ahead, p[i].probability);
        x->expires = x->predicted ? s->visit + p[i].ahead : 0;
        if (x->state == ABSENT && s->n_hints < HINTS) {
            s->hints[s->n_hints++] = (struct hint){p[i].key, s->visit + p[i].ahead};
        }
    }
    for (uint32_t i = 0; i < STORE_LEASES; i++) {
        if (s->leases[i].open && !start_reads(&s->leases[i])) {
            return; /* who asks goes first */
        }
    }
    read_hinted(s);
}
