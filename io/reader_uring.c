/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the reader contract with io_uring: one ring, a thread that submits chunk by chunk and takes the answers, files and memory
 * registered. Must not know: tensors, experts, weights; how requests become chunks (read_queue.h). */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "common/intmath.h"
#include "io/reader_impl.h"

enum {
    FILES = 256,            /* registered at most; further ones are read by their descriptors */
    REGIONS = 1024,         /* of registered memory at most; other memory is read into by its address */
    REGION_BYTES = 1 << 30, /* the kernel takes no larger ones */
    BATCH = 32,             /* answers taken at once */
    NS = 1000000000,
    PATIENCE_MS = 1000,     /* for a kernel that has no memory for a submission while nothing is in flight */
};

/* What a registered file is known by: while it is registered, its inode number is not given to another. */
struct file_key {
    int fd;
    uint64_t device, inode;
};

struct region {
    const char *begin, *end;
};

/* One chunk with the kernel; the same index as in queue.flights. */
struct sent {
    struct read_step step;
    bool patient; /* may wait in the kernel: asked again after EAGAIN */
};

struct reader_uring {
    struct reader base;
    struct io_uring ring;
    struct sent *sent;      /* [depth] */
    uint32_t *unsent;       /* [depth] indices of prepared submissions the kernel has not taken, oldest first */
    uint32_t n_unsent;
    uint32_t in_flight;     /* with the kernel */
    char *bounce;           /* [depth][READ_BOUNCE], NULL without O_DIRECT */
    struct file_key files[FILES];
    uint32_t n_files;
    struct region regions[REGIONS];
    uint32_t n_regions;
    bool regions_open;      /* the kernel has a table for them */
    bool ring_open;
    pthread_t thread;
    bool started, asleep, stop; /* the thread */
    int bell;               /* eventfd that wakes it, -1: none */
    int broken;             /* -errno of a submission that the system refused for good */
};

static struct reader_uring *of(struct reader *r) { return (struct reader_uring *)r; }

static void sleep_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL); }

/* ---- one chunk ---- */

/* Index of a registered file, or -1. */
static int register_file(struct reader_uring *u, const struct file *f, int fd)
{
    for (uint32_t i = 0; i < u->n_files; i++) {
        if (u->files[i].fd == fd && u->files[i].device == f->device && u->files[i].inode == f->inode) {
            return (int)i;
        }
    }
    if (u->n_files == FILES || u->base.refused[READER_FILES] != 0) {
        return -1;
    }
    int n = io_uring_register_files_update(&u->ring, u->n_files, &fd, 1);
    if (n != 1) {
        if (n != -EBADF) { /* a closed descriptor is the read's affair */
            u->base.refused[READER_FILES] = n < 0 ? -n : EINVAL;
        }
        return -1;
    }
    u->files[u->n_files] = (struct file_key){fd, f->device, f->inode};
    return (int)u->n_files++;
}

/* Index of the registered region that holds these bytes, or -1. */
static int find_region(const struct reader_uring *u, const char *data, size_t bytes)
{
    for (uint32_t i = 0; i < u->n_regions; i++) {
        if (data >= u->regions[i].begin && data + bytes <= u->regions[i].end) {
            return (int)i;
        }
    }
    return -1;
}

static void prepare(struct reader_uring *u, uint32_t index)
{
    const struct read_chunk *c = &u->base.queue.flights[index].chunk;
    struct sent *sent = &u->sent[index];
    struct read_step *s = &sent->step;
    *s = read_chunk_step(c, u->bounce + (size_t)index * READ_BOUNCE);
    int file = register_file(u, c->file, s->fd), region = find_region(u, s->data, s->bytes);
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring); /* there is one: as many as chunks */
    if (region >= 0) {
        io_uring_prep_read_fixed(sqe, file >= 0 ? file : s->fd, s->data, (unsigned)s->bytes, s->offset, region);
    } else {
        io_uring_prep_read(sqe, file >= 0 ? file : s->fd, s->data, (unsigned)s->bytes, s->offset);
    }
    /* Copies of buffered reads and page faults would happen right here, one after the other. */
    bool aside = !c->direct || u->base.queue.options.fresh || sent->patient;
    sqe->flags |= (file >= 0 ? IOSQE_FIXED_FILE : 0u) | (aside ? IOSQE_ASYNC : 0u);
    io_uring_sqe_set_data64(sqe, index);
    u->unsent[u->n_unsent++] = index;
}

static void book(struct reader_uring *u, uint32_t index, int status)
{
    struct read_flight *f = &u->base.queue.flights[index];
    if (f->chunk.direct_refused) {
        u->base.refused[READER_DIRECT] = EINVAL;
    }
    read_chunk_finish(&f->chunk);
    read_queue_book(&u->base.queue, f, status);
}

/* Takes the kernel's answer to a submission. */
static void answer(struct reader_uring *u, uint32_t index, int n)
{
    struct sent *sent = &u->sent[index];
    u->in_flight--;
    int status;
    if (n == -EAGAIN && !sent->patient) {
        sent->patient = true;
        status = 1;
    } else {
        status = read_chunk_answer(&u->base.queue.flights[index].chunk, &sent->step, n);
    }
    struct read_queue *q = &u->base.queue;
    if (status < 0 && u->broken == 0 && read_queue_other_copy(q, &q->flights[index], status, u->base.refused[READER_DIRECT] == 0)) {
        sent->patient = false;
        status = 1;
    }
    if (status > 0 && u->broken == 0) {
        prepare(u, index);
    } else {
        book(u, index, status > 0 ? u->broken : status);
    }
}

/* ---- the ring ---- */

/* A system that takes no submissions any more: what it has not taken fails. */
static void give_up(struct reader_uring *u, int code)
{
    u->broken = code;
    for (uint32_t i = 0; i < u->n_unsent; i++) {
        book(u, u->unsent[i], code);
    }
    u->n_unsent = 0;
}

/* Callers need not wait for the kernel: what is prepared is the thread's own. */
static int submit_unlocked(struct reader_uring *u)
{
    pthread_mutex_unlock(&u->base.lock);
    int n = io_uring_submit(&u->ring);
    if ((n == -EAGAIN || n == -EBUSY) && u->in_flight == 0) {
        sleep_ms(1);
    }
    pthread_mutex_lock(&u->base.lock);
    return n;
}

/* Hands over what is prepared. What the kernel cannot take now stays prepared while others are in flight. */
static void hand_over(struct reader_uring *u)
{
    for (int waited = 0; u->n_unsent > 0 && u->broken == 0;) {
        int n = submit_unlocked(u);
        if (n > 0) {
            u->n_unsent -= (uint32_t)n;
            u->in_flight += (uint32_t)n;
            memmove(u->unsent, u->unsent + n, u->n_unsent * sizeof(*u->unsent));
        } else if (n == -EAGAIN || n == -EBUSY) {
            if (u->in_flight > 0) {
                return;
            }
            if (++waited == PATIENCE_MS) {
                give_up(u, n);
            }
        } else if (n != -EINTR) {
            give_up(u, n < 0 ? n : -EIO);
        }
    }
}

/* Takes chunks while there are some and fewer than `depth` are in flight; whether there were any. *ret_wait_ns: until the limit lets the
 * next one begin, or 0. */
static bool take_chunks(struct reader_uring *u, uint64_t *ret_wait_ns)
{
    struct reader *base = &u->base;
    bool any = false;
    for (struct read_flight *f; (f = read_queue_take(&base->queue, base->refused[READER_DIRECT] == 0, ret_wait_ns)) != NULL; any = true) {
        uint32_t index = (uint32_t)(f - base->queue.flights);
        if (u->broken != 0) {
            read_queue_book(&base->queue, f, u->broken);
            continue;
        }
        u->sent[index].patient = false;
        prepare(u, index);
    }
    return any;
}

/* Keeps `depth` chunks in flight while there are so many, those that were asked for meanwhile included. Returns the wait of
 * take_chunks. */
static uint64_t fill(struct reader_uring *u)
{
    uint64_t wait_ns;
    bool again = true;
    while (again) {
        int broken = u->broken;
        again = take_chunks(u, &wait_ns);
        hand_over(u);
        again = again || u->broken != broken;
    }
    return wait_ns;
}

/* Takes the answers that are there; their number. */
static uint32_t reap(struct reader_uring *u)
{
    struct io_uring_cqe *cqes[BATCH];
    uint32_t n = io_uring_peek_batch_cqe(&u->ring, cqes, BATCH);
    for (uint32_t i = 0; i < n; i++) {
        answer(u, (uint32_t)io_uring_cqe_get_data64(cqes[i]), cqes[i]->res);
    }
    io_uring_cq_advance(&u->ring, n);
    return n;
}

/* ---- the thread ---- */

/* Sleeps, without the lock, until there is an answer or somebody rings; for `ns` at most, if not 0. */
static void sleep_until_woken(struct reader_uring *u, uint64_t ns)
{
    struct timespec most = {.tv_sec = (time_t)(ns / NS), .tv_nsec = (long)(ns % NS)};
    struct pollfd events[] = {{.fd = u->bell, .events = POLLIN}, {.fd = u->ring.ring_fd, .events = POLLIN}};
    u->asleep = true;
    pthread_mutex_unlock(&u->base.lock);
    ppoll(events, ARRAY_LEN(events), ns > 0 ? &most : NULL, NULL);
    pthread_mutex_lock(&u->base.lock);
    u->asleep = false;
    if (events[0].revents != 0) {
        eventfd_read(u->bell, &(eventfd_t){0});
    }
}

static void *thread_main(void *arg)
{
    struct reader_uring *u = arg;
    pthread_mutex_lock(&u->base.lock);
    for (;;) {
        reap(u);
        uint64_t wait_ns = u->stop ? 0 : fill(u);
        if (read_queue_has_results(&u->base.queue)) {
            pthread_cond_signal(&u->base.finished);
        }
        if (u->stop && u->in_flight == 0) {
            break;
        }
        sleep_until_woken(u, wait_ns);
    }
    pthread_mutex_unlock(&u->base.lock);
    return NULL;
}

static void uring_wake(struct reader *base, bool several)
{
    struct reader_uring *u = of(base);
    (void)several;
    if (u->asleep) {
        u->asleep = false; /* one ring is enough */
        eventfd_write(u->bell, 1);
    }
}

static void uring_register_memory(struct reader *base, char *data, uint64_t bytes)
{
    struct reader_uring *u = of(base);
    if (!u->regions_open) {
        base->refused[READER_MEMORY] = -io_uring_register_buffers_sparse(&u->ring, REGIONS);
        u->regions_open = base->refused[READER_MEMORY] == 0;
    }
    for (uint64_t at = 0; at < bytes && u->n_regions < REGIONS && base->refused[READER_MEMORY] == 0; at += REGION_BYTES) {
        struct iovec region = {data + at, (size_t)min_u64(bytes - at, REGION_BYTES)};
        int n = io_uring_register_buffers_update_tag(&u->ring, u->n_regions, &region, &(__u64){0}, 1);
        if (n == 1) {
            u->regions[u->n_regions++] = (struct region){data + at, data + at + region.iov_len};
        } else {
            base->refused[READER_MEMORY] = n < 0 ? -n : EINVAL;
        }
    }
}

/* ---- create, destroy ---- */

static void uring_destroy(struct reader *base)
{
    struct reader_uring *u = of(base);
    if (u->started) {
        pthread_mutex_lock(&base->lock);
        u->stop = true;
        u->broken = u->broken != 0 ? u->broken : -ECANCELED; /* nothing is resumed */
        uring_wake(base, false);
        pthread_mutex_unlock(&base->lock);
        pthread_join(u->thread, NULL);
    }
    if (u->ring_open) {
        io_uring_queue_exit(&u->ring);
    }
    if (u->bell >= 0) {
        close(u->bell);
    }
    reader_base_deinit(base);
    free(u->sent);
    free(u->unsent);
    free(u->bounce);
    free(u);
}

static const char *const uring_names[] = {"io_uring, buffered", "io_uring, O_DIRECT", "io_uring, buffered (O_DIRECT refused by the file system)"};

static const struct reader_ops uring_ops = {
    .wake = uring_wake,
    .register_memory = uring_register_memory,
    .destroy = uring_destroy,
};

/* 0, or -errno where the system has no such reads (before Linux 5.6) or does not let this process ask. */
static int probe_read(struct io_uring *ring)
{
    _Alignas(struct io_uring_probe) char memory[sizeof(struct io_uring_probe) + (IORING_OP_READ + 1) * sizeof(struct io_uring_probe_op)] = {0};
    struct io_uring_probe *probe = (struct io_uring_probe *)memory;
    int code = io_uring_register_probe(ring, probe, IORING_OP_READ + 1);
    return code < 0 ? code : io_uring_opcode_supported(probe, IORING_OP_READ) ? 0 : -ENOSYS;
}

/* 0, or -errno where a submission is refused, as by a filter that lets rings be made. */
static int try_submission(struct io_uring *ring)
{
    struct io_uring_cqe *cqe = NULL;
    io_uring_prep_nop(io_uring_get_sqe(ring));
    int code = io_uring_submit_and_wait(ring, 1);
    code = code < 0 ? code : io_uring_wait_cqe(ring, &cqe);
    if (code == 0) {
        code = cqe->res < 0 ? cqe->res : 0;
        io_uring_cqe_seen(ring, cqe);
    }
    return code;
}

/* 0, or the positive errno with which the system refuses. */
static int open_ring(struct reader_uring *u)
{
    int code = io_uring_queue_init(u->base.queue.options.depth, &u->ring, 0);
    if (code < 0) {
        return -code;
    }
    u->ring_open = true;
    code = probe_read(&u->ring);
    code = code < 0 ? code : try_submission(&u->ring);
    int none[FILES];
    memset(none, 0xff, sizeof(none)); /* -1: an empty place */
    int files = code < 0 ? 0 : io_uring_register_files(&u->ring, none, FILES);
    u->base.refused[READER_FILES] = files < 0 ? -files : 0;
    return -code;
}

static int allocate(struct reader_uring *u, const struct reader_options *o, struct error *e)
{
    size_t bounce = o->direct ? (size_t)o->depth * READ_BOUNCE : 0;
    u->sent = calloc(o->depth, sizeof(*u->sent));
    u->unsent = calloc(o->depth, sizeof(*u->unsent));
    u->bounce = bounce > 0 ? aligned_alloc(READ_BOUNCE, bounce) : NULL;
    bool whole = u->sent != NULL && u->unsent != NULL && (u->bounce != NULL || bounce == 0);
    return whole ? 0 : error_nomem(e, "reader", bounce + o->depth * sizeof(*u->sent));
}

static int start_thread(struct reader_uring *u, struct error *e)
{
    u->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int code = u->bell < 0 ? errno : reader_start_thread(&u->thread, thread_main, u);
    u->started = code == 0;
    return code == 0 ? 0 : error_set(e, -code, "cannot start a thread for reading: %s; raise ulimit -u, ulimit -n", strerror(code));
}

int reader_uring_create(const struct reader_options *options, struct reader **ret, struct error *e)
{
    struct reader_uring *u = calloc(1, sizeof(*u));
    if (u == NULL) {
        return error_nomem(e, "reader", sizeof(*u));
    }
    u->bell = -1;
    int code = reader_base_init(&u->base, &uring_ops, options, e);
    if (code < 0) {
        free(u);
        return code;
    }
    u->base.names = uring_names;
    code = allocate(u, options, e);
    code = code < 0 ? code : open_ring(u);
    code = code != 0 ? code : start_thread(u, e);
    if (code != 0) {
        uring_destroy(&u->base);
        return code;
    }
    *ret = &u->base;
    return 0;
}
