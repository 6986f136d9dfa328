/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice bench -m MODEL`: opening the model, the order of the tests, the report. Must not know: how a test is run. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/intmath.h"
#include "src/commands/arguments.h"
#include "src/commands/bench.h"
#include "src/commands/bench_run.h"
#include "src/commands/host.h"
#include "src/commands/measure.h"
#include "src/run/probe_drive.h"
#include "src/tier/cost_input.h"

struct results {
    struct bench_row *rows;
    uint32_t n, room;
    struct str machine, model, steps_down;
};

/* ---- messages ---- */

static void log_line(void *ctx, enum log_level level, const char *line)
{
    const bool *progress = ctx;
    (void)level;
    fprintf(stderr, "%ssluice bench: %s\n", *progress ? "\r\033[K" : "", line);
}

static void load_progress(void *ctx, uint64_t done, uint64_t total, double seconds)
{
    const bool *progress = ctx;
    if (*progress) {
        fprintf(stderr, "\r\033[Kloading %.2f of %.2f GB, %.2f GB/s", 1e-9 * (double)done, 1e-9 * (double)total, seconds > 0 ? 1e-9 * (double)done / seconds : 0);
    }
}

/* ---- what all rows share ---- */

/* Formats by bytes: "q4_k 94 %, q8_0 6 %". */
static void describe_formats(const struct weights *w, struct str *out)
{
    double bytes[FORMAT_COUNT] = {0}, all = 0;
    for (uint32_t l = 0; l < shape_all_layers(&w->shape); l++) {
        for (int role = 0; role < ROLE_COUNT; role++) {
            bytes[w->layers[l].role[role].format % FORMAT_COUNT] += (double)w->layers[l].role[role].bytes;
        }
        for (uint32_t x = 0; w->layers[l].experts != NULL && x < w->shape.experts; x++) {
            const struct expert_refs *r = &w->layers[l].experts[x];
            bytes[r->gate.format] += (double)r->gate.bytes;
            bytes[r->up.format] += (double)r->up.bytes;
            bytes[r->down.format] += (double)r->down.bytes;
        }
    }
    for (int f = 0; f < FORMAT_COUNT; f++) {
        all += bytes[f];
    }
    const char *separator = "";
    for (int f = 0; f < FORMAT_COUNT; f++) {
        if (all > 0 && bytes[f] / all >= 0.005) {
            str_printf(out, "%s%s %.0f %%", separator, weight_format_info((enum weight_format)f)->name, 100 * bytes[f] / all);
            separator = ", ";
        }
    }
}

static void describe_reads(const struct engine *g, struct str *out)
{
    char chunk[24];
    str_printf(out, ", %u reads of %s in flight (%s)", g->drives.depth, format_bytes(chunk, g->drives.chunk), g->drives.source);
}

static void describe_model(const struct engine *g, struct str *out)
{
    const struct shape *s = g->shape;
    char size[24];
    str_printf(out, "%s, %u layers, %u experts, ", s->family, s->layers, s->experts);
    describe_formats(g->weights, out);
    str_printf(out, ", %s; context %u, KV %s, -ub %u, %s activations; loaded at %.2f GB/s", format_bytes(size, g->load_bytes), g->context,
               kv_type_name(g->kv.layout.type), g->ubatch, g->act_f32 ? "f32" : "int8",
               g->load_seconds > 0 ? 1e-9 * (double)g->load_bytes / g->load_seconds : 0);
}

static void describe_steps_down(const struct engine *g, struct str *out)
{
    str_puts(out, "[");
    for (uint32_t i = 0; i < g->n_steps_down; i++) {
        str_puts(out, i == 0 ? "{\"what\": " : ", {\"what\": ");
        str_json(out, g->steps_down[i].what, strlen(g->steps_down[i].what));
        str_puts(out, ", \"why\": ");
        str_json(out, g->steps_down[i].why, strlen(g->steps_down[i].why));
        str_puts(out, "}");
    }
    str_puts(out, "]");
}

static void describe(const struct bench_options *o, const struct engine *g, struct results *results)
{
    if (results->model.len > 0) {
        return;
    }
    const char *path = g->weights->n_containers > 0 ? g->weights->containers[0]->files[0].path : NULL;
    host_line(&g->machine, cpu_isa_name(g->isa), o->threads.n > 1 ? 0 : pool_workers(g->pool), path, &results->machine);
    describe_reads(g, &results->machine);
    describe_model(g, &results->model);
    describe_steps_down(g, &results->steps_down);
}

/* ---- the tests ---- */

static int run_test(struct bench_run *b, const struct bench_test *t, struct results *results, struct error *e)
{
    if (results->n == results->room) {
        uint32_t room = results->room * 2 + 8;
        struct bench_row *rows = realloc(results->rows, room * sizeof(*rows));
        if (rows == NULL) {
            return error_nomem(e, "results", room * sizeof(*rows));
        }
        results->rows = rows;
        results->room = room;
    }
    int r = bench_test_run(b, t, &results->rows[results->n], e);
    results->n += r == 0;
    return r;
}

static int run_tests(const struct bench_options *o, struct bench_run *b, struct results *results, struct error *e)
{
    int r = o->cold ? 0 : bench_warm_up(b, e);
    for (uint32_t d = 0; r == 0 && d < o->depths.n; d++) {
        for (uint32_t i = 0; r == 0 && i < o->prompts.n; i++) {
            const struct bench_test t = {.prompt_n = o->prompts.value[i], .rows = 1, .depth = o->depths.value[d]};
            r = t.prompt_n > 0 ? run_test(b, &t, results, e) : 0;
        }
        for (uint32_t i = 0; r == 0 && i < o->generated.n; i++) {
            for (uint32_t k = 0; r == 0 && k < o->rows.n; k++) {
                const struct bench_test t = {.decode_n = o->generated.value[i], .rows = o->rows.value[k], .depth = o->depths.value[d]};
                r = t.decode_n > 0 ? run_test(b, &t, results, e) : 0;
            }
        }
    }
    return r;
}

/* Ceilings where the memory that is left allows: without them the figures stand alone, which is said. */
static int open_rates(const struct engine *g, const volatile int *cancel, struct rates **ret, struct error *e)
{
    uint64_t left = g->plan.limit - min_u64(g->plan.limit, g->plan.total);
    int r = measure_begin(&g->machine, &g->nodes.use, pool_workers(g->pool), g->isa, max_u64(left / 2, 1), cancel, ret, e);
    if (r == ERROR_DOES_NOT_FIT) {
        log_print(&g->log, LOG_WARN, "no ceilings: %s", e->text);
        r = 0;
    }
    return r;
}

/* Where experts are read while the tests run, the drive is a ceiling like the memory. */
static int measure_drive_of(const struct engine *g, double *ret, struct error *e)
{
    struct drive_way found = {0};
    char why[160];
    const struct drive_options o = {.path = g->weights->containers[0]->files[0].path, .seconds = 1, .clock = g->clock, .cancel = g->cancel};
    *ret = 0;
    if (!store_streams(g->store)) {
        return 0;
    }
    int r = probe_drive(&o, &found, why, sizeof(why), e);
    if (r == 0 && found.rate.samples == 0) {
        log_print(&g->log, LOG_WARN, "the rate of the drive is unknown: %s", why);
    }
    *ret = found.rate.best;
    if (g->settings.io_limit > 0) { /* a slower drive is tried out */
        *ret = fmin(*ret, (double)g->settings.io_limit);
    }
    return r;
}

static int bench_engine(const struct bench_options *o, struct engine *g, bool progress, const volatile int *cancel,
                        struct results *results, struct error *e)
{
    struct bench_run b = {.engine = g, .repeats = o->repeats, .progress = progress};
    cost_input_init(&b.cost, g->weights);
    int r = open_rates(g, cancel, &b.rates, e);
    r = r < 0 ? r : measure_drive_of(g, &b.drive, e);
    describe(o, g, results);
    r = r < 0 ? r : run_tests(o, &b, results, e);
    rates_destroy(b.rates);
    return r;
}

enum { BENCH_SPARE = 320 << 20 }; /* half of it is enough to get past most caches */

/* Opens the model with `threads` (0: as many as it takes by itself) and runs all tests on it. */
static int bench_with(struct bench_options *o, uint32_t threads, bool progress, const volatile int *cancel, struct results *results, struct error *e)
{
    struct engine *g = NULL;
    const struct engine_hooks hooks = {
        .log = {.level = o->quiet ? LOG_ERROR : LOG_WARN, .write = log_line, .ctx = &progress},
        .cancel = (const atomic_int *)(const volatile void *)cancel, /* as in measure.c */
        .progress = load_progress,
        .ctx = &progress,
        .spare = BENCH_SPARE,
    };
    int r = settings_set_number(&o->settings, "threads", threads, SOURCE_FLAG, e);
    r = r < 0 ? r : engine_open(&o->settings, &hooks, &g, e);
    if (r == 0 && g->weights == NULL) {
        r = error_set(e, ERROR_USAGE, "%s: a scripted model computes nothing that could be measured", o->settings.model);
    }
    r = r < 0 ? r : bench_engine(o, g, progress, cancel, results, e);
    if (progress) {
        fputs("\r\033[K", stderr);
    }
    engine_close(g);
    return r;
}

/* ---- positions and timelines that the tests need ---- */

static uint32_t largest(const struct bench_list *l)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        most = max_u32(most, l->value[i]);
    }
    return most;
}

static int size_timelines(struct bench_options *o, struct error *e)
{
    uint64_t need = (uint64_t)largest(&o->depths) + max_u32(largest(&o->prompts), largest(&o->generated));
    if (need == 0) {
        return error_set(e, ERROR_USAGE, "nothing to do: -p 0 and -n 0");
    }
    if (o->settings.context == 0) {
        int r = settings_set_number(&o->settings, "ctx", max_u64(need, KV_PAGE), SOURCE_FLAG, e);
        if (r < 0) {
            return r;
        }
    } else if (o->settings.context < need) {
        return error_set(e, ERROR_USAGE, "-c %u is less than the %llu positions of the longest test; leave it out or give fewer tokens", o->settings.context,
                         (unsigned long long)need);
    }
    return settings_set_number(&o->settings, "parallel", max_u32(o->settings.parallel, largest(&o->rows)), SOURCE_FLAG, e);
}

int bench_model(struct bench_options *o, const volatile int *cancel, struct error *e)
{
    struct results results = {0};
    bool progress = !o->quiet && isatty(STDERR_FILENO) == 1;
    int r = size_timelines(o, e);
    for (uint32_t i = 0; r == 0 && i < max_u32(o->threads.n, 1); i++) {
        r = bench_with(o, o->threads.n > 0 ? o->threads.value[i] : o->settings.threads, progress, cancel, &results, e);
    }
    struct str out = {0};
    if (r == 0) {
        bool failed = results.machine.failed || results.model.failed || results.steps_down.failed;
        const struct bench_setting s = {.machine = failed ? "" : results.machine.data, .model = failed ? "" : results.model.data,
                                        .steps_down = failed ? "[]" : results.steps_down.data};
        (o->json ? bench_json : o->csv ? bench_csv : bench_text)(&s, results.rows, results.n, &out);
        out.failed |= failed;
        r = arguments_print(&out, e);
    }
    str_deinit(&results.machine);
    str_deinit(&results.model);
    str_deinit(&results.steps_down);
    free(results.rows);
    return r;
}
