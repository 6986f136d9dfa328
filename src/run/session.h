/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: one timeline: tokens, page table, the last state and logits, hooks. Must not know: layers, sampling. */
#ifndef SLUICE_RUN_SESSION_H
#define SLUICE_RUN_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "src/run/engine.h"

/* All may be NULL; called in row order while a step runs; pointers die on return. */
struct session_hooks {
    void (*on_token)(void *ctx, uint32_t position, int32_t token);
    void (*on_hidden)(void *ctx, uint32_t layer, uint32_t position, const float *x);
    void (*on_route)(void *ctx, uint32_t layer, uint32_t position, const int32_t *ids, const float *weights);
    void (*on_logits)(void *ctx, uint32_t position, const float *logits);
    void (*on_state)(void *ctx, uint32_t position, const float *h);
    void (*on_mtp)(void *ctx, uint32_t row, const float *logits);
    void *ctx;
};

struct draft;

/* What a session does with the MTP layer. */
enum session_mtp {
    SESSION_MTP_NONE,
    SESSION_MTP_ALL,   /* every row is evaluated with its step: on_mtp */
    SESSION_MTP_DRAFT, /* rows ahead of the timeline; as NONE where the engine has no drafts */
};

struct session {
    struct engine *engine;
    struct session_hooks hooks;
    bool mtp;            /* SESSION_MTP_ALL */
    struct draft *draft; /* SESSION_MTP_DRAFT: draft.h; else NULL */
    bool in_step;        /* rows of an open step belong to it */
    int32_t *tokens;     /* [engine->context]; beyond length: those of rows ahead */
    uint32_t length;     /* positions computed */
    struct kv_table kv;
    float *state;        /* [hidden] after the final norm, of position length - 1 */
    float *logits;       /* [vocab] of position length - 1 */
    bool state_valid, logits_valid;
    uint32_t mtp_rows;   /* MTP KV rows that are there; row i pairs position i with token i + 1 */
};

int session_create(struct engine *g, const struct session_hooks *hooks, enum session_mtp mtp, struct session **ret, struct error *e);
void session_destroy(struct session *s); /* accepts NULL */

/* Appends and computes tokens: chunks end at multiples of ubatch; at most 8 rows: exact, else bulk. */
int session_feed(struct session *s, const int32_t *tokens, size_t n, struct error *e);

/* Takes over the row ahead if `token` is the one it was computed for; false: there is none, feed the token. */
bool session_advance(struct session *s, int32_t token);

int session_rollback(struct session *s, uint32_t length, struct error *e);

/* Recomputes state and logits of the last position without touching its KV row (after a rollback, before MTP goes on). */
int session_refresh(struct session *s, struct error *e);

int session_fork(struct session *s, const struct session_hooks *hooks, enum session_mtp mtp, struct session **ret, struct error *e);

/* session_file.c */
int session_save(const struct session *s, const char *path, struct error *e);
int session_restore(struct engine *g, const char *path, const struct session_hooks *hooks, enum session_mtp mtp, struct session **ret, struct error *e);

#endif
