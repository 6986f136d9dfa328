/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tokenizer.json and its companions as GGUF keys. Must not know: encoding, tensors. */
#ifndef SLUICE_COMMANDS_CONVERT_TOKENIZER_H
#define SLUICE_COMMANDS_CONVERT_TOKENIZER_H

#include "io/gguf_write.h"
#include "src/model/shape.h"

struct convert_tokenizer;

/* Reads and checks the tokenizer of a folder. -ENOENT without tokenizer.json; ERROR_FORMAT if its patterns are of no
 * pre-tokenizer GGUF has a name for, unless `pre` names one (NULL: not). */
int convert_tokenizer_open(const char *folder, const char *pre, const struct shape *s, struct convert_tokenizer **ret, struct error *e);
void convert_tokenizer_close(struct convert_tokenizer *t);

void convert_tokenizer_write(const struct convert_tokenizer *t, struct gguf_writer *w);

/* Begin and end tokens alone, for a file without a tokenizer. */
void convert_tokenizer_write_ids(const struct shape *s, struct gguf_writer *w);

#endif
