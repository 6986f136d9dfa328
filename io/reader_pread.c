/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the reader contract with threads that call pread. Requests are cut into chunks; any thread takes the next chunk of
 * the oldest request. Must not know: tensors, experts, weights. */
#include "io/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/intmath.h"

enum {
    MAX_DEPTH = 256,
    MAX_THREADS = 32,
    CHUNK_UNIT = 64 << 10, /* chunks are multiples of it: their inner edges suit O_DIRECT everywhere */
    BOUNCE_ALIGN = 64 << 10,
    BOUNCE_BYTES = 256 << 10,
    STACK_BYTES = 256 << 10,
    PAGE = 4096,
};

struct slot {
    struct read_request request;
    uint64_t next;         /* offset of the first byte no thread has taken */
    uint64_t done;         /* bytes read */
    uint32_t running;      /* chunks being read */
    int status;
    uint64_t failed_at;
    struct slot *link;     /* in one of the lists */
};

struct list {
    struct slot *first, *last;
};

struct worker {
    struct reader *reader;
    pthread_t thread;
    char *bounce; /* [BOUNCE_BYTES], aligned to BOUNCE_ALIGN; NULL without O_DIRECT */
};

struct reader {
    struct reader_options options;
    struct slot *slots;     /* [depth] */
    struct worker *workers; /* [n_workers] */
    uint32_t n_workers;
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    struct list waiting; /* with chunks nobody has taken, oldest first */
    struct list results; /* complete, not collected */
    struct slot *spare;  /* free ones */
    _Atomic int direct_refused; /* errno of a refusal at read; buffered from then on */
    bool stop;
};

static void list_push(struct list *l, struct slot *s)
{
    s->link = NULL;
    if (l->first == NULL) {
        l->first = s;
    } else {
        l->last->link = s;
    }
    l->last = s;
}

static struct slot *list_pop(struct list *l)
{
    struct slot *s = l->first;
    if (s != NULL) {
        l->first = s->link;
    }
    return s;
}

/* ---- one chunk, without the lock ---- */

struct chunk {
    const struct file *file;
    uint64_t offset, bytes;
    char *data;
    bool direct, drop_behind;
};

/* Bytes read (0: end of file) or -errno. */
static ssize_t pread_resumed(int fd, void *data, size_t bytes, uint64_t offset)
{
    ssize_t n;
    do {
        n = pread(fd, data, bytes, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

/* Next piece of a chunk by O_DIRECT, `at` bytes are there: straight into place where position and address are aligned,
 * through the bounce block otherwise. Bytes gained, 0 at the end of the file, or -errno. */
static ssize_t read_direct(const struct chunk *c, uint64_t at, char *bounce)
{
    uint64_t align = c->file->direct_align, offset = c->offset + at, left = c->bytes - at;
    char *to = c->data + at;
    bool congruent = ((uintptr_t)to - offset) % align == 0;
    if (congruent && offset % align == 0 && left >= align) {
        return pread_resumed(c->file->direct_fd, to, (size_t)align_down_u64(left, align), offset);
    }
    uint64_t begin = align_down_u64(offset, align);
    uint64_t end = congruent && offset % align != 0 ? begin + align : align_up_u64(offset + left, align);
    size_t want = (size_t)min_u64(end - begin, BOUNCE_BYTES);
    ssize_t n = pread_resumed(c->file->direct_fd, bounce, want, begin);
    uint64_t skip = offset - begin;
    if (n < 0 || (uint64_t)n <= skip) {
        return n < 0 ? n : 0;
    }
    uint64_t gained = min_u64((uint64_t)n - skip, left);
    memcpy(to, bounce + skip, (size_t)gained);
    return (ssize_t)gained;
}

/* 0, or -errno with *ret_done bytes read before. */
static int read_chunk(const struct chunk *c, char *bounce, uint64_t *ret_done)
{
    uint64_t at = 0;
    int status = 0;
    while (at < c->bytes && status == 0) {
        ssize_t n = c->direct ? read_direct(c, at, bounce)
                              : pread_resumed(c->file->fd, c->data + at, (size_t)(c->bytes - at), c->offset + at);
        if (n > 0) {
            at += (uint64_t)n;
        } else {
            status = n < 0 ? (int)n : -ENODATA;
        }
    }
    if (!c->direct && c->drop_behind && at > 0) {
        uint64_t begin = align_down_u64(c->offset, PAGE);
        posix_fadvise(c->file->fd, (off_t)begin, (off_t)(align_up_u64(c->offset + at, PAGE) - begin), POSIX_FADV_DONTNEED);
    }
    *ret_done = at;
    return status;
}

/* ---- threads ---- */

/* Cuts the next chunk off the oldest request; its inner edges are multiples of the chunk size in the file. */
static struct slot *take_chunk(struct reader *r, struct chunk *ret)
{
    struct slot *s = r->waiting.first;
    const struct read_request *q = &s->request;
    uint64_t end = q->offset + q->bytes;
    uint64_t stop = min_u64(end, (s->next / r->options.chunk + 1) * r->options.chunk);
    *ret = (struct chunk){
        .file = q->file,
        .offset = s->next,
        .bytes = stop - s->next,
        .data = (char *)q->data + (s->next - q->offset),
        .direct = r->options.direct && q->file->direct_fd >= 0 && r->direct_refused == 0 && q->file->direct_align <= BOUNCE_ALIGN,
        .drop_behind = r->options.drop_behind || r->options.direct, /* direct, but refused: no copy stays behind either */
    };
    s->next = stop;
    s->running++;
    if (stop == end) {
        list_pop(&r->waiting);
    }
    return s;
}

/* Books a finished chunk. After a failure the rest of the request is not read. */
static void book(struct reader *r, struct slot *s, const struct chunk *c, int status, uint64_t done)
{
    s->running--;
    s->done += done;
    if (status < 0) {
        uint64_t at = c->offset + done;
        if (s->status == 0 || at < s->failed_at) {
            s->status = status;
            s->failed_at = at;
        }
        uint64_t end = s->request.offset + s->request.bytes;
        if (s->next < end) { /* still waiting, though not necessarily first: unlink */
            struct list rest = {0};
            for (struct slot *w; (w = list_pop(&r->waiting)) != NULL;) {
                if (w != s) {
                    list_push(&rest, w);
                }
            }
            r->waiting = rest;
            s->next = end;
        }
    }
    if (s->running == 0 && s->next == s->request.offset + s->request.bytes) {
        list_push(&r->results, s);
        pthread_cond_signal(&r->finished);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct reader *r = w->reader;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (r->waiting.first == NULL && !r->stop) {
            pthread_cond_wait(&r->work, &r->lock);
        }
        if (r->waiting.first == NULL) {
            break;
        }
        struct chunk c;
        struct slot *s = take_chunk(r, &c);
        pthread_mutex_unlock(&r->lock);
        uint64_t done = 0;
        int status = read_chunk(&c, w->bounce, &done);
        bool refused = status == -EINVAL && c.direct;
        if (refused) { /* the file system took the flag at open only: step down to buffered reads, visibly */
            c.direct = false;
            status = read_chunk(&c, w->bounce, &done);
        }
        pthread_mutex_lock(&r->lock);
        if (refused) {
            r->direct_refused = EINVAL;
        }
        book(r, s, &c, status, done);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static int start_worker(struct reader *r, struct error *e)
{
    struct worker *w = &r->workers[r->n_workers];
    w->reader = r;
    if (r->options.direct) {
        w->bounce = aligned_alloc(BOUNCE_ALIGN, BOUNCE_BYTES);
        if (w->bounce == NULL) {
            return error_nomem(e, "read bounce block", BOUNCE_BYTES);
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

static int init_sync(struct reader *r)
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

int reader_create(const struct reader_options *options, struct reader **ret, struct error *e)
{
    if (options->depth == 0 || options->depth > MAX_DEPTH || options->chunk == 0 || options->chunk > INT64_MAX / 2) {
        return error_set(e, ERROR_USAGE, "reader: depth %u, chunk %llu; a depth of 1 to %d and a chunk size are needed", options->depth,
                         (unsigned long long)options->chunk, MAX_DEPTH);
    }
    struct reader *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return error_nomem(e, "reader", sizeof *r);
    }
    r->options = *options;
    r->options.chunk = align_up_u64(options->chunk, CHUNK_UNIT);
    int code = init_sync(r);
    if (code != 0) {
        free(r);
        return error_set(e, -code, "reader: %s", strerror(code));
    }
    uint32_t threads = min_u32(options->depth, MAX_THREADS);
    r->slots = calloc(options->depth, sizeof *r->slots);
    r->workers = calloc(threads, sizeof *r->workers);
    int result = r->slots != NULL && r->workers != NULL ? 0 : error_nomem(e, "reader", options->depth * sizeof *r->slots);
    for (uint32_t i = 0; i < options->depth && result == 0; i++) {
        r->slots[i].link = r->spare;
        r->spare = &r->slots[i];
    }
    while (r->n_workers < threads && result == 0) {
        result = start_worker(r, e);
    }
    if (result < 0) {
        reader_destroy(r);
        return result;
    }
    *ret = r;
    return 0;
}

void reader_destroy(struct reader *r)
{
    if (r == NULL) {
        return;
    }
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
    free(r->workers);
    free(r->slots);
    free(r);
}

int reader_submit(struct reader *r, const struct read_request *request)
{
    pthread_mutex_lock(&r->lock);
    struct slot *s = r->spare;
    if (s != NULL) {
        r->spare = s->link;
        *s = (struct slot){.request = *request, .next = request->offset};
        if (request->bytes == 0) {
            list_push(&r->results, s);
        } else {
            list_push(&r->waiting, s);
            if (request->bytes > r->options.chunk) {
                pthread_cond_broadcast(&r->work);
            } else {
                pthread_cond_signal(&r->work);
            }
        }
    }
    pthread_mutex_unlock(&r->lock);
    return s != NULL ? 0 : -EAGAIN;
}

/* Waits under the lock until there is a result or the time is over. */
static void wait_result(struct reader *r, int timeout_ms)
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
    while (r->results.first == NULL && code == 0) {
        code = timeout_ms < 0 ? pthread_cond_wait(&r->finished, &r->lock) : pthread_cond_timedwait(&r->finished, &r->lock, &until);
    }
}

int reader_collect(struct reader *r, struct read_result *ret, int timeout_ms)
{
    pthread_mutex_lock(&r->lock);
    if (r->results.first == NULL && timeout_ms != 0) {
        wait_result(r, timeout_ms);
    }
    struct slot *s = list_pop(&r->results);
    if (s != NULL) {
        *ret = (struct read_result){
            .tag = s->request.tag,
            .status = s->status,
            .file_offset = s->status == 0 ? s->request.offset : s->failed_at,
            .bytes = s->done,
        };
        s->link = r->spare;
        r->spare = s;
    }
    pthread_mutex_unlock(&r->lock);
    return s != NULL;
}

int reader_direct_refused(const struct reader *r) { return r->direct_refused; }

const char *reader_name(const struct reader *r)
{
    if (!r->options.direct) {
        return "pread, buffered";
    }
    return r->direct_refused == 0 ? "pread, O_DIRECT" : "pread, buffered (O_DIRECT refused by the file system)";
}
