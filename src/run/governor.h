/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: how many drafts ride with the next token: the number that gives most tokens per second by what was measured. A
 * pure struct, times and weight bytes come in. What more rows cost - their distinct experts above all - is in them. Must not
 * know: layers, clocks. */
#ifndef SLUICE_RUN_GOVERNOR_H
#define SLUICE_RUN_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

enum { GOVERNOR_MOST = 8, GOVERNOR_SAMPLES = 8 };

struct governor {
    uint32_t most;                                     /* drafts at most */
    double tried[GOVERNOR_MOST], taken[GOVERNOR_MOST]; /* drafts of depth i + 1 that were compared, and those that were right; both fade */
    double seconds[GOVERNOR_SAMPLES];                  /* of the latest steps, of any length */
    uint32_t length[GOVERNOR_SAMPLES];                 /* theirs */
    double weights[GOVERNOR_MOST + 1];                 /* of so many drafts: bytes of weights that a step reads; fades */
    double sample[GOVERNOR_MOST + 1][GOVERNOR_SAMPLES]; /* the latest costs */
    double cost[GOVERNOR_MOST + 1];                    /* their median: time of a step, as a multiple of one without drafts */
    uint32_t samples[GOVERNOR_MOST + 1];               /* in all */
    uint64_t last[GOVERNOR_MOST + 1];                  /* number of the latest step with so many */
    uint64_t count;                                    /* steps in all */
    double allowance;                                  /* steps' worth of time that may be lost to trying other lengths */
};

void governor_init(struct governor *g, uint32_t most);

/* Drafts for the next step, 0..most. */
uint32_t governor_choose(const struct governor *g);

/* A step with so many drafts took so long and read so many bytes of weights, from wherever they lay. */
void governor_step(struct governor *g, uint32_t drafts, double seconds, double weights);

/* The draft of this depth (1: the first) was the token that was drawn, or was not. Those behind a wrong one are not compared. */
void governor_result(struct governor *g, uint32_t depth, bool right);

/* Share of drafts of this depth that are right, given that those before it were. */
double governor_acceptance(const struct governor *g, uint32_t depth);

#endif
