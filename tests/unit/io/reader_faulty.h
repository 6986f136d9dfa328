/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a reader for tests that fails by rule. Requests are read when they are submitted, in the caller's thread and whole, so that
 * what happens depends on nothing but them. Must not know: who reads, and what. */
#ifndef TESTS_UNIT_IO_READER_FAULTY_H
#define TESTS_UNIT_IO_READER_FAULTY_H

#include <stdbool.h>

#include "io/reader.h"

enum faulty_kind {
    FAULTY_FAIL, /* ends with `status` (-EIO; -ENODATA: a short file; -ECANCELED) at byte `at`; memory behind it is spoilt */
    FAULTY_LATE, /* comes whole, but only with reader_faulty_release: until then it is in flight */
};

/* For requests that hold byte `at` of `file` (NULL: of any): of these, `times` (0: all) after the first `skip`. */
struct faulty_rule {
    enum faulty_kind kind;
    const struct file *file;
    uint64_t at;
    int status;
    uint32_t skip, times;
};

enum { FAULTY_RULES = 8 };

/* As reader_create, with n rules, of which the first that fits counts. Of the options `depth`, `requests` and `clock` count: requests beyond
 * `depth` wait behind late ones, and can be cancelled. */
int reader_faulty_create(const struct reader_options *options, const struct faulty_rule *rules, uint32_t n, struct reader **ret, struct error *e);

/* Decides instead of the rules: whether the request for these bytes fails, and then how (`kind`, `at`, `status`). Called as they are
 * read, under the reader's lock. Before the first request. */
void reader_faulty_choose(struct reader *r, bool (*fails)(void *ctx, const struct file *file, uint64_t offset, uint64_t bytes, struct faulty_rule *ret), void *ctx);

/* From now on a chunk takes its bytes / `rate` (per second) by the clock, which is that of the options given to create. */
void reader_faulty_pace(struct reader *r, struct clock_manual *time, uint64_t rate);

/* What is late comes now. Before it, nobody may wait for it without end. */
void reader_faulty_release(struct reader *r);

#endif
