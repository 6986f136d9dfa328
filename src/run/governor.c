/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the choice of a draft length (governor.h). Times of different lengths are compared only with their neighbours in
 * time, as ratios: the pace of a machine changes, the cost of a row less so. Weights are counted, so they are known from one
 * step: it costs at least what it reads more of them, however noisy its time. A length is tried when those before it say that
 * it pays. Later 0 and the neighbours of the best length are tried now and then, out of an allowance: a share of the time
 * that went by, less what such tries have cost. So a change is noticed, and a model for which drafting loses pays the share
 * and no more. */
#include "src/run/governor.h"

#include <string.h>

static const double
    PRIOR_RIGHT = 0.65, PRIOR_WEIGHT = 2, /* before anything was compared: worth a try */
    FADE = 1 - 1.0 / 64,                 /* of what was compared: text changes */
    WEIGHTS_FADE = 1 - 1.0 / 8,
    MARGIN = 1.04,                       /* by which drafting has to be better than not drafting */
    LEAST_ROW = 0.03,                    /* of a step: what a draft and its row cost at least */
    FIRST_ROW = 0.3,                     /* what the first one is taken to cost before it was measured */
    NOISE = 1.4,                         /* a step that takes longer than so many times what its weights say was disturbed */
    SHARE = 0.0018,                      /* of the time that tries may lose */
    PATIENCE = 2;                        /* steps of time that the allowance may grow to */

enum { FIRST = 4 }; /* steps without drafts before one is tried */

void governor_init(struct governor *g, uint32_t most)
{
    memset(g, 0, sizeof(*g));
    g->most = most < GOVERNOR_MOST ? most : GOVERNOR_MOST;
}

/* Before it is known it is as that of the depth before. */
double governor_acceptance(const struct governor *g, uint32_t depth)
{
    double right = PRIOR_RIGHT;
    for (uint32_t i = 0; i < depth; i++) {
        right = (g->taken[i] + right * PRIOR_WEIGHT) / (g->tried[i] + PRIOR_WEIGHT);
    }
    return right;
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

static bool known(const struct governor *g, uint32_t drafts) { return drafts == 0 || g->samples[drafts] > 0; }

/* Measured, or one row more than what was. */
static double cost(const struct governor *g, uint32_t drafts)
{
    if (known(g, drafts)) {
        return drafts == 0 ? 1 : g->cost[drafts];
    }
    return drafts == 1 ? 1 + FIRST_ROW : 2 * cost(g, drafts - 1) - cost(g, drafts - 2);
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
        b = rate(g, k) > rate(g, b) * (b == 0 ? MARGIN : 1) ? k : b;
    }
    return b;
}

/* Of a step, against the best length; in steps without drafts. */
static double loss(const struct governor *g, uint32_t drafts, uint32_t b)
{
    double lost = cost(g, drafts) - tokens(g, drafts) / rate(g, b);
    return lost > 0 ? lost : 0;
}

/* Of 0 and the neighbours of the best length, the one that was measured the longest time ago is tried next, as soon as the
 * allowance covers what that costs, or has grown as far as it does: what was measured once may be wrong by now. */
uint32_t governor_choose(const struct governor *g)
{
    if (g->most == 0 || g->count < FIRST) {
        return 0;
    }
    uint32_t b = best(g), next = b;
    for (uint32_t k = 0; k <= b + 1 && k <= deepest(g); k++) {
        bool other = k != b && (k == 0 || k + 1 >= b);
        if (other && (next == b || g->last[k] < g->last[next])) {
            next = k;
        }
    }
    double lost = loss(g, next, b), full = PATIENCE / 2 * cost(g, b);
    return g->count - g->last[next] > GOVERNOR_SAMPLES && (lost < full ? lost : full) <= g->allowance ? next : b;
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

/* What was measured, within what its weights say. */
static void add_cost(struct governor *g, uint32_t drafts, double c)
{
    double least = g->weights[drafts] / g->weights[0], rows = 1 + LEAST_ROW * drafts;
    least = least > rows ? least : rows;
    c = c < least ? least : c > NOISE * least ? NOISE * least : c;
    uint32_t n = g->samples[drafts]++;
    g->sample[drafts][n % GOVERNOR_SAMPLES] = c;
    g->cost[drafts] = median(g->sample[drafts], n < GOVERNOR_SAMPLES ? n + 1 : GOVERNOR_SAMPLES);
}

/* The length of most of the latest steps, and what a step without drafts would have taken among them, in *ret_pace. */
static uint32_t usual(const struct governor *g, double *ret_pace)
{
    double paces[GOVERNOR_SAMPLES];
    uint32_t n = g->count < GOVERNOR_SAMPLES ? (uint32_t)g->count : GOVERNOR_SAMPLES;
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
    uint32_t b = best(g), most = usual(g, &pace);
    if (drafts != most) {
        add_cost(g, drafts > 0 ? drafts : most, drafts > 0 ? s / pace : cost(g, most) * pace / s);
    }
    double full = PATIENCE * cost(g, b);
    g->allowance += SHARE * cost(g, drafts) - (drafts == b ? 0 : loss(g, drafts, b));
    g->allowance = g->allowance > full ? full : g->allowance;
}

void governor_step(struct governor *g, uint32_t drafts, double s, double weights)
{
    if (g->most == 0 || drafts > g->most || !(s > 0)) {
        return;
    }
    double *w = &g->weights[drafts];
    *w = *w > 0 ? *w * WEIGHTS_FADE + weights * (1 - WEIGHTS_FADE) : weights;
    if (g->count >= FIRST) {
        compare(g, drafts, s);
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
