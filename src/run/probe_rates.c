/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the measuring of probe_rates.h. Must not know: models, plans. */
#include "src/run/probe_rates.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "src/base/alloc.h"
#include "src/base/thread.h"
#include "src/run/nodes.h"

enum {
    PART_BYTES = 64 << 20,   /* of each thread */
    BUFFER_BYTES = 256 << 20, /* of all, at least, and */
    CACHES = 8,               /* so many times the last cache */
    SAMPLES_MIN = 3, PEAK_SAMPLES_MIN = 16,
    SEARCH_ROUNDS = 3,        /* short samples of each stream count */
    PIECE_BYTES = 1 << 20,    /* read at a time: whoever is done helps the others, as the token loop does */
    SLICES = 4,               /* pieces of multiplying per thread */
};

enum { STREAM_COUNTS = 5, SEARCH_SAMPLES = SEARCH_ROUNDS * STREAM_COUNTS };
static const uint32_t stream_counts[STREAM_COUNTS] = {1, 2, 4, 8, 16};
/* Within a turn of the scheduler, so that on a busy machine some are undisturbed. */
static const double search_seconds = 0.002, peak_sample_seconds = 0.0005;
/* Neighbours on a shared host leave bursts of bandwidth that last milliseconds and help no token. */
static const double sustained_seconds = 0.05;

/* Pieces of one worker's part that are handed out. */
struct queue {
    ATTR_ALIGNED(64) _Atomic uint32_t next;
};

struct rates {
    struct pool *pool;
    uint32_t workers, nodes;
    struct nodes chosen;
    int cpu[TOPOLOGY_MAX_CPUS];       /* [workers] */
    uint32_t node[TOPOLOGY_MAX_CPUS]; /* [workers] index */
    struct buffer *part;              /* [workers] */
    struct queue *queue;              /* [workers] */
    uint64_t bytes;
    struct cpu_peak peak;
    struct clock clock;
    const atomic_int *cancel;
    /* of the call in progress */
    rates_fn fn;
    void *ctx;
    int who;
    _Atomic uint32_t arrived;
    _Atomic uint64_t start, end; /* ns: the first start, the last end */
};

/* ---- samples ---- */

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct rate rate_of(double *samples, uint32_t n)
{
    if (n == 0) {
        return (struct rate){0};
    }
    qsort(samples, n, sizeof(*samples), rising);
    return (struct rate){
        .best = samples[n - 1],
        .median = n % 2 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2,
        .worst = samples[0],
        .samples = n,
    };
}

static int check_cancel(const struct rates *r, struct error *e)
{
    bool cancelled = r->cancel != NULL && atomic_load_explicit(r->cancel, memory_order_relaxed) != 0;
    return cancelled ? error_set(e, ERROR_INTERRUPTED, "interrupted") : 0;
}

/* ---- all workers at once ---- */

static bool takes_part(const struct rates *r, int who, uint32_t worker)
{
    return who == RATES_ALL || (who == RATES_ONE ? worker == 0 : r->node[worker] == (uint32_t)who);
}

uint32_t rates_count(const struct rates *r, int who)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < r->workers; w++) {
        n += takes_part(r, who, w);
    }
    return n;
}

/* One of as many tasks as there are workers: none returns before all have begun, so each worker has one. */
static void task(void *ctx, uint32_t index, uint32_t worker)
{
    struct rates *r = ctx;
    (void)index;
    atomic_fetch_add(&r->arrived, 1);
    while (atomic_load_explicit(&r->arrived, memory_order_acquire) < r->workers) {
        sched_yield();
    }
    if (!takes_part(r, r->who, worker)) {
        return;
    }
    uint64_t now = clock_now_ns(&r->clock), none = 0;
    atomic_compare_exchange_strong(&r->start, &none, now);
    r->fn(r->ctx, worker);
    now = clock_now_ns(&r->clock);
    for (uint64_t end = atomic_load(&r->end); end < now && !atomic_compare_exchange_weak(&r->end, &end, now);) {
    }
}

double rates_time(struct rates *r, int who, rates_fn fn, void *ctx)
{
    r->fn = fn;
    r->ctx = ctx;
    r->who = who;
    atomic_store(&r->arrived, 0);
    atomic_store(&r->start, 0);
    atomic_store(&r->end, 0);
    if (who == RATES_ONE) { /* the caller alone; the others go on sleeping */
        uint64_t start = clock_now_ns(&r->clock);
        fn(ctx, 0);
        return clock_seconds_since(&r->clock, start);
    }
    pool_run(r->pool, r->workers, task, r);
    return 1e-9 * (double)(atomic_load(&r->end) - atomic_load(&r->start));
}

/* ---- memory ---- */

struct reading {
    struct rates *r;
    int who;
    uint32_t streams;
    uint32_t from, count; /* pieces of each part: a sample goes on where the last one stopped */
};

static void read_pieces(const struct reading *a, uint32_t owner)
{
    const struct buffer *b = &a->r->part[owner];
    uint32_t pieces = (uint32_t)(b->bytes / PIECE_BYTES);
    for (uint32_t i; (i = atomic_fetch_add_explicit(&a->r->queue[owner].next, 1, memory_order_relaxed)) < a->count;) {
        a->r->peak.read((const char *)b->data + (size_t)((a->from + i) % pieces) * PIECE_BYTES, PIECE_BYTES, a->streams);
    }
}

static void read_parts(void *ctx, uint32_t worker)
{
    const struct reading *a = ctx;
    for (uint32_t k = 0; k < a->r->workers; k++) {
        uint32_t owner = (worker + k) % a->r->workers;
        if (takes_part(a->r, a->who, owner)) {
            read_pieces(a, owner);
        }
    }
}

/* Bytes per second. A sample longer than the parts goes round. */
static double sample_reading(struct reading *a, uint32_t streams, double bytes)
{
    uint32_t readers = rates_count(a->r, a->who), pieces = (uint32_t)(a->r->part[0].bytes / PIECE_BYTES);
    a->streams = streams;
    a->count = (uint32_t)fmin(fmax(1, bytes / readers / PIECE_BYTES), INT32_MAX);
    for (uint32_t w = 0; w < a->r->workers; w++) {
        atomic_store(&a->r->queue[w].next, 0);
    }
    double t = rates_time(a->r, a->who, read_parts, a);
    a->from = (a->from + a->count) % pieces;
    return t > 0 ? (double)a->count * PIECE_BYTES * readers / t : 0;
}

double rates_read_once(struct rates *r, int who, uint32_t streams, uint64_t from, double bytes)
{
    struct reading a = {.r = r, .who = who, .from = (uint32_t)(from % r->part[0].bytes / PIECE_BYTES)};
    return sample_reading(&a, streams, bytes);
}

/* Stream counts take turns, so that a drift of the machine meets all of them. */
static int read_in_turn(struct reading *a, const uint32_t *streams, uint32_t counts, double bytes, double *samples, uint32_t n, struct error *e)
{
    int code = 0;
    for (uint32_t k = 0; code == 0 && k < n; k++) {
        code = check_cancel(a->r, e);
        samples[k] = code == 0 ? sample_reading(a, streams[k % counts], bytes) : 0;
    }
    return code;
}

static int find_way(struct reading *a, struct read_way *ret, struct error *e)
{
    double samples[SEARCH_SAMPLES], best[2] = {-1, -1};
    struct read_way w = {0};
    double all = (double)a->r->part[0].bytes * rates_count(a->r, a->who);
    double bytes = sample_reading(a, 1, all) * search_seconds;
    int code = read_in_turn(a, stream_counts, STREAM_COUNTS, bytes, samples, SEARCH_SAMPLES, e);
    for (uint32_t i = 0; code == 0 && i < STREAM_COUNTS; i++) {
        double found = 0;
        for (uint32_t k = i; k < SEARCH_SAMPLES; k += STREAM_COUNTS) {
            found = fmax(found, samples[k]);
        }
        if (found > best[0]) {
            best[1] = best[0];
            best[0] = found;
            w = (struct read_way){.streams = {stream_counts[i], w.streams[0]}, .bytes_s = found};
        } else if (found > best[1]) {
            best[1] = found;
            w.streams[1] = stream_counts[i];
        }
    }
    if (code == 0) {
        *ret = w;
    }
    return code;
}

int rates_read_way(struct rates *r, int who, struct read_way *ret, struct error *e)
{
    struct reading a = {.r = r, .who = who};
    return find_way(&a, ret, e);
}

int rates_read(struct rates *r, int who, double seconds, struct rate *ret, struct error *e)
{
    struct reading a = {.r = r, .who = who};
    struct read_way way = {0};
    double samples[RATES_SAMPLES_MAX];
    double left = fmax(0, seconds - SEARCH_SAMPLES * search_seconds);
    uint32_t n = (uint32_t)fmin(fmax(SAMPLES_MIN, left / sustained_seconds), RATES_SAMPLES_MAX);
    double each = fmin(fmax(search_seconds, left / n), sustained_seconds);
    int code = find_way(&a, &way, e);
    code = code < 0 ? code : read_in_turn(&a, way.streams, ARRAY_LEN(way.streams), each * way.bytes_s, samples, n, e);
    if (code == 0) {
        *ret = rate_of(samples, n);
    }
    return code;
}

/* ---- units ---- */

struct multiplying {
    const struct rates *r;
    enum peak_kind kind;
    uint64_t rounds; /* of a slice */
    uint32_t slices;
    _Atomic uint32_t next;
};

static void multiply(void *ctx, uint32_t worker)
{
    struct multiplying *a = ctx;
    (void)worker;
    while (atomic_fetch_add_explicit(&a->next, 1, memory_order_relaxed) < a->slices) {
        a->r->peak.compute[a->kind](a->rounds);
    }
}

static double time_multiplying(struct rates *r, struct multiplying *a, int who)
{
    atomic_store(&a->next, 0);
    return rates_time(r, who, multiply, a);
}

int rates_compute(struct rates *r, enum peak_kind kind, int who, double seconds, struct rate *ret, struct error *e)
{
    if (r->peak.compute[kind] == NULL) {
        *ret = (struct rate){0};
        return 0;
    }
    struct multiplying a = {.r = r, .kind = kind, .rounds = 100, .slices = 1};
    while (time_multiplying(r, &a, RATES_ONE) < peak_sample_seconds / SLICES) {
        a.rounds *= 2;
    }
    a.slices = rates_count(r, who) * SLICES;
    double operations = a.slices * r->peak.compute[kind](1) * (double)a.rounds;
    double samples[RATES_SAMPLES_MAX], spent = 0;
    uint32_t k = 0;
    for (; k < PEAK_SAMPLES_MIN || (spent < seconds && k < RATES_SAMPLES_MAX); k++) {
        int code = check_cancel(r, e);
        if (code < 0) {
            return code;
        }
        double t = time_multiplying(r, &a, who);
        samples[k] = t > 0 ? operations / t : 0;
        spent += t;
    }
    *ret = rate_of(samples, k);
    return 0;
}

/* ---- a machine ---- */

static int read_memory(struct rates *r, struct machine *m, struct error *e)
{
    struct rate all, one;
    int code = rates_read(r, RATES_ALL, 0.4, &all, e);
    code = code < 0 ? code : rates_read(r, RATES_ONE, 0.2, &one, e);
    m->nodes_measured = 0;
    for (uint32_t k = 0; code == 0 && r->nodes > 1 && k < r->nodes && k < MACHINE_NODES; k++) {
        struct rate node;
        if (rates_count(r, (int)k) > 0) {
            code = rates_read(r, (int)k, 0.2, &node, e);
            m->node_read_gb_s[m->nodes_measured++] = code < 0 ? 0 : 1e-9 * node.best;
        }
    }
    if (code == 0) {
        m->ram_read_gb_s = 1e-9 * all.best;
        m->thread_read_gb_s = 1e-9 * one.best;
    }
    return code;
}

int rates_machine(struct rates *r, struct machine *m, struct error *e)
{
    const struct {
        enum peak_kind kind;
        double *all, *one;
    } peaks[] = {
        {PEAK_FMA, &m->fma_gop_s, &m->thread_fma_gop_s},
        {PEAK_BF16, &m->bf16_gop_s, &m->thread_bf16_gop_s},
        {PEAK_INT8, &m->int8_gop_s, &m->thread_int8_gop_s},
    };
    int code = read_memory(r, m, e);
    m->rate_threads = r->workers;
    for (size_t i = 0; code == 0 && i < ARRAY_LEN(peaks); i++) {
        struct rate all = {0}, one = {0};
        code = rates_compute(r, peaks[i].kind, RATES_ALL, 0.15, &all, e);
        code = code < 0 ? code : rates_compute(r, peaks[i].kind, RATES_ONE, 0.1, &one, e);
        *peaks[i].all = 1e-9 * all.best;
        *peaks[i].one = 1e-9 * one.best;
    }
    return code;
}

/* ---- threads and buffer ---- */

/* Every page of a worker's part is touched by that worker, which puts it on its node. */
static void touch(void *ctx, uint32_t worker)
{
    const struct rates *r = ctx;
    memset(r->part[worker].data, 1, r->part[worker].bytes);
}

static int take_buffer(struct rates *r, const struct rates_options *o, struct error *e)
{
    uint64_t caches = CACHES * o->topology->l3_bytes, free_bytes = 0;
    for (uint32_t i = 0; i < o->topology->nodes; i++) {
        free_bytes += o->topology->node_free[i];
    }
    uint64_t wish = max_u64(max_u64(BUFFER_BYTES, caches), (uint64_t)r->workers * PART_BYTES);
    uint64_t most = o->memory > 0 ? o->memory : free_bytes / 4;
    uint64_t part = align_down_u64(min_u64(wish, most) / r->workers, PIECE_BYTES);
    if (part * r->workers < caches / 2 || part == 0) {
        char have[24], need[24];
        return error_set(e, ERROR_DOES_NOT_FIT, "the memory rate is not measured: %s may be used, %s are needed to get past the caches",
                         format_bytes(have, most), format_bytes(need, caches / 2));
    }
    r->part = calloc(r->workers, sizeof(*r->part));
    r->queue = aligned_alloc(64, r->workers * sizeof(*r->queue));
    int code = r->part != NULL && r->queue != NULL ? 0 : error_nomem(e, "parts", r->workers);
    for (uint32_t w = 0; code == 0 && w < r->workers; w++) {
        code = buffer_init(&r->part[w], NULL, PURPOSE_WORK, part, e);
    }
    r->bytes = part * r->workers;
    return code;
}

static int create(struct rates *r, const struct rates_options *o, struct error *e)
{
    const struct topology *t = o->topology;
    struct cpu_flags flags;
    cpu_detect(&flags);
    cpu_peak_init(&r->peak, o->isa, &flags);
    r->clock = o->clock;
    r->cancel = o->cancel;
    r->workers = max_u32(1, min_u32(o->threads, t->cores));
    r->nodes = t->nodes;
    r->chosen.use = *t;
    r->chosen.parts = t->nodes;
    nodes_assign(&r->chosen, r->workers, r->cpu, r->node);
    int code = take_buffer(r, o, e);
    struct pool_options p = {.workers = r->workers, .cpus = r->cpu, .at_once = r->workers};
    code = code < 0 ? code : pool_create(&p, &r->pool, e);
    if (code == 0) {
        rates_time(r, RATES_ALL, touch, r);
    }
    return code;
}

int rates_create(const struct rates_options *o, struct rates **ret, struct error *e)
{
    struct rates *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return error_nomem(e, "rates", sizeof(*r));
    }
    int code = create(r, o, e);
    if (code < 0) {
        rates_destroy(r);
        return code;
    }
    *ret = r;
    return 0;
}

void rates_destroy(struct rates *r)
{
    if (r == NULL) {
        return;
    }
    pool_destroy(r->pool);
    for (uint32_t w = 0; r->part != NULL && w < r->workers; w++) {
        buffer_deinit(&r->part[w]);
    }
    free(r->part);
    free(r->queue);
    free(r);
}

uint32_t rates_threads(const struct rates *r) { return r->workers; }
const struct cpu_peak *rates_peak(const struct rates *r) { return &r->peak; }
uint64_t rates_buffer_bytes(const struct rates *r) { return r->bytes; }

void *rates_part(const struct rates *r, uint32_t worker, size_t *ret_bytes)
{
    *ret_bytes = r->part[worker].bytes;
    return r->part[worker].data;
}
