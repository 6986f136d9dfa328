/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: one calibrated chance from several predictors' scores, learned from what was chosen, per layer and stage (a lead: which
 * inputs are there by then). Every input is read as the log of how much likelier a chosen expert has such a score than another
 * one - by bins of its distance from the score that would just be chosen - and a logistic regression weighs the inputs. The
 * same calls give the same numbers. What was learned can be kept for another fuser of the same options. Must not know: who predicts, what is decided by it. */
#ifndef SLUICE_TIER_FUSER_H
#define SLUICE_TIER_FUSER_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "src/base/alloc.h"

enum { FUSER_INPUTS = 16, FUSER_STAGES = 8, FUSER_CLASSES = 4 };

struct fuser_options {
    uint32_t layers, experts, used; /* used < experts */
    uint32_t inputs, stages;
    uint32_t reads[FUSER_STAGES];   /* bit i: the stage reads input i; 0: the stage is left out, its chances stay 0 */
    struct account *account;        /* of its memory; may be NULL */
};

/* What is known of a row. */
struct fuser_row {
    const float *scores[FUSER_INPUTS]; /* [experts] each; NULL: says nothing of this row */
    uint32_t class[FUSER_INPUTS];      /* below FUSER_CLASSES: rows of different trust, learned apart */
};

struct fuser;

/* Until outcomes are seen every expert has the same chance. */
int fuser_create(const struct fuser_options *o, struct fuser **ret, struct error *e);
void fuser_destroy(struct fuser *f); /* accepts NULL */
uint64_t fuser_bytes(const struct fuser_options *o); /* that fuser_create allocates, all but a few */

/* Chances [stages][experts] of being chosen by this layer. Changes nothing that is learned. */
void fuser_chances(struct fuser *f, uint32_t layer, const struct fuser_row *row, float *ret);

/* Those of one stage alone, [experts]: the same numbers. Nothing can be learned from this row until fuser_chances has seen it. */
void fuser_stage_chances(struct fuser *f, uint32_t layer, const struct fuser_row *row, uint32_t stage, float *ret);

/* The row of the last fuser_chances, with no other call between, chose these ids [used]. */
void fuser_learn(struct fuser *f, uint32_t layer, const struct fuser_row *row, const int32_t *ids);

/* What was learned, as bytes: little-endian float32 behind a head that names the options. */
size_t fuser_state_bytes(const struct fuser *f);
void fuser_save(const struct fuser *f, void *ret); /* [fuser_state_bytes] */

/* For a fuser that has learned nothing: begins with what another one learned, as if that were the last few rows, so that it gives way to
 * rows that are seen from now on. Returns their number, the most of any layer; -EINVAL: these are not the bytes of a fuser with these
 * options, and nothing changes. */
int fuser_load(struct fuser *f, const void *data, size_t bytes);

#endif
