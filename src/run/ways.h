/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: which of two ways to go through a token is cheaper, by the seconds that tokens took. They depend on how many experts were not in
 * RAM, too, so the ways are compared at the same number of those: by the line through what was seen of both. A pure struct, begun with
 * zeros; times come in. Must not know: what the ways are, clocks. */
#ifndef SLUICE_RUN_WAYS_H
#define SLUICE_RUN_WAYS_H

#include <stdbool.h>
#include <stdint.h>

struct ways {
    struct way {
        double seconds, experts;     /* of a token, fading means */
        double variance, covariance; /* of experts; of experts and seconds */
        uint32_t seen;               /* tokens */
    } way[2];
};

/* A token took so long while so many experts were not in RAM. memory: tokens that count in the means, about. */
void ways_token(struct ways *w, bool second, double seconds, uint64_t experts, uint32_t memory);

/* Seconds that an expert costs that is not in RAM; 0 where that is not known. */
double ways_slope(const struct ways *w);

/* What the second way saves of the seconds of a token, at the same number of experts that were not in RAM. */
double ways_saved(const struct ways *w);

#endif
