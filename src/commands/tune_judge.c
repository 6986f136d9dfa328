/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tune_judge.h. Must not know: settings. */
#include "src/commands/tune_judge.h"

#include <math.h>

#include "src/run/probe_rates.h"

const char *tune_verdict_name(enum tune_verdict v)
{
    switch (v) {
    case TUNE_WINS:
        return "wins";
    case TUNE_UNCERTAIN:
        return "within the spread";
    case TUNE_SLOWS_OTHER:
        return "slows the other";
    default:
        return "no faster";
    }
}

static double ratio_of(const struct tune_pairs *p, uint32_t i, enum tune_goal goal)
{
    return p->best[i].tok_s[goal] > 0 ? p->trial[i].tok_s[goal] / p->best[i].tok_s[goal] : 0;
}

static double median_ratio(const struct tune_pairs *p, enum tune_goal goal)
{
    double ratios[TUNE_PAIRS_MAX];
    for (uint32_t i = 0; i < p->n; i++) {
        ratios[i] = ratio_of(p, i, goal);
    }
    return rate_of(ratios, p->n).median;
}

struct tune_judgement tune_judge(const struct tune_pairs *p, enum tune_goal goal)
{
    struct tune_judgement j = {.ratio = median_ratio(p, goal), .other = median_ratio(p, goal == TUNE_DECODE ? TUNE_PROMPT : TUNE_DECODE)};
    for (uint32_t i = 0; i < p->n; i++) {
        j.spread = fmax(j.spread, fabs(ratio_of(p, i, goal) - j.ratio));
    }
    j.verdict = j.ratio - 1 <= TUNE_LEAST_GAIN          ? TUNE_NO_FASTER
                : j.ratio - 1 <= j.spread               ? TUNE_UNCERTAIN
                : j.other > 0 && 1 - j.other > TUNE_LEAST_GAIN ? TUNE_SLOWS_OTHER
                                                        : TUNE_WINS;
    return j;
}

bool tune_hopeless(const struct tune_pairs *p, enum tune_goal goal)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (ratio_of(p, i, goal) <= 1) {
            return true;
        }
    }
    return false;
}
