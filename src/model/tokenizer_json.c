/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tokenizer.json, tokenizer_config.json, generation_config.json and chat_template.jinja of a folder. What a file asks
 * for and this program would do differently is refused by name. Must not know: encoding. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "src/base/json_text.h"
#include "src/model/tokenizer_build.h"

enum { JSON_FILE_LIMIT = 256 << 20, TEMPLATE_LIMIT = 4 << 20 };

/* 1 read, 0 absent. Strings may hold NUL. */
static int load_json(const char *folder, const char *name, json_t **ret, struct error *e)
{
    char *path = file_join(folder, name), *text = NULL;
    size_t bytes = 0;
    if (!path) {
        return error_nomem(e, name, 0);
    }
    int rc = file_exists(path) ? file_read_all(path, JSON_FILE_LIMIT, &text, &bytes, e) : 1;
    free(path);
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    json_t *root = NULL;
    rc = json_text_parse(text, bytes, JSON_ALLOW_NUL, &root, e);
    free(text);
    if (rc < 0) {
        return error_prefix(e, rc, "%s/%s", folder, name);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return error_set(e, ERROR_FORMAT, "%s/%s: expected an object", folder, name);
    }
    *ret = root;
    return 1;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "(none)";
}

static bool is_type(const json_t *object, const char *type) { return strcmp(text_of(object, "type"), type) == 0; }

/* A key that is absent or null counts as false. */
static bool is_set(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return v && !json_is_null(v) && !json_is_false(v) && !(json_is_number(v) && json_number_value(v) == 0) &&
           !(json_is_string(v) && json_string_length(v) == 0);
}

static int check_normalizer(const json_t *normalizer, struct error *e)
{
    if (!normalizer || json_is_null(normalizer)) {
        return 0;
    }
    const json_t *list = json_object_get(normalizer, "normalizers");
    if (is_type(normalizer, "Sequence") && json_array_size(list) == 0) {
        return 0;
    }
    const json_t *shown = json_array_size(list) ? json_array_get(list, 0) : normalizer;
    return error_set(e, ERROR_FORMAT, "normalizer %s is not supported, expected none", text_of(shown, "type"));
}

static int add_split(struct tokenizer *t, const json_t *step, struct error *e)
{
    const json_t *regex = json_object_get(json_object_get(step, "pattern"), "Regex");
    if (!json_is_string(regex)) {
        return error_set(e, ERROR_FORMAT, "pre_tokenizer Split: expected a pattern with a Regex");
    }
    if (strcmp(text_of(step, "behavior"), "Isolated") != 0 || is_set(step, "invert")) {
        return error_set(e, ERROR_FORMAT, "pre_tokenizer Split: behavior %s, invert %s; only Isolated, not inverted, is supported",
                         text_of(step, "behavior"), is_set(step, "invert") ? "true" : "false");
    }
    return pretokenizer_add(&t->pre, json_string_value(regex), json_string_length(regex), e);
}

/* use_regex is true when absent; the pattern works on text, so ByteLevel is always the last step. */
static int add_byte_level(struct tokenizer *t, const json_t *step, struct error *e)
{
    const json_t *prefix = json_object_get(step, "add_prefix_space"), *regex = json_object_get(step, "use_regex");
    if (!json_is_false(prefix)) {
        return error_set(e, ERROR_FORMAT, "pre_tokenizer ByteLevel: add_prefix_space is not supported, expected false");
    }
    return regex && json_is_false(regex)
               ? 0
               : pretokenizer_add(&t->pre, pretokenizer_byte_level_pattern, strlen(pretokenizer_byte_level_pattern), e);
}

static int read_pre_tokenizer(struct tokenizer *t, const json_t *pre, struct error *e)
{
    bool sequence = is_type(pre, "Sequence"), byte_level = false;
    const json_t *list = json_object_get(pre, "pretokenizers");
    size_t n = sequence ? json_array_size(list) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *step = sequence ? json_array_get(list, i) : pre;
        const char *digits = is_set(step, "individual_digits") ? "\\p{N}" : "\\p{N}+";
        int rc;
        if (byte_level) {
            rc = error_set(e, ERROR_FORMAT, "pre_tokenizer %s after ByteLevel is not supported", text_of(step, "type"));
        } else if (is_type(step, "Split")) {
            rc = add_split(t, step, e);
        } else if (is_type(step, "Digits")) {
            rc = pretokenizer_add(&t->pre, digits, strlen(digits), e);
        } else if (is_type(step, "ByteLevel")) {
            rc = add_byte_level(t, step, e);
            byte_level = true;
        } else {
            rc = error_set(e, ERROR_FORMAT, "pre_tokenizer %s is not supported, expected Split, Digits or ByteLevel", text_of(step, "type"));
        }
        if (rc < 0) {
            return rc == ERROR_FORMAT ? error_prefix(e, rc, "pre_tokenizer %zu", i) : rc;
        }
    }
    return byte_level ? 0 : error_set(e, ERROR_FORMAT, "pre_tokenizer has no ByteLevel: not a byte-level vocabulary");
}

/* unk_token, fuse_unk and byte_fallback speak of bytes without a token; tokenizer_finish makes sure there are none. */
static int check_model(const json_t *model, struct error *e)
{
    static const char *const unsupported[] = { "dropout", "continuing_subword_prefix", "end_of_word_suffix" };
    if (!json_is_object(model) || (json_object_get(model, "type") && !is_type(model, "BPE"))) {
        return error_set(e, ERROR_FORMAT, "model type %s is not supported, expected BPE", text_of(model, "type"));
    }
    for (size_t i = 0; i < ARRAY_LEN(unsupported); i++) {
        if (is_set(model, unsupported[i])) {
            return error_set(e, ERROR_FORMAT, "model %s is not supported, expected null", unsupported[i]);
        }
    }
    if (!json_is_object(json_object_get(model, "vocab")) || !json_is_array(json_object_get(model, "merges"))) {
        return error_set(e, ERROR_FORMAT, "model has no vocab object or no merges list");
    }
    return 0;
}

static int read_vocab(struct tokenizer *t, json_t *vocab, struct error *e)
{
    for (void *it = json_object_iter(vocab); it; it = json_object_iter_next(vocab, it)) {
        const char *text = json_object_iter_key(it);
        const json_t *id = json_object_iter_value(it);
        int rc = json_is_integer(id) ? tokenizer_add(t, json_integer_value(id), text, json_object_iter_key_len(it), TOKEN_NORMAL, 0, e)
                                     : error_set(e, ERROR_FORMAT, "vocab '%.80s' is no integer", text);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int read_merges(struct tokenizer *t, const json_t *merges, struct error *e)
{
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *merge = json_array_get(merges, i), *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        int rc;
        if (json_is_string(merge)) {
            rc = tokenizer_add_merge_text(t, (uint32_t)i, json_string_value(merge), json_string_length(merge), e);
        } else if (json_array_size(merge) == 2 && json_is_string(left) && json_is_string(right)) {
            rc = tokenizer_add_merge(t, (uint32_t)i, json_string_value(left), json_string_length(left), json_string_value(right),
                                     json_string_length(right), e);
        } else {
            rc = error_set(e, ERROR_FORMAT, "merge %zu: expected \"left right\" or [left, right]", i);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int read_added(struct tokenizer *t, const json_t *added, struct error *e)
{
    static const char *const unsupported[] = { "single_word", "lstrip", "rstrip" };
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i), *id = json_object_get(token, "id"), *content = json_object_get(token, "content");
        if (!json_is_integer(id) || !json_is_string(content)) {
            return error_set(e, ERROR_FORMAT, "added_tokens %zu: expected an id and a content", i);
        }
        for (size_t k = 0; k < ARRAY_LEN(unsupported); k++) {
            if (is_set(token, unsupported[k])) {
                return error_set(e, ERROR_FORMAT, "added token '%.80s': %s is not supported, expected false", json_string_value(content),
                                 unsupported[k]);
            }
        }
        int rc = tokenizer_add(t, json_integer_value(id), json_string_value(content), json_string_length(content),
                               is_set(token, "special") ? TOKEN_CONTROL : TOKEN_ADDED,
                               is_set(token, "normalized") ? ADDED_SECOND : ADDED_FIRST, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int read_tokenizer(const json_t *root, struct tokenizer **ret, struct error *e)
{
    const json_t *model = json_object_get(root, "model"), *decoder = json_object_get(root, "decoder");
    const json_t *merges = json_object_get(model, "merges"), *added = json_object_get(root, "added_tokens");
    json_t *vocab = json_object_get(model, "vocab");
    struct tokenizer *t = NULL;
    int rc = check_model(model, e);
    if (rc == 0) {
        rc = check_normalizer(json_object_get(root, "normalizer"), e);
    }
    if (rc == 0 && decoder && !json_is_null(decoder) && !is_type(decoder, "ByteLevel")) {
        rc = error_set(e, ERROR_FORMAT, "decoder %s is not supported, expected ByteLevel", text_of(decoder, "type"));
    }
    if (rc == 0) {
        rc = tokenizer_create(json_object_size(vocab), json_array_size(merges), &t, e);
    }
    if (rc == 0) {
        t->whole_pieces = is_set(model, "ignore_merges");
        rc = read_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), e);
    }
    if (rc == 0 && (rc = read_vocab(t, vocab, e)) == 0 && (rc = read_added(t, added, e)) == 0 && (rc = read_merges(t, merges, e)) == 0) {
        rc = tokenizer_finish(t, e);
    }
    if (rc < 0) {
        tokenizer_close(t);
        return rc;
    }
    *ret = t;
    return 0;
}

/* "bos_token": "text", {"content": "text"} or null. 1 found, 0 null or absent. */
static int named_token(const struct tokenizer *t, const json_t *config, const char *key, int32_t *ret, struct error *e)
{
    const json_t *v = json_object_get(config, key), *content = json_is_object(v) ? json_object_get(v, "content") : v;
    if (!v || json_is_null(v)) {
        return 0;
    }
    int32_t id = json_is_string(content) ? tokenizer_find(t, json_string_value(content), json_string_length(content)) : -1;
    if (id < 0) {
        return error_set(e, ERROR_FORMAT, "%s '%.80s' is not in the vocabulary", key, json_is_string(content) ? json_string_value(content) : "");
    }
    *ret = id;
    return 1;
}

static int keep_template(struct tokenizer *t, const char *text, struct error *e)
{
    free(t->chat_template);
    t->chat_template = strdup(text);
    return t->chat_template ? 0 : error_nomem(e, "chat template", strlen(text));
}

/* A string, or a list of {"name", "template"} of which "default" is meant. */
static int read_template(struct tokenizer *t, const json_t *v, struct error *e)
{
    if (json_is_string(v)) {
        return keep_template(t, json_string_value(v), e);
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *entry = json_array_get(v, i), *text = json_object_get(entry, "template");
        if (json_is_string(text) && strcmp(text_of(entry, "name"), "default") == 0) {
            return keep_template(t, json_string_value(text), e);
        }
    }
    return v && !json_is_null(v) ? error_set(e, ERROR_FORMAT, "chat_template: expected a text, or a list with a 'default'") : 0;
}

static int read_config(struct tokenizer *t, const json_t *config, struct error *e)
{
    int32_t eos = -1;
    t->adds_bos = is_set(config, "add_bos_token");
    int rc = named_token(t, config, "bos_token", &t->bos, e);
    if (rc >= 0 && (rc = named_token(t, config, "eos_token", &eos, e)) > 0) {
        rc = tokenizer_add_eos(t, eos, e);
    }
    return rc < 0 ? rc : read_template(t, json_object_get(config, "chat_template"), e);
}

static int read_generation(struct tokenizer *t, const json_t *config, struct error *e)
{
    const json_t *eos = json_object_get(config, "eos_token_id"), *bos = json_object_get(config, "bos_token_id");
    if (t->bos < 0 && json_is_integer(bos) && json_integer_value(bos) >= 0 && json_integer_value(bos) < t->n) {
        t->bos = (int32_t)json_integer_value(bos);
    }
    for (size_t i = 0; i < (json_is_array(eos) ? json_array_size(eos) : 1); i++) {
        const json_t *id = json_is_array(eos) ? json_array_get(eos, i) : eos;
        if (id && !json_is_null(id)) {
            int rc = json_is_integer(id) ? tokenizer_add_eos(t, json_integer_value(id), e)
                                         : error_set(e, ERROR_FORMAT, "eos_token_id: expected an integer or a list of them");
            if (rc < 0) {
                return rc;
            }
        }
    }
    return 0;
}

/* A template file wins over the one inside tokenizer_config.json, as in the reference. */
static int read_template_file(struct tokenizer *t, const char *folder, struct error *e)
{
    char *path = file_join(folder, "chat_template.jinja"), *text = NULL;
    size_t bytes = 0;
    int rc = path ? 0 : error_nomem(e, "chat template", 0);
    if (rc == 0 && file_exists(path) && (rc = file_read_all(path, TEMPLATE_LIMIT, &text, &bytes, e)) == 0) {
        rc = keep_template(t, text, e);
    }
    free(text);
    free(path);
    return rc;
}

typedef int (*config_fn)(struct tokenizer *t, const json_t *config, struct error *e);

static int read_optional(struct tokenizer *t, const char *folder, const char *name, config_fn read, struct error *e)
{
    json_t *config = NULL;
    int rc = load_json(folder, name, &config, e);
    if (rc <= 0) {
        return rc;
    }
    rc = read(t, config, e);
    json_decref(config);
    return rc < 0 ? error_prefix(e, rc, "%s/%s", folder, name) : 0;
}

int tokenizer_open_folder(const char *folder, struct tokenizer **ret, struct error *e)
{
    json_t *root = NULL;
    struct tokenizer *t = NULL;
    int rc = load_json(folder, "tokenizer.json", &root, e);
    if (rc <= 0) {
        return rc < 0 ? rc : error_set(e, -ENOENT, "%s: no tokenizer.json", folder);
    }
    rc = read_tokenizer(root, &t, e);
    json_decref(root);
    if (rc < 0) {
        return error_prefix(e, rc, "%s/tokenizer.json", folder);
    }
    if ((rc = read_optional(t, folder, "tokenizer_config.json", read_config, e)) < 0 ||
        (rc = read_optional(t, folder, "generation_config.json", read_generation, e)) < 0 || (rc = read_template_file(t, folder, e)) < 0) {
        tokenizer_close(t);
        return rc;
    }
    *ret = t;
    return 0;
}
