/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a strict JSON cursor. Must not know: what the fields mean. */
#include "io/json_scan.h"

#include <string.h>

#include "common/attr.h"
#include "src/base/str.h"

enum { MAX_DEPTH = 64 };

static bool fail(struct json_scan *s, const char *wrong)
{
    if (s->wrong == NULL) {
        s->wrong = wrong;
    }
    return false;
}

bool json_scan_init(struct json_scan *s, char *data, size_t bytes)
{
    *s = (struct json_scan){.data = data, .end = bytes};
    s->pos = utf8_valid_prefix(data, bytes);
    if (s->pos != bytes) {
        return fail(s, "invalid UTF-8");
    }
    s->pos = 0;
    return true;
}

static void skip_space(struct json_scan *s)
{
    while (s->pos < s->end && (s->data[s->pos] == ' ' || s->data[s->pos] == '\n' || s->data[s->pos] == '\t' || s->data[s->pos] == '\r')) {
        s->pos++;
    }
}

bool json_scan_accept(struct json_scan *s, char c)
{
    skip_space(s);
    if (s->wrong == NULL && s->pos < s->end && s->data[s->pos] == c) {
        s->pos++;
        return true;
    }
    return false;
}

static const char *missing(char c)
{
    switch (c) {
    case '{': return "'{' expected";
    case '[': return "'[' expected";
    case ']': return "']' expected";
    case '}': return "',' or '}' expected";
    case ':': return "':' expected";
    default: return "a string expected";
    }
}

bool json_scan_expect(struct json_scan *s, char c) { return json_scan_accept(s, c) || fail(s, missing(c)); }

bool json_scan_next(struct json_scan *s, char close, bool *first)
{
    if (*first) {
        *first = false;
        return s->wrong == NULL && !json_scan_accept(s, close);
    }
    if (json_scan_accept(s, ',')) {
        return true;
    }
    json_scan_expect(s, close);
    return false;
}

/* Four hex digits at pos. */
static bool hex4(struct json_scan *s, unsigned *ret)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    unsigned u = 0;
    for (int i = 0; i < 4; i++) {
        char c = s->pos < s->end ? s->data[s->pos] : '\0';
        const char *at = c != '\0' ? strchr(digits, c) : NULL;
        if (at == NULL) {
            return fail(s, "four hex digits expected");
        }
        unsigned digit = (unsigned)(at - digits);
        u = u * 16 + (digit < 16 ? digit : digit - 6);
        s->pos++;
    }
    *ret = u;
    return true;
}

static size_t put_utf8(char *to, unsigned u)
{
    if (u < 0x80) {
        to[0] = (char)u;
        return 1;
    }
    if (u < 0x800) {
        to[0] = (char)(0xc0 | u >> 6);
        to[1] = (char)(0x80 | (u & 63));
        return 2;
    }
    if (u < 0x10000) {
        to[0] = (char)(0xe0 | u >> 12);
        to[1] = (char)(0x80 | (u >> 6 & 63));
        to[2] = (char)(0x80 | (u & 63));
        return 3;
    }
    to[0] = (char)(0xf0 | u >> 18);
    to[1] = (char)(0x80 | (u >> 12 & 63));
    to[2] = (char)(0x80 | (u >> 6 & 63));
    to[3] = (char)(0x80 | (u & 63));
    return 4;
}

/* The escape behind a backslash, as a code point. */
static bool escape(struct json_scan *s, unsigned *ret)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = s->pos < s->end ? s->data[s->pos++] : '\0';
    const char *at = c != '\0' ? strchr(from, c) : NULL;
    if (at != NULL) {
        *ret = (unsigned char)to[at - from];
        return true;
    }
    unsigned high, low;
    if (c != 'u') {
        return fail(s, "unknown escape");
    }
    if (!hex4(s, &high)) {
        return false;
    }
    *ret = high;
    if (high < 0xd800 || high > 0xdfff) {
        return true;
    }
    if (high > 0xdbff || s->end - s->pos < 2 || s->data[s->pos] != '\\' || s->data[s->pos + 1] != 'u') {
        return fail(s, "half a surrogate pair");
    }
    s->pos += 2;
    if (!hex4(s, &low)) {
        return false;
    }
    if (low < 0xdc00 || low > 0xdfff) {
        return fail(s, "half a surrogate pair");
    }
    *ret = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

/* Unescapes in place what stands behind an opening quote; the result is never longer than its spelling. */
static bool string_body(struct json_scan *s, bool is_name, const char **ret)
{
    char *begin = s->data + s->pos, *to = begin;
    while (s->pos < s->end && s->data[s->pos] != '"') {
        unsigned c = (unsigned char)s->data[s->pos++];
        if (c < 0x20) {
            return fail(s, "control character in a string");
        }
        if (c != '\\') {
            *to++ = (char)c;
            continue;
        }
        if (!escape(s, &c)) {
            return false;
        }
        if (is_name && (c < 0x20 || c == 0x7f)) {
            return fail(s, "escaped control character in a name");
        }
        to += put_utf8(to, c);
    }
    if (s->pos >= s->end) {
        return fail(s, "unfinished string");
    }
    s->pos++;
    *to = '\0';
    *ret = begin;
    return true;
}

bool json_scan_string(struct json_scan *s, const char **ret) { return json_scan_expect(s, '"') && string_body(s, true, ret); }

static bool is_digit(const struct json_scan *s) { return s->pos < s->end && s->data[s->pos] >= '0' && s->data[s->pos] <= '9'; }

bool json_scan_u64(struct json_scan *s, uint64_t *ret)
{
    skip_space(s);
    size_t begin = s->pos;
    uint64_t u = 0;
    for (; is_digit(s); s->pos++) {
        unsigned digit = (unsigned)(s->data[s->pos] - '0');
        if (u > ((uint64_t)INT64_MAX - digit) / 10) {
            return fail(s, "a number of 2^63 or more");
        }
        u = u * 10 + digit;
    }
    bool leading_zero = s->pos - begin > 1 && s->data[begin] == '0';
    if (s->wrong != NULL || s->pos == begin || leading_zero || (s->pos < s->end && strchr(".eE", s->data[s->pos]) != NULL)) {
        return fail(s, "a plain integer expected");
    }
    *ret = u;
    return true;
}

static bool skip_digits(struct json_scan *s)
{
    if (!is_digit(s)) {
        return fail(s, "a digit expected");
    }
    while (is_digit(s)) {
        s->pos++;
    }
    return true;
}

/* The next byte, whatever it is, if it is one of `chars`. */
static bool skip_one_of(struct json_scan *s, const char *chars)
{
    if (s->pos < s->end && s->data[s->pos] != '\0' && strchr(chars, s->data[s->pos]) != NULL) {
        s->pos++;
        return true;
    }
    return false;
}

static bool skip_number(struct json_scan *s)
{
    skip_one_of(s, "-");
    size_t begin = s->pos;
    if (!skip_digits(s)) {
        return false;
    }
    if (s->pos - begin > 1 && s->data[begin] == '0') {
        return fail(s, "a number with a leading zero");
    }
    if (skip_one_of(s, ".") && !skip_digits(s)) {
        return false;
    }
    if (skip_one_of(s, "eE")) {
        skip_one_of(s, "+-");
        return skip_digits(s);
    }
    return true;
}

static bool skip_word(struct json_scan *s)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        size_t n = strlen(words[i]);
        if (s->end - s->pos >= n && memcmp(s->data + s->pos, words[i], n) == 0) {
            s->pos += n;
            return true;
        }
    }
    return fail(s, "a value expected");
}

bool json_scan_skip_string(struct json_scan *s)
{
    const char *ignored;
    return json_scan_expect(s, '"') && string_body(s, false, &ignored);
}

static bool skip_value(struct json_scan *s, int depth)
{
    bool first = true;
    if (depth > MAX_DEPTH) {
        return fail(s, "nested too deep");
    }
    skip_space(s);
    if (s->pos < s->end && s->data[s->pos] == '"') {
        return json_scan_skip_string(s);
    }
    if (json_scan_accept(s, '[')) {
        while (json_scan_next(s, ']', &first)) {
            if (!skip_value(s, depth + 1)) {
                return false;
            }
        }
        return s->wrong == NULL;
    }
    if (json_scan_accept(s, '{')) {
        while (json_scan_next(s, '}', &first)) {
            if (!json_scan_skip_string(s) || !json_scan_expect(s, ':') || !skip_value(s, depth + 1)) {
                return false;
            }
        }
        return s->wrong == NULL;
    }
    return is_digit(s) || (s->pos < s->end && s->data[s->pos] == '-') ? skip_number(s) : skip_word(s);
}

bool json_scan_skip(struct json_scan *s) { return s->wrong == NULL && skip_value(s, 0); }

bool json_scan_finish(struct json_scan *s)
{
    skip_space(s);
    return s->wrong == NULL && (s->pos == s->end || fail(s, "more text behind the end"));
}
