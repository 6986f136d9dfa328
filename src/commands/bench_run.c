/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: bench_run.h. Must not know: how results are shown. */
#include "src/commands/bench_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "src/commands/bench_ceilings.h"
#include "src/run/probe_text.h"
#include "src/run/session.h"
#include "src/run/step.h"

void bench_test_name(const struct bench_test *t, char *out, size_t bytes)
{
    int n = t->decode_n > 0 ? snprintf(out, bytes, "tg%u", t->decode_n) : snprintf(out, bytes, "pp%u", t->prompt_n);
    if (t->rows > 1) {
        n += snprintf(out + n, bytes - (size_t)n, " x%u", t->rows);
    }
    if (t->depth > 0) {
        snprintf(out + n, bytes - (size_t)n, " @ %u", t->depth);
    }
}

/* ---- facts about the process ---- */

/* Bytes that came from drives so far, page faults included. */
static uint64_t drive_bytes(void)
{
    char *text = probe_read("", "/proc/self/io");
    uint64_t n = 0;
    if (text != NULL && !probe_number_after(text, "read_bytes:", &n)) {
        n = 0;
    }
    free(text);
    return n;
}

/* Share of the process's memory that is not swapped out. */
static double resident_share(void)
{
    char *text = probe_read("", "/proc/self/status");
    uint64_t resident = 0, swapped = 0;
    bool known = text != NULL && probe_number_after(text, "VmRSS:", &resident) && probe_number_after(text, "VmSwap:", &swapped);
    free(text);
    return known && resident > 0 ? (double)resident / (double)(resident + swapped) : 1;
}

static uint64_t counter_of(const struct engine *g, const char *name)
{
    const struct counter *c = counters_find(&g->counters, name);
    return c != NULL ? counter_get(c) : 0;
}

/* ---- timelines ---- */

/* Tokens of no meaning, the same in every run (xorshift). */
static void fill_tokens(uint64_t seed, uint32_t vocab, int32_t *out, uint32_t n)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
    for (uint32_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out[i] = (int32_t)((x >> 11) % vocab);
    }
}

struct lines {
    struct session *session[STEP_FEEDS_MAX];
    int32_t *tokens[STEP_FEEDS_MAX]; /* [depth + n] */
    uint32_t n;
    double *step_s;                  /* [decode_n] */
    uint32_t experts, used;
    size_t met_bytes;
    unsigned char *met;              /* [layers, experts] of one step */
    uint64_t distinct;               /* experts met, step by step and layer by layer */
    bool counts;
    bool drafts;                     /* each timeline goes on with its most likely token: random ones are never drafted */
};

static uint32_t moe_layers(const struct shape *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->layers; i++) {
        n += shape_layer_is_moe(s, i);
    }
    return n;
}

static void lines_close(struct lines *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        session_destroy(l->session[i]);
        free(l->tokens[i]);
    }
    free(l->step_s);
    free(l->met);
}

/* Rows of one step that choose the same expert read it once. */
static void on_route(void *ctx, uint32_t layer, uint32_t position, const int32_t *ids, const float *weights)
{
    struct lines *l = ctx;
    (void)position;
    (void)weights;
    for (uint32_t k = 0; l->counts && k < l->used; k++) {
        unsigned char *met = &l->met[(size_t)layer * l->experts + (size_t)ids[k]];
        l->distinct += *met == 0;
        *met = 1;
    }
}

static int lines_open(struct engine *g, const struct bench_test *t, struct lines *l, struct error *e)
{
    uint32_t length = t->depth + max_u32(t->prompt_n, t->decode_n);
    const struct session_hooks hooks = {.on_route = on_route, .ctx = l};
    l->experts = g->shape->experts;
    l->used = g->shape->experts_used;
    l->drafts = t->decode_n > 0 && (t->likely || (g->drafts > 0 && !g->drafts_governed));
    l->met_bytes = (size_t)shape_all_layers(g->shape) * l->experts;
    l->met = malloc(l->met_bytes + 1);
    l->step_s = calloc(max_u32(t->decode_n, 1), sizeof(*l->step_s));
    int r = l->step_s != NULL && l->met != NULL ? 0 : error_nomem(e, "steps", t->decode_n);
    while (r == 0 && l->n < t->rows) {
        uint32_t i = l->n++;
        l->tokens[i] = malloc(length * sizeof(**l->tokens));
        r = l->tokens[i] != NULL ? session_create(g, &hooks, l->drafts ? SESSION_MTP_DRAFT : SESSION_MTP_NONE, &l->session[i], e) : error_nomem(e, "tokens", length);
        if (r == 0) {
            fill_tokens(i + 1, g->shape->vocab, l->tokens[i], length);
            r = session_feed(l->session[i], l->tokens[i], t->depth, e);
        }
    }
    return r;
}

static int lines_rewind(const struct lines *l, uint32_t depth, struct error *e)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < l->n; i++) {
        r = session_rollback(l->session[i], depth, e);
        r = r < 0 || !l->drafts || depth == 0 ? r : session_refresh(l->session[i], e);
    }
    return r;
}

static int32_t most_likely(const struct session *s)
{
    int32_t best = 0;
    for (uint32_t i = 1; i < s->engine->shape->vocab; i++) {
        best = s->logits[i] > s->logits[best] ? (int32_t)i : best;
    }
    return best;
}

/* ---- one repeat ---- */

static int run_steps(struct engine *g, const struct bench_test *t, struct lines *l, struct error *e)
{
    int r = 0;
    l->counts = true;
    for (uint32_t k = 0; r == 0 && k < t->decode_n; k++) {
        struct step_feed feeds[STEP_FEEDS_MAX];
        uint32_t n = 0;
        memset(l->met, 0, l->met_bytes);
        uint64_t start = clock_now_ns(&g->clock);
        for (uint32_t i = 0; i < l->n; i++) {
            int32_t *token = l->tokens[i] + t->depth + k;
            *token = l->drafts && k > 0 ? most_likely(l->session[i]) : *token;
            if (!session_advance(l->session[i], *token)) {
                feeds[n++] = (struct step_feed){.session = l->session[i], .tokens = token, .n = 1};
            }
        }
        r = n > 0 ? step_once(g, feeds, n, e) : 0;
        l->step_s[k] = clock_seconds_since(&g->clock, start);
    }
    return r;
}

static double sum(const double *v, uint32_t n)
{
    double s = 0;
    for (uint32_t i = 0; i < n; i++) {
        s += v[i];
    }
    return s;
}

static int repeat_once(struct engine *g, const struct bench_test *t, struct lines *l, double *ret_seconds, struct error *e)
{
    int r = lines_rewind(l, t->depth, e);
    uint64_t start = clock_now_ns(&g->clock);
    if (r == 0 && t->decode_n > 0) {
        r = run_steps(g, t, l, e);
    } else if (r == 0) {
        r = session_feed(l->session[0], l->tokens[0] + t->depth, t->prompt_n, e);
    }
    *ret_seconds = clock_seconds_since(&g->clock, start);
    return r;
}

static void show(const struct bench_run *b, const char *test, uint32_t repeat)
{
    if (b->progress) {
        fprintf(stderr, "\r\033[K%s: %u of %u", test, repeat + 1, b->repeats);
    }
}

/* ---- a test ---- */

/* Counters and clocks before and after the repeats. */
struct totals {
    uint64_t drive, hits, misses, cache, read, missed, drafted, accepted;
};

static struct totals totals_of(const struct engine *g)
{
    return (struct totals){
        .drive = drive_bytes(), .hits = counter_of(g, "expert.ram.hits"),
        .misses = counter_of(g, "expert.ram.misses"), .cache = counter_of(g, "expert.ram.bytes"), .read = counter_of(g, "expert.nvme.drive_bytes"), .missed = counter_of(g, "expert.nvme.bytes"),
        .drafted = counter_of(g, "draft.drafted"), .accepted = counter_of(g, "draft.accepted")};
}

static void set_totals(const struct totals *a, const struct totals *z, struct bench_row *row)
{
    double tokens = (double)row->repeats * (row->decode_n > 0 ? (double)row->decode_n * row->rows : row->prompt_n);
    row->nvme_bytes = (double)(z->drive - a->drive) / tokens;
    row->hits = z->hits - a->hits;
    row->misses = z->misses - a->misses;
    row->cache_bytes = z->cache - a->cache;
    row->read_bytes = z->read - a->read;
    row->missed_bytes = z->missed - a->missed;
    row->drafted = z->drafted - a->drafted;
    row->accepted = z->accepted - a->accepted;
}

/* What a repeat could reach at such ceilings. `met`: share of the experts that a step reads. */
static struct roof roof_of(const struct bench_run *b, const struct bench_test *t, double met, const struct bench_row *row, const struct ceilings *c)
{
    double read = row->nvme_bytes * (t->decode_n > 0 ? (double)t->decode_n * t->rows : t->prompt_n);
    const struct engine *g = b->engine;
    const struct machine m = ceilings_machine(c);
    struct roof r;
    if (t->decode_n == 0) {
        cost_prefill(&b->cost, &m, t->prompt_n, t->depth, g->ubatch, &r);
        roof_add_drive(&r, read, b->drive);
        return r;
    }
    uint64_t latents = g->plan.kv_token_bytes / shape_all_layers(g->shape) * g->shape->layers; /* the MTP layer has some, too, and is not run */
    cost_decode(&b->cost, &m, t->rows, t->depth + t->decode_n / 2, latents, met, &r);
    double *of_one_step[] = {&r.bytes, &r.int8_operations, &r.float_operations, &r.memory_s, &r.compute_s, &r.seconds};
    for (size_t i = 0; i < ARRAY_LEN(of_one_step); i++) {
        *of_one_step[i] *= t->decode_n;
    }
    roof_add_drive(&r, read, b->drive);
    return r;
}

/* Each repeat stands beside the ceilings around it. measured: [repeats + 1] */
static void set_ceilings(const struct bench_run *b, const struct bench_test *t, const struct lines *l, const struct ceilings *measured, struct bench_row *row)
{
    struct ceilings each[BENCH_REPEATS_MAX], median;
    double reads[BENCH_REPEATS_MAX + 1];
    double choices = (double)row->repeats * t->decode_n * moe_layers(b->engine->shape) * b->engine->shape->experts;
    double met = choices > 0 ? (double)l->distinct / choices : 0;
    ceilings_pair(measured, row->repeats, each, &median);
    for (uint32_t i = 0; i < row->repeats; i++) {
        row->ceiling[i] = each[i].of[CEILING_READ];
        row->roof_s[i] = roof_of(b, t, met, row, &each[i]).seconds;
    }
    for (uint32_t i = 0; i <= row->repeats; i++) {
        reads[i] = measured[i].of[CEILING_READ];
    }
    row->drift = rate_of(reads, b->rates != NULL ? row->repeats + 1 : 0);
    row->roof = roof_of(b, t, met, row, &median);
    row->ram_bytes = row->roof.bytes / (t->decode_n > 0 ? (double)t->decode_n * t->rows : t->prompt_n);
}

/* Medians of the first and last steps over the repeats. */
struct windows {
    double first[BENCH_REPEATS_MAX], last[BENCH_REPEATS_MAX];
};

static int run_repeats(struct bench_run *b, const struct bench_test *t, struct lines *l, struct bench_row *row, struct error *e)
{
    struct ceilings measured[BENCH_REPEATS_MAX + 1];
    struct windows w;
    struct totals before = totals_of(b->engine);
    row->window = t->decode_n >= 8 ? min_u32(BENCH_WINDOW, t->decode_n / 4) : 0;
    int r = ceilings_measure(b->rates, &measured[0], e);
    while (r == 0 && row->repeats < b->repeats) {
        uint32_t i = row->repeats;
        show(b, row->test, i);
        r = repeat_once(b->engine, t, l, &row->seconds[i], e);
        w.first[i] = sum(l->step_s, row->window);
        w.last[i] = row->window > 0 ? sum(l->step_s + t->decode_n - row->window, row->window) : 0;
        row->repeats += r == 0;
        r = r < 0 ? r : ceilings_measure(b->rates, &measured[i + 1], e);
    }
    if (r == 0) {
        struct totals after = totals_of(b->engine);
        set_totals(&before, &after, row);
        row->resident_share = resident_share();
        row->first_s = rate_of(w.first, row->repeats).median;
        row->last_s = rate_of(w.last, row->repeats).median;
        set_ceilings(b, t, l, measured, row);
    }
    return r;
}

int bench_test_run(struct bench_run *b, const struct bench_test *t, struct bench_row *ret, struct error *e)
{
    struct lines l = {0};
    struct bench_row row = {.threads = pool_workers(b->engine->pool), .ubatch = b->engine->ubatch, .prompt_n = t->prompt_n,
                            .decode_n = t->decode_n, .rows = t->rows, .depth = t->depth};
    bench_test_name(t, row.test, sizeof(row.test));
    int r = lines_open(b->engine, t, &l, e);
    r = r < 0 ? r : run_repeats(b, t, &l, &row, e);
    if (r == 0) {
        *ret = row;
    }
    lines_close(&l);
    if (b->progress) {
        fputs("\r\033[K", stderr);
    }
    return r;
}

int bench_warm_up(struct bench_run *b, struct error *e)
{
    struct bench_test t = {.prompt_n = min_u32(b->engine->ubatch, b->engine->context - 1), .rows = 1};
    struct lines l = {0};
    if (b->progress) {
        fputs("\r\033[Kwarming up", stderr);
    }
    int r = lines_open(b->engine, &t, &l, e);
    r = r < 0 ? r : session_feed(l.session[0], l.tokens[0], t.prompt_n, e);
    r = r < 0 ? r : session_feed(l.session[0], l.tokens[0], 1, e);
    lines_close(&l);
    return r;
}
