/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the reader contract with threads that call pread: any thread takes the next chunk that waits. Must not know: tensors,
 * experts, weights; how requests become chunks (read_queue.h). */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/intmath.h"
#include "io/reader_impl.h"

enum { MAX_THREADS = 8, STACK_BYTES = 256 << 10 };

struct worker {
    struct reader_pread *reader;
    pthread_t thread;
    char *bounce; /* [READ_BOUNCE], aligned to it; NULL without O_DIRECT */
};

struct reader_pread {
    struct reader base;     /* its queue under the lock */
    struct worker *workers; /* [n_workers] */
    uint32_t n_workers;
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    bool stop;
};

static struct reader_pread *of(struct reader *r) { return (struct reader_pread *)r; }

static int read_chunk(struct read_chunk *c, char *bounce)
{
    int status = 1;
    while (status > 0) {
        struct read_step s = read_chunk_step(c, bounce);
        ssize_t n = pread(s.fd, s.data, s.bytes, (off_t)s.offset);
        status = read_chunk_answer(c, &s, n < 0 ? -errno : n);
    }
    read_chunk_finish(c);
    return status;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct reader_pread *r = w->reader;
    struct reader *base = &r->base;
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        struct read_flight *f = read_queue_take(&base->queue, base->refused[READER_DIRECT] == 0);
        if (f == NULL) {
            pthread_cond_wait(&r->work, &r->lock);
            continue;
        }
        pthread_mutex_unlock(&r->lock);
        int status = read_chunk(&f->chunk, w->bounce);
        pthread_mutex_lock(&r->lock);
        if (f->chunk.direct_refused) {
            base->refused[READER_DIRECT] = EINVAL;
        }
        read_queue_book(&base->queue, f, status);
        pthread_cond_signal(&r->finished);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* ---- create, destroy ---- */

static int start_worker(struct reader_pread *r, struct error *e)
{
    struct worker *w = &r->workers[r->n_workers];
    w->reader = r;
    if (r->base.queue.options.direct) {
        w->bounce = aligned_alloc(READ_BOUNCE, READ_BOUNCE);
        if (w->bounce == NULL) {
            return error_nomem(e, "read bounce block", READ_BOUNCE);
        }
    }
    pthread_attr_t attr;
    sigset_t all, old;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&w->thread, &attr, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (code != 0) {
        free(w->bounce);
        return error_set(e, -code, "cannot start a thread for reading: %s; raise ulimit -u", strerror(code));
    }
    r->n_workers++;
    return 0;
}

static int init_sync(struct reader_pread *r)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int code = pthread_mutex_init(&r->lock, NULL);
    code = code != 0 ? code : pthread_cond_init(&r->work, NULL);
    code = code != 0 ? code : pthread_cond_init(&r->finished, &attr);
    pthread_condattr_destroy(&attr);
    return code;
}

static void pread_destroy(struct reader *base)
{
    struct reader_pread *r = of(base);
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    for (uint32_t i = 0; i < r->n_workers; i++) {
        pthread_join(r->workers[i].thread, NULL);
        free(r->workers[i].bounce);
    }
    pthread_cond_destroy(&r->finished);
    pthread_cond_destroy(&r->work);
    pthread_mutex_destroy(&r->lock);
    read_queue_deinit(&base->queue);
    free(r->workers);
    free(r);
}

/* ---- requests ---- */

static int pread_submit(struct reader *base, const struct read_request *request)
{
    struct reader_pread *r = of(base);
    pthread_mutex_lock(&r->lock);
    int code = read_queue_submit(&base->queue, request);
    if (request->bytes > READ_BOUNCE) { /* more than one chunk, perhaps */
        pthread_cond_broadcast(&r->work);
    } else {
        pthread_cond_signal(&r->work);
    }
    pthread_mutex_unlock(&r->lock);
    return code;
}

static int pread_cancel(struct reader *base, uint64_t tag)
{
    struct reader_pread *r = of(base);
    pthread_mutex_lock(&r->lock);
    int code = read_queue_cancel(&base->queue, tag);
    pthread_mutex_unlock(&r->lock);
    return code;
}

/* Waits under the lock until there is a result or the time is over. */
static void wait_result(struct reader_pread *r, int timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    int code = 0;
    while (!read_queue_has_results(&r->base.queue) && code == 0) {
        code = timeout_ms < 0 ? pthread_cond_wait(&r->finished, &r->lock) : pthread_cond_timedwait(&r->finished, &r->lock, &until);
    }
}

static int pread_collect(struct reader *base, struct read_result *ret, int timeout_ms)
{
    struct reader_pread *r = of(base);
    pthread_mutex_lock(&r->lock);
    if (timeout_ms != 0) {
        wait_result(r, timeout_ms);
    }
    bool got = read_queue_collect(&base->queue, ret);
    pthread_mutex_unlock(&r->lock);
    return got;
}

static const struct reader_ops pread_ops = {
    .names = {"pread, buffered", "pread, O_DIRECT", "pread, buffered (O_DIRECT refused by the file system)"},
    .submit = pread_submit,
    .cancel = pread_cancel,
    .collect = pread_collect,
    .destroy = pread_destroy,
};

int reader_pread_create(const struct reader_options *options, struct reader **ret, struct error *e)
{
    struct reader_pread *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return error_nomem(e, "reader", sizeof *r);
    }
    r->base.ops = &pread_ops;
    int code = init_sync(r);
    if (code != 0) {
        free(r);
        return error_set(e, -code, "reader: %s", strerror(code));
    }
    uint32_t threads = min_u32(options->depth, MAX_THREADS);
    r->workers = calloc(threads, sizeof *r->workers);
    int result = r->workers != NULL ? read_queue_init(&r->base.queue, options, e) : error_nomem(e, "reader", threads * sizeof *r->workers);
    while (r->n_workers < threads && result == 0) {
        result = start_worker(r, e);
    }
    if (result < 0) {
        pread_destroy(&r->base);
        return result;
    }
    *ret = &r->base;
    return 0;
}
