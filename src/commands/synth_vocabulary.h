/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the tokenizer of synthetic models: the 256 byte symbols, a few merges and the end tokens, as GGUF keys (padded to the
 * vocabulary) and as tokenizer.json. Must not know: shapes' other fields, tensors. */
#ifndef SLUICE_COMMANDS_SYNTH_VOCABULARY_H
#define SLUICE_COMMANDS_SYNTH_VOCABULARY_H

#include "io/gguf_write.h"
#include "src/base/str.h"
#include "src/commands/synth_shape.h"

struct synth_vocabulary;

int synth_vocabulary_create(const struct synth_model *m, struct synth_vocabulary **ret, struct error *e);
void synth_vocabulary_destroy(struct synth_vocabulary *v);

void synth_vocabulary_gguf(const struct synth_vocabulary *v, struct gguf_writer *w);

/* Text of the two files; lack of memory shows in the strings. */
void synth_vocabulary_json(const struct synth_vocabulary *v, struct str *tokenizer, struct str *config);

#endif
