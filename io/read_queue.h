/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the requests of a reader from submit to collect: waiting by priority, cut into chunks or joined to one, in flight, done,
 * failed, cancelled. Must not know: how chunks are read, threads (the reader's lock, if it has one, is held around each call). */
#ifndef SLUICE_IO_READ_QUEUE_H
#define SLUICE_IO_READ_QUEUE_H

#include "io/read_chunk.h"
#include "io/read_rate.h"
#include "io/read_watch.h"
#include "io/reader.h"

struct read_slot {
    struct read_request request;
    uint64_t next, end;         /* in the file: first byte no chunk has taken, and where the request ends (earlier after a failure) */
    uint64_t reported;          /* leading bytes, last progress */
    uint32_t running;           /* chunks in flight */
    int status;
    uint64_t failed_at;
    const struct file *failed;  /* the copy that was read there */
    bool finished, in_results, alone; /* alone: not to be joined */
    struct read_slot *link;     /* in a waiting list or among the spare ones */
    struct read_slot *result_link;
    struct read_slot *joined;   /* the chunk that reads the end of this request goes on with that one */
};

struct read_list {
    struct read_slot *first, *last;
};

struct read_flight {
    struct read_chunk chunk;
    struct read_slot *slot;     /* first request of the chunk; NULL: free */
    uint32_t copy, tried;       /* where it is read; mask of where it failed */
    uint64_t before;            /* bytes of the chunk that came from there */
};

struct read_queue {
    struct reader_options options;
    struct read_rate own, *rate;    /* of options.limit; that one, or the one shared with other readers */
    struct read_slot *slots;        /* [options.requests] */
    struct read_flight *flights;    /* [options.depth] */
    struct read_list waiting[READ_PRIORITIES]; /* with bytes no chunk has taken, oldest first */
    struct read_slot *first_result, *last_result;
    struct read_slot *spare;
    uint32_t open;                  /* accepted and not collected */
    uint32_t demands;               /* of READ_DEMAND, not finished */
    uint64_t demand_since_ns;       /* demands > 0: there has been one */
    struct reader_load load;        /* up to then */
    struct read_copies copies;
    struct read_watch watch[READER_COPIES_MAX]; /* of each copy */
    struct reader_fault fault[READER_COPIES_MAX];
};

int read_queue_init(struct read_queue *q, const struct reader_options *options, struct error *e);
void read_queue_deinit(struct read_queue *q);

/* As the calls of reader.h. */
int read_queue_submit(struct read_queue *q, const struct read_request *request);
int read_queue_cancel(struct read_queue *q, uint64_t tag);
int read_queue_raise(struct read_queue *q, uint64_t tag);
bool read_queue_collect(struct read_queue *q, struct read_result *ret);

/* The next chunk to read: of the oldest request of the highest priority. NULL: none waits, `depth` are in flight, or the limit does
 * not allow it before *ret_wait_ns, which is 0 otherwise. `direct`: the file system has not refused it. */
struct read_flight *read_queue_take(struct read_queue *q, bool direct, uint64_t *ret_wait_ns);

/* A chunk has failed: whether there is another copy of the file, with which it goes on. `direct`: as above. */
bool read_queue_other_copy(struct read_queue *q, struct read_flight *f, int status, bool direct);

/* Books a chunk that was read, chunk.done bytes of it; after a failure (status < 0) the rest of its request is not read. */
void read_queue_book(struct read_queue *q, struct read_flight *f, int status);

struct reader_load read_queue_load(const struct read_queue *q);

bool read_queue_has_results(const struct read_queue *q);

#endif
