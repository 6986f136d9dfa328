/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a step: the next rows of one or several sessions carried through the layers, with a cursor. At most two are open.
 * Must not know: kernels. */
#ifndef SLUICE_RUN_STEP_H
#define SLUICE_RUN_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "src/run/session.h"

enum { STEP_FEEDS_MAX = EXTRA_ROWS + 1 };

struct step;

struct step_feed {
    struct session *session;
    const int32_t *tokens; /* [n]; copied */
    uint32_t n;
    bool bulk;
    bool refresh; /* n == 1: recompute the last position, KV kept; tokens is ignored */
    /* NULL, or a guess at the token after the last one (exact rows only): it rides along as a shadow row, whose routers foresee.h
     * shows. It reads no expert that the last row does not use, leaves nothing behind, and no other row depends on it. For the
     * time of the step it has a position of its own, and a KV page if that begins one. */
    const int32_t *shadow;
};

int step_open(struct engine *g, const struct step_feed *feeds, uint32_t n, struct step **ret, struct error *e);
uint32_t step_layers_left(const struct step *s);
int step_run(struct step *s, uint32_t layers, struct error *e);
int step_commit(struct step *s, struct error *e); /* the step is gone in any case */
void step_abort(struct step *s);

/* open, all layers, commit */
int step_once(struct engine *g, const struct step_feed *feeds, uint32_t n, struct error *e);

/* Storage of the two steps an engine can have open; taken at open of the engine. */
int steps_init(struct engine *g, struct error *e);
void steps_deinit(struct engine *g);

#endif
