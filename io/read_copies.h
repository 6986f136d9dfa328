/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: which copy of a file the next chunk is read from: the one that would have it first, by the bytes each has in flight and the
 * rate each was measured to have. Must not know: what is read, by whom. */
#ifndef SLUICE_IO_READ_COPIES_H
#define SLUICE_IO_READ_COPIES_H

#include <stdint.h>

enum { READER_COPIES_MAX = 8 }; /* the file itself, number 0, and its copies */

struct read_copy {
    uint64_t in_flight;   /* bytes */
    uint64_t busy_ns;     /* since when its measured time goes on; in_flight > 0 */
    uint64_t last_ns;     /* when a read began last */
    double bytes, ns;     /* measured: what came in how much time with reads in flight; the past fades */
};

struct read_copies {
    struct read_copy copy[READER_COPIES_MAX];
};

/* Of n copies, without those of the mask `tried`; n: none is left. One that is not measured, or has not been read for a second, is
 * taken for faster than the fastest, so that it is tried. */
uint32_t read_copies_choose(const struct read_copies *c, uint32_t n, uint64_t bytes, uint32_t tried, uint64_t now_ns);

/* A read of `bytes` from copy i begins, and ends with `done` of them. A failure halves what it is believed to do. */
void read_copies_begin(struct read_copies *c, uint32_t i, uint64_t bytes, uint64_t now_ns);
void read_copies_end(struct read_copies *c, uint32_t i, uint64_t bytes, uint64_t done, uint64_t now_ns);
void read_copies_failed(struct read_copies *c, uint32_t i);

#endif
