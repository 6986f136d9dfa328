/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reader_faulty.h. Must not know: who reads, and what. */
#include "tests/unit/io/reader_faulty.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/intmath.h"
#include "io/reader_impl.h"

enum { SPOILT = 0xa5, WHOLE = 1 << 30, NS = 1000000000 };

struct faulty {
    struct reader base;
    uint32_t n_rules;
    struct faulty_rule rules[FAULTY_RULES];
    uint32_t met[FAULTY_RULES];  /* requests that each was for */
    bool late[READER_DEPTH_MAX]; /* by index of flights */
    bool (*fails)(void *ctx, const struct file *file, uint64_t offset, uint64_t bytes, struct faulty_rule *ret); /* NULL: by rules */
    void *ctx;
    struct faulty_rule chosen;
    struct clock_manual *time;   /* NULL: reads take no time */
    uint64_t rate;
};

static struct faulty *of(struct reader *r) { return (struct faulty *)r; }

static const struct faulty_rule *rule_of(struct faulty *f, const struct read_chunk *c)
{
    if (f->fails != NULL) {
        return f->fails(f->ctx, c->file, c->offset, c->bytes, &f->chosen) ? &f->chosen : NULL;
    }
    for (uint32_t i = 0; i < f->n_rules; i++) {
        const struct faulty_rule *x = &f->rules[i];
        bool meant = (x->file == NULL || x->file == c->file) && x->at >= c->offset && x->at < c->offset + c->bytes;
        uint32_t met = meant ? f->met[i]++ : 0;
        if (meant && met >= x->skip && (x->times == 0 || met < x->skip + x->times)) {
            return x;
        }
    }
    return NULL;
}

/* Reads the first `bytes` of the chunk, but for what is there. */
static int read_part(struct read_chunk *c, uint64_t bytes)
{
    struct read_chunk part = *c;
    int status = bytes > c->done;
    part.bytes = bytes;
    while (status > 0) {
        struct read_step s = read_chunk_step(&part, NULL);
        ssize_t n = pread(s.fd, s.data, s.bytes, (off_t)s.offset);
        status = read_chunk_answer(&part, &s, n < 0 ? -errno : n);
    }
    c->done = part.done;
    return status;
}

static void serve(struct faulty *f, struct read_flight *x, const struct faulty_rule *rule)
{
    struct read_chunk *c = &x->chunk;
    int status = read_part(c, rule != NULL ? rule->at - c->offset : c->bytes);
    if (f->time != NULL) {
        f->time->ns += c->done * NS / f->rate;
    }
    if (rule != NULL) {
        memset(c->data + c->done, SPOILT, (size_t)(c->bytes - c->done));
        status = status < 0 ? status : rule->status;
    }
    if (status < 0 && read_queue_other_copy(&f->base.queue, x, status, false)) {
        serve(f, x, rule_of(f, c));
        return;
    }
    read_queue_book(&f->base.queue, x, status);
}

/* Under the lock: serves what waits. */
static void faulty_wake(struct reader *base, bool several)
{
    struct faulty *f = of(base);
    uint64_t wait_ns;
    (void)several;
    for (struct read_flight *x; (x = read_queue_take(&base->queue, false, &wait_ns)) != NULL;) {
        const struct faulty_rule *rule = rule_of(f, &x->chunk);
        if (rule != NULL && rule->kind == FAULTY_LATE) {
            f->late[x - base->queue.flights] = true;
        } else {
            serve(f, x, rule);
        }
    }
}

static void faulty_destroy(struct reader *base)
{
    reader_base_deinit(base);
    free(base);
}

static const char *const faulty_names[] = {"faulty", "faulty", "faulty"};
static const struct reader_ops faulty_ops = {.wake = faulty_wake, .destroy = faulty_destroy};

int reader_faulty_create(const struct reader_options *options, const struct faulty_rule *rules, uint32_t n, struct reader **ret, struct error *e)
{
    struct reader_options o = {.depth = options->depth, .requests = max_u32(options->depth, options->requests), .chunk = WHOLE, .apart = true, .clock = options->clock};
    struct faulty *f = calloc(1, sizeof(*f));
    assert(n <= FAULTY_RULES && o.depth > 0 && o.depth <= READER_DEPTH_MAX);
    if (f == NULL) {
        return error_nomem(e, "faulty reader", sizeof(*f));
    }
    int code = reader_base_init(&f->base, &faulty_ops, &o, e);
    if (code < 0) {
        free(f);
        return code;
    }
    f->base.names = faulty_names;
    f->n_rules = n;
    for (uint32_t i = 0; i < n; i++) {
        f->rules[i] = rules[i];
    }
    *ret = &f->base;
    return 0;
}

void reader_faulty_choose(struct reader *base, bool (*fails)(void *ctx, const struct file *file, uint64_t offset, uint64_t bytes, struct faulty_rule *ret), void *ctx)
{
    of(base)->fails = fails;
    of(base)->ctx = ctx;
}

void reader_faulty_pace(struct reader *base, struct clock_manual *time, uint64_t rate)
{
    pthread_mutex_lock(&base->lock);
    of(base)->time = time;
    of(base)->rate = rate;
    pthread_mutex_unlock(&base->lock);
}

void reader_faulty_release(struct reader *base)
{
    struct faulty *f = of(base);
    pthread_mutex_lock(&base->lock);
    for (uint32_t i = 0; i < base->queue.options.depth; i++) {
        if (f->late[i]) {
            f->late[i] = false;
            serve(f, &base->queue.flights[i], NULL);
        }
    }
    faulty_wake(base, true);
    pthread_cond_signal(&base->finished);
    pthread_mutex_unlock(&base->lock);
}
