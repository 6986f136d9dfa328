/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: one pass that fills roles of a weights table from one container, and the list of what is wrong with it.
 * Must not know: which containers there are. Private to src/model. */
#ifndef SLUICE_MODEL_BINDER_H
#define SLUICE_MODEL_BINDER_H

#include "common/attr.h"
#include "src/model/bind.h"

/* Everything wrong with a checkpoint; the first ones are named. */
struct problems {
    uint32_t n;
    char text[1100];
    bool missing, type; /* kinds seen: decide the advice */
};

void problem_add(struct problems *p, const char *fmt, ...) ATTR_PRINTF(2, 3);

/* Stores all of them as one error with advice; 0 when there is none. `first_unused` may be NULL. */
int problems_result(const struct problems *p, const char *path, const char *first_unused, struct error *e);

/* Precision that hurts, counted over all layers: index of `low`. */
enum low_precision { LOW_ROUTER, LOW_BIAS, LOW_COUNT };

struct binder {
    struct weights *w;
    const struct container *c;
    struct problems *problems;
    bool *used;      /* [c->n_tensors] */
    bool fused_kv;   /* GGUF metadata without the _mla keys: attn_kv_b must be there */
    uint32_t n_low[LOW_COUNT];
    const char *low[LOW_COUNT]; /* first such tensor */
    uint32_t n_idle_kv; /* layers with attn_k_b and attn_v_b beside attn_kv_b */
};

int binder_init(struct binder *b, struct weights *w, const struct container *c, struct problems *problems, struct error *e);
void binder_deinit(struct binder *b);

void binder_model(struct binder *b);                                  /* embedding, final norm, head */
int binder_layer(struct binder *b, uint32_t layer, struct error *e);  /* roles and experts; only no memory is an error */

/* Notes about tensors that no role took and about precision. Only layers from first_layer on are looked at (0: all);
 * those from layers_end on are MTP layers left out on purpose. */
void binder_notes(struct binder *b, uint32_t first_layer, uint32_t layers_end);

/* First tensor that no role took, NULL if there is none. */
const char *binder_first_unused(const struct binder *b);

/* One line for w->notes. */
void weights_note(struct weights *w, const char *fmt, ...) ATTR_PRINTF(2, 3);

#endif
