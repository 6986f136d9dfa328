/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the reader contract with threads: any of them takes the next chunk that waits. Must not know: how a step is read (the
 * `read` it is given), how requests become chunks (read_queue.h); tensors, experts, weights. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"
#include "io/reader_impl.h"

enum { MAX_THREADS = 8 }; /* of a drive */

struct worker {
    struct reader_threads *reader;
    pthread_t thread;
    char *bounce; /* [READ_BOUNCE], aligned to it; NULL without O_DIRECT */
};

struct reader_threads {
    struct reader base;
    ssize_t (*read)(const struct read_step *s);
    struct worker *workers; /* [n_workers] */
    uint32_t n_workers;
    pthread_cond_t work;
    bool stop;
};

static struct reader_threads *of(struct reader *r) { return (struct reader_threads *)r; }

static int read_chunk(const struct reader_threads *r, struct read_chunk *c, char *bounce)
{
    int status = 1;
    while (status > 0) {
        struct read_step s = read_chunk_step(c, bounce);
        status = read_chunk_answer(c, &s, r->read(&s));
    }
    read_chunk_finish(c);
    return status;
}

/* Under the lock: until there may be a chunk to take; for `ns` at most, if not 0. */
static void wait_work(struct reader_threads *r, uint64_t ns)
{
    if (ns == 0) {
        pthread_cond_wait(&r->work, &r->base.lock);
    } else {
        struct timespec until = reader_moment_after(ns);
        pthread_cond_timedwait(&r->work, &r->base.lock, &until);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct reader_threads *r = w->reader;
    struct reader *base = &r->base;
    pthread_mutex_lock(&base->lock);
    while (!r->stop) {
        uint64_t wait_ns;
        struct read_flight *f = read_queue_take(&base->queue, base->refused[READER_DIRECT] == 0, &wait_ns);
        if (f == NULL) {
            wait_work(r, wait_ns);
            continue;
        }
        int status;
        do {
            pthread_mutex_unlock(&base->lock);
            status = read_chunk(r, &f->chunk, w->bounce);
            pthread_mutex_lock(&base->lock);
        } while (status < 0 && read_queue_other_copy(&base->queue, f, status, base->refused[READER_DIRECT] == 0));
        if (f->chunk.direct_refused) {
            base->refused[READER_DIRECT] = EINVAL;
        }
        read_queue_book(&base->queue, f, status);
        pthread_cond_signal(&base->finished);
    }
    pthread_mutex_unlock(&base->lock);
    return NULL;
}

/* ---- create, destroy ---- */

static int start_worker(struct reader_threads *r, struct error *e)
{
    struct worker *w = &r->workers[r->n_workers];
    w->reader = r;
    if (r->base.queue.options.direct) {
        w->bounce = aligned_alloc(READ_BOUNCE, READ_BOUNCE);
        if (w->bounce == NULL) {
            return error_nomem(e, "read bounce block", READ_BOUNCE);
        }
    }
    int code = reader_start_thread(&w->thread, worker_main, w);
    if (code != 0) {
        free(w->bounce);
        return error_set(e, -code, "cannot start a thread for reading: %s; raise ulimit -u", strerror(code));
    }
    r->n_workers++;
    return 0;
}

static void threads_destroy(struct reader *base)
{
    struct reader_threads *r = of(base);
    pthread_mutex_lock(&base->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&base->lock);
    for (uint32_t i = 0; i < r->n_workers; i++) {
        pthread_join(r->workers[i].thread, NULL);
        free(r->workers[i].bounce);
    }
    pthread_cond_destroy(&r->work);
    reader_base_deinit(base);
    free(r->workers);
    free(r);
}

static void threads_wake(struct reader *base, bool several)
{
    if (several) {
        pthread_cond_broadcast(&of(base)->work);
    } else {
        pthread_cond_signal(&of(base)->work);
    }
}

static const struct reader_ops threads_ops = {
    .wake = threads_wake,
    .destroy = threads_destroy,
};

int reader_threads_create(const struct reader_options *options, const struct reader_threads_kind *kind, struct reader **ret, struct error *e)
{
    struct reader_threads *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return error_nomem(e, "reader", sizeof *r);
    }
    int result = reader_base_init(&r->base, &threads_ops, options, e);
    if (result < 0) {
        free(r);
        return result;
    }
    r->base.names = kind->names;
    r->read = kind->read;
    reader_cond_init(&r->work);
    uint32_t threads = min_u32(options->depth, MAX_THREADS * max_u32(options->copies, 1));
    r->workers = calloc(threads, sizeof *r->workers);
    result = r->workers != NULL ? 0 : error_nomem(e, "reader", threads * sizeof *r->workers);
    while (r->n_workers < threads && result == 0) {
        result = start_worker(r, e);
    }
    if (result < 0) {
        threads_destroy(&r->base);
        return result;
    }
    *ret = &r->base;
    return 0;
}
