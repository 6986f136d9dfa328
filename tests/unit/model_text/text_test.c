/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the tokenizer and chat tests share. Must not know: what is tested. */
#include "tests/unit/model_text/text_test.h"

json_t *test_json(const char *path)
{
    json_error_t where;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &where);
    if (!root) {
        fail_msg("%s:%d: %s", path, where.line, where.text);
    }
    return root;
}

struct tokenizer *test_open(const char *folder)
{
    struct tokenizer *t = NULL;
    struct error e = { 0 };
    if (tokenizer_open_folder(folder, &t, &e) < 0) {
        fail_msg("%s", e.text);
    }
    return t;
}

struct token_list test_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags)
{
    struct token_list ids = { 0 };
    struct error e = { 0 };
    if (tokenizer_encode(t, text, len, flags, &ids, &e) < 0) {
        fail_msg("%s", e.text);
    }
    return ids;
}

void test_same_ids(const json_t *want, const struct token_list *got, const char *text)
{
    if (json_array_size(want) != got->n) {
        fail_msg("'%s': %zu ids, expected %zu", text, got->n, json_array_size(want));
    }
    for (size_t i = 0; i < got->n; i++) {
        if (json_integer_value(json_array_get(want, i)) != got->ids[i]) {
            fail_msg("'%s': id %zu is %d, expected %lld", text, i, got->ids[i], (long long)json_integer_value(json_array_get(want, i)));
        }
    }
}

uint32_t test_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}
