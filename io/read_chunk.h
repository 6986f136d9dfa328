/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: one chunk of a file on its way into memory: which read of the system comes next, and what the answer means - short reads
 * and interruptions are resumed, unaligned edges of direct reads go through a bounce block. Must not know: who reads, requests. */
#ifndef SLUICE_IO_READ_CHUNK_H
#define SLUICE_IO_READ_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "io/file.h"

enum { READ_BOUNCE = 64 << 10 }; /* bytes of a bounce block, and its alignment */

struct read_chunk {
    const struct file *file;
    uint64_t offset, bytes; /* in the file */
    char *data;             /* [bytes] */
    uint64_t done;          /* bytes that are there */
    uint32_t stalls;        /* reads that brought nothing */
    bool direct;            /* by O_DIRECT; false after a refusal */
    bool direct_refused;    /* the file system took the flag at open only */
    bool drop_behind;       /* buffered: the page cache keeps no copy */
};

/* One read of the system. */
struct read_step {
    int fd;
    uint64_t offset; /* in the file */
    size_t bytes;
    char *data;      /* [bytes]: the place of the chunk, or the bounce block */
    size_t skip;     /* leading bytes that are not the chunk's */
};

/* Whether bytes from `offset` on go straight to `data`, apart from the edges. */
bool read_chunk_congruent(const struct file *f, uint64_t offset, const char *data);

/* `bounce` [READ_BOUNCE] is used by direct reads only. */
struct read_step read_chunk_step(const struct read_chunk *c, char *bounce);

/* Takes the answer to a step: bytes or -errno. 1: another step is needed, 0: the chunk is complete, else -errno; -ENODATA when
 * the file ends, -ESTALE when it was changed since it was opened. */
int read_chunk_answer(struct read_chunk *c, const struct read_step *s, ssize_t n);

/* After the last step. */
void read_chunk_finish(const struct read_chunk *c);

#endif
