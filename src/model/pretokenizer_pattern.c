/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: rewriting Oniguruma patterns (as tokenizer.json has them) so that PCRE2 matches the same text. Only constructs
 * known to mean the same are let through. Must not know: who uses the pattern. */
#include "src/model/pretokenizer.h"

#include <ctype.h>
#include <string.h>

/* The Unicode White_Space set and its complement, as class contents. PCRE2's own \s also takes U+180E. */
#define WHITE "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_WHITE                                                                                                        \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"    \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"

struct scanner {
    const char *p, *end;
    struct str *out;
    struct error *e;
};

static int refuse(struct scanner *s, const char *what)
{
    size_t left = (size_t)(s->end - s->p);
    return error_set(s->e, ERROR_FORMAT, "%s at '%.*s' is not supported", what, left > 20 ? 20 : (int)left, s->p);
}

static bool looking_at(const struct scanner *s, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(s->end - s->p) >= n && memcmp(s->p, text, n) == 0;
}

static void copy(struct scanner *s, size_t n)
{
    str_append(s->out, s->p, n);
    s->p += n;
}

static bool is_category(const char *name, size_t len)
{
    static const char categories[] = " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp "
                                     "C Cc Cf Cs Co Cn ";
    char padded[5] = " ";
    if (len < 1 || len > 2) {
        return false;
    }
    memcpy(padded + 1, name, len);
    padded[len + 1] = ' ';
    return strstr(categories, padded) != NULL;
}

/* \p{Name}: a general category, or a script. PCRE2 would take a bare script name as Script_Extensions. */
static int property(struct scanner *s)
{
    const char *name = s->p + 3, *close = s->p + 2 < s->end ? memchr(s->p, '}', (size_t)(s->end - s->p)) : NULL;
    if (!close || s->p[2] != '{') {
        return refuse(s, "a property without braces");
    }
    bool negated = name < close && *name == '^';
    name += negated;
    size_t len = (size_t)(close - name);
    for (size_t i = 0; i < len; i++) {
        if (!isalpha((unsigned char)name[i]) && name[i] != '_') {
            return refuse(s, "this property");
        }
    }
    bool outer = s->p[1] == 'P';
    str_printf(s->out, "\\%c{%s%.*s}", outer != negated ? 'P' : 'p', is_category(name, len) ? "" : "sc:", (int)len, name);
    s->p = close + 1;
    return 0;
}

/* \uHHHH and \x{H...}; \xHH is a byte to Oniguruma, a character only below 0x80. */
static int code_point(struct scanner *s)
{
    bool braces = looking_at(s, "\\x{");
    const char *digits = s->p + (braces ? 3 : 2);
    size_t want = s->p[1] == 'u' ? 4 : 2, n = 0;
    while (digits + n < s->end && isxdigit((unsigned char)digits[n]) && n < (braces ? 6 : want)) {
        n++;
    }
    bool closed = braces ? n > 0 && digits + n < s->end && digits[n] == '}' : n == want;
    if (!closed || (!braces && want == 2 && digits[0] > '7')) {
        return refuse(s, "a character number");
    }
    str_printf(s->out, "\\x{%.*s}", (int)n, digits);
    s->p = digits + n + braces;
    return 0;
}

static int escape(struct scanner *s, bool in_class)
{
    if (s->end - s->p < 2) {
        return refuse(s, "a lone backslash");
    }
    unsigned char c = (unsigned char)s->p[1];
    switch (c) {
    case 'p':
    case 'P':
        return property(s);
    case 'x':
    case 'u':
        return code_point(s);
    case 's':
        str_puts(s->out, in_class ? WHITE : "[" WHITE "]");
        break;
    case 'S':
        str_puts(s->out, in_class ? NOT_WHITE : "[^" WHITE "]");
        break;
    case 'd':
        str_puts(s->out, "\\p{Nd}");
        break;
    case 'D':
        str_puts(s->out, "\\P{Nd}");
        break;
    case 'v':
        str_puts(s->out, "\\x{b}");
        break;
    case 'r':
    case 'n':
    case 't':
    case 'f':
        str_printf(s->out, "\\%c", c);
        break;
    default:
        if (isalnum(c) && (in_class || (c != 'A' && c != 'z'))) {
            return refuse(s, "an escape");
        }
        str_printf(s->out, "\\%c", c);
    }
    s->p += 2;
    return 0;
}

static int character_class(struct scanner *s)
{
    copy(s, looking_at(s, "[^") ? 2 : 1);
    if (looking_at(s, "]")) {
        return refuse(s, "an empty class");
    }
    while (s->p < s->end && *s->p != ']') {
        if (*s->p == '[' || looking_at(s, "&&")) {
            return refuse(s, "a class inside a class, or an intersection of classes,");
        }
        int rc = *s->p == '\\' ? escape(s, true) : (copy(s, 1), 0);
        if (rc < 0) {
            return rc;
        }
    }
    if (s->p == s->end) {
        return refuse(s, "a class without end");
    }
    copy(s, 1);
    return 0;
}

static int group(struct scanner *s)
{
    static const char *const openings[] = { "(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:" };
    for (size_t i = 0; i < ARRAY_LEN(openings); i++) {
        if (looking_at(s, openings[i])) {
            copy(s, strlen(openings[i]));
            return 0;
        }
    }
    if (looking_at(s, "(?") || looking_at(s, "(*")) {
        return refuse(s, "a group");
    }
    str_puts(s->out, "(?:"); /* captures are not used */
    s->p++;
    return 0;
}

/* {n}, {n,}, {n,m}; what follows must not be +, which repeats in Oniguruma and forbids backtracking in PCRE2. */
static int repeat(struct scanner *s)
{
    size_t left = (size_t)(s->end - s->p), n = 1;
    while (n < left && (isdigit((unsigned char)s->p[n]) || (s->p[n] == ',' && n > 1))) {
        n++;
    }
    if (n < 2 || n == left || s->p[n] != '}' || (n + 1 < left && s->p[n + 1] == '+')) {
        return refuse(s, "a brace");
    }
    copy(s, n + 1);
    return 0;
}

int pretokenizer_translate(const char *pattern, size_t len, struct str *out, struct error *e)
{
    struct scanner s = { .p = pattern, .end = pattern + len, .out = out, .e = e };
    if (len == 4 && memcmp(pattern, "\\s+$", 4) == 0) {
        /* Would be tried from every place of a long run of spaces. If it matches from none before, it matches from none
         * after: only the first place of a run counts. */
        str_puts(out, "(?<![" WHITE "])");
    }
    int rc = 0;
    while (rc == 0 && s.p < s.end) {
        switch (*s.p) {
        case '\\':
            rc = escape(&s, false);
            break;
        case '[':
            rc = character_class(&s);
            break;
        case '(':
            rc = group(&s);
            break;
        case '{':
            rc = repeat(&s);
            break;
        default:
            copy(&s, 1);
        }
    }
    if (rc == 0 && out->failed) {
        rc = error_nomem(e, "pre-tokenizer pattern", len);
    }
    return rc;
}
