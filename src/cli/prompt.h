/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what a prompt becomes: plain text or chat messages to token ids. Must not know: sessions. */
#ifndef SLUICE_CLI_PROMPT_H
#define SLUICE_CLI_PROMPT_H

#include <jansson.h>
#include <stdbool.h>

#include "sluice/sluice.h"
#include "src/cli/input.h"

struct prompt_options {
    const char *layout; /* --template, or NULL: the model's */
    const char *system; /* or NULL */
    bool raw, thinking;
};

/* Is text a chat message to this model? Refuses a template that is unknown, and options that need one. `t` may be NULL. */
int prompt_is_chat(const struct sluice_tokenizer *t, const struct prompt_options *o, bool *ret_chat, struct sluice_error *e);

/* Appends {"role", "content"} to the array; bytes that are no UTF-8 become U+FFFD. */
int prompt_add_message(json_t *messages, const char *role, const char *text, size_t len, struct sluice_error *e);
/* All messages and the start of an answer. */
int prompt_chat_ids(const struct sluice_tokenizer *t, const struct prompt_options *o, const json_t *messages, struct ids *out, struct sluice_error *e);
/* `start`: a begin token goes first if the model has it so. */
int prompt_text_ids(const struct sluice_tokenizer *t, const char *text, size_t len, bool start, struct ids *out, struct sluice_error *e);

#endif
