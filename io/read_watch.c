/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: read_watch.h. Must not know: what is read. */
#include "io/read_watch.h"

enum { WINDOW_NS = 500000000, SLOW_WINDOWS = 3, LEAST_FLIGHT = 4096 };

#define STEP 1.25 /* from one place of `best` to the next: within a step more in flight cannot double the rate */

/* Less in flight brings less: only what was reached with as much or less is a measure. */
static uint32_t step_of(double flight)
{
    uint32_t i = 0;
    for (double at = LEAST_FLIGHT; i + 1 < READ_WATCH_STEPS && at < flight; at *= STEP) {
        i++;
    }
    return i;
}

static void close_window(struct read_watch *w)
{
    uint32_t step = step_of(w->flight / (double)w->ns);
    double rate = (double)w->bytes / (double)w->ns, best = 0;
    for (uint32_t i = 0; i <= step; i++) {
        best = w->best[i] > best ? w->best[i] : best;
    }
    uint32_t before = w->slow;
    w->slow = 2 * rate < best ? before + (uint32_t)(w->ns / WINDOW_NS) : 0;
    if (before < SLOW_WINDOWS && w->slow >= SLOW_WINDOWS) {
        w->events++;
        w->rate = 1e9 * rate;
        w->usual = 1e9 * best;
    }
    w->best[step] = rate > w->best[step] ? rate : w->best[step];
    w->bytes = w->ns = 0;
    w->flight = 0;
}

static void go_on(struct read_watch *w, uint64_t now_ns)
{
    if (w->in_flight > 0) {
        uint64_t ns = now_ns - w->since_ns;
        w->ns += ns;
        w->flight += (double)w->in_flight * (double)ns;
    }
    w->since_ns = now_ns;
}

void read_watch_begin(struct read_watch *w, uint64_t bytes, uint64_t now_ns)
{
    go_on(w, now_ns);
    w->in_flight += bytes;
}

void read_watch_end(struct read_watch *w, uint64_t bytes, uint64_t done, uint64_t now_ns)
{
    go_on(w, now_ns);
    w->in_flight -= bytes;
    w->bytes += done;
    if (w->ns >= WINDOW_NS) {
        close_window(w);
    }
}
