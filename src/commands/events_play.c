/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: playing an event file as it was recorded: each call, with the arrivals that came in it. Must not know: time. */
#include <stdlib.h>
#include <string.h>

#include "src/commands/events_model.h"
#include "src/commands/events_play.h"

struct held {
    struct lease *lease;       /* NULL: not open */
    struct expert_view *views; /* [experts], of which those from `first` to `n` are held */
    uint32_t first, n;
};

struct play {
    const struct events *events;
    struct events_model model;
    struct store_observer observer;
    struct held held[STORE_LEASES];
    struct expert_key *keys;   /* [experts] */
    uint32_t *rows;            /* [experts] */
    struct prediction *hints;  /* [most of a call] */
    uint8_t *chances;          /* [experts] */
    const struct event *now;
    uint32_t batch;            /* of the call: how many have come */
    uint32_t lease;            /* of the last call that was told */
    atomic_int stop;           /* more was collected than had come */
};

/* ---- what has arrived ---- */

static void on_enter(void *ctx) { (void)ctx; }

static void on_collect(void *ctx)
{
    struct play *p = ctx;
    if (p->batch == p->now->n_batches) {
        atomic_store_explicit(&p->stop, 1, memory_order_relaxed);
        return;
    }
    const struct events_batch *b = &p->events->batches[p->now->first_batch + p->batch++];
    for (uint32_t i = 0; i < b->n; i++) {
        const uint32_t *x = &p->events->numbers[b->first + 3 * i];
        uint64_t begin, end;
        events_model_range(&p->model, (struct expert_key){(uint16_t)x[0], (uint16_t)x[1]}, &begin, &end);
        reader_model_finish(p->model.reader, begin, end, -(int)x[2]);
    }
}

static void on_arrive(void *ctx, struct expert_key key, int status)
{
    (void)ctx;
    (void)key;
    (void)status;
}

static void on_leave(void *ctx, const struct store_call *call) { ((struct play *)ctx)->lease = call->lease; }

/* ---- calls: whether the store did what the engine's did ---- */

static bool begin(struct play *p, const struct event *x, struct error *e)
{
    for (uint32_t i = 0; i < x->n; i++) {
        const uint32_t *pair = &p->events->numbers[x->first + 2 * i];
        p->keys[i] = (struct expert_key){x->layer, (uint16_t)pair[0]};
        p->rows[i] = pair[1];
    }
    struct lease *l = NULL;
    const struct store_visit v = {p->keys, p->rows, x->n, x->passing};
    if (store_begin(p->model.store, &v, &l, e) < 0 || p->lease != x->lease) {
        return false;
    }
    p->held[x->lease].lease = l;
    return true;
}

static bool hint(struct play *p, const struct event *x)
{
    for (uint32_t i = 0; i < x->n; i++) {
        p->hints[i] = events_hint(p->events, x, i);
    }
    store_hint(p->model.store, p->hints, x->n);
    return true;
}

static bool expect(struct play *p, const struct event *x)
{
    for (uint32_t i = 0; i < x->n; i++) {
        p->chances[i] = (uint8_t)p->events->numbers[x->first + i];
    }
    store_expect(p->model.store, x->layer, x->max, p->chances);
    return true;
}

static bool next(struct play *p, const struct event *x, struct error *e)
{
    struct held *h = &p->held[x->lease];
    uint32_t n, room = p->events->setting.experts - h->n;
    if (h->lease == NULL || x->n > room || store_next(h->lease, &p->stop, h->views + h->n, min_u32(x->max, room), &n, e) < 0) {
        return false;
    }
    h->n += n;
    return n == x->n;
}

static bool give_back(struct play *p, const struct event *x)
{
    struct held *h = &p->held[x->lease];
    if (h->lease == NULL || x->n > h->n - h->first) {
        return false;
    }
    store_release(h->lease, h->views + h->first, x->n);
    h->first += x->n;
    return true;
}

static bool end(struct play *p, const struct event *x)
{
    struct held *h = &p->held[x->lease];
    if (h->lease == NULL) {
        return false;
    }
    store_end(h->lease);
    *h = (struct held){.views = h->views};
    return true;
}

static bool repeat(struct play *p, const struct event *x, struct error *e)
{
    switch (x->kind) {
    case STORE_BEGIN: return begin(p, x, e);
    case STORE_HINT: return hint(p, x);
    case STORE_EXPECT: return expect(p, x);
    case STORE_NEXT: return next(p, x, e);
    case STORE_RELEASE: return give_back(p, x);
    default: return end(p, x);
    }
}

static bool call(struct play *p, const struct event *x, struct error *e)
{
    p->now = x;
    p->batch = 0;
    return repeat(p, x, e) && p->batch == x->n_batches && !atomic_load_explicit(&p->stop, memory_order_relaxed);
}

/* ---- all of them ---- */

static int init(struct play *p, struct error *e)
{
    const struct events *x = p->events;
    const struct events_setting *s = &x->setting;
    const struct reader_options ro = {.requests = s->room * EXPERT_PARTS};
    struct reader *reader = NULL;
    uint32_t hints = 0;
    for (size_t i = 0; i < x->n; i++) {
        hints = x->item[i].kind == STORE_HINT ? max_u32(hints, x->item[i].n) : hints;
    }
    p->keys = calloc(s->experts, sizeof(*p->keys));
    p->rows = calloc(s->experts, sizeof(*p->rows));
    p->chances = calloc(s->experts, sizeof(*p->chances));
    p->hints = calloc(hints + 1u, sizeof(*p->hints));
    bool ok = p->keys != NULL && p->rows != NULL && p->chances != NULL && p->hints != NULL;
    for (uint32_t i = 0; i < STORE_LEASES && ok; i++) {
        p->held[i].views = calloc(s->experts, sizeof(*p->held[i].views));
        ok = p->held[i].views != NULL;
    }
    int r = ok ? reader_model_create_told(&ro, &reader, e) : error_nomem(e, "experts of leases", s->experts * sizeof(struct expert_view));
    r = r < 0 ? r : events_model_init(&p->model, s, s->cached, reader, e);
    if (r == 0) {
        p->observer = (struct store_observer){on_enter, on_collect, on_arrive, on_leave, p};
        store_observe(p->model.store, &p->observer);
    }
    return r;
}

static void deinit(struct play *p)
{
    for (uint32_t i = 0; i < STORE_LEASES; i++) {
        store_end(p->held[i].lease);
        free(p->held[i].views);
    }
    events_model_deinit(&p->model);
    free(p->keys);
    free(p->rows);
    free(p->chances);
    free(p->hints);
}

int events_play(const struct events *x, uint64_t ret_counted[EVENTS_COUNTERS], struct error *e)
{
    struct play *p = calloc(1, sizeof(*p));
    static const struct event none;
    if (p == NULL) {
        return error_nomem(e, "player of events", sizeof(*p));
    }
    p->events = x;
    int r = init(p, e);
    for (size_t i = 0; r == 0 && i < x->n; i++) {
        struct error why = {0};
        if (!call(p, &x->item[i], &why)) {
            r = error_set(e, ERROR_FORMAT, "call %zu: the store does something else than the engine's did%s%s; the file is damaged, or of another version of this program", i + 1,
                          why.text[0] != '\0' ? ": " : "", why.text);
        }
    }
    if (r == 0) {
        events_model_counted(&p->model, ret_counted);
    }
    p->now = &none;
    p->batch = 0;
    deinit(p);
    free(p);
    return r;
}
