/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: texts as token ids from a JSON file: what a model is traced on. Must not know: what is made of them. */
#ifndef SLUICE_COMMANDS_TRACE_TEXTS_H
#define SLUICE_COMMANDS_TRACE_TEXTS_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct trace_text {
    int32_t *tokens; /* [n] */
    uint32_t n;      /* at least 1 */
};

struct trace_texts {
    struct trace_text *item; /* [n] */
    size_t n;                /* at least 1 */
    uint32_t longest;        /* tokens */
};

/* A list of ids, or a list of such lists. Errors name file, text and position. */
int trace_texts_read(const char *path, struct trace_texts *ret, struct error *e);
void trace_texts_deinit(struct trace_texts *t); /* accepts an all-zero one */

/* Refuses ids that are not below vocab, naming text and position. */
int trace_texts_check(const struct trace_texts *t, const char *path, uint32_t vocab, struct error *e);

#endif
