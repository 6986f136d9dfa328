/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: chances that the timeline under way uses each expert: feeds the predictors (src/tier/predict.h) from the token loop and asks
 * them. They follow one timeline: while steps carry exact rows of one session and nothing else, in order. Any other step - a prompt,
 * rows of two sessions, another session - is not predicted, and ends what is known of the timeline but for what the fuser has learned.
 * Must not know: what is read or kept because of chances. */
#ifndef SLUICE_RUN_EXPECT_H
#define SLUICE_RUN_EXPECT_H

#include "src/base/str.h"
#include "src/run/batch.h"
#include "src/run/foresee.h"
#include "src/tier/predict.h"

struct expect;

/* *ret is NULL where there is nothing to predict: a layer uses all its experts. A file of learned predictors beside the model
 * (tier/learned.h) is read if there is one; one that does not fit the model is announced and left alone. Nothing is allocated later. */
int expect_create(struct engine *g, struct expect **ret, struct error *e);
void expect_destroy(struct expect *x); /* accepts NULL */

/* Sources of foresee.h that are worth computing, and what they need. */
void expect_sources(const struct expect *x, struct foresee_options *ret);

/* foresee.h: on_scores, ctx is the struct expect. */
void expect_on_scores(void *ctx, const struct session *s, enum foresight source, uint32_t layer, uint32_t position, const float *scores);

/* Rows of a step come to the first layer; tokens [b->n] are theirs. What the step before left behind is learned from. */
void expect_step(struct expect *x, const struct batch *b, const int32_t *tokens);

/* The first so many rows of the step are predicted; 0: none. */
uint32_t expect_rows(const struct expect *x);

/* The token drafted for a position of a session, with the chance that the MTP layer gives it. */
void expect_drafted(struct expect *x, const struct session *s, uint32_t position, int32_t token, float chance);

/* Scores [experts] of a predictor for a layer of row `row` of the step; that row is predicted. */
void expect_scores(struct expect *x, enum predictor which, uint32_t layer, uint32_t row, const float *scores);

/* A layer has chosen the experts of the step's rows: work.ids, work.weights. */
void expect_route(struct expect *x, uint32_t layer);

/* Chances [experts] of a layer's experts for a row of the step, or for the token behind the last one (row: expect_rows). Valid until the
 * next call. NULL: too little has been learned so far to say anything. */
const float *expect_chances(struct expect *x, enum lead lead, uint32_t layer, uint32_t row);

/* What was learned of how much predictors are worth, as bytes for a later run. */
size_t expect_state_bytes(const struct expect *x);
void expect_save(const struct expect *x, void *ret); /* [expect_state_bytes] */

/* Begins with what an earlier run saved, before the first step: chances are worth something from the first token on. -EINVAL: these are not
 * bytes of this version and model, and nothing changes. */
int expect_load(struct expect *x, const void *data, size_t bytes);

/* How good predictions were, as members of a JSON object (docs/trace.md). */
void expect_json(const struct expect *x, struct str *out);

#endif
