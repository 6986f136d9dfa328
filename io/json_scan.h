/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a strict JSON cursor over a buffer it may change: strings are unescaped where they lie, nothing is allocated.
 * For headers of many megabytes from unknown hands. Must not know: what the fields mean. */
#ifndef SLUICE_IO_JSON_SCAN_H
#define SLUICE_IO_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_scan {
    char *data;
    size_t pos, end;
    const char *wrong; /* what was wrong at pos; NULL while all is well */
};

/* `data` must be valid UTF-8 (checked here: false otherwise); it need not end with NUL. */
bool json_scan_init(struct json_scan *s, char *data, size_t bytes);

/* Each skips white space first and returns false after an error, with `wrong` set. */
bool json_scan_expect(struct json_scan *s, char c);
/* True and consumed if the next character is c; never an error. */
bool json_scan_accept(struct json_scan *s, char c);
/* Unescaped and NUL-terminated in place; an escaped NUL or control character is an error: names go into messages. */
bool json_scan_string(struct json_scan *s, const char **ret);
/* A plain integer from 0 to 2^63-1. */
bool json_scan_u64(struct json_scan *s, uint64_t *ret);
/* A string that may hold anything JSON allows. */
bool json_scan_skip_string(struct json_scan *s);
/* Any value, nested at most 64 deep. Strings in it may hold anything JSON allows. */
bool json_scan_skip(struct json_scan *s);
/* Only white space is left. */
bool json_scan_finish(struct json_scan *s);

/* Steps to the next member of an object or array opened by the caller: true at an element, false at the closing
 * character or an error. *first is true before the first call. */
bool json_scan_next(struct json_scan *s, char close, bool *first);

#endif
