/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the choice of a draft length (governor.h). Times of different lengths are compared only with their neighbours in
 * time, as ratios: the pace of a machine changes, the cost of a row less so. A length that was not measured is taken to be
 * cheap, so it is tried until it is known. Later its neighbours are tried now and then, out of an allowance: a share of the
 * time that went by, less what such tries have cost. So a change is noticed, and a model for which drafting loses pays the
 * share and no more. While there are drafts, a step without them comes at intervals: soon after a change, then rarely. */
#include "src/run/governor.h"

#include <string.h>

static const double
    PRIOR_RIGHT = 0.7, PRIOR_WEIGHT = 2, /* before anything was compared: worth a try, forgotten after a few */
    FADE = 1 - 1.0 / 64,                 /* of what was compared: text changes */
    LEAST_ROW = 0.03,                    /* of a step: what a draft and its row cost at least */
    CHEAP_ROW = 0.3,                     /* what they are taken to cost before they were measured */
    SHARE = 0.005,                       /* of the time that tries may lose */
    PATIENCE = 2;                        /* steps of time that the allowance may grow to */

enum {
    KNOWN = 3, /* measurements until a median counts */
    INTERVAL_LEAST = 4, INTERVAL_MOST = 64,
};

void governor_init(struct governor *g, uint32_t most)
{
    memset(g, 0, sizeof(*g));
    g->interval = INTERVAL_LEAST;
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

static bool known(const struct governor *g, uint32_t drafts) { return drafts == 0 || g->samples[drafts] >= KNOWN; }

/* Measured; with few measurements at most what it would be if rows were cheap. */
static double cost(const struct governor *g, uint32_t drafts)
{
    uint32_t below = drafts;
    while (!known(g, below)) {
        below--;
    }
    double cheap = (below == 0 ? 1 : g->cost[below]) + CHEAP_ROW * (drafts - below);
    return drafts == below || g->samples[drafts] == 0 || g->cost[drafts] > cheap ? cheap : g->cost[drafts];
}

/* Tokens in the time of a step without drafts. */
static double rate(const struct governor *g, uint32_t drafts) { return tokens(g, drafts) / cost(g, drafts); }

/* Lengths that may be chosen: one more than what is known. */
static uint32_t deepest(const struct governor *g)
{
    uint32_t n = 0;
    while (n < g->most && known(g, n)) {
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

/* The allowance covers what a try costs, or has grown as far as it does: what was measured once may be wrong by now. */
static bool affordable(const struct governor *g, uint32_t drafts, uint32_t b)
{
    double lost = cost(g, drafts) - tokens(g, drafts) / rate(g, b), full = PATIENCE / 2 * cost(g, b);
    return (lost < full ? lost : full) <= g->allowance;
}

/* Of the neighbours of the best length, the one that was measured the longest time ago is tried next, as soon as the allowance
 * has grown to it: the cheaper one does not come first. */
uint32_t governor_choose(const struct governor *g)
{
    if (g->most == 0 || g->count < KNOWN) {
        return 0;
    }
    uint32_t b = best(g), next = b;
    if (b > 0 && g->count - g->last[0] >= g->interval) {
        return 0;
    }
    for (uint32_t k = b > 1 ? b - 1 : 1; k <= b + 1 && k <= deepest(g); k++) {
        if (k != b && (next == b || g->last[k] < g->last[next])) {
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

static void add_cost(struct governor *g, uint32_t drafts, double c)
{
    double least = 1 + LEAST_ROW * drafts;
    uint32_t n = g->samples[drafts]++;
    g->sample[drafts][n % GOVERNOR_SAMPLES] = c > least ? c : least;
    g->cost[drafts] = median(g->sample[drafts], n < GOVERNOR_SAMPLES ? n + 1 : GOVERNOR_SAMPLES);
}

/* The length of most of the latest n steps, and what a step without drafts would have taken among them, in *ret_pace. */
static uint32_t usual(const struct governor *g, uint32_t n, double *ret_pace)
{
    double paces[GOVERNOR_SAMPLES];
    uint32_t steps[GOVERNOR_MOST + 1] = {0}, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        paces[i] = g->seconds[i] / cost(g, g->length[i]);
        steps[g->length[i]]++;
    }
    for (uint32_t k = 1; k <= g->most; k++) {
        most = steps[k] > steps[most] ? k : most;
    }
    *ret_pace = median(paces, n);
    return most;
}

/* A step unlike those before it tells what its length costs; one without drafts, what theirs does. */
static void compare(struct governor *g, uint32_t drafts, double s)
{
    double pace;
    uint32_t n = g->count < GOVERNOR_SAMPLES ? (uint32_t)g->count : GOVERNOR_SAMPLES, most = usual(g, n, &pace), b = best(g);
    double c = s / pace, lost = drafts == b || drafts == 0 ? 0 : c - tokens(g, drafts) / rate(g, b), full = PATIENCE * cost(g, b);
    lost = lost < 0 ? 0 : lost > 2 * full ? 2 * full : lost; /* beyond that the machine was busy */
    g->allowance += SHARE * cost(g, drafts) - lost;
    g->allowance = g->allowance > full ? full : g->allowance;
    if (drafts != most) {
        add_cost(g, drafts > 0 ? drafts : most, drafts > 0 ? c : cost(g, most) / c);
    }
}

void governor_step(struct governor *g, uint32_t drafts, double s)
{
    if (g->most == 0 || drafts > g->most || !(s > 0)) {
        return;
    }
    if (g->count >= KNOWN) {
        compare(g, drafts, s);
        uint32_t b = best(g);
        g->interval = b != g->chosen ? INTERVAL_LEAST : drafts > 0 || g->interval >= INTERVAL_MOST ? g->interval : 2 * g->interval;
        g->chosen = b;
    }
    g->seconds[g->count % GOVERNOR_SAMPLES] = s;
    g->length[g->count % GOVERNOR_SAMPLES] = drafts;
    g->last[drafts] = ++g->count;
}

void governor_result(struct governor *g, uint32_t depth, bool right)
{
    if (depth == 0 || depth > g->most) {
        return;
    }
    g->tried[depth - 1] = g->tried[depth - 1] * FADE + 1;
    g->taken[depth - 1] = g->taken[depth - 1] * FADE + (right ? 1 : 0);
}
