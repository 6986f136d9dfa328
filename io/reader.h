/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the contract of reading ranges of files into buffers it is given: submit, then collect completions. Implemented by
 * reader_pread.c (threads); io_uring and mmap follow the same contract. Must not know: tensors, experts, weights.
 * A reader never retries silently and never allocates after create. One thread submits and collects. */
#ifndef SLUICE_IO_READER_H
#define SLUICE_IO_READER_H

#include <stdint.h>

#include "common/error.h"
#include "io/file.h"

struct reader;

struct reader_options {
    uint32_t depth;    /* reads in flight: 1..256 */
    uint64_t chunk;    /* largest single read, bytes; larger requests are cut (about 1 MiB..8 MiB) */
    bool direct;       /* use O_DIRECT where the file allows; the unaligned edges go through an aligned bounce block */
    bool drop_behind;  /* buffered reads: drop the pages from the page cache afterwards */
};

struct read_request {
    const struct file *file;
    uint64_t offset, bytes; /* the caller has checked the range against file->size */
    void *data;             /* [bytes], any alignment */
    uint64_t tag;           /* handed back */
};

struct read_result {
    uint64_t tag;
    int status; /* 0: all bytes are there; else -errno (-EIO, -ENODATA for a short file) */
    uint64_t file_offset; /* where it failed */
    uint64_t bytes; /* read */
};

int reader_create(const struct reader_options *options, struct reader **ret, struct error *e);
void reader_destroy(struct reader *r); /* waits for reads in flight */

/* -EAGAIN when `depth` requests are in flight: collect first. */
int reader_submit(struct reader *r, const struct read_request *request);

/* Waits up to timeout_ms (-1: for ever, 0: not at all) for a completion. 1: *ret filled, 0: none. */
int reader_collect(struct reader *r, struct read_result *ret, int timeout_ms);

/* errno with which the system refused O_DIRECT at a read (the open had allowed it), else 0: from then on the reader is
 * buffered, which the caller has to announce. A file without direct_fd is read buffered and says why in direct_errno. */
int reader_direct_refused(const struct reader *r);

const char *reader_name(const struct reader *r); /* "pread, O_DIRECT" */

#endif
