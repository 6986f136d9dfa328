/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what commands that trace a running model share: their flags, opening the model with its texts, and taking a text through
 * it. Must not know: what is recorded. */
#ifndef SLUICE_COMMANDS_TRACE_MODEL_H
#define SLUICE_COMMANDS_TRACE_MODEL_H

#include <stdbool.h>

#include "common/error.h"
#include "src/commands/arguments.h"
#include "src/commands/trace_texts.h"
#include "src/run/foresee.h"
#include "src/run/session.h"

struct trace_model {
    struct settings settings;
    const char *tokens_file;
    struct trace_texts texts;
    struct engine *engine;
};

/* Reads SLUICE_*, settings of `sluice run`, --tokens-file and `own` (ends with a NULL flag). argv[0] is the verb. */
int trace_model_arguments(struct trace_model *m, int argc, char **argv, const struct argument *own, bool *ret_help, struct error *e);

/* Opens the model with a context for the longest text. Refuses models without experts. */
int trace_model_open(struct trace_model *m, const volatile int *cancel, struct error *e);
void trace_model_deinit(struct trace_model *m); /* in any state after all zero */

/* Path of the file of learned predictors that sits beside the model; the caller frees. */
int trace_model_predictors(const struct trace_model *m, char **ret, struct error *e);

/* A whole text at once: prompt chunks, with MTP rows if asked. */
int trace_model_feed(const struct trace_model *m, const struct trace_text *t, const struct session_hooks *hooks, bool mtp, struct error *e);

/* Token by token. guesses [t->n]: what rides along as a shadow row at each position, below 0: nothing; NULL: nothing at all. */
int trace_model_step(const struct trace_model *m, const struct trace_text *t, const struct session_hooks *hooks, bool mtp, const int32_t *guesses, struct error *e);

/* The MTP layer's draft for each position of the text [t->n] and the chance it gives it; -1 where there is none (0 and 1). */
int trace_model_drafts(const struct trace_model *m, const struct trace_text *t, int32_t *ret_tokens, float *ret_chances, struct error *e);

#endif
