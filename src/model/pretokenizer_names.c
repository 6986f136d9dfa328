/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the patterns behind GGUF's pre-tokenizer names, for the model family and nothing else: a guess would spoil every
 * token silently. Must not know: files. */
#include "src/model/pretokenizer.h"

#include <stdlib.h>
#include <string.h>

/* Letters with case, as DeepSeek's first tokenizer lists them. */
#define CASED                                                                                                               \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}"          \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}"            \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}"              \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}"      \
    "\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}"       \
    "\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}"       \
    "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"       \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}"        \
    "\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}"        \
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}"       \
    "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}"      \
    "\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"               \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

/* Kimi's [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]] and the same with Ll, written as what they leave out. */
#define KIMI_UPPER "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]"
#define KIMI_LOWER "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const char *const pretokenizer_byte_level_pattern =
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct named_patterns {
    const char *name;
    const char *patterns[7]; /* ends with NULL */
};

static const struct named_patterns names[] = {
    { "deepseek-v3",
      { "\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
        " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" } },
    { "deepseek-llm",
      { "[\\r\\n]", "\\s?[" CASED "]+",
        "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+", "\\s+$",
        "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}" } },
    { "deepseek-coder",
      { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}" } },
    { "kimi-k2",
      { "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "*" KIMI_LOWER "+" CONTRACTION "?|"
        "[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "+" KIMI_LOWER "*" CONTRACTION "?|" TAIL } },
    { "glm4", { CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" TAIL } },
    { "chatglm-bpe", { CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" TAIL } },
};

const char *const *pretokenizer_patterns(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strlen(names[i].name) == len && memcmp(names[i].name, name, len) == 0) {
            return names[i].patterns;
        }
    }
    return NULL;
}

int pretokenizer_add_named(struct pretokenizer *p, const char *name, size_t len, struct error *e)
{
    const char *const *pattern = pretokenizer_patterns(name, len);
    int rc = 0;
    for (; pattern && *pattern && rc == 0; pattern++) {
        rc = pretokenizer_add(p, *pattern, strlen(*pattern), e);
    }
    if (pattern) {
        return rc;
    }
    struct str known = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        str_printf(&known, "%s%s", i ? ", " : "", names[i].name);
    }
    rc = known.failed ? error_nomem(e, "pre-tokenizer names", 0)
                      : error_set(e, ERROR_FORMAT, "unknown pre-tokenizer '%.*s', known are %s; if the file's is one of these "
                                  "under another name, choose it with --pre-tokenizer NAME", len > 60 ? 60 : (int)len, name, known.data);
    str_deinit(&known);
    return rc;
}

/* ---- the way back ---- */

/* One character of a pattern: the code point for a literal, \r, \n, \t and \x{...}; for any other escape its letter with
 * this bit, so that tokenizer.json's spelling and ours compare equal. */
#define CLASS_BIT 0x80000000u

static uint32_t next_symbol(const char **at)
{
    const unsigned char *p = (const unsigned char *)*at;
    uint32_t c = *p++;
    if (c == '\\' && *p == 'x' && p[1] == '{') {
        char *end;
        c = (uint32_t)strtoul((const char *)p + 2, &end, 16);
        p = (const unsigned char *)end + (*end == '}');
    } else if (c == '\\' && *p != '\0') {
        c = *p == 'r' ? '\r' : *p == 'n' ? '\n' : *p == 't' ? '\t' : CLASS_BIT | *p;
        p++;
    } else if (c >= 0xc0) { /* the text is valid UTF-8 */
        uint32_t more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
        for (c &= 0x3fu >> more; more > 0 && *p != '\0'; more--) {
            c = c << 6 | (*p++ & 0x3f);
        }
    }
    *at = (const char *)p;
    return c;
}

static bool same_pattern(const char *a, const char *b)
{
    while (*a && *b) {
        if (next_symbol(&a) != next_symbol(&b)) {
            return false;
        }
    }
    return *a == *b;
}

const char *pretokenizer_name(const char *const *patterns, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        size_t same = 0;
        while (same < n && names[i].patterns[same] && same_pattern(names[i].patterns[same], patterns[same])) {
            same++;
        }
        if (same == n && !names[i].patterns[same]) {
            return names[i].name;
        }
    }
    return NULL;
}
