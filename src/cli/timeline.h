/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a session that is brought to a wanted list of tokens with as little work as --reuse allows, and the file it is
 * kept in. Must not know: text, chat. */
#ifndef SLUICE_CLI_TIMELINE_H
#define SLUICE_CLI_TIMELINE_H

#include <stdint.h>

#include "sluice/sluice.h"
#include "src/cli/cli.h"

enum reuse { REUSE_ALL, REUSE_ALIGNED, REUSE_OFF };

struct timeline {
    struct cli *cli;
    struct sluice_engine *engine;
    struct sluice_session *session;
    struct sluice_model_info info;
    enum reuse reuse;
    uint32_t cold; /* leading positions that are as a prefill from nothing would have computed them; whole chunks */
};

/* `file` (may be NULL) is restored if it exists; one that is damaged or foreign is left out with a warning. */
int timeline_init(struct timeline *t, struct cli *c, struct sluice_engine *engine, const struct sluice_session_options *o, const char *file, struct sluice_error *e);
void timeline_deinit(struct timeline *t);

/* Makes the timeline exactly `tokens`: what it shares with them at the start is kept, the rest is computed. The logits of
 * the last position are there afterwards. *ret_computed (may be NULL): how many were computed. */
int timeline_set(struct timeline *t, const int32_t *tokens, size_t n, size_t *ret_computed, struct sluice_error *e);
/* One token more. */
int timeline_step(struct timeline *t, int32_t token, struct sluice_error *e);

#endif
