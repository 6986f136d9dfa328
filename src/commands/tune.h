/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the command line of `sluice tune` asked for, and what its parts know of a run. Must not know: how samples are taken. */
#ifndef SLUICE_COMMANDS_TUNE_H
#define SLUICE_COMMANDS_TUNE_H

#include <stdbool.h>

#include "src/base/str.h"
#include "src/commands/tune_candidates.h"
#include "src/place/profile.h"

enum { TUNE_REPEATS = 3, TUNE_SAMPLES_MAX = TUNE_PAIRS_MAX * (TUNE_CANDIDATES_MAX + 1) };

struct tune_options {
    struct settings settings; /* where tuning starts */
    const char *out;          /* -o FILE.yaml */
    const char *command;      /* as typed, files without their folders */
    uint32_t decode_n, prompt_n, rounds; /* tokens of a repeat, of a prompt; pairs of a trial. 0 tokens: not measured */
    double budget;            /* seconds after which no trial begins */
    bool json, force, quiet;
};

/* What is known of settings: all samples that were taken with them. */
struct tune_record {
    struct tune_sample sample[TUNE_SAMPLES_MAX]; /* [n] */
    uint32_t n;
    double expert_share;   /* of all experts that RAM has room for */
    uint64_t hits, misses; /* uses of experts while decoding */
};

struct tune_trial {
    struct tune_candidate tried;
    struct tune_pairs pairs;
    struct tune_judgement judgement; /* where there are pairs */
    char refused[200];               /* why it could not be measured, or "" */
};

struct tune_result {
    struct machine machine;
    struct settings best;
    struct tune_record record; /* of best */
    struct tune_trial trial[TUNE_CANDIDATES_MAX]; /* [n_trials] */
    uint32_t n_trials, n_left_out; /* left out: the budget was spent */
};

/* Median of a goal's samples; 0: none. */
double tune_speed(const struct tune_record *r, enum tune_goal goal);

/* "threads 1: decode 12.3 -> 15.0 tok/s, x1.22 +-0.01, wins", without a line end. */
void tune_trial_text(const struct tune_trial *t, struct str *out);
void tune_json(const struct tune_options *o, const struct tune_result *r, struct str *out);

/* The profile that says so; `date`: YYYY-MM-DD. ERROR_USAGE for settings or a name that no profile takes. */
int tune_profile(const struct tune_options *o, const struct tune_result *r, const char *date, struct profile *ret, struct error *e);

/* As YAML, which has been read back. */
int tune_profile_text(const struct tune_options *o, const struct profile *p, struct str *out, struct error *e);

/* Measures, tries, prints, writes. As soon as the start has been measured the best so far is written, however it ends. */
int tune_model(const struct tune_options *o, const volatile int *cancel, struct error *e);

#endif
