/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: scout.h. Must not know: rows, slots, clocks. */
#include "src/run/scout.h"

enum {
    FIRST = 24,         /* tokens before the first try */
    SETTLE = 16,        /* of a ride: what it spares comes a token later, and grows */
    RIDE = 48,          /* tokens until it is judged */
    WITHOUT = 64,       /* one of so many of a long ride goes without, to know the price */
    PAUSE = 512, PAUSE_MOST = 1 << 14,
    MEMORY = 48,        /* tokens in the means of a way */
};

static const double
    SPARES_MOST = 0.15, /* of the experts that would be read: more was never seen (docs/trace.md) */
    GAIN = 0.01;        /* of a token's seconds: less is not worth it */

void scout_init(struct scout *s, double computes, double reads) { *s = (struct scout){.computes = computes, .reads = reads, .next_try = FIRST, .pause = PAUSE}; }

bool scout_choose(const struct scout *s) { return s->rides && s->ridden % WITHOUT != WITHOUT - 1; }

static double price(const struct scout *s)
{
    double seconds = s->ways.way[0].seconds, reading = ways_slope(&s->ways) * s->ways.way[0].experts;
    return s->ways.way[1].seen >= RIDE - SETTLE ? -ways_saved(&s->ways) : s->computes * (seconds - reading) + s->reads * reading;
}

static bool pays(const struct scout *s, double spared) { return ways_slope(&s->ways) * spared > price(s) + GAIN * s->ways.way[0].seconds; }

static void end(struct scout *s)
{
    s->rides = false;
    s->next_try = s->tokens + s->pause;
    s->pause = 2 * s->pause < PAUSE_MOST ? 2 * s->pause : PAUSE_MOST;
}

static void ride(struct scout *s, int64_t spared)
{
    if (++s->ridden > SETTLE) {
        uint32_t counted = s->ridden - SETTLE;
        s->spared += ((double)spared - s->spared) / (counted < MEMORY ? counted : MEMORY);
    }
    if (s->ridden >= RIDE && !pays(s, s->spared)) {
        end(s);
    } else if (s->ridden == 2 * RIDE) {
        s->pause = PAUSE;
    }
}

void scout_token(struct scout *s, const struct scout_token *t)
{
    s->tokens++;
    ways_token(&s->ways, t->rode, t->seconds, t->experts, MEMORY);
    if (s->rides) {
        ride(s, t->spared);
    } else if (s->tokens >= s->next_try && pays(s, SPARES_MOST * s->ways.way[0].experts)) {
        s->rides = true;
        s->ridden = 0;
        s->spared = 0;
    }
}
