/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: experts that are read before a lease asks for them: hinted ones, and those that were popular in earlier runs. Must not know: who
 * predicts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/tier/store_state.h"

/* ---- hints ---- */

static void count(struct store *s, struct expert_key key, enum ahead_outcome o)
{
    ahead_count(&s->ahead, (enum hint_lead)expert_of(s, key)->lead, key.layer, o, expert_slots_bytes(&s->slots, key));
}

/* Ends the claim that a hint gave. */
static void forget_prediction(struct store *s, uint32_t i)
{
    struct expert_key key = s->predicted[i];
    s->predicted[i] = s->predicted[--s->n_predicted];
    expert_of(s, key)->predicted = false;
    store_let_go(s, key);
}

/* Nobody has asked for it in time. What is under way is counted when its read has ended. */
static void give_up(struct store *s, uint32_t i)
{
    struct expert_key key = s->predicted[i];
    struct expert *x = expert_of(s, key);
    if (x->state == READING) {
        x->given_up = true;
        fetch_cancel(&s->fetch, x->slot);
    } else {
        count(s, key, AHEAD_WASTED);
    }
    forget_prediction(s, i);
}

/* A lease may have asked for it after all. */
void store_settle(struct store *s, struct expert_key key, int status)
{
    struct expert *x = expert_of(s, key);
    x->given_up = false;
    count(s, key, status == -ECANCELED ? AHEAD_CANCELLED : status == 0 && x->users > 0 ? AHEAD_LATE : AHEAD_WASTED);
}

/* Hints whose visit is past, or all, if a lease needs their slots. */
void store_expire_hints(struct store *s, bool all)
{
    for (uint32_t i = 0; i < s->n_predicted;) {
        if (all || expert_of(s, s->predicted[i])->expires < s->visit) {
            give_up(s, i);
        } else {
            i++;
        }
    }
}

static uint32_t find_prediction(const struct store *s, struct expert_key key)
{
    uint32_t i = 0;
    while (s->predicted[i].layer != key.layer || s->predicted[i].expert != key.expert) {
        i++;
    }
    return i;
}

void store_claim_hint(struct store *s, struct expert_key key)
{
    count(s, key, expert_of(s, key)->state == READY ? AHEAD_USEFUL : AHEAD_LATE);
    forget_prediction(s, find_prediction(s, key));
}

void store_drop_hint(struct store *s, struct expert_key key) { give_up(s, find_prediction(s, key)); }

/* Reads on what was hinted, into slots that nobody waits for. */
void store_read_hinted(struct store *s)
{
    uint32_t at = 0;
    for (; at < s->n_hints; at++) {
        const struct hint *h = &s->hints[at];
        struct expert *x = expert_of(s, h->key);
        if (x->state != ABSENT || x->users > 0 || h->expires <= s->visit) {
            continue; /* it is there, or it is too late */
        }
        if (s->n_spare <= s->reserve || !fetch_has_room(&s->fetch)) {
            break;
        }
        store_start(s, h->key, READ_PREDICTED);
        x->predicted = true;
        x->expires = h->expires;
        x->lead = (uint8_t)(h->lead & 3);
        count(s, h->key, AHEAD_BEGUN);
        s->predicted[s->n_predicted++] = h->key;
    }
    s->n_hints -= at;
    memmove(s->hints, s->hints + at, s->n_hints * sizeof(*s->hints));
}

void store_take_hints(struct store *s, const struct prediction *p, uint32_t n)
{
    store_take_arrivals(s);
    for (uint32_t i = 0; i < n; i++) {
        struct expert *x = expert_of(s, p[i].key);
        evict_expect(&s->evict, p[i].key, s->visit + p[i].ahead, p[i].probability);
        if (s->compares) {
            evict_expect(&s->plain, p[i].key, s->visit + p[i].ahead, p[i].probability);
        }
        x->expires = x->predicted ? s->visit + p[i].ahead : 0;
        if (x->state == ABSENT && s->n_hints < STORE_HINTS) {
            s->hints[s->n_hints++] = (struct hint){p[i].key, s->visit + p[i].ahead, p[i].lead};
        }
    }
    if (store_start_all(s)) { /* who asks goes first */
        store_read_hinted(s);
    }
}

const struct ahead *store_ahead(const struct store *s) { return &s->ahead; }

/* ---- who stays for what is expected ---- */

void store_take_expected(struct store *s, uint16_t layer, uint32_t ahead, const uint8_t *chances)
{
    for (uint32_t x = 0; x < s->experts; x++) {
        evict_expect(&s->evict, (struct expert_key){layer, (uint16_t)x}, s->visit + ahead, (float)chances[x] / UINT8_MAX);
    }
}

void store_compare(struct store *s, bool on)
{
    s->compares = on && !s->all;
    s->spared = 0;
    if (s->compares) {
        evict_copy(&s->plain, &s->evict);
    }
}

int64_t store_spared(const struct store *s) { return s->spared; }

/* ---- popularity of earlier runs ---- */

/* Reads on, behind everything else, what is to be there because it was popular. */
void store_read_warm(struct store *s)
{
    while (s->n_warm > 0 && s->n_spare > s->reserve && fetch_has_room(&s->fetch)) {
        struct expert_key key = s->warm[--s->n_warm];
        if (expert_of(s, key)->state == ABSENT && stays(s, key)) {
            store_start(s, key, READ_BACKGROUND);
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
    store_each(s, list_used, &l);
    qsort(l.item, l.n, sizeof(*l.item), hotter_first);
    uint32_t n = min_u32(l.n, s->evict.n_free);
    for (uint32_t i = 0; i < n; i++) {
        evict_place(&s->evict, l.item[i].key);
        s->warm[n - 1 - i] = l.item[i].key;
    }
    s->n_warm = n;
    free(l.item);
    store_read_warm(s);
    return 0;
}

int store_warm(struct store *s, const float *uses, uint32_t layers, struct error *e)
{
    for (uint32_t l = 0; l < layers && l < s->layers; l++) {
        for (uint32_t x = 0; x < s->experts; x++) {
            heat_use(&s->heat, (struct expert_key){(uint16_t)l, (uint16_t)x}, (double)uses[(size_t)l * s->experts + x]);
        }
    }
    return s->all ? 0 : warm_up(s, e);
}

void store_uses(const struct store *s, float *ret)
{
    for (uint32_t l = 0; l < s->layers; l++) {
        for (uint32_t x = 0; x < s->experts; x++) {
            ret[(size_t)l * s->experts + x] = (float)heat_value(&s->heat, (struct expert_key){(uint16_t)l, (uint16_t)x});
        }
    }
}
