/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: cutting text into pre-tokens by a sequence of patterns; the patterns of GGUF's pre-tokenizer names. Must not
 * know: vocabularies, files. Patterns are Oniguruma's, matched by PCRE2: docs/tokenizer.md names the translation. */
#ifndef SLUICE_MODEL_PRETOKENIZER_H
#define SLUICE_MODEL_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "src/base/str.h"

enum { PRETOKENIZER_MAX_SPLITS = 16 };

struct pretokenizer {
    void *general;                         /* pcre2_general_context */
    void *codes[PRETOKENIZER_MAX_SPLITS];  /* pcre2_code, in the order they are applied */
    uint32_t n;
};

/* All-zero is a valid empty one: the whole text is one piece. */
void pretokenizer_deinit(struct pretokenizer *p);

/* Appends a split whose matches (and gaps) are isolated. ERROR_FORMAT when the pattern uses something that PCRE2 would
 * match differently, may match nothing, or does not compile. */
int pretokenizer_add(struct pretokenizer *p, const char *pattern, size_t len, struct error *e);

/* Appends the splits of a name as GGUF files have it; an unknown one is refused with the known ones. */
int pretokenizer_add_named(struct pretokenizer *p, const char *name, size_t len, struct error *e);

/* Its patterns in the order they are applied, ending with NULL; NULL for an unknown name. */
const char *const *pretokenizer_patterns(const char *name, size_t len);

/* The name for a sequence of patterns as tokenizer.json spells them, NULL if there is none. */
const char *pretokenizer_name(const char *const *patterns, size_t n);

/* The pattern that ByteLevel applies when it is asked to (use_regex). */
extern const char *const pretokenizer_byte_level_pattern;

/* Rewrites an Oniguruma pattern for PCRE2; ERROR_FORMAT with the construct that is not supported. */
int pretokenizer_translate(const char *pattern, size_t len, struct str *out, struct error *e);

/* Work space of one encode call. */
struct pretokenizer_scratch {
    void *match_data, *match_context;
};
int pretokenizer_scratch_init(const struct pretokenizer *p, struct pretokenizer_scratch *s, struct error *e);
void pretokenizer_scratch_deinit(struct pretokenizer_scratch *s);

typedef int (*pretokenizer_fn)(void *ctx, const char *piece, size_t len);

/* Calls fn for every piece in order; `text` is valid UTF-8. A negative result of fn ends it and is returned. */
int pretokenizer_split(const struct pretokenizer *p, const struct pretokenizer_scratch *s, const char *text, size_t len,
                       pretokenizer_fn fn, void *ctx, struct error *e);

#endif
