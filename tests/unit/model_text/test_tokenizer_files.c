/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what tokenizer files may say: each change of a good file that must be refused, the forms that must be read, and GGUF
 * keys. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/str.h"
#include "tests/unit/model_text/text_test.h"

static char folder[] = "/tmp/sluice-tokenizer-XXXXXX";

static void write_json(const char *name, const json_t *v)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(json_dump_file(v, path, 0), 0);
}

static void remove_file(const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

/* Puts `value` at a path of keys and indices ("added_tokens/3/lstrip") of the good file. */
static json_t *changed(const char *path, const char *value)
{
    json_t *root = test_json(TINY_FOLDER "/tokenizer.json"), *at = root;
    char copy[200], *rest = copy, *key, *next;
    snprintf(copy, sizeof copy, "%s", path);
    for (key = strtok_r(copy, "/", &rest); (next = strtok_r(NULL, "/", &rest)); key = next) {
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(key)) : json_object_get(at, key);
    }
    json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_non_null(v);
    assert_int_equal(json_is_array(at) ? json_array_set_new(at, (size_t)atoi(key), v) : json_object_set_new(at, key, v), 0);
    return root;
}

static void opens(const char *path, const char *value)
{
    json_t *root = changed(path, value);
    write_json("tokenizer.json", root);
    json_decref(root);
    tokenizer_close(test_open(folder));
}

static void refuses(const char *path, const char *value, const char *reason)
{
    json_t *root = changed(path, value);
    write_json("tokenizer.json", root);
    json_decref(root);
    struct tokenizer *t = NULL;
    struct error e = { 0 };
    if (tokenizer_open_folder(folder, &t, &e) != ERROR_FORMAT || !strstr(e.text, reason) || !strstr(e.text, "/tokenizer.json: ")) {
        fail_msg("%s = %s: expected '%s', got '%s'", path, value, reason, t ? "success" : e.text);
    }
}

static void refused_files(void **state)
{
    (void)state;
    refuses("model/type", "\"Unigram\"", "Unigram");
    refuses("model/dropout", "0.1", "dropout");
    refuses("model/end_of_word_suffix", "\"</w>\"", "end_of_word_suffix");
    refuses("model/vocab", "[]", "vocab");
    refuses("model/merges/0", "\"he\"", "merge 0");
    refuses("model/merges/0", "[\"a\"]", "merge 0");
    refuses("model/merges/0", "\"h zz\"", "right part");
    refuses("model/merges/0", "\"q z\"", "result");
    refuses("model/vocab/a", "\"5\"", "no integer");
    refuses("model/vocab/a", "100", "both have id 100");
    refuses("model/vocab/a", "-1", "id -1");
    refuses("model/vocab/a", "99999999", "id 99999999");
    refuses("normalizer", "{\"type\": \"NFC\"}", "NFC");
    refuses("normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Lowercase\"}]}", "Lowercase");
    refuses("decoder", "{\"type\": \"Metaspace\"}", "Metaspace");
    refuses("pre_tokenizer", "null", "(none)");
    refuses("pre_tokenizer", "{\"type\": \"Sequence\", \"pretokenizers\": []}", "no ByteLevel");
    refuses("pre_tokenizer/pretokenizers/0", "{\"type\": \"Whitespace\"}", "Whitespace");
    refuses("pre_tokenizer/pretokenizers/0/behavior", "\"Removed\"", "Removed");
    refuses("pre_tokenizer/pretokenizers/0/invert", "true", "invert true");
    refuses("pre_tokenizer/pretokenizers/0/pattern", "{\"String\": \" \"}", "Regex");
    refuses("pre_tokenizer/pretokenizers/0/pattern/Regex", "\"[a&&b]\"", "[a&&b]");
    refuses("pre_tokenizer/pretokenizers/0", "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}", "after ByteLevel");
    refuses("pre_tokenizer/pretokenizers/3/add_prefix_space", "true", "add_prefix_space");
    refuses("added_tokens/3/lstrip", "true", "lstrip");
    refuses("added_tokens/3/single_word", "true", "single_word");
    refuses("added_tokens/3/content", "\"\"", "0 bytes");
    refuses("added_tokens/3/content", "\"<｜User｜>\"", "has ids");
    refuses("added_tokens/3/id", "7", "has id 7");
    refuses("added_tokens/0/content", "\"x\"", "has id 0");
}

static void accepted_forms(void **state)
{
    (void)state;
    opens("normalizer", "null");
    opens("model/merges/0", "[\"Ġ\", \"t\"]");
    opens("model/unk_token", "\"<unk>\"");
    opens("pre_tokenizer", "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}");
    opens("pre_tokenizer/pretokenizers/1", "{\"type\": \"Digits\", \"individual_digits\": true}");
}

static void configs(void **state)
{
    (void)state;
    json_t *root = test_json(TINY_FOLDER "/tokenizer.json");
    write_json("tokenizer.json", root);
    json_decref(root);
    json_t *config = json_loads("{\"bos_token\": \"<｜begin▁of▁sentence｜>\", \"eos_token\": \"<｜end▁of▁sentence｜>\", \"chat_template\": ["
                                "{\"name\": \"tool\", \"template\": \"no\"}, {\"name\": \"default\", \"template\": \"yes\"}]}", 0, NULL);
    json_t *generation = json_loads("{\"eos_token_id\": [1, 318]}", 0, NULL);
    write_json("tokenizer_config.json", config);
    write_json("generation_config.json", generation);
    struct tokenizer *t = test_open(folder);
    size_t n;
    const int32_t *eos = tokenizer_eos(t, &n);
    assert_int_equal(n, 2);
    assert_int_equal(eos[0], 1);
    assert_int_equal(eos[1], 318);
    assert_false(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_bos(t), 0);
    assert_string_equal(tokenizer_chat_template(t), "yes");
    tokenizer_close(t);
    json_object_set_new(generation, "eos_token_id", json_integer(5000));
    write_json("generation_config.json", generation);
    struct error e = { 0 };
    assert_int_equal(tokenizer_open_folder(folder, &t, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "generation_config.json: end token 5000"));
    json_decref(config);
    json_decref(generation);
    remove_file("tokenizer_config.json");
    remove_file("generation_config.json");
    remove_file("tokenizer.json");
    assert_int_equal(tokenizer_open_folder(folder, &t, &e), -ENOENT);
}

enum { MAX_TOKENS = 400 };

/* The tiny tokenizer as GGUF metadata; keys are sorted. */
struct tiny_gguf {
    json_t *root;
    struct gguf_string tokens[MAX_TOKENS], merges[MAX_TOKENS];
    int32_t types[MAX_TOKENS];
    struct gguf_value values[8];
    struct gguf_meta meta;
};

static struct gguf_string string_of(const json_t *v) { return (struct gguf_string){ json_string_value(v), json_string_length(v) }; }

static struct gguf_string text_of(const char *text) { return (struct gguf_string){ text, strlen(text) }; }

static void tiny_gguf_init(struct tiny_gguf *g)
{
    g->root = test_json(TINY_FOLDER "/tokenizer.json");
    json_t *vocab = json_object_get(json_object_get(g->root, "model"), "vocab"), *id, *token;
    const json_t *merges = json_object_get(json_object_get(g->root, "model"), "merges"), *added = json_object_get(g->root, "added_tokens");
    const char *text;
    json_object_foreach(vocab, text, id) {
        g->tokens[json_integer_value(id)] = text_of(text);
        g->types[json_integer_value(id)] = 1;
    }
    size_t i;
    json_array_foreach(added, i, token) {
        json_int_t at = json_integer_value(json_object_get(token, "id"));
        g->tokens[at] = string_of(json_object_get(token, "content"));
        g->types[at] = json_is_true(json_object_get(token, "special")) ? 3 : 4;
    }
    g->tokens[320] = text_of("[PAD320]");
    g->types[320] = 5;
    for (i = 0; i < json_array_size(merges); i++) {
        g->merges[i] = string_of(json_array_get(merges, i));
    }
    const struct gguf_value values[] = {
        { .key = "tokenizer.ggml.add_bos_token", .type = GGUF_BOOL, .v.u = 1 },
        { .key = "tokenizer.ggml.bos_token_id", .type = GGUF_U32, .v.u = 0 },
        { .key = "tokenizer.ggml.eos_token_id", .type = GGUF_U32, .v.u = 1 },
        { .key = "tokenizer.ggml.merges", .type = GGUF_ARRAY, .element = GGUF_STRING, .count = json_array_size(merges), .strings = g->merges },
        { .key = "tokenizer.ggml.model", .type = GGUF_STRING, .v.s = text_of("gpt2") },
        { .key = "tokenizer.ggml.pre", .type = GGUF_STRING, .v.s = text_of("deepseek-v3") },
        { .key = "tokenizer.ggml.token_type", .type = GGUF_ARRAY, .element = GGUF_I32, .count = 321, .raw = g->types },
        { .key = "tokenizer.ggml.tokens", .type = GGUF_ARRAY, .element = GGUF_STRING, .count = 321, .strings = g->tokens },
    };
    memcpy(g->values, values, sizeof values);
    g->meta = (struct gguf_meta){ .values = g->values, .n = ARRAY_LEN(values) };
}

static void gguf_equals_json(void **state)
{
    (void)state;
    struct tiny_gguf g = { 0 };
    tiny_gguf_init(&g);
    struct tokenizer *t = NULL;
    struct error e = { 0 };
    if (tokenizer_open_gguf(&g.meta, "m.gguf", "auto", &t, &e) < 0) {
        fail_msg("%s", e.text);
    }
    json_t *cases = test_json(TINY_FOLDER "/tokenizer-cases.json"), *entry;
    size_t i, n;
    json_array_foreach(cases, i, entry) {
        const json_t *text = json_object_get(entry, "text");
        struct token_list ids = test_encode(t, json_string_value(text), json_string_length(text), TOKENIZE_SPECIAL);
        test_same_ids(json_object_get(entry, "ids"), &ids, json_string_value(text));
        token_list_deinit(&ids);
    }
    assert_int_equal(tokenizer_vocab(t), 320);
    assert_false(tokenizer_has(t, 320));
    assert_true(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_eos(t, &n)[0], 1);
    assert_true(tokenizer_is_special(t, 0));
    assert_false(tokenizer_is_special(t, 318));
    tokenizer_close(t);
    json_decref(cases);
    json_decref(g.root);
}

static void gguf_refused(const char *key, const struct gguf_value *value, const char *pre, int code, const char *reason)
{
    struct tiny_gguf g = { 0 };
    tiny_gguf_init(&g);
    for (size_t i = 0; i < g.meta.n; i++) {
        if (strcmp(g.values[i].key, key) == 0) {
            const char *name = g.values[i].key;
            g.values[i] = *value;
            g.values[i].key = value->key ? value->key : name;
        }
    }
    struct tokenizer *t = NULL;
    struct error e = { 0 };
    int rc = tokenizer_open_gguf(&g.meta, "m.gguf", pre, &t, &e);
    if (rc != code || (code < 0 && (!strstr(e.text, reason) || strncmp(e.text, "m.gguf: ", 8) != 0))) {
        fail_msg("%s: code %d, '%s', expected %d, '%s'", key, rc, e.text, code, reason);
    }
    tokenizer_close(t);
    json_decref(g.root);
}

/* A key sorted last stands for a missing one. */
static void gguf_keys(void **state)
{
    (void)state;
    const struct gguf_value other = { .type = GGUF_STRING, .v.s = { "deepseek-v3.1", 13 } }, number = { .type = GGUF_U32, .v.u = 999 };
    const struct gguf_value gone = { .key = "tokenizer.ggml.q", .type = GGUF_U32 };
    gguf_refused("tokenizer.ggml.model", &other, NULL, ERROR_FORMAT, "gpt2");
    gguf_refused("tokenizer.ggml.pre", &other, NULL, ERROR_FORMAT, "known are deepseek-v3");
    gguf_refused("tokenizer.ggml.pre", &gone, NULL, ERROR_FORMAT, "--pre-tokenizer");
    gguf_refused("tokenizer.ggml.pre", &other, "deepseek-v3", 0, "");
    gguf_refused("tokenizer.ggml.pre", &other, "gpt5", ERROR_FORMAT, "gpt5");
    gguf_refused("tokenizer.ggml.bos_token_id", &number, NULL, ERROR_FORMAT, "bos_token_id 999");
    gguf_refused("tokenizer.ggml.eos_token_id", &number, NULL, ERROR_FORMAT, "end token 999");
    gguf_refused("tokenizer.ggml.tokens", &number, NULL, ERROR_FORMAT, "tokens has another type");
    gguf_refused("tokenizer.ggml.merges", &number, NULL, ERROR_FORMAT, "merges has another type");
    gguf_refused("tokenizer.ggml.token_type", &number, NULL, ERROR_FORMAT, "token_type has another type");
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    remove_file("tokenizer.json");
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_files), cmocka_unit_test(accepted_forms),   cmocka_unit_test(configs),
        cmocka_unit_test(gguf_equals_json), cmocka_unit_test(gguf_keys),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
