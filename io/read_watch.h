/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: whether a drive has become slow: what it brings in a window of time, against the best it has brought in such a window with no
 * more in flight. Must not know: what is read. */
#ifndef SLUICE_IO_READ_WATCH_H
#define SLUICE_IO_READ_WATCH_H

#include <stdint.h>

enum { READ_WATCH_STEPS = 64 };

struct read_watch {
    uint64_t in_flight, since_ns;  /* bytes; when that was counted last */
    uint64_t bytes, ns;            /* of the window that is open: what came, and the time with reads in flight */
    double flight;                 /* bytes in flight times nanoseconds */
    double best[READ_WATCH_STEPS]; /* rates, by the mean of bytes in flight */
    uint32_t slow;                 /* windows below half of the best, one after the other */
    uint64_t events;               /* times that they became three: a second and a half of reading */
    double rate, usual;            /* bytes per second of the last such time, and the best it was compared with */
};

/* A read of `bytes` begins; it ends with `done` of them. */
void read_watch_begin(struct read_watch *w, uint64_t bytes, uint64_t now_ns);
void read_watch_end(struct read_watch *w, uint64_t bytes, uint64_t done, uint64_t now_ns);

#endif
