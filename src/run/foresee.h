/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: scores of routers from states that are there before the layer's own: extra work beside the token loop that reads its
 * states and writes only buffers of its own, so that no row depends on it. Every source is off unless asked for.
 * Must not know: what is predicted from the scores. */
#ifndef SLUICE_RUN_FORESEE_H
#define SLUICE_RUN_FORESEE_H

#include "src/run/batch.h"
#include "src/tier/learned.h"

/* Whose scores. Those of routers are what a layer chooses by: its score function of the product, plus the bias. */
enum foresight {
    FORESEE_ROUTER,      /* the layer's own, of a real row */
    FORESEE_SHADOW,      /* the layer's own, of a shadow row */
    FORESEE_GATE,        /* the next layer's, of this layer's state after attention */
    FORESEE_GATE_SHARED, /* the same with this layer's shared expert added */
    FORESEE_GATE_TWO,    /* GATE_SHARED of the layer after the next */
    FORESEE_GATE_FULL,   /* the next layer's, of this layer's output */
    FORESEE_PROBE,       /* linear maps of the MTP layer's input and output: of the token it has read */
    FORESEE_PROBE_DRAFT, /* of the token it drafts */
    FORESIGHTS,
};

struct foresee_options {
    uint32_t wanted; /* bit i: source i */
    const struct learned *learned; /* for the probes; may be NULL without them; borrowed */
    /* Scores [experts] of `layer` for the row at `position`; called in the thread that drives steps; they die on return. */
    void (*on_scores)(void *ctx, const struct session *s, enum foresight source, uint32_t layer, uint32_t position, const float *scores);
    /* The MTP layer's row `row`: its input (the product of eh) and its output after the norm, [2 * hidden]. May be NULL. */
    void (*on_mtp)(void *ctx, const struct session *s, uint32_t row, const float *state);
    void *ctx;
    bool apart;             /* the token loop tells it nothing, its owner asks (foresee_ask) */
};

/* What a file of learned predictors says of this model: of the main layers' norms and routers' biases, so that one file serves all
 * formats of a model, with its MTP layer and without. */
struct learned_shape foresee_learned_shape(const struct engine *g);

/* Watches all steps of g from now on until destroyed; one at a time. */
int foresee_create(struct engine *g, const struct foresee_options *o, struct foresee **ret, struct error *e);
void foresee_destroy(struct foresee *f); /* accepts NULL */

/* Products of the router of `layer` with the states of rows [first, first + n), n <= OPS_MAX_ROWS, `extra` [, stride(hidden)] added to
 * them (NULL: as they are): *ret_logits [n, experts], valid until asked again. Takes work.form if that router is quantised. */
int foresee_ask(struct foresee *f, const struct batch *b, uint32_t first, uint32_t n, uint32_t layer, const float *extra, const float **ret_logits, struct error *e);

/* What the layer would choose by if its router's products were these: [experts], valid until the next call or on_scores. */
const float *foresee_scores(struct foresee *f, uint32_t layer, const float *logits);

/* Places of the token loop; without somebody who watches they do nothing.
 * routed: work.router_logits hold the products. after_experts: b->x is the state after attention, work.out the shared expert.
 * after_layer: b->x is the layer's output. MTP rows: after_eh with the input in b->x, after_mtp with the normalised output. */
void foresee_routed(struct engine *g, const struct batch *b, uint32_t layer);
int foresee_after_experts(struct engine *g, const struct batch *b, uint32_t layer, struct error *e);
int foresee_after_layer(struct engine *g, const struct batch *b, uint32_t layer, struct error *e);
void foresee_after_eh(struct engine *g, const struct batch *b);
int foresee_after_mtp(struct engine *g, const struct batch *b, struct error *e);

#endif
