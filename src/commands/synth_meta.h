/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: GGUF metadata of a synthetic model: the architecture's keys and a small byte-level tokenizer.
 * Must not know: tensors. */
#ifndef SLUICE_COMMANDS_SYNTH_META_H
#define SLUICE_COMMANDS_SYNTH_META_H

#include "io/gguf_write.h"
#include "src/commands/synth_shape.h"

int synth_meta_write(struct gguf_writer *w, const struct synth_model *m, struct error *e);

#endif
