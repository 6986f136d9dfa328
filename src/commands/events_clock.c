/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: playing the visits of an event file on a clock of their own: reads take what a model of a drive says, computing what was
 * measured. Must not know: how results are shown. */
#include <stdlib.h>
#include <string.h>

#include "src/commands/events_model.h"
#include "src/commands/events_play.h"
#include "src/run/prefetch.h"

const char *const events_hints_names[EVENTS_HINTS] = {"off", "on", "auto"};

/* ---- what was recorded ---- */

uint32_t events_first_layer(const struct events *x)
{
    uint32_t layer = 0;
    while (!events_has_experts(&x->setting, layer)) {
        layer++;
    }
    return layer;
}

/* Of the model itself; its MTP layer is no part of a token. */
static uint32_t last_layer(const struct events *x)
{
    uint32_t layer = x->setting.layers - 1;
    while (!events_has_experts(&x->setting, layer)) {
        layer--;
    }
    return layer;
}

uint64_t events_experts(const struct events *x)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < x->setting.layers + x->setting.mtp_layers; i++) {
        n += events_has_experts(&x->setting, i) ? x->setting.experts : 0;
    }
    return n;
}

double events_tokens(const struct events *x)
{
    double rows = 0;
    for (size_t i = 0; i < x->n; i++) {
        for (uint32_t k = 0; x->item[i].kind == STORE_BEGIN && x->item[i].layer == events_first_layer(x) && k < x->item[i].n; k++) {
            rows += x->numbers[x->item[i].first + 2 * k + 1];
        }
    }
    return rows / x->setting.experts_used;
}

static uint64_t end_ns(const struct event *x) { return x->at_ns + x->took_ns; }

/* Since the call before. */
static uint64_t gap_ns(const struct events *x, size_t i) { return i == 0 ? 0 : x->item[i].at_ns - end_ns(&x->item[i - 1]); }

struct events_outcome events_recorded(const struct events *x)
{
    struct events_outcome o = {.seconds = 1e-9 * (double)(end_ns(&x->item[x->n - 1]) - x->item[0].at_ns)};
    memcpy(o.counted, x->counted, sizeof(o.counted));
    for (size_t i = 0; i < x->n; i++) {
        o.waiting += x->item[i].kind == STORE_NEXT ? 1e-9 * (double)x->item[i].took_ns : 0;
    }
    return o;
}

uint64_t events_drive_rate(const struct events *x)
{
    double us = (double)x->counted[EVENTS_DEMAND_US];
    return us > 0 ? (uint64_t)(1e6 * (double)x->counted[EVENTS_DEMAND_BYTES] / us) : 0;
}

/* Of the calls [first, end): time between experts handed out and released, for each of them. */
static double expert_ns(const struct events *x, size_t first, size_t end)
{
    double ns = 0, n = 0;
    for (size_t i = first; i < end; i++) {
        if (x->item[i].kind == STORE_RELEASE) {
            ns += (double)gap_ns(x, i);
            n += x->item[i].n;
        }
    }
    return n > 0 ? ns / n : 0;
}

double events_expert_ns(const struct events *x) { return expert_ns(x, 0, x->n); }

/* ---- playing ---- */

struct clocked {
    const struct events *events;
    const struct events_setup *setup;
    struct events_model model;
    struct clock_manual clock;
    struct expert_view *views; /* [experts] */
    struct expert_key *keys;   /* [experts] */
    uint32_t *rows;            /* [experts] */
    struct prediction *hints;  /* [most of a call] */
    uint8_t *chances;          /* [experts] */
    struct prefetch_governor governor;
    bool hinting;              /* this token */
    bool token;                /* one has begun */
    bool announced;            /* it has, and has not yet come to the first layer */
    uint64_t token_ns, token_experts; /* when, and experts read up to then */
    uint64_t waiting_ns;
};

static void pass(struct clocked *c, double ns) { reader_model_pass(c->model.reader, (uint64_t)(ns + 0.5)); }

/* What was recorded - time before call i, and in it, but for waiting -, or what is asked for instead. */
static void pass_call(struct clocked *c, size_t i, double instead)
{
    const struct event *x = &c->events->item[i];
    pass(c, instead >= 0 ? instead : (double)gap_ns(c->events, i) + (x->kind == STORE_NEXT ? 0 : (double)x->took_ns));
}

static uint64_t count_of(const struct clocked *c, const char *name) { return counter_get(counters_find(&c->model.counters, name)); }

static uint64_t experts_read(const struct clocked *c) { return count_of(c, "expert.ram.misses") + count_of(c, "prefetch.useful"); }

/* As run/prefetch.c, of the layers that have experts: the first one begins, the last one has ended. What is between two tokens - the
 * head, the sampler, a user who thinks - is none. */
static void begin_token(struct clocked *c, bool decodes)
{
    c->token = decodes;
    c->token_ns = c->clock.ns;
    c->token_experts = experts_read(c);
    c->hinting = c->setup->hints == EVENTS_ON || (c->setup->hints == EVENTS_AUTO && prefetch_governor_choose(&c->governor));
}

static void end_token(struct clocked *c)
{
    if (c->token) {
        prefetch_governor_token(&c->governor, c->hinting, 1e-9 * (double)(c->clock.ns - c->token_ns), experts_read(c) - c->token_experts);
    }
    c->token = false;
}

static void hint(struct clocked *c, const struct event *x)
{
    for (uint32_t i = 0; i < x->n; i++) {
        c->hints[i] = events_hint(c->events, x, i);
    }
    store_hint(c->model.store, c->hints, x->n);
}

/* A hint that was recorded, and the time that asking took. Without hints nobody asks what to hint. */
static void play_hint(struct clocked *c, size_t i)
{
    if (c->hinting) {
        pass_call(c, i, c->setup->ask_ns);
        hint(c, &c->events->item[i]);
    }
}

/* The first one of a token, before the first layer. What passed since the token before is no asking. */
static void announce(struct clocked *c, size_t i, bool decodes)
{
    double asked = c->setup->ask_ns >= 0 ? c->setup->ask_ns : (double)c->events->item[i].took_ns;
    pass(c, c->setup->ask_ns >= 0 ? 0 : (double)gap_ns(c->events, i));
    begin_token(c, decodes);
    c->announced = true;
    if (c->hinting) {
        pass(c, asked);
        hint(c, &c->events->item[i]);
    }
}

/* One between leases: those for the first layer come when a token begins. */
static void play_hint_between(struct clocked *c, size_t i)
{
    size_t next = i;
    while (next < c->events->n && c->events->item[next].kind != STORE_BEGIN) {
        next++;
    }
    bool first = next < c->events->n && c->events->item[next].layer == events_first_layer(c->events);
    if (first && !c->announced) {
        announce(c, i, !c->events->item[next].passing);
    } else {
        play_hint(c, i);
    }
}

/* Who is expected at the next visit of a layer, as recorded. */
static void play_expected(struct clocked *c, size_t i)
{
    const struct event *x = &c->events->item[i];
    pass_call(c, i, c->setup->layer_ns >= 0 ? 0 : -1);
    for (uint32_t k = 0; k < x->n; k++) {
        c->chances[k] = (uint8_t)c->events->numbers[x->first + k];
    }
    store_expect(c->model.store, x->layer, x->max, c->chances);
}

static int begin(struct clocked *c, size_t i, struct lease **ret, struct error *e)
{
    const struct event *x = &c->events->item[i];
    pass_call(c, i, c->setup->layer_ns);
    if (x->layer == events_first_layer(c->events) && !c->announced) {
        begin_token(c, !x->passing);
    }
    c->announced = false;
    for (uint32_t k = 0; k < x->n; k++) {
        const uint32_t *pair = &c->events->numbers[x->first + 2 * k];
        c->keys[k] = (struct expert_key){x->layer, (uint16_t)pair[0]};
        c->rows[k] = pair[1];
    }
    return store_begin(c->model.store, &(struct store_visit){c->keys, c->rows, x->n, x->passing}, ret, e);
}

/* Experts as they come, as the calls [late, end) took them; hints among those are given when the last experts are computed. */
static int use(struct clocked *c, struct lease *l, uint32_t max, size_t late, size_t end, struct error *e)
{
    double each = c->setup->expert_ns >= 0 ? c->setup->expert_ns : expert_ns(c->events, late, end);
    for (uint32_t n;;) {
        uint64_t since = c->clock.ns;
        int r = store_next(l, NULL, c->views, max, &n, e);
        c->waiting_ns += c->clock.ns - since;
        if (r < 0 || n == 0) {
            return r;
        }
        for (; store_waiting(l) == 0 && late < end; late++) {
            if (c->events->item[late].kind == STORE_HINT) {
                play_hint(c, late);
            }
        }
        pass(c, each * n);
        store_release(l, c->views, n);
    }
}

/* From a begin to its end; *ret: the call after. */
static int visit(struct clocked *c, size_t i, size_t *ret, struct error *e)
{
    const struct events *x = c->events;
    struct lease *l = NULL;
    size_t first = i + 1, end;
    int r = begin(c, i, &l, e);
    for (; r == 0 && first < x->n && x->item[first].kind == STORE_HINT; first++) {
        play_hint(c, first);
    }
    for (end = first; end < x->n && x->item[end].kind != STORE_END && x->item[end].kind != STORE_BEGIN; end++) {
    }
    if (r == 0 && (end == x->n || x->item[end].kind != STORE_END || x->item[first].kind != STORE_NEXT)) {
        r = error_set(e, ERROR_FORMAT, "call %zu: leases overlap, or one has no end; only one after the other can be played on a clock", i + 1);
    }
    if (r < 0) {
        store_end(l);
        return r;
    }
    double rest = c->setup->layer_ns >= 0 ? 0 : -1;
    pass_call(c, first, rest);
    r = use(c, l, min_u32(x->item[first].max, x->setting.experts), first, end, e);
    pass_call(c, end, rest);
    store_end(l);
    if (x->item[i].layer == last_layer(x)) {
        end_token(c);
    }
    *ret = end + 1;
    return r;
}

static int init(struct clocked *c, struct error *e)
{
    const struct events_setting *s = &c->events->setting;
    struct reader *reader = NULL;
    uint32_t hints = 0;
    for (size_t i = 0; i < c->events->n; i++) {
        hints = c->events->item[i].kind == STORE_HINT ? max_u32(hints, c->events->item[i].n) : hints;
    }
    const struct reader_options ro = {.depth = s->depth, .chunk = s->chunk, .requests = max_u32(s->room * EXPERT_PARTS, s->depth), .limit = c->setup->limit};
    c->views = calloc(s->experts, sizeof(*c->views));
    c->keys = calloc(s->experts, sizeof(*c->keys));
    c->rows = calloc(s->experts, sizeof(*c->rows));
    c->chances = calloc(s->experts, sizeof(*c->chances));
    c->hints = calloc(hints + 1u, sizeof(*c->hints));
    if (c->views == NULL || c->keys == NULL || c->rows == NULL || c->chances == NULL || c->hints == NULL) {
        return error_nomem(e, "experts of a visit", s->experts * sizeof(*c->views));
    }
    c->clock.ns = 1000000000; /* read_rate.c looks back */
    int r = reader_model_create(&ro, &c->setup->drive, &c->clock, &reader, e);
    return r < 0 ? r : events_model_init(&c->model, s, c->setup->cached, reader, e);
}

int events_play_clocked(const struct events *x, const struct events_setup *s, struct events_outcome *ret, struct error *e)
{
    struct clocked c = {.events = x, .setup = s};
    int r = init(&c, e);
    uint64_t start = c.clock.ns;
    for (size_t i = 0; r == 0 && i < x->n;) {
        if (s->cancel != NULL && *s->cancel) {
            r = error_set(e, ERROR_INTERRUPTED, "interrupted");
        } else if (x->item[i].kind == STORE_HINT) {
            play_hint_between(&c, i++);
        } else if (x->item[i].kind == STORE_EXPECT) {
            play_expected(&c, i++);
        } else if (x->item[i].kind != STORE_BEGIN) {
            r = error_set(e, ERROR_FORMAT, "call %zu: outside of a lease; only one after the other can be played on a clock", i + 1);
        } else {
            r = visit(&c, i, &i, e);
        }
    }
    if (r == 0) {
        *ret = (struct events_outcome){.seconds = 1e-9 * (double)(c.clock.ns - start), .waiting = 1e-9 * (double)c.waiting_ns};
        events_model_counted(&c.model, ret->counted);
    }
    events_model_deinit(&c.model);
    free(c.views);
    free(c.keys);
    free(c.rows);
    free(c.chances);
    free(c.hints);
    return r;
}
