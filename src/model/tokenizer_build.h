/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what a tokenizer is made of, for the files that fill it (tokenizer_json.c, tokenizer_gguf.c). Must not know: file
 * formats. */
#ifndef SLUICE_MODEL_TOKENIZER_BUILD_H
#define SLUICE_MODEL_TOKENIZER_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "src/model/bpe.h"
#include "src/model/pretokenizer.h"
#include "src/model/tokenizer.h"

enum { TOKENIZER_MAX_TOKENS = 1 << 22, TOKENIZER_MAX_ADDED_BYTES = 1024, TOKENIZER_MAX_EOS = 8 };

enum token_kind {
    TOKEN_NONE,    /* no token has this id */
    TOKEN_NORMAL,  /* from the vocabulary: bytes by the byte map */
    TOKEN_ADDED,   /* its spelling is cut out of trusted text, and shown */
    TOKEN_CONTROL, /* the same, and not shown */
};

/* Added tokens are searched in two passes, as the reference does: those flagged "normalized" only in what the others left. */
enum { ADDED_FIRST, ADDED_SECOND, ADDED_PASSES };

struct token_entry {
    uint32_t offset, len; /* in tokenizer.text */
    uint8_t kind, pass;
};

struct added_set {
    int32_t *ids; /* [n] sorted by bytes */
    size_t n;
    bool first[256]; /* bytes that begin one */
};

struct tokenizer {
    struct str text;           /* bytes of all tokens, one after the other */
    struct token_entry *tokens; /* [cap], [n] used */
    uint32_t n, cap;
    int32_t *index;            /* [index_mask + 1] ids of TOKEN_NORMAL by bytes, -1: free */
    size_t index_mask, indexed;
    struct bpe bpe;
    struct pretokenizer pre;
    struct added_set added[ADDED_PASSES];
    bool whole_pieces;         /* a piece that is a token is not merged ("ignore_merges") */
    bool adds_bos;
    int32_t bos;
    int32_t eos[TOKENIZER_MAX_EOS];
    size_t n_eos;
    char *chat_template;
};

/* An empty one with room for about `tokens` tokens and at most `merges` merges. */
int tokenizer_create(size_t tokens, size_t merges, struct tokenizer **ret, struct error *e);

/* TOKEN_NORMAL first: its text is in byte-map characters (text outside the map stands for itself). Then the added ones:
 * plain bytes; an id that the vocabulary has with the same text becomes added. */
int tokenizer_add(struct tokenizer *t, int64_t id, const char *text, size_t len, enum token_kind kind, int pass, struct error *e);

/* Merge number `rank`; both parts are in byte-map characters and in the vocabulary, and so is their concatenation. */
int tokenizer_add_merge(struct tokenizer *t, uint32_t rank, const char *left, size_t left_len, const char *right, size_t right_len,
                        struct error *e);
/* The same from "left right". */
int tokenizer_add_merge_text(struct tokenizer *t, uint32_t rank, const char *text, size_t len, struct error *e);

/* Once everything is added: checks that all bytes are tokens, builds what encode needs. */
int tokenizer_finish(struct tokenizer *t, struct error *e);

/* Id of a TOKEN_NORMAL (or one that became added) by its bytes; -1 if there is none. */
int32_t tokenizer_find_normal(const struct tokenizer *t, const char *bytes, size_t len);

/* Id of a token by its spelling, added or not; -1 if there is none. */
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len);
int tokenizer_add_eos(struct tokenizer *t, int64_t id, struct error *e);

#endif
