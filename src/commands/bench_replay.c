/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice bench --replay`: a routing trace played through cache policies, with the experts that miss read from the file of a
 * model, whose experts stand for those of the trace. Must not know: how a policy decides, how experts are read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/str.h"
#include "src/commands/arguments.h"
#include "src/commands/bench.h"
#include "src/commands/trace_csv.h"
#include "src/commands/trace_replay.h"
#include "src/model/bind.h"
#include "src/tier/fetch.h"

enum { SIZES = 16, RUNS = 7, DEPTH = 32, CHUNK = 1 << 20, REQUESTS = 1024, TOKENS = 32 };

/* One policy with one number of slots. */
struct run {
    const char *name;
    uint32_t slots;
    struct replay_counts counts;
    uint64_t bytes;
    double seconds;
};

struct replayer {
    const struct bench_options *options;
    struct trace trace;
    struct weights *weights;
    struct reader *reader;
    struct account account;
    struct expert_slots slots;  /* as many as a token uses of a layer */
    struct fetch fetch;
    struct clock clock;
    struct expert_key *of;      /* [n_of] experts of the model, in order of layer and number */
    uint32_t n_of;
    uint64_t tokens;
    uint32_t n_sizes, sizes[SIZES];
    struct run runs[RUNS * SIZES];
    uint32_t n_runs;
};

/* ---- reading what a visit misses ---- */

static int wait_all(struct replayer *p, struct error *e)
{
    struct fetch_arrival a;
    int r = 0;
    while (p->fetch.under_way > 0) {
        struct error failure = {0};
        if (fetch_collect(&p->fetch, -1, &a, &failure) > 0 && a.status < 0 && r == 0) {
            r = error_set(e, a.status, "%s", failure.text);
        }
    }
    return r;
}

struct reading {
    struct replayer *p;
    struct run *run;
};

static int read_missed(void *ctx, const struct replay_visit *v, struct error *e)
{
    struct reading *reading = ctx;
    struct replayer *p = reading->p;
    uint64_t start = clock_now_ns(&p->clock);
    for (uint32_t i = 0; i < v->n_missed; i++) {
        struct expert_key key = p->of[((size_t)v->missed[i].layer * p->trace.experts + v->missed[i].expert) % p->n_of];
        fetch_start(&p->fetch, key, i, READ_DEMAND);
        reading->run->bytes += expert_slots_bytes(&p->slots, key);
    }
    int r = wait_all(p, e);
    reading->run->seconds += clock_seconds_since(&p->clock, start);
    return r;
}

/* ---- the runs ---- */

static int run_policy(struct replayer *p, const char *name, const struct trace_policy *policy, uint32_t slots, const volatile int *cancel, struct error *e)
{
    struct run *run = &p->runs[p->n_runs];
    struct reading reading = {p, run};
    *run = (struct run){.name = name, .slots = slots};
    const struct replay_options o = {.experts = p->trace.experts, .slots = slots, .tokens = p->tokens, .on_visit = read_missed, .ctx = &reading, .cancel = cancel};
    int r = trace_replay(&p->trace, policy, &o, &run->counts, e);
    p->n_runs += r == 0;
    return r;
}

static int run_all(struct replayer *p, const volatile int *cancel, struct error *e)
{
    static const char *const names[] = {"lru", "lfu", "odds", "lfu-ahead", "odds-ahead", "min"};
    int r = run_policy(p, "no cache", trace_policy_find("lru"), 0, cancel, e);
    for (uint32_t k = 0; r == 0 && k < p->n_sizes; k++) {
        for (size_t i = 0; r == 0 && i < ARRAY_LEN(names); i++) {
            const struct trace_policy *policy = trace_policy_find(names[i]);
            if (policy->ahead != AHEAD_SHADOW || p->trace.has_shadow) {
                r = run_policy(p, policy->name, policy, p->sizes[k], cancel, e);
            }
        }
    }
    return r;
}

/* ---- open ---- */

static int list_experts(struct replayer *p, struct error *e)
{
    const struct shape *s = &p->weights->shape;
    p->of = calloc((size_t)shape_all_layers(s) * s->experts + 1, sizeof(*p->of));
    if (p->of == NULL) {
        return error_nomem(e, "experts", (uint64_t)shape_all_layers(s) * s->experts * sizeof(*p->of));
    }
    for (uint32_t i = 0; i < shape_all_layers(s); i++) {
        for (uint32_t j = 0; p->weights->layers[i].experts != NULL && j < s->experts; j++) {
            p->of[p->n_of++] = (struct expert_key){(uint16_t)i, (uint16_t)j};
        }
    }
    return p->n_of > 0 ? 0 : error_set(e, ERROR_USAGE, "%s: has no routed experts to read", p->options->settings.model);
}

static int open_sizes(struct replayer *p, struct error *e)
{
    uint64_t total = (uint64_t)p->trace.n_layers * p->trace.experts;
    const char *at = p->options->cache != NULL ? p->options->cache : "10%,30%,50%";
    return trace_parse_slots("--cache", at, total, p->sizes, SIZES, &p->n_sizes, e);
}

static int open_all(struct replayer *p, struct error *e)
{
    const struct bench_options *o = p->options;
    struct bind_options bind = arguments_bind(&o->settings);
    struct reader_options ro = reader_options_of(&o->settings);
    ro.depth = DEPTH;
    ro.chunk = CHUNK;
    ro.requests = REQUESTS;
    ro.direct = ro.drop_behind = true;
    p->clock = clock_system();
    p->tokens = o->generated_set ? o->generated.value[0] : TOKENS;
    int r = trace_read(o->replay, &p->trace, e);
    r = r < 0 ? r : open_sizes(p, e);
    r = r < 0 ? r : weights_open(&bind, &p->weights, e);
    r = r < 0 ? r : list_experts(p, e);
    r = r < 0 ? r : reader_create(&ro, &p->reader, e);
    const struct loader loader = {.reader = p->reader, .account = &p->account, .nodes = 1, .clock = p->clock};
    r = r < 0 ? r : expert_slots_init(&p->slots, p->weights, p->trace.used, &loader, e);
    return r < 0 ? r : fetch_init(&p->fetch, p->reader, REQUESTS, &p->slots, NULL, e);
}

static void close_all(struct replayer *p)
{
    if (p->fetch.flights != NULL) {
        fetch_deinit(&p->fetch);
    }
    expert_slots_deinit(&p->slots);
    reader_destroy(p->reader);
    weights_close(p->weights);
    trace_deinit(&p->trace);
    free(p->of);
}

/* ---- showing it ---- */

static double percent(const struct run *r) { return r->counts.uses > 0 ? 100.0 * (double)r->counts.hits / (double)r->counts.uses : 0; }

/* MIN with as many slots. */
static const struct run *best_of(const struct replayer *p, const struct run *run)
{
    const struct run *best = run;
    for (uint32_t i = 0; i < p->n_runs; i++) {
        best = p->runs[i].slots == run->slots && strcmp(p->runs[i].name, "min") == 0 ? &p->runs[i] : best;
    }
    return best;
}

static void show(const struct replayer *p, struct str *out)
{
    uint64_t total = (uint64_t)p->trace.n_layers * p->trace.experts;
    str_printf(out, "%s: the first %llu tokens, %u layers, %u of %u experts each; reads from %s\n", p->options->replay, (unsigned long long)p->tokens,
               p->trace.n_layers, p->trace.used, p->trace.experts, p->options->settings.model);
    str_puts(out, "tokens/s: reading what misses, layer by layer, and nothing else; regret: against min with as many slots\n\n");
    str_puts(out, "| policy     |  slots | share |  hits | regret | GB/token |   GB/s | tokens/s | time over min |\n| ---------- | -----: | ----: | ----: | -----: | -------: | -----: | -------: | ------------: |\n");
    for (uint32_t i = 0; i < p->n_runs; i++) {
        const struct run *r = &p->runs[i], *best = best_of(p, r);
        str_printf(out, "| %-10s | %6u | %3.0f %% | %4.1f%% | %6.1f | %8.3f | %6.2f | %8.2f | ", r->name, r->slots, 100.0 * r->slots / (double)total, percent(r),
                   percent(best) - percent(r), 1e-9 * (double)r->bytes / (double)p->tokens, r->seconds > 0 ? 1e-9 * (double)r->bytes / r->seconds : 0.0,
                   r->seconds > 0 ? (double)p->tokens / r->seconds : 0.0);
        str_printf(out, best->seconds > 0 && best != r ? "%13.2f |\n" : "            - |\n", best->seconds > 0 ? r->seconds / best->seconds : 0.0);
    }
}

static void json(const struct replayer *p, struct str *out)
{
    str_puts(out, "[\n");
    for (uint32_t i = 0; i < p->n_runs; i++) {
        const struct run *r = &p->runs[i], *best = best_of(p, r);
        str_printf(out, "  {\"policy\": \"%s\", \"slots\": %u, \"tokens\": %llu, \"uses\": %llu, \"hits\": %llu, \"admitted\": %llu, \"bytes\": %llu, ", r->name, r->slots,
                   (unsigned long long)p->tokens, (unsigned long long)r->counts.uses, (unsigned long long)r->counts.hits, (unsigned long long)r->counts.admitted,
                   (unsigned long long)r->bytes);
        str_printf(out, "\"seconds\": %.6f, \"regret_points\": %.4f, \"min_seconds\": %.6f}%s\n", r->seconds, percent(best) - percent(r), best->seconds,
                   i + 1 < p->n_runs ? "," : "");
    }
    str_puts(out, "]\n");
}

int bench_replay(const struct bench_options *o, const volatile int *cancel, struct error *e)
{
    struct str out = {0};
    struct replayer *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return error_nomem(e, "replay", sizeof(*p));
    }
    p->options = o;
    int r = open_all(p, e);
    p->tokens = min_u64(p->tokens, r < 0 ? p->tokens : trace_tokens(&p->trace));
    r = r < 0 ? r : run_all(p, cancel, e);
    if (r == 0) {
        (o->json ? json : show)(p, &out);
        r = arguments_print(&out, e);
    }
    close_all(p);
    free(p);
    return r;
}
