/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: evict.h. One pass over the slots finds all victims of a visit. Must not know: bytes, clocks. */
#include "src/tier/evict.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Of EVICT_ODDS; measured in docs/trace.md, all flat around these. */
static const double RATE_WEIGHT = 0.5, DISTANCE_ADDED = 0.5, MARGIN = 1.2;

static struct evict_entry *entry_of(const struct evict *c, struct expert_key key)
{
    assert(key.layer < c->options.layers && key.expert < c->options.experts);
    return &c->entries[(size_t)key.layer * c->options.experts + key.expert];
}

int evict_init(struct evict *c, const struct evict_options *o, struct error *e)
{
    assert(o->layers > 0 && o->experts > 0 && o->cycle > 0 && (o->policy == EVICT_LRU || o->heat != NULL));
    size_t n = (size_t)o->layers * o->experts, slots = (size_t)o->slots + 1; /* calloc(0) may be NULL */
    *c = (struct evict){.options = *o};
    c->entries = calloc(n, sizeof(*c->entries));
    c->slots = calloc(slots, sizeof(*c->slots));
    c->free = calloc(slots, sizeof(*c->free));
    c->leaving = calloc(o->experts, sizeof(*c->leaving));
    c->worth = calloc(o->experts, sizeof(*c->worth));
    if (c->entries == NULL || c->slots == NULL || c->free == NULL || c->leaving == NULL || c->worth == NULL) {
        evict_deinit(c);
        return error_nomem(e, "table of cached experts", n * sizeof(*c->entries) + slots * sizeof(*c->slots));
    }
    c->per_use = o->heat != NULL ? heat_per_use(o->heat, o->cycle) : 0;
    evict_clear(c);
    return 0;
}

void evict_deinit(struct evict *c)
{
    free(c->entries);
    free(c->slots);
    free(c->free);
    free(c->leaving);
    free(c->worth);
    *c = (struct evict){0};
}

void evict_clear(struct evict *c)
{
    for (size_t i = 0; i < (size_t)c->options.layers * c->options.experts; i++) {
        c->entries[i] = (struct evict_entry){.slot = EVICT_NO_SLOT};
    }
    c->n_free = c->options.slots;
    for (uint32_t i = 0; i < c->n_free; i++) {
        c->free[i] = c->n_free - 1 - i;
    }
    c->visit = c->admissions = 0;
}

void evict_copy(struct evict *to, const struct evict *from)
{
    const struct evict_options *o = &from->options;
    assert(to->options.slots == o->slots && to->options.layers == o->layers && to->options.experts == o->experts);
    memcpy(to->entries, from->entries, (size_t)o->layers * o->experts * sizeof(*to->entries));
    memcpy(to->slots, from->slots, o->slots * sizeof(*to->slots));
    memcpy(to->free, from->free, o->slots * sizeof(*to->free));
    to->n_free = from->n_free;
    to->visit = from->visit;
    to->admissions = from->admissions;
}

void evict_visit(struct evict *c, uint64_t visit, const struct expert_key *keys, uint32_t n, uint32_t *ret_slots)
{
    assert(visit > c->visit && n <= c->options.experts);
    c->visit = visit;
    for (uint32_t i = 0; i < n; i++) {
        struct evict_entry *x = entry_of(c, keys[i]);
        assert(x->last < visit && keys[i].layer == keys[0].layer);
        x->last = visit;
        ret_slots[i] = x->slot;
    }
}

void evict_expect(struct evict *c, struct expert_key key, uint64_t at, float chance)
{
    struct evict_entry *x = entry_of(c, key);
    x->next = chance > 0 ? at : 0;
    x->chance = chance;
}

/* ---- worth ---- */

static double odds(const struct evict *c, struct expert_key key, const struct evict_entry *x)
{
    double rate = heat_value(c->options.heat, key) * c->per_use;
    bool expected = x->next > c->visit;
    double p = expected ? (double)x->chance : rate, distance = expected ? (double)(x->next - c->visit) / c->options.cycle : 1;
    return (p + RATE_WEIGHT * rate) / (distance + DISTANCE_ADDED);
}

static struct evict_worth worth_of(const struct evict *c, struct expert_key key)
{
    const struct evict_entry *x = entry_of(c, key);
    if (c->options.policy == EVICT_ODDS) {
        return (struct evict_worth){false, odds(c, key, x)};
    }
    if (x->next > c->visit) {
        return (struct evict_worth){true, -(double)(x->next - c->visit)};
    }
    return (struct evict_worth){false, c->options.policy == EVICT_LRU ? (double)x->last : heat_weight(c->options.heat, key)};
}

static int compare(struct evict_worth a, struct evict_worth b)
{
    return a.expected != b.expected ? a.expected - b.expected : (a.value > b.value) - (a.value < b.value);
}

/* ---- admission ---- */

/* The `want` slots whose experts are worth least, least first, without those of the visit; returns how many there are. */
static uint32_t find_leaving(struct evict *c, uint32_t want)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < c->options.slots; s++) {
        struct evict_slot *slot = &c->slots[s];
        if (slot->came == 0 || entry_of(c, slot->key)->last == c->visit) {
            continue;
        }
        struct evict_worth worth = worth_of(c, slot->key);
        uint32_t at = n;
        for (; at > 0; at--) {
            int less = compare(worth, c->worth[at - 1]);
            if (less > 0 || (less == 0 && slot->came > c->slots[c->leaving[at - 1]].came)) {
                break;
            }
            if (at < want) {
                c->leaving[at] = c->leaving[at - 1];
                c->worth[at] = c->worth[at - 1];
            }
        }
        if (at < want) {
            c->leaving[at] = s;
            c->worth[at] = worth;
            n += n < want;
        }
    }
    return n;
}

static bool may_replace(const struct evict *c, struct expert_key key, struct evict_worth leaving)
{
    leaving.value *= c->options.policy == EVICT_ODDS ? MARGIN : 1;
    return c->options.policy == EVICT_LRU || compare(worth_of(c, key), leaving) > 0;
}

static void enter(struct evict *c, struct expert_key key, uint32_t slot)
{
    c->slots[slot] = (struct evict_slot){key, ++c->admissions};
    entry_of(c, key)->slot = slot;
}

void evict_admit(struct evict *c, const struct expert_key *keys, uint32_t n, struct evict_answer *answers)
{
    uint32_t want = n > c->n_free ? n - c->n_free : 0, leaving = want > 0 ? find_leaving(c, want) : 0, next = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct evict_answer *a = &answers[i];
        assert(entry_of(c, keys[i])->slot == EVICT_NO_SLOT && entry_of(c, keys[i])->last == c->visit);
        *a = (struct evict_answer){.slot = EVICT_NO_SLOT};
        if (c->n_free > 0) {
            a->slot = c->free[--c->n_free];
        } else if (next < leaving && may_replace(c, keys[i], c->worth[next])) {
            a->slot = c->leaving[next++];
            a->evicted = true;
            a->victim = c->slots[a->slot].key;
            entry_of(c, a->victim)->slot = EVICT_NO_SLOT;
        }
        if (a->slot != EVICT_NO_SLOT) {
            enter(c, keys[i], a->slot);
        }
    }
}

void evict_place(struct evict *c, struct expert_key key)
{
    assert(c->n_free > 0 && !evict_has(c, key));
    enter(c, key, c->free[--c->n_free]);
}

void evict_drop(struct evict *c, struct expert_key key)
{
    struct evict_entry *x = entry_of(c, key);
    assert(x->slot != EVICT_NO_SLOT);
    c->slots[x->slot].came = 0;
    c->free[c->n_free++] = x->slot;
    x->slot = EVICT_NO_SLOT;
}
