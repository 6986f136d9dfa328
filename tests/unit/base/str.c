/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of str.h. */
#include "tests/unit/base/fail.h"

#include <stdlib.h>
#include <string.h>

#include "common/attr.h"
#include "src/base/str.h"

static void grows(void **state)
{
    (void)state;
    struct str s = { 0 };
    for (int i = 0; i < 1000; i++) {
        str_printf(&s, "%d,", i);
    }
    str_append(&s, "a\0b", 3);
    str_append(&s, NULL, 0);
    assert_false(s.failed);
    assert_int_equal(s.len, 10 * 2 + 90 * 3 + 900 * 4 + 3);
    assert_memory_equal(s.data + s.len - 3, "a\0b", 4);
    size_t len;
    char *data = str_take(&s, &len);
    assert_int_equal(len, 10 * 2 + 90 * 3 + 900 * 4 + 3);
    assert_null(s.data);
    free(data);
    data = str_take(&s, NULL); /* an empty string is a string */
    assert_string_equal(data, "");
    free(data);
    str_deinit(&s);
}

static void stays_failed(void **state)
{
    (void)state;
    struct str s = { 0 };
    str_puts(&s, "first");
    fail_allocation(1);
    str_printf(&s, "%200d", 1);
    assert_true(fail_happened());
    assert_true(s.failed);
    str_puts(&s, "x");
    assert_string_equal(s.data, "first");
    assert_null(str_take(&s, NULL));
    assert_null(s.data);
    struct str huge = { 0 };
    str_append(&huge, "", SIZE_MAX);
    assert_true(huge.failed);
}

static void json(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        { "", "\"\"" },
        { "a\"b\\c", "\"a\\\"b\\\\c\"" },
        { "\n\r\t\x01\x7f", "\"\\n\\r\\t\\u0001\\u007f\"" },
        { "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"" },
        { "a\xFFz", "\"a\xEF\xBF\xBDz\"" },
        { "a\xE2\x82", "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"" },
        { "\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str s = { 0 };
        str_json(&s, cases[i].in, strlen(cases[i].in));
        assert_string_equal(s.data, cases[i].out);
        str_deinit(&s);
    }
    struct str s = { 0 };
    str_json(&s, "\0", 1);
    assert_string_equal(s.data, "\"\\u0000\"");
    str_deinit(&s);
}

static void sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        { "0", 0 }, { "512", 512 }, { "1K", 1024 }, { "24G", 24ull << 30 }, { "512m", 512ull << 20 }, { "2T", 2ull << 40 },
        { "1.5GiB", 3ull << 29 }, { "8gb", 8ull << 30 }, { "7B", 7 }, { "0.5k", 512 }, { "1.25", 1 },
        { "18446744073709551615", UINT64_MAX }, { "0.000001T", 1099511 },
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        uint64_t b = 1;
        assert_true(parse_size(good[i].text, &b));
        assert_int_equal(b, good[i].bytes);
    }
    static const char *const bad[] = { "", "G", "-1", "+1", " 1", "1 ", "1.G", ".5G", "1P", "1GG", "1Gi", "1iB", "0x10", "1e3",
                                       "18446744073709551616", "16777216T", "1,5G" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        uint64_t b = 77;
        assert_false(parse_size(bad[i], &b));
        assert_int_equal(b, 77);
    }
    char out[24];
    assert_string_equal(format_bytes(out, 0), "0 B");
    assert_string_equal(format_bytes(out, 1023), "1023 B");
    assert_string_equal(format_bytes(out, 3ull << 29), "1.50 GiB");
    assert_string_equal(format_bytes(out, (1ull << 30) - 1), "1.00 GiB");
    assert_string_equal(format_bytes(out, UINT64_MAX), "16.00 EiB");
}

static void numbers(void **state)
{
    (void)state;
    uint64_t u = 1;
    double d = 1;
    assert_true(parse_u64("18446744073709551615", &u));
    assert_true(u == UINT64_MAX);
    assert_false(parse_u64("18446744073709551616", &u));
    assert_false(parse_u64("", &u));
    assert_false(parse_u64("-1", &u));
    assert_true(parse_double("-1.5e3", &d));
    assert_true(d == -1500.0);
    static const char *const bad[] = { "", "nan", "inf", "0x1p3", "1,5", " 1", "1 ", "1e999", "e", "--1" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(parse_double(bad[i], &d));
    }
    assert_true(d == -1500.0);
}

static void nearest(void **state)
{
    (void)state;
    static const char *const names[] = { "threads", "ubatch", "io", "io-limit", NULL };
    assert_string_equal(nearest_name("thread", names), "threads");
    assert_string_equal(nearest_name("THREADS", names), "threads");
    assert_string_equal(nearest_name("ubtach", names), "ubatch");
    assert_string_equal(nearest_name("iolimit", names), "io-limit");
    assert_null(nearest_name("zzzzzzzzz", names));
    assert_null(nearest_name("xy", names));
    assert_null(nearest_name("bat", names)); /* "ubatch" is three letters away, as many as there are */
    char long_word[200];
    memset(long_word, 'a', sizeof(long_word) - 1);
    long_word[sizeof(long_word) - 1] = '\0';
    assert_null(nearest_name(long_word, names));
}

static void utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t valid;
    } cases[] = {
        { "abc", 3 }, { "\xC3\xA9", 2 }, { "\xC3", 0 }, { "a\xE2\x82", 1 }, { "\xC0\x80", 0 }, { "\xC1\xBF", 0 },
        { "\xE0\x80\x80", 0 }, { "\xE0\xA0\x80", 3 }, { "\xED\x9F\xBF", 3 }, { "\xED\xA0\x80", 0 },
        { "\xF0\x8F\xBF\xBF", 0 }, { "\xF0\x90\x80\x80", 4 }, { "\xF4\x8F\xBF\xBF", 4 }, { "\xF4\x90\x80\x80", 0 },
        { "\xF5\x80\x80\x80", 0 }, { "\x80", 0 }, { "\xE2\x82z", 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(utf8_valid_prefix(cases[i].text, strlen(cases[i].text)), cases[i].valid);
    }
    char line[] = "a\tb\r\n\xC3\xA9\xE2\x82";
    text_one_line(line);
    assert_string_equal(line, "a?b??\xC3\xA9");
    char empty[] = "";
    text_one_line(empty);
    assert_string_equal(empty, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows), cmocka_unit_test(stays_failed), cmocka_unit_test(json), cmocka_unit_test(sizes),
        cmocka_unit_test(numbers), cmocka_unit_test(nearest), cmocka_unit_test(utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
