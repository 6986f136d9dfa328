/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reader_model.h. Must not know: who reads, and what. */
#include "io/reader_model.h"

#include <assert.h>
#include <stdlib.h>

#include "common/intmath.h"
#include "io/reader_impl.h"

enum { NS = 1000000000, MS_NS = 1000000 };

struct model {
    struct reader base;
    struct drive_model drive;
    struct clock_manual *clock; /* NULL: it is told */
    uint64_t line_free_ns;
    uint64_t *due;              /* [depth] when the chunk in this flight ends */
};

static struct model *of(struct reader *r) { return (struct model *)r; }

/* ---- a drive ---- */

static uint64_t end_of(struct model *m, uint64_t bytes)
{
    uint64_t begin = max_u64(m->clock->ns + m->drive.latency_ns, m->line_free_ns);
    m->line_free_ns = begin + (m->drive.rate > 0 ? (uint64_t)((double)bytes * NS / (double)m->drive.rate) : 0);
    return m->line_free_ns;
}

/* Begins what may begin now; returns when something happens next. */
static uint64_t begin_chunks(struct model *m)
{
    struct read_queue *q = &m->base.queue;
    uint64_t wait_ns, next = UINT64_MAX;
    for (struct read_flight *f; (f = read_queue_take(q, false, &wait_ns)) != NULL;) {
        m->due[f - q->flights] = end_of(m, f->chunk.bytes);
    }
    for (uint32_t i = 0; i < q->options.depth; i++) {
        next = q->flights[i].slot != NULL ? min_u64(next, m->due[i]) : next;
    }
    return wait_ns > 0 ? min_u64(next, m->clock->ns + wait_ns) : next;
}

static void end_chunks(struct model *m)
{
    struct read_queue *q = &m->base.queue;
    for (uint32_t i = 0; i < q->options.depth; i++) {
        struct read_flight *f = &q->flights[i];
        if (f->slot != NULL && m->due[i] <= m->clock->ns) {
            f->chunk.done = f->chunk.bytes;
            read_queue_book(q, f, 0);
        }
    }
}

/* Up to a moment, or up to the first result. */
static void go_on(struct model *m, uint64_t until_ns, bool to_result)
{
    for (uint64_t next; (next = begin_chunks(m)) <= until_ns && next != UINT64_MAX;) {
        if (to_result && read_queue_has_results(&m->base.queue)) {
            return;
        }
        m->clock->ns = max_u64(m->clock->ns, next);
        end_chunks(m);
    }
    if (until_ns != UINT64_MAX && !(to_result && read_queue_has_results(&m->base.queue))) {
        m->clock->ns = max_u64(m->clock->ns, until_ns);
    }
}

static void drive_wait(struct reader *r, int timeout_ms)
{
    struct model *m = of(r);
    uint64_t until = timeout_ms < 0 ? UINT64_MAX : m->clock->ns + (uint64_t)timeout_ms * MS_NS;
    go_on(m, until, timeout_ms != 0);
}

static void drive_wake(struct reader *r, bool several)
{
    (void)several;
    begin_chunks(of(r));
}

void reader_model_pass(struct reader *r, uint64_t ns)
{
    pthread_mutex_lock(&r->lock);
    go_on(of(r), of(r)->clock->ns + ns, false);
    pthread_mutex_unlock(&r->lock);
}

/* ---- told ---- */

static void told_wait(struct reader *r, int timeout_ms)
{
    (void)r;
    (void)timeout_ms;
}

static void told_wake(struct reader *r, bool several)
{
    uint64_t wait_ns;
    (void)several;
    while (read_queue_take(&r->queue, false, &wait_ns) != NULL) {
    }
}

uint32_t reader_model_finish(struct reader *r, uint64_t begin, uint64_t end, int status)
{
    uint32_t n = 0;
    pthread_mutex_lock(&r->lock);
    for (uint32_t i = 0; i < r->queue.options.depth; i++) {
        struct read_flight *f = &r->queue.flights[i];
        if (f->slot != NULL && f->chunk.offset >= begin && f->chunk.offset < end) {
            f->chunk.done = status < 0 ? 0 : f->chunk.bytes;
            read_queue_book(&r->queue, f, status);
            n++;
        }
    }
    pthread_mutex_unlock(&r->lock);
    return n;
}

/* ---- both ---- */

static void model_destroy(struct reader *r)
{
    reader_base_deinit(r);
    free(of(r)->due);
    free(r);
}

static const char *const model_names[] = {"a model of a drive", "a model of a drive", "a model of a drive"};
static const struct reader_ops drive_ops = {.wake = drive_wake, .wait = drive_wait, .destroy = model_destroy};
static const struct reader_ops told_ops = {.wake = told_wake, .wait = told_wait, .destroy = model_destroy};

static int create(const struct reader_options *o, const struct reader_ops *ops, struct model **ret, struct error *e)
{
    struct model *m = calloc(1, sizeof(*m));
    uint64_t *due = calloc(o->depth, sizeof(*due));
    int r = m != NULL && due != NULL ? reader_base_init(&m->base, ops, o, e) : error_nomem(e, "model of a drive", sizeof(*m));
    if (r < 0) {
        free(due);
        free(m);
        return r;
    }
    m->base.names = model_names;
    m->due = due;
    *ret = m;
    return 0;
}

int reader_model_create(const struct reader_options *options, const struct drive_model *drive, struct clock_manual *clock, struct reader **ret, struct error *e)
{
    struct reader_options o = *options;
    struct model *m = NULL;
    o.requests = max_u32(o.requests, o.depth);
    o.clock = clock_manual_as_clock(clock);
    o.direct = false;
    assert(o.depth > 0 && o.depth <= READER_DEPTH_MAX && o.chunk > 0);
    int r = create(&o, &drive_ops, &m, e);
    if (r == 0) {
        m->drive = *drive;
        m->clock = clock;
        *ret = &m->base;
    }
    return r;
}

/* Twice as deep as there are requests: what is predicted keeps to half. */
int reader_model_create_told(const struct reader_options *options, struct reader **ret, struct error *e)
{
    struct reader_options o = {.depth = 2 * options->requests, .requests = options->requests, .chunk = UINT64_MAX / 4, .apart = true};
    struct model *m = NULL;
    int r = create(&o, &told_ops, &m, e);
    if (r == 0) {
        *ret = &m->base;
    }
    return r;
}
