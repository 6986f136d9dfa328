/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the choice of an implementation of reader.h, and what callers and the threads of a reader share: its queue under a lock.
 * Must not know: how bytes are read. */
#include "io/reader.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "common/intmath.h"
#include "io/reader_impl.h"
#include "src/base/settings.h"

enum { STACK_BYTES = 256 << 10, NS = 1000000000, MS_NS = 1000000 };
enum { CHUNK_UNIT = 64 << 10 }; /* chunks are multiples of it: their inner edges suit O_DIRECT everywhere */

struct reader_options reader_options_of(const struct settings *s)
{
    return (struct reader_options){
        .kind = strcmp(s->io, "pread") == 0 ? READER_PREAD : strcmp(s->io, "mmap") == 0 ? READER_MMAP : READER_URING,
        .limit = s->io_limit,
        .apart = strcmp(s->merge, "off") == 0,
    };
}

/* As reader_pread_create. */
static int create_kind(const struct reader_options *o, struct reader **ret, struct error *e)
{
    switch (o->kind) {
    case READER_URING:
        return reader_uring_create(o, ret, e);
    case READER_MMAP:
        return reader_mmap_create(o, ret, e);
    default:
        return reader_pread_create(o, ret, e);
    }
}

int reader_create(const struct reader_options *options, struct reader **ret, struct error *e)
{
    struct reader_options o = *options;
    o.requests = o.requests == 0 ? o.depth : o.requests;
    if (o.depth == 0 || o.depth > READER_DEPTH_MAX || o.chunk == 0 || o.chunk > INT32_MAX / 2 || o.requests < o.depth ||
        o.requests > READER_REQUESTS_MAX) {
        return error_set(e, ERROR_USAGE, "reader: depth %u, requests %u, chunk %llu; a depth of 1 to %d, %d requests at most and a chunk size are needed",
                         o.depth, o.requests, (unsigned long long)o.chunk, READER_DEPTH_MAX, READER_REQUESTS_MAX);
    }
    o.chunk = align_up_u64(o.chunk, CHUNK_UNIT);
    int refusal = create_kind(&o, ret, e);
    if (refusal <= 0) {
        return refusal;
    }
    int code = reader_pread_create(&o, ret, e);
    if (code == 0) {
        (*ret)->refused[READER_KIND] = refusal;
    }
    return code;
}

void reader_destroy(struct reader *r)
{
    if (r != NULL) {
        r->ops->destroy(r);
    }
}

/* ---- what all have ---- */

int reader_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int code = pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
    return code;
}

struct timespec reader_moment_after(uint64_t ns)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    ns += (uint64_t)t.tv_nsec;
    t.tv_sec += (time_t)(ns / NS);
    t.tv_nsec = (long)(ns % NS);
    return t;
}

int reader_base_init(struct reader *r, const struct reader_ops *ops, const struct reader_options *options, struct error *e)
{
    r->ops = ops;
    int code = pthread_mutex_init(&r->lock, NULL);
    code = code != 0 ? code : reader_cond_init(&r->finished);
    if (code != 0) {
        return error_set(e, -code, "reader: %s", strerror(code));
    }
    code = read_queue_init(&r->queue, options, e);
    if (code < 0) {
        reader_base_deinit(r);
    }
    return code;
}

void reader_base_deinit(struct reader *r)
{
    pthread_cond_destroy(&r->finished);
    pthread_mutex_destroy(&r->lock);
    read_queue_deinit(&r->queue);
}

int reader_start_thread(pthread_t *ret, void *(*run)(void *), void *arg)
{
    pthread_attr_t attr;
    sigset_t all, old;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(ret, &attr, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (code == 0) {
        pthread_setname_np(*ret, "sluice-read"); /* as top -H shows it */
    }
    return code;
}

/* ---- requests ---- */

int reader_submit(struct reader *r, const struct read_request *request)
{
    pthread_mutex_lock(&r->lock);
    int code = read_queue_submit(&r->queue, request);
    if (code == 0) {
        r->ops->wake(r, request->bytes > READ_BOUNCE);
    }
    pthread_mutex_unlock(&r->lock);
    return code;
}

void reader_register(struct reader *r, void *data, uint64_t bytes)
{
    if (r->ops->register_memory != NULL) {
        pthread_mutex_lock(&r->lock);
        r->ops->register_memory(r, data, bytes);
        pthread_mutex_unlock(&r->lock);
    }
}

int reader_cancel(struct reader *r, uint64_t tag)
{
    pthread_mutex_lock(&r->lock);
    int code = read_queue_cancel(&r->queue, tag);
    pthread_mutex_unlock(&r->lock);
    return code;
}

int reader_raise(struct reader *r, uint64_t tag)
{
    pthread_mutex_lock(&r->lock);
    int code = read_queue_raise(&r->queue, tag);
    pthread_mutex_unlock(&r->lock);
    return code;
}

struct reader_load reader_load(struct reader *r)
{
    pthread_mutex_lock(&r->lock);
    struct reader_load load = read_queue_load(&r->queue);
    pthread_mutex_unlock(&r->lock);
    return load;
}

struct reader_fault reader_fault(struct reader *r, uint32_t copy)
{
    pthread_mutex_lock(&r->lock);
    struct reader_fault fault = r->queue.fault[copy];
    pthread_mutex_unlock(&r->lock);
    return fault;
}

struct reader_slowness reader_slowness(struct reader *r, uint32_t copy)
{
    pthread_mutex_lock(&r->lock);
    const struct read_watch *w = &r->queue.watch[copy];
    struct reader_slowness slowness = {w->events, w->rate, w->usual};
    pthread_mutex_unlock(&r->lock);
    return slowness;
}

/* Waits under the lock until there is a result, nothing to come, or the time is over. */
static void wait_result(struct reader *r, int timeout_ms)
{
    struct timespec until = reader_moment_after(timeout_ms < 0 ? 0 : (uint64_t)timeout_ms * MS_NS);
    int code = 0;
    while (!read_queue_has_results(&r->queue) && r->queue.open > 0 && code == 0) {
        code = timeout_ms < 0 ? pthread_cond_wait(&r->finished, &r->lock) : pthread_cond_timedwait(&r->finished, &r->lock, &until);
    }
}

int reader_collect(struct reader *r, struct read_result *ret, int timeout_ms)
{
    pthread_mutex_lock(&r->lock);
    if (r->ops->wait != NULL) {
        r->ops->wait(r, timeout_ms);
    } else if (timeout_ms != 0) {
        wait_result(r, timeout_ms);
    }
    bool got = read_queue_collect(&r->queue, ret);
    pthread_mutex_unlock(&r->lock);
    return got;
}

int reader_refused(const struct reader *r, enum reader_part part) { return r->refused[part]; }

const char *reader_status_text(int status)
{
    return status == -ENODATA ? "the file is shorter than its header says"
           : status == -ESTALE ? "the file was changed while it is in use; start again"
                               : strerror(-status);
}

const char *reader_name(const struct reader *r)
{
    return r->names[!r->queue.options.direct ? 0 : r->refused[READER_DIRECT] == 0 ? 1 : 2];
}
