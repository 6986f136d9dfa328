/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the growing string, number and size parsing, UTF-8 validation. Must not know: what the text means. */
#include "src/base/str.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/intmath.h"

void str_deinit(struct str *s)
{
    free(s->data);
    *s = (struct str){ 0 };
}

/* Room for `more` bytes and the NUL. */
static bool str_reserve(struct str *s, size_t more)
{
    if (s->failed) {
        return false;
    }
    if (more >= SIZE_MAX / 2 - s->len) {
        s->failed = true;
        return false;
    }
    size_t need = s->len + more + 1;
    if (need <= s->cap) {
        return true;
    }
    size_t cap = s->cap < 32 ? 64 : s->cap * 2;
    if (cap < need) {
        cap = need;
    }
    char *data = realloc(s->data, cap);
    if (data == NULL) {
        s->failed = true;
        return false;
    }
    s->data = data;
    s->cap = cap;
    return true;
}

void str_append(struct str *s, const char *data, size_t len)
{
    if (!str_reserve(s, len)) {
        return;
    }
    if (len > 0) {
        memcpy(s->data + s->len, data, len);
    }
    s->len += len;
    s->data[s->len] = '\0';
}

void str_puts(struct str *s, const char *text) { str_append(s, text, strlen(text)); }

void str_printf(struct str *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        s->failed = true;
        return;
    }
    if (!str_reserve(s, (size_t)n)) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(s->data + s->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    s->len += (size_t)n;
}

static void json_byte(struct str *s, unsigned char c)
{
    switch (c) {
    case '"':
        str_puts(s, "\\\"");
        break;
    case '\\':
        str_puts(s, "\\\\");
        break;
    case '\n':
        str_puts(s, "\\n");
        break;
    case '\r':
        str_puts(s, "\\r");
        break;
    case '\t':
        str_puts(s, "\\t");
        break;
    default:
        str_printf(s, "\\u%04x", c);
    }
}

void str_json(struct str *s, const char *data, size_t len)
{
    str_puts(s, "\"");
    size_t i = 0;
    while (i < len) {
        size_t valid = utf8_valid_prefix(data + i, len - i);
        size_t end = i + valid, start = i;
        for (; i < end; i++) {
            unsigned char c = (unsigned char)data[i];
            if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f) {
                str_append(s, data + start, i - start);
                json_byte(s, c);
                start = i + 1;
            }
        }
        str_append(s, data + start, end - start);
        if (end < len) {
            str_puts(s, "\xEF\xBF\xBD");
            i = end + 1;
        }
    }
    str_puts(s, "\"");
}

char *str_take(struct str *s, size_t *ret_len)
{
    if (!str_reserve(s, 0)) {
        str_deinit(s);
        return NULL;
    }
    char *data = s->data;
    data[s->len] = '\0';
    if (ret_len != NULL) {
        *ret_len = s->len;
    }
    *s = (struct str){ 0 };
    return data;
}

char *format_bytes(char *out, uint64_t bytes)
{
    static const char units[] = "KMGTPE";
    if (bytes < 1024) {
        snprintf(out, 24, "%u B", (unsigned)bytes);
        return out;
    }
    double v = (double)bytes / 1024;
    size_t u = 0;
    while (v >= 1023.995 && units[u + 1] != '\0') { /* what would print as 1024.00 */
        v /= 1024;
        u++;
    }
    snprintf(out, 24, "%.2f %ciB", v, units[u]);
    return out;
}

/* "", "K", "KB", "KiB" and so on, "B"; false if it is none of them. */
static bool size_unit(const char *text, unsigned *ret_shift)
{
    static const char letters[] = "KMGT";
    *ret_shift = 0;
    if (*text != '\0') {
        for (unsigned i = 0; letters[i] != '\0'; i++) {
            if ((*text | 0x20) == (letters[i] | 0x20)) {
                *ret_shift = 10 * (i + 1);
                text++;
                break;
            }
        }
    }
    return *text == '\0' || strcasecmp(text, "B") == 0 || (*ret_shift != 0 && strcasecmp(text, "iB") == 0);
}

bool parse_size(const char *text, uint64_t *ret_bytes)
{
    uint64_t whole = 0, fraction_num = 0, fraction_den = 1;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (!mul_u64(whole, 10, &whole) || !add_u64(whole, (uint64_t)(*p - '0'), &whole)) {
            return false;
        }
    }
    if (p == text) {
        return false;
    }
    if (*p == '.') {
        p++;
        if (*p < '0' || *p > '9') {
            return false;
        }
        for (; *p >= '0' && *p <= '9'; p++) {
            if (fraction_den < 1000000) { /* digits below 10^-6 are dropped */
                fraction_num = fraction_num * 10 + (uint64_t)(*p - '0');
                fraction_den *= 10;
            }
        }
    }
    unsigned shift;
    if (!size_unit(p, &shift)) {
        return false;
    }
    uint64_t bytes;
    if (!mul_u64(whole, (uint64_t)1 << shift, &bytes) ||
        !add_u64(bytes, (fraction_num << shift) / fraction_den, &bytes)) {
        return false;
    }
    *ret_bytes = bytes;
    return true;
}

bool parse_u64(const char *text, uint64_t *ret)
{
    uint64_t v = 0;
    if (*text == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' || !mul_u64(v, 10, &v) || !add_u64(v, (uint64_t)(*text - '0'), &v)) {
            return false;
        }
    }
    *ret = v;
    return true;
}

bool parse_double(const char *text, double *ret)
{
    /* No blanks, hexadecimal, "inf" or "nan", which strtod would take. */
    if (*text == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0') {
        return false;
    }
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c == (locale_t)0) {
        return false;
    }
    char *end;
    double v = strtod_l(text, &end, c);
    freelocale(c);
    if (end == text || *end != '\0' || !isfinite(v)) {
        return false;
    }
    *ret = v;
    return true;
}

enum { NAME_MAX_LEN = 63, NAME_NEAR = 3 };

/* Levenshtein distance without regard to case; more than NAME_NEAR for words that are too long. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b), row[NAME_MAX_LEN + 1];
    if (la > NAME_MAX_LEN || lb > NAME_MAX_LEN) {
        return NAME_NEAR + 1;
    }
    for (size_t j = 0; j <= lb; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= la; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t up = row[j];
            size_t best = diagonal + (strncasecmp(&a[i - 1], &b[j - 1], 1) != 0);
            best = up + 1 < best ? up + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = up;
        }
    }
    return row[lb];
}

const char *nearest_name(const char *word, const char *const *names)
{
    const char *best = NULL;
    size_t best_distance = NAME_NEAR + 1;
    for (; *names != NULL; names++) {
        size_t d = edit_distance(word, *names);
        if (d < best_distance && 2 * d <= strlen(word)) { /* with most letters replaced there is no likeness */
            best = *names;
            best_distance = d;
        }
    }
    return best;
}

/* Bytes of the valid sequence at data (RFC 3629), 0 if there is none. */
static size_t utf8_sequence(const unsigned char *d, size_t len)
{
    unsigned char c = d[0], low = 0x80, high = 0xBF;
    size_t n;
    if (c < 0x80) {
        return 1;
    } else if (c >= 0xC2 && c <= 0xDF) {
        n = 2;
    } else if (c >= 0xE0 && c <= 0xEF) {
        n = 3;
        low = c == 0xE0 ? 0xA0 : 0x80;  /* overlong */
        high = c == 0xED ? 0x9F : 0xBF; /* surrogates */
    } else if (c >= 0xF0 && c <= 0xF4) {
        n = 4;
        low = c == 0xF0 ? 0x90 : 0x80;
        high = c == 0xF4 ? 0x8F : 0xBF; /* beyond U+10FFFF */
    } else {
        return 0;
    }
    if (len < n || d[1] < low || d[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < n; i++) {
        if ((d[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return n;
}

size_t utf8_valid_prefix(const char *data, size_t len)
{
    size_t i = 0;
    while (i < len) {
        size_t n = utf8_sequence((const unsigned char *)data + i, len - i);
        if (n == 0) {
            break;
        }
        i += n;
    }
    return i;
}

void text_one_line(char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f) {
            text[i] = '?';
        }
    }
    for (size_t back = 1; back <= 3 && back <= len; back++) { /* a sequence cut at the end */
        unsigned char c = (unsigned char)text[len - back];
        if (c >= 0xC0) {
            if (utf8_sequence((const unsigned char *)text + len - back, back) != back) {
                text[len - back] = '\0';
            }
            break;
        }
    }
}
