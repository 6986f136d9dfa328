/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: when one setting counts as faster than another, from samples taken in turn. Must not know: what was set, how samples are
 * taken. */
#ifndef SLUICE_COMMANDS_TUNE_JUDGE_H
#define SLUICE_COMMANDS_TUNE_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

enum tune_goal { TUNE_DECODE, TUNE_PROMPT, TUNE_GOALS };

/* Tokens per second; 0: not measured. */
struct tune_sample {
    double tok_s[TUNE_GOALS];
};

enum { TUNE_PAIRS_MAX = 16 };

/* Samples of both, one pair close after the other: each pair met the same machine, different pairs perhaps not. */
struct tune_pairs {
    struct tune_sample best[TUNE_PAIRS_MAX], trial[TUNE_PAIRS_MAX]; /* [n] */
    uint32_t n;
};

enum tune_verdict {
    TUNE_WINS,
    TUNE_NO_FASTER,   /* than the least gain that counts */
    TUNE_UNCERTAIN,   /* faster, but by less than the pairs differ */
    TUNE_SLOWS_OTHER, /* faster at its goal, slower at the other by more than the least gain */
};
const char *tune_verdict_name(enum tune_verdict v); /* "wins", "no faster", ... */

#define TUNE_LEAST_GAIN 0.03

struct tune_judgement {
    enum tune_verdict verdict;
    double ratio;  /* median over the pairs of trial / best, at the goal */
    double spread; /* of a pair's ratio from it, at most */
    double other;  /* ratio at the other goal; 0: not measured */
};

/* pairs->n > 0. */
struct tune_judgement tune_judge(const struct tune_pairs *pairs, enum tune_goal goal);

/* No further pair could make it win: one that is no faster lies further from any gain than the gain is. */
bool tune_hopeless(const struct tune_pairs *pairs, enum tune_goal goal);

#endif
