/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: built-in chat layouts (V3, R1, V3.1, and the short one of the test models), chosen by the file's template text;
 * messages -> pieces of trusted (template) and untrusted (message) text. Must not know: HTTP, sampling. docs/chat.md. */
#ifndef SLUICE_MODEL_CHAT_H
#define SLUICE_MODEL_CHAT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"
#include "src/model/tokenizer.h"

enum chat_layout { CHAT_NONE, CHAT_UNKNOWN, CHAT_PLAIN, CHAT_V3, CHAT_R1, CHAT_V31, CHAT_R1_0528 };

/* CHAT_NONE for NULL, CHAT_UNKNOWN when the text is no built-in one. */
enum chat_layout chat_layout_of_template(const char *jinja);
/* "v3", "r1", "r1-0528", "v3.1", "plain"; CHAT_UNKNOWN if no such name. */
enum chat_layout chat_layout_by_name(const char *name);
const char *chat_layout_name(enum chat_layout layout);

struct chat_piece {
    char *text;
    size_t len;
    bool trusted; /* special spellings in it become special ids */
};
struct chat_prompt {
    struct chat_piece *pieces;
    size_t n, cap;
};
void chat_prompt_deinit(struct chat_prompt *p);

/* `request`: JSON text of {"messages": [...], "add_generation_prompt": bool, "tools": [...], "thinking": bool}. BOS is
 * part of the layout. Content may be a string, null or an array of text parts. ERROR_FORMAT with the reason when it
 * cannot be rendered (unknown role, missing field), ERROR_USAGE with advice for CHAT_NONE/CHAT_UNKNOWN. */
int chat_render(enum chat_layout layout, const struct tokenizer *t, const char *request, size_t len, struct chat_prompt *ret, struct error *e);

/* Pieces joined / tokenised (trusted pieces with TOKENIZE_SPECIAL). An untrusted piece never yields special ids, and BPE
 * never merges across a piece boundary that a trusted special token makes. */
char *chat_prompt_text(const struct chat_prompt *p, size_t *ret_len);
int chat_prompt_tokens(const struct chat_prompt *p, const struct tokenizer *t, struct token_list *out, struct error *e);

#endif
