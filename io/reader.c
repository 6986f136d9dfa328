/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the choice of an implementation of reader.h. Must not know: how bytes are read. */
#include "io/reader.h"

#include <string.h>

#include "common/intmath.h"
#include "io/reader_impl.h"

enum { CHUNK_UNIT = 64 << 10 }; /* chunks are multiples of it: their inner edges suit O_DIRECT everywhere */

enum reader_kind reader_kind_of(const char *name) { return strcmp(name, "pread") == 0 ? READER_PREAD : READER_URING; }

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
    int refusal = o.kind == READER_URING ? reader_uring_create(&o, ret, e) : 0;
    if (o.kind == READER_URING && refusal <= 0) {
        return refusal;
    }
    int code = reader_pread_create(&o, ret, e);
    if (code == 0) {
        (*ret)->refused[READER_RING] = refusal;
    }
    return code;
}

void reader_destroy(struct reader *r)
{
    if (r != NULL) {
        r->ops->destroy(r);
    }
}

int reader_submit(struct reader *r, const struct read_request *request) { return r->ops->submit(r, request); }
void reader_register(struct reader *r, void *data, uint64_t bytes)
{
    if (r->ops->register_memory != NULL) {
        r->ops->register_memory(r, data, bytes);
    }
}

int reader_cancel(struct reader *r, uint64_t tag) { return r->ops->cancel(r, tag); }
int reader_collect(struct reader *r, struct read_result *ret, int timeout_ms) { return r->ops->collect(r, ret, timeout_ms); }
int reader_refused(const struct reader *r, enum reader_part part) { return r->refused[part]; }

const char *reader_name(const struct reader *r)
{
    return r->ops->names[!r->queue.options.direct ? 0 : r->refused[READER_DIRECT] == 0 ? 1 : 2];
}
