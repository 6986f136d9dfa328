/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the implementations of reader.h share: the calls of each, and the part of a reader that all have. Must not know:
 * how bytes are read. For io/reader*.c only. */
#ifndef SLUICE_IO_READER_IMPL_H
#define SLUICE_IO_READER_IMPL_H

#include <stdatomic.h>

#include "io/read_queue.h"

/* As in reader.h. */
struct reader_ops {
    const char *names[3]; /* buffered, O_DIRECT, O_DIRECT refused */
    int (*submit)(struct reader *r, const struct read_request *request);
    void (*register_memory)(struct reader *r, char *data, uint64_t bytes); /* NULL: of no use */
    int (*cancel)(struct reader *r, uint64_t tag);
    int (*collect)(struct reader *r, struct read_result *ret, int timeout_ms);
    void (*destroy)(struct reader *r); /* not NULL */
};

/* First member of each implementation. */
struct reader {
    const struct reader_ops *ops;
    struct read_queue queue;
    atomic_int refused[READER_PARTS]; /* errno */
};

/* *options are checked. The ring returns a positive errno when the system refuses it, nothing is created then. */
int reader_pread_create(const struct reader_options *options, struct reader **ret, struct error *e);
int reader_uring_create(const struct reader_options *options, struct reader **ret, struct error *e);

#endif
