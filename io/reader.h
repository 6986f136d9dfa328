/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the contract of reading ranges of files into buffers it is given: submit, then collect completions. Implemented by
 * reader_uring.c, reader_pread.c and reader_mmap.c. Must not know: tensors, experts, weights.
 * A reader never hides a failure and never allocates after create. It has threads of its own: reads go on
 * while the caller does something else. One thread submits, cancels and collects. */
#ifndef SLUICE_IO_READER_H
#define SLUICE_IO_READER_H

#include <stdint.h>

#include "common/error.h"
#include "io/file.h"
#include "io/read_copies.h"
#include "src/base/clock.h"

struct read_rate;
struct reader;
struct settings;

/* Where the system refuses a kind, pread takes over. */
enum reader_kind {
    READER_URING,
    READER_PREAD, /* threads */
    READER_MMAP,  /* threads, by way of the page cache */
};

enum { READER_DEPTH_MAX = 256, READER_REQUESTS_MAX = 4096 };

struct reader_options {
    enum reader_kind kind;
    uint32_t depth;    /* chunks in flight: 1..READER_DEPTH_MAX */
    uint32_t requests; /* accepted and not collected: depth..READER_REQUESTS_MAX; 0: as many as depth */
    uint64_t chunk;    /* largest single read, bytes; larger requests are cut, small neighbours joined (about 1 MiB..8 MiB) */
    bool direct;       /* use O_DIRECT where the file allows; the unaligned edges go through an aligned bounce block */
    bool fresh;        /* requests read into memory that nobody has touched: its page faults are taken beside the caller */
    bool drop_behind;  /* buffered reads: drop the pages from the page cache afterwards */
    bool apart;        /* small neighbours are not joined */
    uint32_t copies;   /* of a file, at most; 0: one. Threads are as many as so many drives need */
    uint64_t limit;    /* bytes per second that chunks are read at, at most; 0: as fast as it goes */
    struct clock clock; /* of the limit; zero: the system's */
    struct read_rate *budget; /* borrowed: a limit that several readers keep together, instead of these two; NULL: none */
};

/* As --io, --io-limit and --merge say; the caller adds the rest. */
struct reader_options reader_options_of(const struct settings *s);

/* Chunks of a lower priority are read while no higher one waits, and of all below READ_DEMAND at most half of `depth` at a time. */
enum read_priority { READ_DEMAND, READ_PREDICTED, READ_BACKGROUND, READ_PRIORITIES };

struct read_request {
    const struct file *file; /* open until the request is collected; each chunk is read from it or from one of its copies */
    uint64_t offset, bytes;  /* the caller has checked the range against file->size */
    void *data;              /* [bytes], any alignment; shared with no other request */
    uint64_t tag;            /* handed back */
    enum read_priority priority;
    bool progress;           /* collect also reports how much has arrived */
};

struct read_result {
    uint64_t tag;
    int status; /* 0: all bytes are there; else -errno (-EIO, -ENODATA for a short file, -ESTALE for one that was changed since it was opened, -ECANCELED) */
    bool more;  /* a report of progress: `bytes` are there, status is 0, the request goes on */
    uint64_t file_offset; /* where it failed */
    const struct file *file; /* the copy that failed there last; else the file of the request */
    uint64_t bytes; /* leading bytes of the request that are there */
};

int reader_create(const struct reader_options *options, struct reader **ret, struct error *e);
void reader_destroy(struct reader *r); /* waits for reads in flight; requests that wait are dropped */

/* -EAGAIN when `requests` are open: collect first. */
int reader_submit(struct reader *r, const struct read_request *request);

/* Memory that requests will read into again and again: io_uring pins it once instead of at every read. It stays mapped until
 * reader_destroy. A refusal (the limit of locked memory, an old kernel) is told by reader_refused; reads go on without. */
void reader_register(struct reader *r, void *data, uint64_t bytes);

/* Takes back the chunks that are not yet in flight of a request with this tag; it is collected with -ECANCELED. -ENOENT when
 * nothing of it waits: it will be collected with what comes of it. */
int reader_cancel(struct reader *r, uint64_t tag);

/* What is not yet in flight of the request with this tag is read before all that is only predicted. -ENOENT as above. */
int reader_raise(struct reader *r, uint64_t tag);

/* Waits up to timeout_ms (-1: for ever, 0: not at all) for a completion or progress. 1: *ret filled, 0: none in that
 * time, or none will come. */
int reader_collect(struct reader *r, struct read_result *ret, int timeout_ms);

/* What was read since create, and of it what while a request of READ_DEMAND was open: how busy waiting kept the drive. */
struct reader_load {
    uint64_t bytes, demand_bytes, demand_ns;
    uint64_t copy_bytes[READER_COPIES_MAX]; /* of bytes: from each copy */
};
struct reader_load reader_load(struct reader *r);

/* Reads from a copy that failed and went on with another one: how many, and the first of them. */
struct reader_fault {
    uint64_t n;
    int status;              /* -errno */
    const struct file *file; /* the copy */
    uint64_t offset;
};
struct reader_fault reader_fault(struct reader *r, uint32_t copy);

/* Times that the drive of a copy brought less than half of what it had brought before, for a second and a half of reading: how many,
 * and of the last one bytes per second, then and before. */
struct reader_slowness {
    uint64_t n;
    double rate, usual;
};
struct reader_slowness reader_slowness(struct reader *r, uint32_t copy);

/* What the system may refuse; the reader does without, and the caller has to announce it. */
enum reader_part {
    READER_KIND,   /* io_uring or mmap, at create: pread threads take over */
    READER_FILES,  /* registered files */
    READER_MEMORY, /* registered memory */
    READER_DIRECT, /* O_DIRECT at a read, which the open had allowed: buffered from then on. A file without direct_fd is read
                    * buffered too and says why in direct_errno. */
    READER_PARTS,
};

/* errno of the refusal, or 0. */
int reader_refused(const struct reader *r, enum reader_part part);

/* What a read_result's status below 0 means, for users. Valid until the next call of strerror. */
const char *reader_status_text(int status);

const char *reader_name(const struct reader *r); /* "io_uring, O_DIRECT" */

#endif
