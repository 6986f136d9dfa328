/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the calls of store.h that change what is where, and telling them to who observes (store_observer.h). Must not know: what they do. */
#include "src/tier/store_state.h"

void store_observe(struct store *s, const struct store_observer *o) { s->observer = o; }

struct store_options store_options_of(const struct store *s)
{
    return (struct store_options){.cached = s->all ? s->slots.n : s->evict.options.slots, .staging = s->all ? 0 : s->slots.n - s->evict.options.slots, .requests = s->fetch.most};
}

static void enter(const struct store *s)
{
    if (s->observer != NULL) {
        s->observer->enter(s->observer->ctx);
    }
}

static void leave(const struct store *s, const struct store_call *call)
{
    if (s->observer != NULL) {
        s->observer->leave(s->observer->ctx, call);
    }
}

static uint32_t number_of(const struct lease *l) { return (uint32_t)(l - l->store->leases); }

int store_begin(struct store *s, const struct store_visit *v, struct lease **ret, struct error *e)
{
    enter(s);
    int r = store_lease_begin(s, v, ret, e);
    if (r == 0) {
        leave(s, &(struct store_call){.kind = STORE_BEGIN, .lease = number_of(*ret), .visit = v});
    }
    return r;
}

int store_next(struct lease *l, const atomic_int *cancel, struct expert_view *views, uint32_t max, uint32_t *ret_n, struct error *e)
{
    enter(l->store);
    int r = store_lease_next(l, cancel, views, max, ret_n, e);
    if (r == 0) {
        leave(l->store, &(struct store_call){.kind = STORE_NEXT, .lease = number_of(l), .n = *ret_n, .max = max});
    }
    return r;
}

void store_release(struct lease *l, const struct expert_view *views, uint32_t n)
{
    enter(l->store);
    store_lease_release(l, views, n);
    leave(l->store, &(struct store_call){.kind = STORE_RELEASE, .lease = number_of(l), .n = n});
}

void store_end(struct lease *l)
{
    if (l != NULL && l->open) {
        enter(l->store);
        store_lease_end(l);
        leave(l->store, &(struct store_call){.kind = STORE_END, .lease = number_of(l)});
    }
}

void store_expect(struct store *s, uint16_t layer, uint32_t ahead, const uint8_t *chances)
{
    if (!s->all) { /* else everybody stays */
        enter(s);
        store_take_expected(s, layer, ahead, chances);
        leave(s, &(struct store_call){.kind = STORE_EXPECT, .chances = chances, .layer = layer, .ahead = ahead, .n = s->experts});
    }
}

void store_hint(struct store *s, const struct prediction *p, uint32_t n)
{
    if (!s->all) { /* else nothing moves */
        enter(s);
        store_take_hints(s, p, n);
        leave(s, &(struct store_call){.kind = STORE_HINT, .hints = p, .n = n});
    }
}
