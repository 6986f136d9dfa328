/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: ids and bytes against the reference tokenizers; what holds for any text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/str.h"
#include "tests/unit/model_text/text_test.h"

static void check_list(const struct tokenizer *t, const json_t *list, unsigned flags)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i), *text = json_object_get(entry, "text");
        struct token_list ids = test_encode(t, json_string_value(text), json_string_length(text), flags);
        test_same_ids(json_object_get(entry, "ids"), &ids, json_string_value(text));
        token_list_deinit(&ids);
    }
}

static struct str decode(const struct tokenizer *t, const struct token_list *ids)
{
    struct str out = { 0 };
    str_append(&out, "", 0);
    for (size_t i = 0; i < ids->n; i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(t, ids->ids[i], &len);
        str_append(&out, bytes, len);
    }
    return out;
}

static void check_decode(const struct tokenizer *t, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i), *ids = json_object_get(entry, "ids");
        struct token_list l = { 0 };
        for (size_t k = 0; k < json_array_size(ids); k++) {
            token_list_push(&l, (int32_t)json_integer_value(json_array_get(ids, k)));
        }
        struct str bytes = decode(t, &l), hex = { 0 };
        for (size_t k = 0; k < bytes.len; k++) {
            str_printf(&hex, "%02x", (unsigned char)bytes.data[k]);
        }
        assert_string_equal(hex.data, json_string_value(json_object_get(entry, "hex")));
        str_deinit(&bytes);
        str_deinit(&hex);
        token_list_deinit(&l);
    }
}

static void check_reference(const char *folder, const char *reference)
{
    struct tokenizer *t = test_open(folder);
    json_t *root = test_json(reference);
    check_list(t, json_object_get(root, "plain"), 0);
    check_list(t, json_object_get(root, "parse_special"), TOKENIZE_SPECIAL);
    check_decode(t, json_object_get(root, "decode_hex"));
    json_decref(root);
    tokenizer_close(t);
}

static void reference_v3(void **state)
{
    (void)state;
    check_reference(V3_FOLDER, TINY_FOLDER "/deepseek-v3.json");
}

static void reference_demo(void **state)
{
    (void)state;
    check_reference(TEST_DATA "/../../models/demo", TINY_FOLDER "/demo.json");
}

static void reference_tiny(void **state)
{
    (void)state;
    struct tokenizer *t = test_open(TINY_FOLDER);
    json_t *root = test_json(TINY_FOLDER "/tokenizer-cases.json");
    check_list(t, root, TOKENIZE_SPECIAL);
    json_decref(root);
    tokenizer_close(t);
}

/* Random bytes, mostly from a few letters so that merges, digits, white space and broken UTF-8 meet. */
static void decode_of_encode_is_the_text(void **state)
{
    (void)state;
    static const char *const parts[] = { "the", " ", "\n", "7", "你好", "é", "\xff", "\xe4\xbd", "\xf0\x9f", "<｜User｜>", "\xed\xa0\x80", "\0", ".", "\t", "🙂" };
    struct tokenizer *t = test_open(V3_FOLDER);
    uint32_t seed = 7;
    for (int round = 0; round < 3000; round++) {
        struct str text = { 0 };
        str_append(&text, "", 0);
        for (uint32_t n = test_random(&seed) % 30; n > 0; n--) {
            char byte = (char)test_random(&seed);
            const char *part = parts[test_random(&seed) % ARRAY_LEN(parts)];
            bool random = test_random(&seed) % 3 == 0;
            str_append(&text, random ? &byte : part, random || !*part ? 1 : strlen(part));
        }
        struct token_list ids = test_encode(t, text.data, text.len, round % 2 ? TOKENIZE_SPECIAL : 0);
        struct str back = decode(t, &ids);
        assert_int_equal(back.len, text.len);
        assert_memory_equal(back.data, text.data, text.len);
        str_deinit(&back);
        str_deinit(&text);
        token_list_deinit(&ids);
    }
    tokenizer_close(t);
}

static void no_special_id_from_untrusted_text(void **state)
{
    (void)state;
    struct tokenizer *t = test_open(V3_FOLDER);
    for (int32_t id = 0; id < (int32_t)tokenizer_vocab(t); id++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(t, id, &len);
        char spelling[200];
        if (len == 0 || len >= sizeof spelling || (id > 2 && id < 128000)) {
            continue;
        }
        snprintf(spelling, sizeof spelling, "%.*s", (int)len, bytes);
        assert_int_equal(tokenizer_special_id(t, spelling), id);
        struct token_list plain = test_encode(t, spelling, len, 0), special = test_encode(t, spelling, len, TOKENIZE_SPECIAL);
        for (size_t i = 0; i < plain.n; i++) {
            assert_in_range(plain.ids[i], 3, 127999);
        }
        assert_int_equal(special.n, 1);
        assert_int_equal(special.ids[0], id);
        token_list_deinit(&plain);
        token_list_deinit(&special);
    }
    tokenizer_close(t);
}

static void facts_of_v3(void **state)
{
    (void)state;
    struct tokenizer *t = test_open(V3_FOLDER);
    size_t n, len;
    const int32_t *eos = tokenizer_eos(t, &n);
    assert_int_equal(tokenizer_vocab(t), 128815);
    assert_int_equal(tokenizer_bos(t), 0);
    assert_true(tokenizer_adds_bos(t));
    assert_int_equal(n, 1);
    assert_int_equal(eos[0], 1);
    assert_true(tokenizer_is_special(t, 0));
    assert_false(tokenizer_is_special(t, 128803));
    assert_int_equal(tokenizer_special_id(t, "<｜User｜>"), 128803);
    assert_int_equal(tokenizer_special_id(t, "the"), -1);
    assert_int_equal(tokenizer_special_id(t, ""), -1);
    assert_false(tokenizer_has(t, 128815));
    assert_false(tokenizer_has(t, -1));
    tokenizer_token_bytes(t, 1 << 30, &len);
    assert_int_equal(len, 0);
    tokenizer_token_bytes(t, -5, &len);
    assert_int_equal(len, 0);
    assert_non_null(strstr(tokenizer_chat_template(t), "bos_token"));
    tokenizer_close(t);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Printed, not asserted: loading should stay below three times what parsing the file alone takes. */
static void load_time(void **state)
{
    (void)state;
    double begin = seconds();
    json_decref(test_json(V3_FOLDER "/tokenizer.json"));
    double parse = seconds() - begin;
    begin = seconds();
    struct tokenizer *t = test_open(V3_FOLDER);
    double load = seconds() - begin;
    print_message("V3 tokenizer: JSON alone %.3f s, load %.3f s (%.2f times), %.1f MiB held\n", parse, load, load / parse,
                  (double)tokenizer_bytes(t) / (1 << 20));
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_v3),
        cmocka_unit_test(reference_demo),
        cmocka_unit_test(reference_tiny),
        cmocka_unit_test(decode_of_encode_is_the_text),
        cmocka_unit_test(no_special_id_from_untrusted_text),
        cmocka_unit_test(facts_of_v3),
        cmocka_unit_test(load_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
