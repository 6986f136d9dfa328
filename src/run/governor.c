/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the choice of a draft length (governor.h). A length without measurements is taken to be cheap, so it is tried until
 * it is known. Later the others are tried now and then, out of an allowance: a share of the time that went by, less what
 * such tries have cost. So a change is noticed, and a model for which drafting loses pays the share and no more. */
#include "src/run/governor.h"

#include <string.h>

static const double
    PRIOR_RIGHT = 0.7, PRIOR_WEIGHT = 2, /* before anything was compared: worth a try, forgotten after a few */
    FADE = 1 - 1.0 / 64,                 /* of what was compared: text changes */
    CHEAP_ROW = 0.15,                    /* of a step: what a further row costs at best */
    SHARE = 0.005,                       /* of the time that tries may lose */
    PATIENCE = 2;                        /* steps of time that the allowance may grow to */

enum { KNOWN = 3 }; /* measurements until a median counts */

void governor_init(struct governor *g, uint32_t most)
{
    memset(g, 0, sizeof(*g));
    g->most = most < GOVERNOR_MOST ? most : GOVERNOR_MOST;
}

double governor_acceptance(const struct governor *g, uint32_t depth)
{
    return (g->taken[depth - 1] + PRIOR_RIGHT * PRIOR_WEIGHT) / (g->tried[depth - 1] + PRIOR_WEIGHT);
}

/* Tokens that a step with so many drafts is expected to give. */
static double tokens(const struct governor *g, uint32_t drafts)
{
    double sum = 1, all = 1;
    for (uint32_t i = 1; i <= drafts; i++) {
        all *= governor_acceptance(g, i);
        sum += all;
    }
    return sum;
}

/* Measured; with few measurements at most what it would be if rows were cheap, and never more than with more rows. */
static double seconds(const struct governor *g, uint32_t drafts)
{
    uint32_t below = drafts;
    while (below > 0 && g->steps[below] < KNOWN) {
        below--;
    }
    double least = g->seconds[below] * (1 + CHEAP_ROW * (drafts - below));
    for (uint32_t k = drafts; k <= g->most; k++) {
        bool counts = g->steps[k] >= KNOWN || (k == drafts && g->steps[k] > 0);
        least = counts && g->seconds[k] < least ? g->seconds[k] : least;
    }
    return least;
}

static double rate(const struct governor *g, uint32_t drafts) { return tokens(g, drafts) / seconds(g, drafts); }

/* Lengths that may be chosen: one more than what is known. */
static uint32_t deepest(const struct governor *g)
{
    uint32_t n = 0;
    while (n < g->most && g->steps[n] >= KNOWN) {
        n++;
    }
    return n;
}

static uint32_t best(const struct governor *g)
{
    uint32_t b = 0;
    for (uint32_t k = 1; k <= deepest(g); k++) {
        b = rate(g, k) > rate(g, b) ? k : b;
    }
    return b;
}

/* Time that a step of another length is expected to lose against the best one. */
static double loss(const struct governor *g, uint32_t drafts, uint32_t b)
{
    double lost = seconds(g, drafts) - tokens(g, drafts) / rate(g, b);
    return lost > 0 ? lost : 0;
}

/* The allowance covers what a try costs, or has grown as far as it does: what was measured once may be wrong by now. */
static bool affordable(const struct governor *g, uint32_t drafts, uint32_t b)
{
    double lost = loss(g, drafts, b), full = PATIENCE / 2 * seconds(g, b);
    return (lost < full ? lost : full) <= g->allowance;
}

/* Of length 0 and the neighbours of the best, the one that was measured the longest time ago is tried next, as soon as the
 * allowance has grown to it: cheaper ones do not come first. */
uint32_t governor_choose(const struct governor *g)
{
    if (g->most == 0 || g->steps[0] < KNOWN) {
        return 0;
    }
    uint32_t b = best(g), next = b;
    for (uint32_t k = 0; k <= deepest(g); k++) {
        bool near = k == 0 || k + 1 == b || k == b + 1;
        if (k != b && near && (next == b || g->last[k] < g->last[next])) {
            next = k;
        }
    }
    return g->count - g->last[next] > GOVERNOR_SAMPLES && affordable(g, next, b) ? next : b;
}

static double median(const double *values, uint32_t n)
{
    double sorted[GOVERNOR_SAMPLES];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > values[i]; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = values[i];
    }
    return sorted[(n - 1) / 2];
}

void governor_step(struct governor *g, uint32_t drafts, double s)
{
    if (g->most == 0 || drafts > g->most || !(s > 0)) {
        return;
    }
    bool known = g->steps[0] >= KNOWN;
    uint32_t b = known ? best(g) : 0, n = g->steps[drafts]++;
    double lost = known && drafts != b ? s - tokens(g, drafts) / rate(g, b) : 0;
    g->sample[drafts][n % GOVERNOR_SAMPLES] = s;
    g->seconds[drafts] = median(g->sample[drafts], n < GOVERNOR_SAMPLES ? n + 1 : GOVERNOR_SAMPLES);
    g->last[drafts] = ++g->count;
    double most = PATIENCE * seconds(g, b);
    lost = lost > 2 * most ? 2 * most : lost; /* beyond that the machine was busy */
    g->allowance += SHARE * s - (lost > 0 ? lost : 0);
    g->allowance = g->allowance > most ? most : g->allowance;
}

void governor_result(struct governor *g, uint32_t depth, bool right)
{
    if (depth == 0 || depth > g->most) {
        return;
    }
    g->tried[depth - 1] = g->tried[depth - 1] * FADE + 1;
    g->taken[depth - 1] = g->taken[depth - 1] * FADE + (right ? 1 : 0);
}
