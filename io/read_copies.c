/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: read_copies.h. Must not know: what is read, by whom. */
#include "io/read_copies.h"

enum { NS = 1000000000, MEMORY_BYTES = 64 << 20, MEMORY_NS = NS / 2 }; /* of the measurement: then half of it fades */

#define LEAST 1e-9 /* bytes per nanosecond: what only failed */
#define TRY 1.1

static double rate_of(const struct read_copy *x) { return x->ns > 0 ? x->bytes / x->ns : 0; }

uint32_t read_copies_choose(const struct read_copies *c, uint32_t n, uint64_t bytes, uint32_t tried, uint64_t now_ns)
{
    double fastest = 0, least = 0;
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++) {
        double rate = rate_of(&c->copy[i]);
        fastest = rate > fastest ? rate : fastest;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct read_copy *x = &c->copy[i];
        double rate = rate_of(x) > LEAST ? rate_of(x) : LEAST;
        if (x->ns <= 0 || (x->in_flight == 0 && now_ns - x->last_ns >= NS)) {
            rate = fastest > 0 ? fastest * TRY : 1;
        }
        double time = (double)(x->in_flight + bytes) / rate;
        if ((tried & 1u << i) == 0 && (best == n || time < least)) {
            best = i;
            least = time;
        }
    }
    return best;
}

void read_copies_begin(struct read_copies *c, uint32_t i, uint64_t bytes, uint64_t now_ns)
{
    struct read_copy *x = &c->copy[i];
    x->busy_ns = x->in_flight == 0 ? now_ns : x->busy_ns;
    x->in_flight += bytes;
    x->last_ns = now_ns;
}

void read_copies_end(struct read_copies *c, uint32_t i, uint64_t bytes, uint64_t done, uint64_t now_ns)
{
    struct read_copy *x = &c->copy[i];
    x->bytes += (double)done;
    x->ns += (double)(now_ns - x->busy_ns) + 1;
    x->busy_ns = now_ns;
    x->in_flight -= bytes;
    if (x->bytes > MEMORY_BYTES || x->ns > MEMORY_NS) {
        x->bytes /= 2;
        x->ns /= 2;
    }
}

void read_copies_failed(struct read_copies *c, uint32_t i) { c->copy[i].bytes /= 2; }
