/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: pieces of the named pre-tokenizers, the translation of patterns and what it refuses. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "src/model/pretokenizer.h"

#include <pcre2.h>
#include <string.h>

#include "tests/unit/model_text/text_test.h"

static int join_piece(void *ctx, const char *piece, size_t len)
{
    struct str *out = ctx;
    str_puts(out, out->len ? "|" : "");
    str_append(out, piece, len);
    return 0;
}

static void check_pieces(const char *name, const char *text, const char *want)
{
    struct pretokenizer p = { 0 };
    struct pretokenizer_scratch s;
    struct str out = { 0 };
    struct error e = { 0 };
    if (pretokenizer_add_named(&p, name, strlen(name), &e) < 0 || pretokenizer_scratch_init(&p, &s, &e) < 0 ||
        pretokenizer_split(&p, &s, text, strlen(text), join_piece, &out, &e) < 0) {
        fail_msg("%s: %s", name, e.text);
    }
    assert_string_equal(out.data, want);
    str_deinit(&out);
    pretokenizer_scratch_deinit(&s);
    pretokenizer_deinit(&p);
}

static void published_pieces(void **state)
{
    (void)state;
    check_pieces("deepseek-v3", "Hello, world! 12345", "Hello|,| world|!| |123|45");
    check_pieces("deepseek-v3", "x_y = foo.bar(3.14)\n\n  return\n", "x|_y| =| foo|.bar|(|3|.|14|)\n\n| | return|\n");
    check_pieces("deepseek-v3", "DeepSeek-V3是一个MoE模型。It's 2024.", "DeepSeek|-V|3|是一个|MoE|模型|。|It|'s| |202|4|.");
    check_pieces("deepseek-v3", "a  b   c \n", "a| | b|  | c| \n");
}

static void family_pieces(void **state)
{
    (void)state;
    check_pieces("deepseek-llm", "Hi there 42!\n\n 你好  ", "Hi| there| |4|2|!|\n|\n| |你好|  ");
    check_pieces("deepseek-llm", "a   b", "a|  | b");
    check_pieces("deepseek-coder", "foo(x) 42", "foo|(|x|)| |4|2");
    check_pieces("kimi-k2", "HelloWorld it's你好ABC 1234", "Hello|World| it's|你好|ABC| |123|4");
    check_pieces("kimi-k2", "々〇ー時", "々〇|ー|時");
    check_pieces("glm4", "I'LL go 1234\n", "I|'LL| go| |123|4|\n");
    check_pieces("chatglm-bpe", "I'LL go 1234\n", "I|'LL| go| |123|4|\n");
}

/* U+180E was white space once and is for PCRE2's \s; U+0085 and U+3000 are. */
static void white_space(void **state)
{
    (void)state;
    check_pieces("glm4", "\xe1\xa0\x8e" "a", "\xe1\xa0\x8e" "a");
    check_pieces("glm4", "x\xc2\x85\xe3\x80\x80", "x|\xc2\x85\xe3\x80\x80");
    check_pieces("glm4", "\xe1\xa0\x8e\xe1\xa0\x8e", "\xe1\xa0\x8e\xe1\xa0\x8e");
}

static void refused_patterns(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "[a-z&&[^b]]", "[[:alpha:]]", "\\w+", "\\bfoo", "(?<name>a)", "(?i)a", "(*UTF)a", "a{,3}", "a{2}+", "\\pL", "\\x9f", "\\K", "a*",
        "\\p{Nonsense}", "(a", "[a", "\\", "x|", "\\p{L", "[]", "(?P<x>a)", "a{x}", "\\u12", "\\p{", "\\x{110000}",
    };
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        struct pretokenizer p = { 0 };
        struct error e = { 0 };
        if (pretokenizer_add(&p, patterns[i], strlen(patterns[i]), &e) != ERROR_FORMAT || !strstr(e.text, "pattern '")) {
            fail_msg("'%s' was not refused: %s", patterns[i], e.text);
        }
        pretokenizer_deinit(&p);
    }
}

static void translated(const char *pattern, const char *want)
{
    struct str out = { 0 };
    struct error e = { 0 };
    if (pretokenizer_translate(pattern, strlen(pattern), &out, &e) < 0) {
        fail_msg("%s", e.text);
    }
    assert_string_equal(out.data, want);
    str_deinit(&out);
}

static void translations(void **state)
{
    (void)state;
    translated("\\p{Han}\\p{Lu}\\P{^N}\\p{^N}", "\\p{sc:Han}\\p{Lu}\\p{N}\\P{N}");
    translated("\\u4e00\\x{41}\\x41\\d", "\\x{4e00}\\x{41}\\x{41}\\p{Nd}");
    translated("(a)++[^\\-\\]]{2,3}", "(?:a)++[^\\-\\]]{2,3}");
}

static void unknown_name(void **state)
{
    (void)state;
    struct pretokenizer p = { 0 };
    struct error e = { 0 };
    assert_int_equal(pretokenizer_add_named(&p, "deepseek-v3.1", 13, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "deepseek-v3.1"));
    assert_non_null(strstr(e.text, "kimi-k2"));
    assert_non_null(strstr(e.text, "--pre-tokenizer"));
    pretokenizer_deinit(&p);
}

/* Matching is told not to check UTF-8, so what is taken for valid must be valid to PCRE2 as well. */
static void utf8_as_pcre2_sees_it(void **state)
{
    (void)state;
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    int code;
    size_t at;
    pcre2_code *any = pcre2_compile((PCRE2_SPTR) ".", 1, PCRE2_UTF | PCRE2_DOTALL, &code, &at, NULL);
    for (uint32_t i = 0; i < 1u << 24; i += i < 0xc00000 ? 251 : 1) {
        const char text[4] = { (char)(i >> 16), (char)(i >> 8), (char)i, (char)0x80 };
        for (size_t len = 3; len <= 4; len++) {
            bool valid = pcre2_match(any, (PCRE2_SPTR)text, len, 0, 0, data, NULL) > 0;
            if (valid != (utf8_valid_prefix(text, len) == len)) {
                fail_msg("%06x, %zu bytes: PCRE2 says %d", i, len, valid);
            }
        }
    }
    pcre2_code_free(any);
    pcre2_match_data_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_pieces), cmocka_unit_test(family_pieces), cmocka_unit_test(white_space),
        cmocka_unit_test(refused_patterns), cmocka_unit_test(translations),  cmocka_unit_test(unknown_name),
        cmocka_unit_test(utf8_as_pcre2_sees_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
