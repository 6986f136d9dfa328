/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice bench --kernels`: every operation on all threads and on one, from memory and from cache, beside the ceilings
 * of the same moment. Must not know: what an operation computes. */
#include "src/commands/bench_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "src/commands/arguments.h"
#include "src/commands/bench.h"
#include "src/commands/build_version.h"
#include "src/commands/measure.h"
#include "src/run/probe.h"

enum { KERNELS_MAX = 256, CALLS_MAX = 1 << 20 };

static const double sample_seconds = 0.002; /* of an operation, and of the plain reads before and after it */

/* Where a figure was taken: from memory or cache, by one thread or all. */
enum { CASE_MEMORY_ALL, CASE_MEMORY_ONE, CASE_CACHE_ALL, CASE_CACHE_ONE, CASES };

struct kernel_bench {
    const struct bench_options *o;
    struct machine machine;
    struct topology topology;
    struct rates *rates;
    struct ops ops;
    struct kernel_input input;
    struct kernel_place *place; /* [workers] */
    uint32_t workers;
    struct read_way way_all, way_one;
    uint64_t read_from;         /* of each worker's memory: where plain reads go on */
    bool progress, first;
    const volatile int *cancel;
    struct str out;
    /* of the sample in progress */
    const struct kernel *kernel;
    bool cached;
    uint64_t from, calls; /* a sample goes on where the last one stopped: weights that it reads are not in a cache */
    _Atomic uint64_t next;
};

static void worker_calls(void *ctx, uint32_t worker)
{
    struct kernel_bench *b = ctx;
    for (uint64_t i; (i = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed)) < b->calls;) {
        b->kernel->call(b->kernel, &b->place[worker], b->from + i, b->cached);
    }
}

static double sample(struct kernel_bench *b, int who, uint64_t calls)
{
    b->calls = calls;
    atomic_store(&b->next, 0);
    double t = rates_time(b->rates, who, worker_calls, b);
    b->from += calls;
    return t;
}

/* Bytes per second of plain reads; the two best stream counts take turns. Operations go on half of the memory ahead of
 * them: neither finds in a cache what the other has read. From cache there is no such ceiling. */
static double sample_ceiling(struct kernel_bench *b, int who, uint32_t turn)
{
    const struct read_way *way = who == RATES_ALL ? &b->way_all : &b->way_one;
    double bytes = way->bytes_s * sample_seconds;
    uint64_t memory = b->place[0].weight_bytes;
    if (b->cached) {
        return NAN;
    }
    double rate = rates_read_once(b->rates, who, way->streams[turn % ARRAY_LEN(way->streams)], b->read_from, bytes);
    b->read_from = (b->read_from + (uint64_t)(bytes / rates_count(b->rates, who))) % memory;
    b->from = (b->read_from + memory / 2) % memory / (uint64_t)b->kernel->bytes;
    return rate;
}

/* Samples of calls and of plain reads in turn, all within a tenth of a second: a machine that drifts in seconds gives both the
 * same, and the best of each are those that nothing interrupted. */
struct measured {
    struct rate calls;   /* per second */
    struct rate ceiling; /* bytes per second; best NAN: from cache */
};

/* Calls are counted up until a sample is long enough. */
static struct measured measure(struct kernel_bench *b, uint32_t which)
{
    int who = which == CASE_MEMORY_ALL || which == CASE_CACHE_ALL ? RATES_ALL : RATES_ONE;
    uint64_t calls = rates_count(b->rates, who);
    double samples[RATES_SAMPLES_MAX], ceilings[RATES_SAMPLES_MAX + 1];
    b->cached = which >= CASE_CACHE_ALL;
    while (sample(b, who, calls) < sample_seconds / 2 && calls < CALLS_MAX) {
        calls *= 2;
    }
    ceilings[0] = sample_ceiling(b, who, 0);
    for (uint32_t i = 0; i < b->o->repeats; i++) {
        double t = sample(b, who, calls);
        samples[i] = t > 0 ? (double)calls / t : 0;
        ceilings[i + 1] = sample_ceiling(b, who, i + 1);
    }
    return (struct measured){.calls = rate_of(samples, b->o->repeats), .ceiling = rate_of(ceilings, b->o->repeats + 1)};
}

/* ---- report ---- */

struct figure {
    double gb_s, gb_share, gop_s, gop_share; /* NAN: does not apply */
    struct rate calls;
};

static double peak_of(const struct machine *m, enum peak_kind kind, bool all)
{
    const double peaks[PEAK_COUNT][2] = {[PEAK_FMA] = {m->thread_fma_gop_s, m->fma_gop_s},
                                         [PEAK_BF16] = {m->thread_bf16_gop_s, m->bf16_gop_s},
                                         [PEAK_INT8] = {m->thread_int8_gop_s, m->int8_gop_s}};
    return peaks[kind][all];
}

static struct figure figure_of(const struct kernel_bench *b, const struct kernel *k, uint32_t which, const struct measured *found)
{
    bool all = which == CASE_MEMORY_ALL || which == CASE_CACHE_ALL, cached = which >= CASE_CACHE_ALL;
    double operations = cached ? k->cached_operations : k->operations;
    double peak = peak_of(&b->machine, k->peak, all);
    struct figure f = {.calls = found->calls, .gop_s = NAN, .gop_share = NAN};
    f.gb_s = f.calls.samples > 0 ? 1e-9 * f.calls.best * (cached ? k->cached_bytes : k->bytes) : NAN;
    f.gb_share = f.gb_s / (1e-9 * found->ceiling.best);
    if (operations > 0) {
        f.gop_s = 1e-9 * f.calls.best * operations;
        f.gop_share = peak > 0 ? f.gop_s / peak : NAN;
    }
    return f;
}

static void text_header(struct kernel_bench *b)
{
    const struct machine *m = &b->machine;
    str_printf(&b->out, "machine: %s; %u threads, kernels %s; sluice (%s)\n", m->cpu, b->workers, b->ops.isa, build_version());
    str_printf(&b->out, "ceilings, all threads / one: memory %.1f / %.1f GB/s, int8 %.0f / %.0f, bf16 %.0f / %.0f, float32 %.0f / %.0f GOP/s\n\n", m->ram_read_gb_s,
               m->thread_read_gb_s, m->int8_gop_s, m->thread_int8_gop_s, m->bf16_gop_s, m->thread_bf16_gop_s, m->fma_gop_s, m->thread_fma_gop_s);
    str_puts(&b->out, "|            |         |     | memory, all threads           | memory, one thread            | cache, all threads    | cache, one thread     |\n"
                      "| operation  | type    |   n |   GB/s |  share |  GOP/s | share |   GB/s |  share |  GOP/s | share |   GB/s |  GOP/s | share |   GB/s |  GOP/s | share |\n"
                      "| ---------- | ------- | --: | -----: | -----: | -----: | ----: | -----: | -----: | -----: | ----: | -----: | -----: | ----: | -----: | -----: | ----: |\n");
}

static void cell(struct str *out, double v, int width, const char *unit)
{
    if (isfinite(v)) {
        str_printf(out, " %*.*f%s |", width - (int)strlen(unit), unit[0] != '\0' || v >= 1000 ? 0 : 1, v, unit);
    } else {
        str_printf(out, " %*s |", width, "-");
    }
}

static void text_kernel(struct kernel_bench *b, const struct kernel *k, const struct figure *f)
{
    str_printf(&b->out, "| %-10s | %-7s | %3u |", k->op, k->type, k->n);
    for (uint32_t which = 0; which < CASES; which++) {
        cell(&b->out, f[which].gb_s, 6, "");
        if (which < CASE_CACHE_ALL) {
            cell(&b->out, 100 * f[which].gb_share, 6, " %");
        }
        cell(&b->out, f[which].gop_s, 6, "");
        cell(&b->out, 100 * f[which].gop_share, 5, " %");
    }
    str_puts(&b->out, "\n");
}

static void json_number(struct str *out, const char *key, double v)
{
    if (isfinite(v)) {
        str_printf(out, ", \"%s\": %.9g", key, v);
    } else {
        str_printf(out, ", \"%s\": null", key);
    }
}

static void json_kernel(struct kernel_bench *b, const struct kernel *k, const struct figure *f)
{
    for (uint32_t which = 0; which < CASES; which++) {
        bool all = which == CASE_MEMORY_ALL || which == CASE_CACHE_ALL;
        if (!isfinite(f[which].gb_s)) {
            continue;
        }
        str_printf(&b->out, "%s\n  {\"op\": \"%s\", \"type\": \"%s\", \"n\": %u, \"isa\": \"%s\", \"threads\": %u, \"from\": \"%s\"", b->first ? "" : ",", k->op,
                   k->type, k->n, b->ops.isa, all ? b->workers : 1, which >= CASE_CACHE_ALL ? "cache" : "memory");
        json_number(&b->out, "gb_s", f[which].gb_s);
        json_number(&b->out, "ceiling_share", f[which].gb_share);
        json_number(&b->out, "gop_s", f[which].gop_s);
        json_number(&b->out, "peak_share", f[which].gop_share);
        json_number(&b->out, "spread", f[which].calls.best > 0 ? 1 - f[which].calls.worst / f[which].calls.best : NAN);
        str_printf(&b->out, ", \"samples\": %u}", f[which].calls.samples);
        b->first = false;
    }
}

/* ---- running ---- */

static int run_kernel(struct kernel_bench *b, const struct kernel *k, bool refill, struct measured *ret, struct error *e)
{
    if (b->progress) {
        fprintf(stderr, "\r\033[K%s %s, %u rows", k->op, k->type, k->n);
    }
    if (refill) {
        int r = rates_read_way(b->rates, RATES_ALL, &b->way_all, e);
        r = r < 0 ? r : rates_read_way(b->rates, RATES_ONE, &b->way_one, e);
        if (r < 0) {
            return r;
        }
        for (uint32_t w = 0; w < b->workers; w++) {
            kernel_fill(k, &b->place[w], &b->input);
        }
    }
    b->kernel = k;
    for (uint32_t which = 0; which < CASES; which++) {
        if (*b->cancel != 0) {
            return error_set(e, ERROR_INTERRUPTED, "interrupted");
        }
        ret[which] = which >= CASE_CACHE_ALL || k->memory ? measure(b, which) : (struct measured){0};
    }
    return 0;
}

/* The better of the ceilings before and after. */
static int measure_ceilings(struct kernel_bench *b, struct error *e)
{
    struct machine now = b->machine;
    int r = rates_machine(b->rates, &now, e);
    const struct {
        double *kept, found;
    } pairs[] = {
        {&b->machine.ram_read_gb_s, now.ram_read_gb_s}, {&b->machine.thread_read_gb_s, now.thread_read_gb_s},
        {&b->machine.fma_gop_s, now.fma_gop_s},         {&b->machine.thread_fma_gop_s, now.thread_fma_gop_s},
        {&b->machine.bf16_gop_s, now.bf16_gop_s},       {&b->machine.thread_bf16_gop_s, now.thread_bf16_gop_s},
        {&b->machine.int8_gop_s, now.int8_gop_s},       {&b->machine.thread_int8_gop_s, now.thread_int8_gop_s}};
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(pairs); i++) {
        *pairs[i].kept = fmax(*pairs[i].kept, pairs[i].found);
    }
    return r;
}

static int run_all(struct kernel_bench *b, const struct kernel *list, uint32_t n, struct error *e)
{
    struct measured(*found)[CASES] = calloc(max_u32(n, 1), sizeof(*found));
    if (found == NULL) {
        return error_nomem(e, "results", n * sizeof(*found));
    }
    int r = measure_ceilings(b, e);
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        bool refill = i == 0 || list[i].format != list[i - 1].format || list[i].kv != list[i - 1].kv || list[i].format == FORMAT_NONE;
        r = run_kernel(b, &list[i], refill, found[i], e);
    }
    r = r < 0 ? r : measure_ceilings(b, e);
    if (r == 0 && !b->o->json) {
        text_header(b);
    }
    b->first = true;
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        struct figure f[CASES];
        for (uint32_t which = 0; which < CASES; which++) {
            f[which] = figure_of(b, &list[i], which, &found[i][which]);
        }
        (b->o->json ? json_kernel : text_kernel)(b, &list[i], f);
    }
    free(found);
    return r;
}

/* ---- preparing ---- */

/* "q4_k,q8_0" */
static int read_types(const char *text, bool *ret_wanted, struct error *e)
{
    for (int f = 0; f < FORMAT_COUNT; f++) {
        ret_wanted[f] = text == NULL;
    }
    for (const char *at = text; at != NULL && *at != '\0'; at += *at == ',') {
        char word[24];
        size_t len = strcspn(at, ",");
        snprintf(word, sizeof(word), "%.*s", len < sizeof(word) ? (int)len : 0, at);
        enum weight_format f = weight_format_by_name(word);
        if (f == FORMAT_NONE) {
            return error_set(e, ERROR_USAGE, "--type %s: \"%.*s\" is no weight format; they are named as in `sluice inspect`: q4_k, q8_0, bf16, f8_e4m3, ...", text,
                             (int)len, at);
        }
        ret_wanted[f] = true;
        at += len;
    }
    return 0;
}

static int choose_isa(const char *name, enum cpu_isa *ret, struct cpu_flags *ret_flags, struct error *e)
{
    cpu_detect(ret_flags);
    enum cpu_isa isa = cpu_isa_best(ret_flags);
    if (strcmp(name, "auto") != 0 && (!cpu_isa_by_name(name, &isa) || !cpu_isa_runs(isa, ret_flags))) {
        return error_set(e, ERROR_USAGE, "--isa %s: this processor (%s) does not have it; the best it has is %s", name, ret_flags->brand,
                         cpu_isa_name(cpu_isa_best(ret_flags)));
    }
    *ret = isa;
    return 0;
}

static int prepare_places(struct kernel_bench *b, struct error *e)
{
    b->workers = rates_threads(b->rates);
    b->place = calloc(b->workers, sizeof(*b->place));
    if (b->place == NULL) {
        return error_nomem(e, "workers", b->workers);
    }
    for (uint32_t w = 0; w < b->workers; w++) {
        b->place[w].weights = rates_part(b->rates, w, &b->place[w].weight_bytes);
        b->place[w].scratch = calloc(KERNEL_SCRATCH_FLOATS, sizeof(float));
        if (b->place[w].scratch == NULL) {
            return error_nomem(e, "scratch", KERNEL_SCRATCH_FLOATS * sizeof(float));
        }
    }
    return 0;
}

static int prepare(struct kernel_bench *b, struct error *e)
{
    struct cpu_flags flags = {0};
    enum cpu_isa isa = CPU_SCALAR;
    const struct bench_options *o = b->o;
    int r = choose_isa(o->settings.isa, &isa, &flags, e);
    r = r < 0 ? r : probe_machine(NULL, &b->machine, e);
    r = r < 0 ? r : topology_read(&b->topology, e);
    r = r < 0 ? r : measure_begin(&b->machine, &b->topology, o->threads.n > 0 ? o->threads.value[0] : o->settings.threads, isa, 0, b->cancel, &b->rates, e);
    r = r < 0 ? r : kernel_input_init(&b->input, e);
    r = r < 0 ? r : prepare_places(b, e);
    if (r == 0) {
        cpu_ops_init(&b->ops, isa, &flags);
        r = cpu_blas_open(&(struct cpu_blas){0}, &b->ops, &flags, rates_threads(b->rates), e);
    }
    return r;
}

static void finish(struct kernel_bench *b)
{
    for (uint32_t w = 0; b->place != NULL && w < b->workers; w++) {
        free(b->place[w].scratch);
    }
    free(b->place);
    kernel_input_deinit(&b->input);
    rates_destroy(b->rates);
    str_deinit(&b->out);
    free(b);
}

int bench_kernels(const struct bench_options *o, const volatile int *cancel, struct error *e)
{
    bool wanted[FORMAT_COUNT];
    struct kernel_bench *b = calloc(1, sizeof(*b));
    struct kernel *list = calloc(KERNELS_MAX, sizeof(*list));
    int r = b != NULL && list != NULL ? 0 : error_nomem(e, "bench", sizeof(*b));
    r = r < 0 ? r : read_types(o->types, wanted, e);
    if (r == 0) {
        *b = (struct kernel_bench){.o = o, .cancel = cancel, .progress = !o->quiet && isatty(STDERR_FILENO) == 1};
        r = prepare(b, e);
    }
    if (r == 0) {
        str_puts(&b->out, o->json ? "[" : "");
        r = run_all(b, list, kernel_list(&b->ops, &b->input, wanted, list, KERNELS_MAX), e);
        str_puts(&b->out, o->json ? "\n]\n" : "");
    }
    if (b != NULL && b->progress) {
        fputs("\r\033[K", stderr);
    }
    r = r < 0 ? r : arguments_print(&b->out, e);
    if (b != NULL) {
        finish(b);
    }
    free(list);
    return r;
}
