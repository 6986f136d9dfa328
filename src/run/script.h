/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the scripted model: `-m FILE.script.json` = {"tokenizer": PATH, "context": N, "tokens": [ids], "delay_ms": N}.
 * The token after position p is tokens[p], the last one repeating; for tests of everything above the engine.
 * Must not know: arithmetic of real models. */
#ifndef SLUICE_RUN_SCRIPT_H
#define SLUICE_RUN_SCRIPT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "src/model/shape.h"

struct script {
    struct shape shape;    /* vocab and max_positions count; all else is minimal */
    char *tokenizer;       /* path, relative to the script's folder resolved; NULL: none */
    int32_t *tokens;       /* [n] */
    uint32_t n;
    uint32_t delay_ms;     /* of every step row */
};

bool script_is_path(const char *path);
int script_open(const char *path, struct script **ret, struct error *e);
void script_close(struct script *s);

/* One-hot logits [vocab] of the token after `position`. */
void script_logits(const struct script *s, uint32_t position, float *logits);

#endif
