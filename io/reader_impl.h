/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the implementations of reader.h share: the calls of each, and the part of a reader that all have. Must not know:
 * how bytes are read. For io/reader*.c only. */
#ifndef SLUICE_IO_READER_IMPL_H
#define SLUICE_IO_READER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "io/read_queue.h"

/* Threads of its own take chunks from the queue and book them; `reader_base` is the part that callers meet. */
struct reader_ops {
    void (*wake)(struct reader *r, bool several); /* under the lock: requests wait, perhaps of several chunks */
    void (*wait)(struct reader *r, int timeout_ms); /* under the lock, at every collect: what brings results; NULL: threads do, on `finished` */
    void (*register_memory)(struct reader *r, char *data, uint64_t bytes); /* under the lock; NULL: of no use */
    void (*destroy)(struct reader *r);
};

/* First member of each implementation. */
struct reader {
    const struct reader_ops *ops;
    const char *const *names; /* [3] buffered, O_DIRECT, O_DIRECT refused */
    pthread_mutex_t lock;    /* of the queue */
    pthread_cond_t finished; /* there are results */
    struct read_queue queue;
    atomic_int refused[READER_PARTS]; /* errno */
};

/* On failure nothing is left to deinit. */
int reader_base_init(struct reader *r, const struct reader_ops *ops, const struct reader_options *options, struct error *e);
void reader_base_deinit(struct reader *r); /* threads have ended */

/* A condition that is waited for until a moment `ns` from now, on the monotonic clock. 0 or a positive errno. */
int reader_cond_init(pthread_cond_t *c);
struct timespec reader_moment_after(uint64_t ns);

/* Starts a thread that takes no signals. 0 or a positive errno. */
int reader_start_thread(pthread_t *ret, void *(*run)(void *), void *arg);

/* How the threads of reader_threads.c read. */
struct reader_threads_kind {
    const char *names[3];
    ssize_t (*read)(const struct read_step *s); /* bytes, or -errno; by several threads at once */
};

int reader_threads_create(const struct reader_options *options, const struct reader_threads_kind *kind, struct reader **ret, struct error *e);

/* *options are checked. A positive errno when the system refuses this kind; nothing is created then. */
int reader_pread_create(const struct reader_options *options, struct reader **ret, struct error *e);
int reader_mmap_create(const struct reader_options *options, struct reader **ret, struct error *e);
int reader_uring_create(const struct reader_options *options, struct reader **ret, struct error *e);

#endif
