/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading experts before their layer asks for them. While the experts of a layer are read and computed, the router of the next layer is asked on the state that is there already; with what else
 * is known of the token (run/expect) that gives each expert of the next layer a chance, and those whose read is expected to pay are
 * hinted to the store. Whether that pays is measured: seconds per expert that was not in RAM, with hints and without.
 * Must not know: slots, how reads are done, how chances come about. */
#ifndef SLUICE_RUN_PREFETCH_H
#define SLUICE_RUN_PREFETCH_H

#include "src/base/str.h"
#include "src/run/batch.h"
#include "src/run/ways.h"

enum prefetch_mode { PREFETCH_OFF, PREFETCH_GHOST, PREFETCH_ON, PREFETCH_AUTO };

/* Whether tokens go with hints, the second way, by what both took. A pure struct, times come in. */
struct prefetch_governor {
    struct ways ways;
    uint64_t tokens;
};

/* Whether the next token goes with hints: both ways in turn at first, then the cheaper one, the other now and then. */
bool prefetch_governor_choose(const struct prefetch_governor *g);

/* A step with or without hints took so long while so many experts were not in RAM. */
void prefetch_governor_token(struct prefetch_governor *g, bool hinted, double seconds, uint64_t experts);

struct expect;
struct prefetch;

/* As --prefetch says. *ret is NULL where nothing is to be read ahead: all experts are in RAM, or it is off. Where the model's routers
 * cannot be asked early, chances come from what is known of a token alone, which is announced. Nothing is allocated later. */
int prefetch_create(struct engine *g, struct prefetch **ret, struct error *e);
void prefetch_destroy(struct prefetch *p); /* accepts NULL */

/* Whether a scout rides with the token whose step is about to be opened, which has no drafts (run/scout.h). False without `p`. */
bool prefetch_scouts(const struct prefetch *p);

/* Places of the token loop; without `p` they do nothing. A row of the MTP layer has named a token for the position after the one it
 * read; logits [vocab]. */
void prefetch_drafted(struct prefetch *p, const struct batch_row *row, int32_t token, const float *logits);

/* The last rows of a step, which began at start_ns, have come to the first layer: tokens [b->n]. */
void prefetch_step(struct prefetch *p, const struct batch *b, const int32_t *tokens, uint64_t start_ns);

/* work.ids hold the routing by `layer`, whose lease has not begun: predictions are compared with it and learn from it, and what a scout
 * shows of the next token is said to who decides what stays. */
void prefetch_routed(struct prefetch *p, const struct batch *b, uint32_t layer);

/* b->x of the exact rows [begin, end) is the state after attention of `layer`, work.ids holds the routing, and the layer's lease has
 * begun. */
int prefetch_layer(struct prefetch *p, const struct batch *b, const struct span *span, uint32_t layer, struct error *e);

/* The step whose rows came to the first layer last has left the last one: what it took is known. */
void prefetch_done(struct prefetch *p, const struct batch *b);

/* The last experts of a layer of a prompt chunk, which used `used` of them, are about to be computed. A long chunk uses nearly all
 * experts of every layer: the first of the next one are read meanwhile. */
void prefetch_next(struct prefetch *p, uint32_t layer, uint32_t used);

/* What predicts; NULL: nothing does, or `p` is NULL. */
struct expect *prefetch_expect(struct prefetch *p);

/* How good the predictions of this run were, and what came of reads, as a JSON object; "null" without any. */
void prefetch_json(const struct prefetch *p, struct str *out);

#endif
