/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: which share of the uses of routed experts finds theirs in a cache that holds a given share of them: a published curve, or
 * that curve bent through a measured point. Must not know: bytes, time. */
#ifndef SLUICE_PLACE_HITS_H
#define SLUICE_PLACE_HITS_H

/* The curve's misses to this power; 0 stands for 1: as published. */
struct hits {
    double bend;
};

/* Through one measurement: shares in (0, 1). */
struct hits hits_measured(double expert_share, double hit_ratio);

/* 0 to 1, rising with the share of experts cached. */
double hits_ratio(const struct hits *h, double expert_share);

#endif
