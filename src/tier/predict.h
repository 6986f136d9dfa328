/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: predictions of which experts a token will use, by all predictors and fused into one chance, and how good they were.
 * Predictors that need ids and counts alone are computed here; scores of the others come in as numbers. An input that has not shown
 * that it helps weighs nothing: it is counted, no more. Nothing is allocated after create. Must not know: how scores are computed,
 * what is done with chances.
 *
 * Layers are the main ones; those without experts stay empty. Calls for a position may come in any order but for
 * predict_token, which says that its row is complete and in the timeline. */
#ifndef SLUICE_TIER_PREDICT_H
#define SLUICE_TIER_PREDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "src/tier/learned.h"
#include "src/tier/recall.h"

/* How early a prediction is there. Each lead has what the ones before it have. */
enum lead {
    LEAD_TOKEN,      /* while the token before is computed, layer by layer */
    LEAD_START,      /* before the token's first layer */
    LEAD_TWO_LAYERS, /* two layers before */
    LEAD_LAYER,      /* one layer before */
    LEAD_ATTENTION,  /* before the layer's own attention */
    LEADS,
};

enum predictor {
    PREDICT_POPULARITY,   /* decayed by 0.9 per token, from learned counts on */
    PREDICT_PREVIOUS,     /* what the token before used, then popularity */
    PREDICT_TABLE_DRAFT,  /* what the drafted token has used in learned texts */
    PREDICT_PROBE_DRAFT,  /* linear map of the MTP layer's state, for the token it drafts */
    PREDICT_SHADOW,       /* routers that the draft went through as a shadow row */
    PREDICT_TABLE,        /* as TABLE_DRAFT, for the token itself */
    PREDICT_PROBE,        /* as PROBE_DRAFT, for the token the MTP layer has read */
    PREDICT_GATE_TWO,     /* the layer's router on the state two layers before, with the shared expert */
    PREDICT_GATE,         /* on the state that the router of the layer before reads */
    PREDICT_GATE_SHARED,  /* the same with its shared expert */
    PREDICT_GATE_FULL,    /* on the full output of the layer before */
    PREDICTORS,
};

const char *predictor_name(enum predictor p);
enum lead predictor_lead(enum predictor p);
const char *lead_name(enum lead l);

/* Lists of predict_recall: predictors, then the fused chance at each lead. */
enum { PREDICT_LISTS = PREDICTORS + LEADS };

struct predict_options {
    uint32_t layers, experts, used, groups, groups_used;
    const struct learned *learned; /* NULL: popularity from zero, no token table; borrowed */
    uint32_t first_position;       /* positions below it are learned from, not counted */
    uint32_t leads;                /* bit l: chances of lead l are wanted; 0: all */
    struct account *account;       /* of the large tables; may be NULL */
};

enum { PREDICT_BINS = 10 };

/* How often experts of a chance were used. */
struct predict_calibration {
    uint64_t n[PREDICT_BINS];     /* experts with a chance in [i / 10, (i + 1) / 10) */
    double chance[PREDICT_BINS];  /* sum of their chances */
    uint64_t used[PREDICT_BINS];
    double square;                /* sum of (chance - used)^2: Brier score times n of all bins */
};

struct predict;

int predict_create(const struct predict_options *o, struct predict **ret, struct error *e);
void predict_destroy(struct predict *p); /* accepts NULL */
uint64_t predict_bytes(const struct predict_options *o); /* that predict_create allocates, all but a few */

/* A new text: popularity as learned, no token before. What the fuser has learned stays. */
void predict_begin(struct predict *p);

/* The token drafted for this position, with the chance that the MTP layer gives it. */
void predict_draft(struct predict *p, uint32_t position, int32_t token, float chance);

/* The position goes through the layers again: routing and gates of the last time are of a row that was not kept. */
void predict_again(struct predict *p, uint32_t position);

/* Scores [experts] of a predictor that is not computed here: higher is likelier. */
void predict_scores(struct predict *p, enum predictor which, uint32_t layer, uint32_t position, const float *scores);

/* What the layer chose: ids [used] rising, their weights [used]. */
void predict_route(struct predict *p, uint32_t layer, uint32_t position, const int32_t *ids, const float *weights);

/* Chances [experts] of a layer's experts for a position that is not complete, from what is known of it so far: what predict_token
 * will count for that lead if no more comes in. token: the position's, if it is known, else below 0. Positions right before it that
 * have not gone to predict_token yet, but whose routing of this layer is there, count as its past. Valid until the next call. */
const float *predict_chances(struct predict *p, enum lead lead, uint32_t layer, uint32_t position, int32_t token);

/* The position's token has gone through all layers: everything known of it is counted and learned from. */
void predict_token(struct predict *p, uint32_t position, int32_t token);

/* What the fuser has learned, as bytes for a later run; predict_load as fuser_load, before the first token. */
size_t predict_state_bytes(const struct predict *p);
void predict_save(const struct predict *p, void *ret); /* [predict_state_bytes] */
int predict_load(struct predict *p, const void *data, size_t bytes);

const struct recall *predict_recall(const struct predict *p);
const struct predict_calibration *predict_calibration(const struct predict *p, enum lead l);

#endif
