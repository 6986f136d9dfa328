/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the GGUF keys that describe a shape, as today's converters write them (docs/formats.md), and what they cannot say.
 * Must not know: tokenizers, tensors. */
#ifndef SLUICE_COMMANDS_GGUF_KEYS_H
#define SLUICE_COMMANDS_GGUF_KEYS_H

#include "io/gguf_write.h"
#include "src/model/shape.h"

/* ERROR_FORMAT names the rule of the shape that GGUF has no key for. */
int gguf_keys_check(const struct shape *s, const char *where, struct error *e);

/* general.* and deepseek2.* of a shape that passed the check. `type`: of most weights. */
void gguf_keys_write(struct gguf_writer *w, const struct shape *s, const char *name, enum weight_format type);

#endif
