/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: leases of routed experts, and who gets a slot (store.h). An expert is read into a spare slot; if it may stay, the slot is its
 * own from then on and that of who left becomes spare: nothing is copied. Must not know: arithmetic. */
#include "src/tier/store.h"

#include <assert.h>
#include <errno.h>

#include "src/tier/store_state.h"

enum { POLL_MS = 100 };

static const double PASSING_WEIGHT = 0.25; /* of a row of a prompt, against one of an answer */

/* ---- slots ---- */

/* Makes the slot of an expert spare when nobody has a claim to it. */
void store_let_go(struct store *s, struct expert_key key)
{
    struct expert *x = expert_of(s, key);
    if (x->state == READY && x->users == 0 && !x->predicted && !stays(s, key)) {
        x->state = ABSENT;
        s->spare[s->n_spare++] = x->slot;
    }
}

void store_start(struct store *s, struct expert_key key, enum read_priority priority)
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
    if (s->observer != NULL && !s->all) {
        s->observer->collect(s->observer->ctx);
    }
    while (!s->all && fetch_collect(&s->fetch, timeout_ms, &a, &failure) > 0) {
        struct expert *x = expert_of(s, a.key);
        timeout_ms = 0;
        x->state = READY;
        if (s->observer != NULL) {
            s->observer->arrive(s->observer->ctx, a.key, a.status);
        }
        if (x->given_up) {
            store_settle(s, a.key, a.status);
        }
        if (a.status < 0) {
            if (a.status != -ECANCELED && x->users > 0 && a.key.layer == layer && r == 0) {
                r = error_set(e, failure.code, "%s", failure.text);
            }
            if (s->compares && evict_has(&s->plain, a.key)) {
                evict_drop(&s->plain, a.key);
            }
            if (stays(s, a.key)) {
                evict_drop(&s->evict, a.key);
            }
            x->state = ABSENT;
            s->spare[s->n_spare++] = x->slot;
            if (x->predicted) { /* it holds no slot any more */
                store_drop_hint(s, a.key);
            }
        }
        store_let_go(s, a.key);
    }
    return r;
}

void store_take_arrivals(struct store *s) { take_arrivals(s, 0, (uint16_t)~0u, NULL); }

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
static void hottest_first(const struct store *s, uint32_t missed, uint32_t n)
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

/* Who of the visit is let in, s->answers; returns how many asked. *ret_missed: experts that were not there. */
static uint32_t let_in(const struct store *s, struct evict *c, const struct store_visit *v, uint32_t *ret_missed)
{
    uint32_t n = 0;
    evict_visit(c, s->visit, v->keys, v->n, s->found);
    for (uint32_t i = 0; i < v->n; i++) {
        if (s->found[i] == EVICT_NO_SLOT) {
            s->missed[n++] = v->keys[i];
        }
    }
    *ret_missed = n;
    if (v->passing) { /* into free slots only, the first layers do not take all of them */
        uint32_t share = max_u32(c->options.slots / c->options.cycle, 1);
        n = min_u32(n, min_u32(c->n_free, share));
        hottest_first(s, *ret_missed, n);
    }
    evict_admit(c, s->missed, n, s->answers);
    return n;
}

/* Who stays from now on. Those who leave give their slots back as soon as nobody holds them. */
static void admit(struct store *s, const struct store_visit *v)
{
    uint32_t missed, plain;
    bool compares = s->compares && v->keys[0].layer < s->weights->shape.layers; /* without advice nobody would ask the MTP layer */
    if (compares) {
        let_in(s, &s->plain, v, &plain);
    }
    uint32_t n = let_in(s, &s->evict, v, &missed);
    s->spared += compares ? (int64_t)plain - missed : 0;
    for (uint32_t i = 0; i < n; i++) {
        counter_add(s->admitted, s->answers[i].slot != EVICT_NO_SLOT);
        if (s->answers[i].evicted) {
            store_let_go(s, s->answers[i].victim);
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
        store_claim_hint(s, key);
    }
    if (x->state == READING) {
        fetch_raise(&s->fetch, x->slot); /* it was only predicted, or popular */
    }
    return x->state == READY;
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
            store_expire_hints(s, true);
        }
        if (s->n_spare == 0 || !fetch_has_room(&s->fetch)) {
            return false;
        }
        store_start(s, key, READ_DEMAND);
    }
    return true;
}

bool store_start_all(struct store *s)
{
    bool all = true;
    for (uint32_t i = 0; i < STORE_LEASES && all; i++) {
        all = !s->leases[i].open || start_reads(&s->leases[i]);
    }
    return all;
}

int store_lease_begin(struct store *s, const struct store_visit *v, struct lease **ret, struct error *e)
{
    int r = check_keys(s, v->keys, v->n, e);
    struct lease *l = free_lease(s);
    if (r < 0 || l == NULL) {
        return r < 0 ? r : error_set(e, -EBUSY, "all %d leases are open", STORE_LEASES);
    }
    *l = (struct lease){.store = s, .experts = l->experts, .stage = l->stage, .was_there = l->was_there, .n = v->n, .layer = v->keys[0].layer, .open = true};
    if (!s->all) {
        store_take_arrivals(s);
    }
    for (uint32_t i = 0; i < v->n; i++) { /* before anybody leaves */
        l->experts[i] = v->keys[i].expert;
        l->stage[i] = ASKED;
        l->was_there[i] = ask(s, v->keys[i]);
    }
    count_uses(s, v);
    if (!s->all) {
        admit(s, v);
        store_expire_hints(s, false);
        start_reads(l);
        store_read_warm(s);
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

int store_lease_next(struct lease *l, const atomic_int *cancel, struct expert_view *views, uint32_t max, uint32_t *ret_n, struct error *e)
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
            store_read_hinted(s);
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
        store_let_go(l->store, key);
    }
}

void store_lease_release(struct lease *l, const struct expert_view *views, uint32_t n)
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
    counter_add(s->drive_bytes, now.bytes - s->told.bytes);
    s->told = now;
}

/* What is on its way and does not stay is given up. */
void store_lease_end(struct lease *l)
{
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
        store_read_hinted(l->store);
    }
}
