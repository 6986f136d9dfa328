/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a growing byte string and number/size formatting. Must not know: what the text means. */
#ifndef SLUICE_BASE_STR_H
#define SLUICE_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/attr.h"

/* Growing string. After a failed allocation `failed` stays set and appends do nothing; check once at the end. */
struct str {
    char *data; /* NUL-terminated when not NULL */
    size_t len, cap;
    bool failed;
};

void str_deinit(struct str *s);
void str_append(struct str *s, const char *data, size_t len);
void str_puts(struct str *s, const char *text);
void str_printf(struct str *s, const char *fmt, ...) ATTR_PRINTF(2, 3);
/* Appends text as a JSON string with quotes; invalid UTF-8 bytes become U+FFFD. */
void str_json(struct str *s, const char *data, size_t len);
/* Moves the buffer out (NUL-terminated, caller frees); NULL if failed. The string is empty afterwards. */
char *str_take(struct str *s, size_t *ret_len);

/* "1.50 GiB", "640 B". `out` has at least 24 bytes; returns out. */
char *format_bytes(char *out, uint64_t bytes);

/* Sizes of flags: digits with optional fraction and K, M, G, T, with or without B or iB, powers of 1024. */
bool parse_size(const char *text, uint64_t *ret_bytes);
bool parse_u64(const char *text, uint64_t *ret);
bool parse_double(const char *text, double *ret); /* finite, whole text, "C" locale */

/* The candidate at an edit distance of at most 3 and half of the word: for "did you mean". NULL if nothing is near. names ends with NULL. */
const char *nearest_name(const char *word, const char *const *names);

/* Length of the valid UTF-8 prefix of data; a cut sequence at the end is not part of it. */
size_t utf8_valid_prefix(const char *data, size_t len);

/* In place, for text that goes to a terminal or a log: control bytes become '?', a sequence cut at the end goes. */
void text_one_line(char *text);

#endif
