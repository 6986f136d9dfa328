/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of the safetensors header and index parsers, and of the JSON cursor under them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "io/json_scan.h"
#include "io/safetensors.h"
#include "tests/unit/io/io_test.h"

static char *copy_text(const char *text)
{
    char *copy = malloc(strlen(text) + (text[0] == '\0')); /* no NUL: the parser must not need one */
    memcpy(copy, text, strlen(text));
    return copy;
}

static int parse(const char *text, struct safetensors_header *h, struct error *e)
{
    char *copy = copy_text(text);
    int r = safetensors_parse(copy, strlen(text), h, e);
    if (r < 0) {
        free(copy);
    }
    return r;
}

static void refused(const char *json, const char *text)
{
    struct safetensors_header h;
    struct error e = {0};
    if (parse(json, &h, &e) == 0) {
        fail_msg("accepted: %s", json);
    }
    check_error(&e, ERROR_FORMAT, text, NULL);
}

static void accepted(const char *json, size_t tensors)
{
    struct safetensors_header h;
    struct error e = {0};
    if (parse(json, &h, &e) < 0) {
        fail_msg("%s: %s", json, e.text);
    }
    assert_int_equal(h.n_tensors, tensors);
    safetensors_header_deinit(&h);
}

/* The example of the format's description. */
static void test_example(void **state)
{
    struct bytes b = {0};
    put_hex(&b, "4000000000000000 7b2277223a7b226474797065223a2242463136222c227368617065223a5b322c335d2c22646174615f6f6666"
                "73657473223a5b302c31325d7d7d202020202020 803f80bf0040 0000003f00c0");
    assert_int_equal(b.len, 0x54);
    const char *path = in(*state, "example.safetensors");
    write_bytes(path, b.data, b.len);
    struct file f;
    struct error e = {0};
    struct safetensors_header h;
    assert_int_equal(file_open(path, &f, &e), 0);
    assert_int_equal(safetensors_read_header(&f, &h, &e), 0);
    assert_int_equal(h.n_tensors, 1);
    assert_string_equal(h.tensors[0].name, "w");
    assert_string_equal(h.tensors[0].dtype, "BF16");
    assert_int_equal(h.tensors[0].n_dims, 2);
    assert_int_equal(h.tensors[0].dims[0], 2);
    assert_int_equal(h.tensors[0].dims[1], 3);
    assert_int_equal(h.data_start, 0x48);
    assert_int_equal(h.data_bytes, 12);
    safetensors_header_deinit(&h);
    file_close(&f);
    bytes_free(&b);
}

#define T(name, dtype, shape, offsets) "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_good(void **state)
{
    (void)state;
    accepted("{}", 0);
    accepted("{}   ", 0);
    accepted("{\"__metadata__\":{\"format\":\"pt\",\"note\":\"\\u0000\\ud83d\\ude00\"}}", 0);
    accepted("{" T("s", "F32", "[]", "[0,4]") "}", 1);
    accepted("{" T("e", "F32", "[0,9223372036854775807,9223372036854775807]", "[0,0]") "}", 1);
    accepted("{" T("b", "I8", "[3]", "[4,7]") "," T("a", "F32", "[1]", "[0,4]") "," T("e", "F32", "[0]", "[4,4]") "}", 3);
    accepted("{" T("half", "F4", "[2,3]", "[0,3]") "}", 1);
    accepted("{ \"x\" : { \"data_offsets\" : [ 0 , 2 ] , \"shape\" : [ 2 ] , \"dtype\" : \"U8\" } }\n", 1);
    accepted("{" T("a", "U8", "[1,1,1,1,1,1,1,2]", "[0,2]") "}", 1);
}

static void test_bad(void **state)
{
    (void)state;
    refused("", "byte 0");
    refused("  {}", "byte 0");
    refused("[]", "byte 0");
    refused("{} x", "byte 3: more text behind the end");
    refused("{\"a\":1}", "'{' expected");
    refused("{,}", "a string expected");
    refused("{" T("a", "U8", "[1]", "[0,1]") ",}", "a string expected");
    refused("{" T("a", "U8", "[1]", "[0,1]") "", "',' or '}' expected");
    refused("{" T("a", "U8", "[1]", "[0,1]") "," T("a", "U8", "[1]", "[1,2]") "}", "tensor a appears twice");
    refused("{" T("a", "U8", "[1]", "[0,1]") "," T("b", "U8", "[1]", "[2,3]") "}", "a hole between them");
    refused("{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[1,3]") "}", "they overlap");
    refused("{" T("a", "U8", "[1]", "[1,2]") "}", "begins at 1");
    refused("{" T("a", "U8", "[2]", "[0,1]") "}", "do not fit its shape");
    refused("{" T("a", "U8", "[1]", "[1,0]") "}", "do not fit its shape");
    refused("{" T("a", "F4", "[3]", "[0,2]") "}", "do not fit its shape");
    refused("{" T("a", "F64", "[4294967296,4294967296]", "[0,0]") "}", "do not fit its shape");
    refused("{" T("a", "F99", "[1]", "[0,1]") "}", "tensor a has dtype F99");
    refused("{" T("", "U8", "[1]", "[0,1]") "}", "has no name");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", "tensor 'a' has no data_offsets");
    refused("{\"a\":{}}", "has no dtype");
    refused("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "field dtype appears twice");
    refused("{\"a\":{\"dtype\":\"U8\",\"strides\":[1],\"shape\":[1],\"data_offsets\":[0,1]}}", "field strides is unknown");
    refused("{" T("a", "U8", "[-1]", "[0,1]") "}", "a plain integer expected");
    refused("{" T("a", "U8", "[1.0]", "[0,1]") "}", "a plain integer expected");
    refused("{" T("a", "U8", "[1e0]", "[0,1]") "}", "a plain integer expected");
    refused("{" T("a", "U8", "[01]", "[0,1]") "}", "a plain integer expected");
    refused("{" T("a", "U8", "[9223372036854775808]", "[0,1]") "}", "2^63");
    refused("{" T("a", "U8", "[1]", "[0]") "}", "byte");
    refused("{" T("a", "U8", "[1]", "[0,1,2]") "}", "']' expected");
    refused("{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", "more than 8 dimensions");
    refused("{" T("a\\u0000b", "U8", "[1]", "[0,1]") "}", "control character");
    refused("{" T("a\\n", "U8", "[1]", "[0,1]") "}", "control character");
    refused("{" T("a\x01", "U8", "[1]", "[0,1]") "}", "control character");
    refused("{" T("a\xff", "U8", "[1]", "[0,1]") "}", "invalid UTF-8");
    refused("{" T("\\ud800", "U8", "[1]", "[0,1]") "}", "surrogate");
    refused("{" T("\\ud800\\u0041", "U8", "[1]", "[0,1]") "}", "surrogate");
    refused("{" T("\\udc00", "U8", "[1]", "[0,1]") "}", "surrogate");
    refused("{" T("\\u00@0", "U8", "[1]", "[0,1]") "}", "hex digits");
    refused("{" T("\\x", "U8", "[1]", "[0,1]") "}", "unknown escape");
    refused("{\"__metadata__\":{\"a\":1}}", "a string expected");
    refused("{\"__metadata__\":{},\"__metadata__\":{}}", "__metadata__ twice");
    refused("{\"a", "unfinished string");
}

static void test_escapes(void **state)
{
    (void)state;
    struct safetensors_header h;
    struct error e = {0};
    assert_int_equal(parse("{" T("\\\"\\\\\\/\\u0041\\u00e9\\u20AC\\ud83d\\ude00.w", "U8", "[1]", "[0,1]") "}", &h, &e), 0);
    assert_string_equal(h.tensors[0].name, "\"\\/A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80.w");
    safetensors_header_deinit(&h);
}

/* A cut anywhere is refused and read no further than its end. */
static void test_every_cut(void **state)
{
    (void)state;
    static const char whole[] = "{\"__metadata__\":{\"k\":\"\\u0041\"}," T("a", "U8", "[2,1]", "[0,2]") "," T("b\\ud83d\\ude00", "F32", "[]", "[2,6]") "}";
    accepted(whole, 2);
    for (size_t n = 0; n + 1 < sizeof whole; n++) {
        char part[sizeof whole];
        memcpy(part, whole, n);
        part[n] = '\0';
        refused(part, "byte");
    }
}

static void header_refused(const char *folder, uint64_t n, const char *rest, const char *text)
{
    struct bytes b = {0};
    put_u64(&b, n);
    put_text(&b, rest);
    const char *path = in(folder, "x.safetensors");
    write_bytes(path, b.data, b.len);
    bytes_free(&b);
    struct file f;
    struct error e = {0};
    struct safetensors_header h;
    assert_int_equal(file_open(path, &f, &e), 0);
    assert_int_equal(safetensors_read_header(&f, &h, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, path, text, NULL);
    file_close(&f);
}

static void test_header_length(void **state)
{
    header_refused(*state, UINT64_MAX, "{}", "claims a header of 18446744073709551615 bytes");
    header_refused(*state, 100000001, "{}", "at most 100000000");
    header_refused(*state, 100000000, "{}", "the file has 2 behind its length");
    header_refused(*state, 3, "{}", "the header needs 3 bytes");
    header_refused(*state, 0, "{}", "byte 0");
    header_refused(*state, 2, "{]", "expected");
}

static int parse_index(const char *text, struct safetensors_index *x, struct error *e)
{
    char *copy = copy_text(text);
    int r = safetensors_index_parse(copy, strlen(text), x, e);
    if (r < 0) {
        free(copy);
    }
    return r;
}

static void test_index(void **state)
{
    (void)state;
    struct safetensors_index x;
    struct error e = {0};
    assert_int_equal(parse_index("{\"metadata\":{\"total_size\":1.5e3,\"x\":[null,true,{\"y\":-0.5}]},"
                                 "\"weight_map\":{\"b\":\"2.safetensors\",\"a\":\"1.safetensors\",\"c\":\"2.safetensors\"}}", &x, &e), 0);
    assert_int_equal(x.n_entries, 3);
    assert_int_equal(x.n_shards, 2);
    assert_string_equal(x.shards[0], "1.safetensors");
    assert_string_equal(x.shards[1], "2.safetensors");
    assert_int_equal(safetensors_index_find(&x, "a")->shard, 0);
    assert_int_equal(safetensors_index_find(&x, "c")->shard, 1);
    assert_null(safetensors_index_find(&x, "d"));
    safetensors_index_deinit(&x);
    static const char *const bad[][2] = {
        {"", "byte 0"},
        {"{}", "no weight_map"},
        {"{\"weight_map\":{}}", "empty one"},
        {"{\"weight_map\":{\"a\":\"../x\"}}", "tensor a in '../x'"},
        {"{\"weight_map\":{\"a\":\"/x\"}}", "no plain file name"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "no plain file name"},
        {"{\"weight_map\":{\"a\":\"\"}}", "no plain file name"},
        {"{\"weight_map\":{\"a\":\"x\\\\y\"}}", "no plain file name"},
        {"{\"weight_map\":{\"a\":1}}", "a string expected"},
        {"{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", "tensor a twice"},
        {"{\"weight_map\":{\"a\":\"x\"},\"weight_map\":{\"a\":\"x\"}}", "weight_map appears twice"},
        {"{\"weight_map\":{\"a\":\"x\"}", "expected"},
        {"{\"metadata\":[[1,2,],3]}", "a value expected"},
        {"{\"metadata\":01}", "leading zero"},
        {"{\"metadata\":1.}", "a digit expected"},
        {"{\"metadata\":nul}", "a value expected"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        e = (struct error){0};
        assert_int_equal(parse_index(bad[i][0], &x, &e), ERROR_FORMAT);
        check_error(&e, ERROR_FORMAT, bad[i][1], NULL);
    }
}

static void test_depth(void **state)
{
    (void)state;
    char deep[2000];
    memset(deep, '[', sizeof deep);
    struct json_scan s;
    json_scan_init(&s, deep, sizeof deep);
    assert_false(json_scan_skip(&s));
    assert_string_equal(s.wrong, "nested too deep");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_example, folder_setup, folder_teardown),
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test_setup_teardown(test_header_length, folder_setup, folder_teardown),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
