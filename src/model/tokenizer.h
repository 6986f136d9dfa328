/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: byte-level BPE, exact: tokenizer.json or GGUF tokenizer keys -> ids -> bytes. Immutable after open, thread-safe
 * (encode allocates its own scratch). Must not know: chat rules, models. Algorithm: docs/tokenizer.md. */
#ifndef SLUICE_MODEL_TOKENIZER_H
#define SLUICE_MODEL_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "io/gguf.h"

struct tokenizer;

struct token_list {
    int32_t *ids; /* malloc'd */
    size_t n, cap;
};
void token_list_deinit(struct token_list *l);
int token_list_push(struct token_list *l, int32_t id);

/* From a folder with tokenizer.json (tokenizer_config.json and generation_config.json are read when there). */
int tokenizer_open_folder(const char *folder, struct tokenizer **ret, struct error *e);

/* From GGUF metadata. `pre_override`: NULL or "auto", else the pre-tokenizer to use instead of the file's. */
int tokenizer_open_gguf(const struct gguf_meta *meta, const char *where, const char *pre_override, struct tokenizer **ret, struct error *e);

/* From anything -m accepts, and a folder with only tokenizer files. -ENOENT if there is no tokenizer at all. */
int tokenizer_open(const char *path, const char *pre_override, struct tokenizer **ret, struct error *e);
void tokenizer_close(struct tokenizer *t);

enum { TOKENIZE_SPECIAL = 1 }; /* spellings of special (added) tokens in the text become their ids */

/* Appends the ids of text[0..len) (any bytes; NUL allowed; invalid UTF-8 is encoded byte by byte). Linear in len. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags, struct token_list *out, struct error *e);

/* Special spellings of a text one after the other: start with .text and .len set, the rest zero. false at the end. */
struct special_cursor {
    const char *text;
    size_t len, at;
    bool looked; /* private, as all below */
    size_t first_start, first_len;
    int32_t first_id;
};
bool tokenizer_next_special(const struct tokenizer *t, struct special_cursor *c, size_t *ret_start, size_t *ret_len, int32_t *ret_id);

/* Bytes of one token; never fails: ids without a token give ret_len 0. The pointer lives as long as t. */
const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *ret_len);

/* Id of an exact special-token spelling, -1 if there is none. */
int32_t tokenizer_special_id(const struct tokenizer *t, const char *spelling);
bool tokenizer_is_special(const struct tokenizer *t, int32_t id); /* control token: not shown in text */

uint32_t tokenizer_vocab(const struct tokenizer *t);     /* highest id with a token + 1 */
bool tokenizer_has(const struct tokenizer *t, int32_t id); /* false: padding id, masked when sampling */
int32_t tokenizer_bos(const struct tokenizer *t);        /* -1: none */
bool tokenizer_adds_bos(const struct tokenizer *t);
const int32_t *tokenizer_eos(const struct tokenizer *t, size_t *ret_n); /* end tokens from the tokenizer's own files */
const char *tokenizer_chat_template(const struct tokenizer *t);        /* Jinja text, NULL if none */
uint64_t tokenizer_bytes(const struct tokenizer *t);     /* memory it holds */

#endif
