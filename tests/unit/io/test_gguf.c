/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of the GGUF header parser, on bytes written by hand. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/gguf.h"
#include "tests/unit/io/io_test.h"

/* The example of the format's description: three key-values, an F32 and a Q8_0 tensor; data follows at 0xe0. */
static const char example[] =
    "47475546 03000000 0200000000000000 0300000000000000 1400000000000000"
    "67656e6572616c2e617263686974656374757265 08000000 0900000000000000 646565707365656b32"
    "1500000000000000 646565707365656b322e626c6f636b5f636f756e74 04000000 3d000000"
    "0600000000000000 612e6c697374 09000000 04000000 0200000000000000 07000000 09000000"
    "0100000000000000 6e 01000000 0300000000000000 00000000 0000000000000000"
    "0100000000000000 77 02000000 2000000000000000 0200000000000000 08000000 2000000000000000";

enum { EXAMPLE_HEADER = 0xde, EXAMPLE_DATA = 0xe0, EXAMPLE_END = 0xe0 + 32 + 68 };

static struct bytes begin_header(uint64_t tensors, uint64_t values)
{
    struct bytes b = {0};
    put_text(&b, "GGUF");
    put_u32(&b, 3);
    put_u64(&b, tensors);
    put_u64(&b, values);
    return b;
}

static void put_tensor(struct bytes *b, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t offset)
{
    put_string(b, name);
    put_u32(b, n_dims);
    for (uint32_t d = 0; d < n_dims; d++) {
        put_u64(b, ne[d]);
    }
    put_u32(b, type);
    put_u64(b, offset);
}

/* Parses and frees; the header is expected to be refused with `text` in the message. */
static void refused(struct bytes *b, const char *text)
{
    struct gguf_header h;
    struct error e = {0};
    if (gguf_parse(b->data, b->len, b->len, &h, &e) == 0) {
        fail_msg("accepted, expected: %s", text);
    }
    check_error(&e, ERROR_FORMAT, text, NULL);
    bytes_free(b);
}

static void test_example(void **state)
{
    (void)state;
    struct bytes b = {0};
    put_hex(&b, example);
    assert_int_equal(b.len, EXAMPLE_HEADER);
    struct gguf_header h;
    struct error e = {0};
    assert_int_equal(gguf_parse(b.data, b.len, 0x160, &h, &e), 0);
    assert_int_equal(h.header_end, EXAMPLE_HEADER);
    assert_int_equal(h.data_start, EXAMPLE_DATA);
    assert_int_equal(h.data_end, EXAMPLE_END);
    assert_int_equal(h.n_tensors, 2);
    assert_string_equal(h.tensors[0].name, "n");
    assert_int_equal(h.tensors[0].n_dims, 1);
    assert_int_equal(h.tensors[0].ne[0], 3);
    assert_int_equal(h.tensors[0].bytes, 12);
    assert_string_equal(h.tensors[1].name, "w");
    assert_int_equal(h.tensors[1].type, 8);
    assert_int_equal(h.tensors[1].ne[1], 2);
    assert_int_equal(h.tensors[1].ne[2], 1);
    assert_int_equal(h.tensors[1].offset, 32);
    assert_int_equal(h.tensors[1].bytes, 68);
    struct gguf_string s;
    uint64_t u;
    assert_int_equal(gguf_get_string(&h.meta, "general.architecture", &s, &e), 1);
    assert_int_equal(s.len, 9);
    assert_memory_equal(s.data, "deepseek2", 9);
    assert_int_equal(gguf_get_u64(&h.meta, "deepseek2.block_count", &u, &e), 1);
    assert_int_equal(u, 61);
    const struct gguf_value *list = gguf_find(&h.meta, "a.list");
    assert_non_null(list);
    assert_int_equal(list->count, 2);
    assert_int_equal(gguf_array_i64(list, 0), 7);
    assert_int_equal(gguf_array_i64(list, 1), 9);
    assert_int_equal(gguf_array_i64(list, 2), 0);
    assert_null(gguf_find(&h.meta, "a"));
    gguf_header_deinit(&h);
    bytes_free(&b);
}

/* Every cut of the example: more is asked for while the file goes on, and refused where it ends. */
static void test_every_cut(void **state)
{
    (void)state;
    struct bytes b = {0};
    put_hex(&b, example);
    for (size_t n = 0; n < b.len; n++) {
        struct gguf_header h;
        struct error e = {0};
        uint8_t *exact = malloc(n + (n == 0)); /* so that a byte too much is seen by a sanitizer */
        memcpy(exact, b.data, n);
        assert_int_equal(gguf_parse(exact, n, 0x160, &h, &e), GGUF_MORE);
        assert_int_equal(gguf_parse(exact, n, n, &h, &e), ERROR_FORMAT);
        assert_int_equal(e.code, ERROR_FORMAT);
        free(exact);
    }
    bytes_free(&b);
}

static void test_versions(void **state)
{
    (void)state;
    struct bytes b = {0};
    put_hex(&b, example);
    struct gguf_header h;
    b.data[4] = 2;
    assert_int_equal(gguf_parse(b.data, b.len, b.len, &h, NULL), 0);
    gguf_header_deinit(&h);
    static const struct {
        uint8_t field[4];
        const char *text;
    } bad[] = {{{1, 0, 0, 0}, "version 1"}, {{4, 0, 0, 0}, "version 4"}, {{0, 0, 0, 3}, "big-endian"}, {{0, 0, 0, 0}, "version 0"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct bytes c = {0};
        put(&c, b.data, b.len);
        memcpy(c.data + 4, bad[i].field, 4);
        refused(&c, bad[i].text);
    }
    b.data[0] = 'g';
    refused(&b, "67 47 55 46");
}

/* Numbers that promise more than the file holds are refused before anything is allocated. */
static void test_false_counts(void **state)
{
    (void)state;
    struct bytes b = begin_header(UINT64_MAX, 0);
    refused(&b, "tensor count of 18446744073709551615");
    b = begin_header(1000, 0);
    refused(&b, "tensor count of 1000");
    b = begin_header(0, 1ull << 40);
    refused(&b, "key-value count");
    b = begin_header(0, 1);
    put_u64(&b, 1ull << 62);
    put_text(&b, "key and some more text");
    refused(&b, "at most 65535");
    b = begin_header(0, 1);
    put_string(&b, "key");
    put_u32(&b, GGUF_ARRAY);
    put_u32(&b, GGUF_U8);
    put_u64(&b, 1ull << 61);
    refused(&b, "key key: the array");
    b = begin_header(0, 1);
    put_string(&b, "key");
    put_u32(&b, GGUF_ARRAY);
    put_u32(&b, GGUF_STRING);
    put_u64(&b, 3);
    put_u64(&b, 5);
    put_text(&b, "12345");
    put_u64(&b, 5);
    refused(&b, "3 elements, more than the");
    b = begin_header(0, 1);
    put_string(&b, "key");
    put_u32(&b, GGUF_STRING);
    put_u64(&b, 1ull << 31);
    refused(&b, "at most 1073741824");
}

/* Two small files of the kind that stopped other readers: a zero dimension in 73 bytes, an empty key in 88. */
static void test_small_crafted(void **state)
{
    (void)state;
    struct bytes b = begin_header(1, 0);
    put_tensor(&b, "a", 3, (uint64_t[]){0, 1, 1}, 8, 0);
    assert_int_equal(b.len, 73);
    refused(&b, "dimension 0 of 3 is 0");
    b = begin_header(0, 1);
    put_string(&b, "");
    put_u32(&b, GGUF_STRING);
    put_string(&b, "a value of enough bytes to make 88..");
    assert_int_equal(b.len, 80);
    put_u64(&b, 0);
    refused(&b, "a key ending at byte 32 is empty");
}

static void test_values(void **state)
{
    (void)state;
    struct bytes b = begin_header(0, 14);
    static const struct {
        const char *key;
        uint32_t type;
        const char *hex;
    } values[] = {
        {"u8", GGUF_U8, "ff"}, {"i8", GGUF_I8, "ff"}, {"u16", GGUF_U16, "ffff"}, {"i16", GGUF_I16, "feff"}, {"u32", GGUF_U32, "ffffffff"},
        {"i32", GGUF_I32, "00000080"}, {"f32", GGUF_F32, "0000c03f"}, {"true", GGUF_BOOL, "01"}, {"u64", GGUF_U64, "ffffffffffffffff"},
        {"i64", GGUF_I64, "0700000000000000"}, {"f64", GGUF_F64, "000000000000f8bf"}, {"same", GGUF_ARRAY, "05000000 0300000000000000 080000000800000008000000"},
        {"mixed", GGUF_ARRAY, "03000000 0200000000000000 0800f8ff"}, {"none", GGUF_ARRAY, "08000000 0000000000000000"},
    };
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        put_string(&b, values[i].key);
        put_u32(&b, values[i].type);
        put_hex(&b, values[i].hex);
    }
    struct gguf_header h;
    struct error e = {0};
    assert_int_equal(gguf_parse(b.data, b.len, b.len, &h, &e), 0);
    const struct gguf_meta *m = &h.meta;
    uint64_t u = 1;
    double f = 0;
    bool flag = false;
    struct gguf_string s;
    assert_int_equal(gguf_get_u64(m, "u8", &u, &e), 1);
    assert_int_equal(u, 255);
    assert_int_equal(gguf_find(m, "i16")->v.i, -2);
    assert_int_equal(gguf_get_u64(m, "i8", &u, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, "key i8 is -1", NULL);
    assert_int_equal(gguf_get_u64(m, "u64", &u, &e), 1);
    assert_true(u == UINT64_MAX);
    assert_int_equal(gguf_get_u64(m, "same", &u, &e), 1);
    assert_int_equal(u, 8);
    assert_int_equal(gguf_get_u64(m, "mixed", &u, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, "key mixed", "elements 0 and 1 differ", NULL);
    assert_int_equal(gguf_array_i64(gguf_find(m, "mixed"), 1), -8);
    assert_int_equal(gguf_get_u64(m, "none", &u, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, "an array of string", NULL);
    assert_int_equal(gguf_get_u64(m, "f32", &u, &e), ERROR_FORMAT);
    assert_int_equal(gguf_get_u64(m, "absent", &u, &e), 0);
    assert_int_equal(gguf_get_f64(m, "f32", &f, &e), 1);
    assert_true(f == 1.5);
    assert_int_equal(gguf_get_f64(m, "f64", &f, &e), 1);
    assert_true(f == -1.5);
    assert_int_equal(gguf_get_f64(m, "i32", &f, &e), 1);
    assert_true(f == -2147483648.0);
    assert_int_equal(gguf_get_f64(m, "true", &f, &e), ERROR_FORMAT);
    assert_int_equal(gguf_get_bool(m, "true", &flag, &e), 1);
    assert_true(flag);
    assert_int_equal(gguf_get_bool(m, "u8", &flag, &e), ERROR_FORMAT);
    assert_int_equal(gguf_get_string(m, "u8", &s, &e), ERROR_FORMAT);
    assert_int_equal(gguf_get_string(m, "absent", &s, &e), 0);
    gguf_header_deinit(&h);
    bytes_free(&b);
}

static void test_bad_values(void **state)
{
    (void)state;
    struct bytes b = begin_header(0, 1);
    put_string(&b, "key");
    put_u32(&b, 13);
    put_u64(&b, 0);
    refused(&b, "key key has value type 13");
    b = begin_header(0, 1);
    put_string(&b, "key");
    put_u32(&b, GGUF_BOOL);
    put_text(&b, "\x02");
    refused(&b, "bool at byte 39 is 2");
    b = begin_header(0, 1);
    put_string(&b, "key");
    put_u32(&b, GGUF_ARRAY);
    put_u32(&b, GGUF_ARRAY);
    put_u64(&b, 0);
    refused(&b, "nested arrays");
    b = begin_header(0, 2);
    for (int i = 0; i < 2; i++) {
        put_string(&b, "key");
        put_u32(&b, GGUF_U32);
        put_u32(&b, 1);
    }
    refused(&b, "key key appears twice");
    b = begin_header(0, 1);
    put_string(&b, "a\nb");
    put_u32(&b, GGUF_U32);
    put_u32(&b, 1);
    refused(&b, "control characters");
    b = begin_header(0, 1);
    put_string(&b, "a\xff");
    put_u32(&b, GGUF_U32);
    put_u32(&b, 1);
    refused(&b, "no UTF-8");
    static const uint32_t alignments[] = {0, 3, 48};
    for (size_t i = 0; i < ARRAY_LEN(alignments); i++) {
        b = begin_header(0, 1);
        put_string(&b, "general.alignment");
        put_u32(&b, GGUF_U32);
        put_u32(&b, alignments[i]);
        refused(&b, "general.alignment is");
    }
    b = begin_header(0, 1);
    put_string(&b, "general.alignment");
    put_u32(&b, GGUF_STRING);
    put_string(&b, "32");
    refused(&b, "general.alignment is string");
}

static void test_bad_tensors(void **state)
{
    (void)state;
    static const char name63[] = "abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabc";
    static const struct {
        const char *name;
        uint32_t n_dims, type;
        uint64_t offset, ne[4];
        const char *text; /* NULL: fine */
    } cases[] = {
        {name63, 1, 0, 0, {8}, NULL},
        {"scalar", 0, 0, 0, {0}, NULL},
        {"integers", 1, 26, 0, {8}, NULL},
        {"ternary", 1, 34, 0, {256}, NULL},
        {"abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcd", 1, 0, 0, {8}, "at most 63"},
        {"", 1, 0, 0, {8}, "empty"},
        {"five", 5, 0, 0, {1, 1, 1, 1}, "5 dimensions"},
        {"zero", 2, 0, 0, {1, 0}, "dimension 1 of 2 is 0"},
        {"row", 2, 8, 0, {33, 1}, "rows of 33 elements are no multiple of the 32 in a block of Q8_0"},
        {"scalar", 0, 8, 0, {0}, "rows of 1 elements"},
        {"huge", 4, 0, 0, {1ull << 32, 1ull << 32, 2, 1}, "2^63"},
        {"huge", 1, 0, 0, {1ull << 62}, "2^63"},
        {"skew", 1, 0, 8, {8}, "offset 8 is no multiple of the alignment 32"},
        {"far", 1, 0, (1ull << 63) - 32, {32}, "the first tensor, far, begins at 9223372036854775776 of the data, expected 0"},
        {"foreign", 1, 200, 0, {8}, "tensor foreign has type 200 (unknown), which this build does not know; supported: F32, F16, BF16, Q8_0"},
        {"removed", 1, 4, 0, {8}, "type 4"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bytes b = begin_header(1, 0);
        struct gguf_header h;
        put_tensor(&b, cases[i].name, cases[i].n_dims, cases[i].ne, cases[i].type, cases[i].offset);
        if (cases[i].text != NULL) {
            refused(&b, cases[i].text);
            continue;
        }
        assert_int_equal(gguf_parse(b.data, b.len, b.len, &h, NULL), 0);
        assert_string_equal(h.tensors[0].name, cases[i].name);
        gguf_header_deinit(&h);
        bytes_free(&b);
    }
}

static void test_tensors_together(void **state)
{
    (void)state;
    struct bytes b = begin_header(2, 0);
    put_tensor(&b, "a", 1, (uint64_t[]){8}, 0, 0);
    put_tensor(&b, "a", 1, (uint64_t[]){8}, 0, 32);
    refused(&b, "tensor a appears twice");
    b = begin_header(2, 0);
    put_tensor(&b, "a", 1, (uint64_t[]){9}, 0, 0);
    put_tensor(&b, "b", 1, (uint64_t[]){8}, 0, 32);
    refused(&b, "tensor b at offset 32 overlaps tensor a of type F32, which ends at 36");
    b = begin_header(2, 0); /* a hole: a's type or shape needs less than what was written */
    put_tensor(&b, "a", 1, (uint64_t[]){9}, 1, 0);
    put_tensor(&b, "b", 1, (uint64_t[]){8}, 0, 64);
    refused(&b, "tensor a of type F16 ends at 18, the next, b, begins at 64");
    /* Infos out of order are odd, but sound. */
    b = begin_header(2, 1);
    put_string(&b, "general.alignment");
    put_u32(&b, GGUF_U32);
    put_u32(&b, 64);
    put_tensor(&b, "late", 1, (uint64_t[]){8}, 0, 64);
    put_tensor(&b, "early", 1, (uint64_t[]){8}, 0, 0);
    struct gguf_header h;
    assert_int_equal(gguf_parse(b.data, b.len, b.len, &h, NULL), 0);
    assert_string_equal(h.tensors[0].name, "early");
    assert_int_equal(h.data_start % 64, 0);
    assert_int_equal(h.data_end, h.data_start + 96);
    gguf_header_deinit(&h);
    bytes_free(&b);
}

/* A vocabulary as large as the real one's. */
static void test_large_metadata(void **state)
{
    (void)state;
    enum { TOKENS = 129280 };
    struct bytes b = begin_header(0, 2);
    put_string(&b, "tokenizer.ggml.tokens");
    put_u32(&b, GGUF_ARRAY);
    put_u32(&b, GGUF_STRING);
    put_u64(&b, TOKENS);
    for (int i = 0; i < TOKENS; i++) {
        char text[32];
        snprintf(text, sizeof text, "token%d", i);
        put_string(&b, text);
    }
    put_string(&b, "tokenizer.ggml.token_type");
    put_u32(&b, GGUF_ARRAY);
    put_u32(&b, GGUF_I32);
    put_u64(&b, TOKENS);
    for (int i = 0; i < TOKENS; i++) {
        put_u32(&b, (uint32_t)i);
    }
    struct gguf_header h;
    assert_int_equal(gguf_parse(b.data, b.len, b.len, &h, NULL), 0);
    const struct gguf_value *tokens = gguf_find(&h.meta, "tokenizer.ggml.tokens");
    assert_int_equal(tokens->count, TOKENS);
    assert_memory_equal(tokens->strings[TOKENS - 1].data, "token129279", 11);
    assert_int_equal(gguf_array_i64(gguf_find(&h.meta, "tokenizer.ggml.token_type"), 77777), 77777);
    gguf_header_deinit(&h);
    bytes_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_example),       cmocka_unit_test(test_every_cut),        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_false_counts),  cmocka_unit_test(test_small_crafted),    cmocka_unit_test(test_values),
        cmocka_unit_test(test_bad_values),    cmocka_unit_test(test_bad_tensors),      cmocka_unit_test(test_tensors_together),
        cmocka_unit_test(test_large_metadata),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
