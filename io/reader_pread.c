/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the reader contract with threads that call pread: any thread takes the next chunk that waits. Must not know: tensors,
 * experts, weights; how requests become chunks (read_queue.h). */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/intmath.h"
#include "io/reader_impl.h"

enum { MAX_THREADS = 8 };

struct worker {
    struct reader_pread *reader;
    pthread_t thread;
    char *bounce; /* [READ_BOUNCE], aligned to it; NULL without O_DIRECT */
};

struct reader_pread {
    struct reader base;
    struct worker *workers; /* [n_workers] */
    uint32_t n_workers;
    pthread_cond_t work;
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
    pthread_mutex_lock(&base->lock);
    while (!r->stop) {
        struct read_flight *f = read_queue_take(&base->queue, base->refused[READER_DIRECT] == 0);
        if (f == NULL) {
            pthread_cond_wait(&r->work, &base->lock);
            continue;
        }
        pthread_mutex_unlock(&base->lock);
        int status = read_chunk(&f->chunk, w->bounce);
        pthread_mutex_lock(&base->lock);
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
    int code = reader_start_thread(&w->thread, worker_main, w);
    if (code != 0) {
        free(w->bounce);
        return error_set(e, -code, "cannot start a thread for reading: %s; raise ulimit -u", strerror(code));
    }
    r->n_workers++;
    return 0;
}

static void pread_destroy(struct reader *base)
{
    struct reader_pread *r = of(base);
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

static void pread_wake(struct reader *base, bool several)
{
    if (several) {
        pthread_cond_broadcast(&of(base)->work);
    } else {
        pthread_cond_signal(&of(base)->work);
    }
}

static const struct reader_ops pread_ops = {
    .names = {"pread, buffered", "pread, O_DIRECT", "pread, buffered (O_DIRECT refused by the file system)"},
    .wake = pread_wake,
    .destroy = pread_destroy,
};

int reader_pread_create(const struct reader_options *options, struct reader **ret, struct error *e)
{
    struct reader_pread *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return error_nomem(e, "reader", sizeof *r);
    }
    int result = reader_base_init(&r->base, &pread_ops, options, e);
    if (result < 0) {
        free(r);
        return result;
    }
    pthread_cond_init(&r->work, NULL); /* never fails here */
    uint32_t threads = min_u32(options->depth, MAX_THREADS);
    r->workers = calloc(threads, sizeof *r->workers);
    result = r->workers != NULL ? 0 : error_nomem(e, "reader", threads * sizeof *r->workers);
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
