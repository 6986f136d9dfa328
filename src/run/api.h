/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the files implementing include/sluice/sluice.h share: the opaque types behind it and error translation. */
#ifndef SLUICE_RUN_API_H
#define SLUICE_RUN_API_H

#include "sluice/sluice.h"
#include "src/base/str.h"
#include "src/model/chat.h"
#include "src/run/engine.h"
#include "src/run/session.h"
#include "src/sample/sampler.h"

struct sluice_options {
    struct settings settings;
};

/* The tokenizer's ids and text; belongs to an engine or to the caller. */
struct sluice_tokenizer {
    struct tokenizer *tokenizer;
};

struct sluice_engine {
    struct engine *engine;
    struct sluice_open_hooks hooks;
    struct sluice_tokenizer tokenizer;
};

struct sluice_session {
    struct session *session;
    struct sluice_engine *engine;
};

struct sluice_step;

/* Fills `out` (may be NULL) from e and returns the status of code (0: SLUICE_OK). */
int api_status(int code, const struct error *e, struct sluice_error *out);

/* Moves a finished string out; SLUICE_FAILED when memory ran out on the way. */
int api_take(struct str *s, char **ret, size_t *ret_len, struct sluice_error *out);

#endif
