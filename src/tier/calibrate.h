/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: how much a predicted set of experts is worth, learned per layer from what was used: the chance that an expert is used at the
 * next visit of its layer, from its rate of use and whether the set names it. Must not know: who predicts, what is decided by it. */
#ifndef SLUICE_TIER_CALIBRATE_H
#define SLUICE_TIER_CALIBRATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "src/tier/key.h"

struct calibration {
    uint32_t layers, experts, used;
    double (*seen)[2][2]; /* [layers][named][used]: experts */
    bool *named;          /* [layers][experts]: by the set for the next visit of the layer */
    bool *is_set;         /* [layers]: there is such a set */
};

/* `used` experts of `experts` at each visit. Until outcomes are seen, a set is taken to be half right. */
int calibration_init(struct calibration *c, uint32_t layers, uint32_t experts, uint32_t used, struct error *e);
void calibration_deinit(struct calibration *c);

/* Sets are forgotten, what was learned stays. */
void calibration_forget_sets(struct calibration *c);

/* The set for the next visit of this layer: n ids. */
void calibration_set(struct calibration *c, uint16_t layer, const uint16_t *ids, uint32_t n);

/* What was used at the visit that the set of this layer was for: n ids. Learns from it, and the set is past. */
void calibration_outcome(struct calibration *c, uint16_t layer, const uint16_t *ids, uint32_t n);

/* Chance in 0..1; `rate` is the share of visits of its layer that use the expert. */
double calibration_chance(const struct calibration *c, struct expert_key key, double rate);

#endif
