/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: rows that are computed ahead of a timeline, behind a token that was fed: what the MTP layer takes to follow, as
 * exact rows. The timeline takes such a row over when its token is fed, and drops them all when another one is. Also the
 * states of the last positions, for MTP rows that are made up later, and the governor. Must not know: sampling. */
#ifndef SLUICE_RUN_DRAFT_H
#define SLUICE_RUN_DRAFT_H

#include "src/place/scratch.h"
#include "src/run/governor.h"
#include "src/run/mtp.h"
#include "src/run/session.h"

enum { DRAFT_PENDING = 8 }; /* MTP rows that are left until they are computed together */

/* Of a session; NULL there: it does not draft. */
struct draft {
    uint32_t most;        /* drafts behind a token at most; 0: given up */
    bool governed;        /* how many is the governor's choice, else always `most` */
    bool rest;            /* a step failed: the next one leaves the MTP layer alone */
    struct governor governor;
    uint32_t ahead;       /* rows of positions [length, length + ahead): token, KV, state and logits are there */
    uint32_t taken;       /* rows of the same step that were taken over before */
    uint32_t first_state; /* states of positions [first_state, length + ahead) are there */
    float *states;        /* [DRAFT_STATES, hidden] after the final norm; position p at p % DRAFT_STATES */
    float *logits;        /* [drafts, vocab], the first row is of the first draft of the step */
    struct buffer memory;
};

int draft_create(struct engine *g, struct draft **ret, struct error *e);
void draft_destroy(struct draft *d); /* accepts NULL */

/* True if the MTP layer takes part in the next step of the timeline. */
static inline bool draft_active(const struct session *s) { return s->draft && s->draft->most > 0 && !s->draft->rest; }

/* No more drafts on this timeline, said once. */
void draft_stop(struct session *s, const char *why);

/* Before a step: rows ahead are dropped. `token`: what follows the timeline, and so the verdict on the draft; NULL: unknown. */
void draft_settle(struct session *s, const int32_t *token);

/* Drafts for a step that feeds one token, at most `room`. */
uint32_t draft_choose(const struct session *s, uint32_t room);

/* Whether such a step, if it has no drafts, takes a scout along: a shadow row of the draft (prefetch_scouts). room: rows that it may
 * still have. */
bool draft_scouts(const struct session *s, uint32_t room);

/* True if MTP rows before the last position are to be made up before `rows` rows are fed. */
bool draft_is_behind(const struct session *s, uint32_t rows);

/* Makes them up, as exact rows; their pages are prepared. x: scratch [DRAFT_STATES, stride(hidden)]. */
int draft_catch_up(struct session *s, float *x, struct error *e);

/* Runs the MTP layer for b->n <= EXTRA_ROWS + 1 rows; ret: [b->n] the most likely token of each. */
int draft_guess(struct engine *g, struct batch *b, const struct mtp_row *rows, int32_t *ret, struct error *e);

/* Keeps the states of n positions from `first` on, the last ones that are there: [n, stride]. */
void draft_keep(struct session *s, uint32_t first, const float *states, size_t stride, uint32_t n);

/* Gives up when states that MTP rows need are gone (a timeline from a session that kept neither). */
void draft_check(struct session *s);

/* After a rollback: the last position's state if it is still there. */
void draft_rollback(struct session *s);

/* A fork's beginning. */
void draft_inherit(struct session *s, const struct session *from);

/* Positions before the last one whose MTP rows are missing, and their states (a saved session holds them). */
uint32_t draft_pending(const struct session *s);
float *draft_state(const struct session *s, uint32_t position);

#endif
