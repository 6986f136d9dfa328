/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: which share of the uses of routed experts finds theirs in a cache that holds a given share of them: a published curve,
 * that curve bent through a measured point, or measured points. Must not know: bytes, time. */
#ifndef SLUICE_PLACE_HITS_H
#define SLUICE_PLACE_HITS_H

#include <stdint.h>

enum { HITS_POINTS = 2 };

struct hits {
    uint32_t n;    /* measured points; 0: the published curve */
    double bend;   /* its misses to this power; 0 stands for 1: as published */
    struct {
        double share, hit;
    } point[HITS_POINTS]; /* [n] by rising share, in (0, 1); straight lines between, from (0, 0) to (1, 1) */
};

/* Through one measurement: shares in (0, 1). */
struct hits hits_measured(double expert_share, double hit_ratio);

/* 0 to 1, rising with the share of experts cached. */
double hits_ratio(const struct hits *h, double expert_share);

#endif
