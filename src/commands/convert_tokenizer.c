/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tokens with their types, merges, pre-tokenizer, special ids and chat template, from JSON to GGUF. What is wrong with the
 * files is found by opening them as the program does (src/model/tokenizer.h). Must not know: encoding, tensors. */
#include "src/commands/convert_tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "src/base/json_text.h"
#include "src/model/pretokenizer.h"
#include "src/model/tokenizer.h"

enum { FILE_LIMIT = 256 << 20, PAD_BYTES = 24, MAX_ENDS = 3, TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_USER = 4, TYPE_UNUSED = 5 };

struct convert_tokenizer {
    struct tokenizer *opened;
    json_t *root;                /* tokenizer.json */
    const char *pre;
    struct gguf_string *tokens;  /* [n] text in root, or in pads */
    int32_t *types;              /* [n] */
    char (*pads)[PAD_BYTES];     /* [n] */
    struct gguf_string *merges;  /* [n_merges] */
    char **joined;               /* [n_merges] malloc'd where the file has pairs */
    size_t n, n_merges;
    int32_t ends[MAX_ENDS];
    uint32_t n_ends;
    int32_t pad;                 /* -1: none named */
    const struct shape *shape;
};

static int load(const char *folder, const char *name, json_t **ret, struct error *e)
{
    char *path = file_join(folder, name), *text = NULL;
    size_t bytes = 0;
    int r = path != NULL ? file_read_all(path, FILE_LIMIT, &text, &bytes, e) : error_nomem(e, name, 0);
    r = r < 0 ? r : json_text_parse(text, bytes, JSON_ALLOW_NUL, ret, e);
    free(text);
    free(path);
    return r;
}

/* ---- pre-tokenizer ---- */

/* Patterns of the steps before ByteLevel, in order; more than there is room for is no known sequence. */
static size_t patterns_of(const json_t *pre, const char **out, size_t room)
{
    const json_t *list = json_object_get(pre, "pretokenizers");
    size_t n = 0, steps = list != NULL ? json_array_size(list) : 1;
    for (size_t i = 0; i < steps; i++) {
        const json_t *step = list != NULL ? json_array_get(list, i) : pre;
        const char *type = json_string_value(json_object_get(step, "type"));
        const char *regex = json_string_value(json_object_get(json_object_get(step, "pattern"), "Regex"));
        if (type != NULL && strcmp(type, "Digits") == 0) {
            regex = json_is_true(json_object_get(step, "individual_digits")) ? "\\p{N}" : "\\p{N}+";
        }
        if (regex != NULL && n < room) {
            out[n] = regex;
        }
        n += regex != NULL;
    }
    return n;
}

static int find_pre_tokenizer(struct convert_tokenizer *t, const char *folder, const char *pre, struct error *e)
{
    const char *patterns[PRETOKENIZER_MAX_SPLITS];
    size_t n = patterns_of(json_object_get(t->root, "pre_tokenizer"), patterns, PRETOKENIZER_MAX_SPLITS);
    if (pre != NULL) {
        struct pretokenizer known = {0}; /* an unknown name is refused with the known ones */
        int r = pretokenizer_add_named(&known, pre, strlen(pre), e);
        pretokenizer_deinit(&known);
        t->pre = pre;
        return r;
    }
    t->pre = n <= PRETOKENIZER_MAX_SPLITS ? pretokenizer_name(patterns, n) : NULL;
    return t->pre != NULL ? 0 : error_set(e, ERROR_FORMAT, "%s/tokenizer.json: its %zu patterns are those of no pre-tokenizer that GGUF files name "
                                          "(deepseek-v3, deepseek-llm, deepseek-coder, kimi-k2, glm4); if it is one of them, say which with "
                                          "--pre-tokenizer NAME", folder, n);
}

/* ---- tokens ---- */

static int out_of_range(const char *text, json_int_t id, size_t n, struct error *e)
{
    return error_set(e, ERROR_FORMAT, "tokenizer.json: token '%.60s' has id %lld, the model has %zu; the files do not belong together", text,
                     (long long)id, n);
}

/* Spellings in the brackets of chat layouts stay out of what a user types, as other converters have it. */
static bool looks_special(const char *text, size_t len)
{
    static const char *const brackets[][2] = {{"<|", "|>"}, {"<\xEF\xBD\x9C", "\xEF\xBD\x9C>"}};
    for (size_t i = 0; i < ARRAY_LEN(brackets); i++) {
        size_t a = strlen(brackets[i][0]), b = strlen(brackets[i][1]);
        if (len >= a + b && memcmp(text, brackets[i][0], a) == 0 && memcmp(text + len - b, brackets[i][1], b) == 0) {
            return true;
        }
    }
    return false;
}

static int add_vocabulary(struct convert_tokenizer *t, struct error *e)
{
    json_t *vocab = json_object_get(json_object_get(t->root, "model"), "vocab");
    for (void *it = json_object_iter(vocab); it != NULL; it = json_object_iter_next(vocab, it)) {
        json_int_t id = json_integer_value(json_object_iter_value(it));
        if (id < 0 || (size_t)id >= t->n) {
            return out_of_range(json_object_iter_key(it), id, t->n, e);
        }
        t->tokens[id] = (struct gguf_string){json_object_iter_key(it), json_object_iter_key_len(it)};
        t->types[id] = TYPE_NORMAL;
    }
    const json_t *added = json_object_get(t->root, "added_tokens");
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i), *content = json_object_get(token, "content");
        json_int_t id = json_integer_value(json_object_get(token, "id"));
        const char *text = json_string_value(content);
        size_t len = json_string_length(content);
        if (id < 0 || (size_t)id >= t->n) {
            return out_of_range(text, id, t->n, e);
        }
        t->tokens[id] = (struct gguf_string){text, len};
        t->types[id] = json_is_true(json_object_get(token, "special")) || looks_special(text, len) ? TYPE_CONTROL : TYPE_USER;
    }
    for (size_t i = 0; i < t->n; i++) {
        if (t->types[i] == 0) {
            int len = snprintf(t->pads[i], PAD_BYTES, "[PAD%zu]", i);
            t->tokens[i] = (struct gguf_string){t->pads[i], (uint64_t)len};
            t->types[i] = TYPE_UNUSED;
        }
    }
    return 0;
}

static int add_merges(struct convert_tokenizer *t, struct error *e)
{
    const json_t *merges = json_object_get(json_object_get(t->root, "model"), "merges");
    for (size_t i = 0; i < t->n_merges; i++) {
        const json_t *merge = json_array_get(merges, i);
        if (json_is_string(merge)) {
            t->merges[i] = (struct gguf_string){json_string_value(merge), json_string_length(merge)};
            continue;
        }
        const char *left = json_string_value(json_array_get(merge, 0)), *right = json_string_value(json_array_get(merge, 1));
        size_t len = strlen(left) + strlen(right) + 1;
        if (strchr(left, ' ') != NULL || strchr(right, ' ') != NULL) {
            return error_set(e, ERROR_FORMAT, "tokenizer.json: merge %zu has a space in it, which GGUF cannot say", i);
        }
        t->joined[i] = malloc(len + 1);
        if (t->joined[i] == NULL) {
            return error_nomem(e, "merges", len);
        }
        snprintf(t->joined[i], len + 1, "%s %s", left, right);
        t->merges[i] = (struct gguf_string){t->joined[i], len};
    }
    return 0;
}

/* ---- special tokens ---- */

static void add_end(struct convert_tokenizer *t, int32_t id)
{
    for (uint32_t i = 0; i < t->n_ends; i++) {
        if (t->ends[i] == id) {
            return;
        }
    }
    if (t->n_ends < MAX_ENDS) {
        t->ends[t->n_ends++] = id;
    }
}

/* End tokens of the tokenizer's own files first, then of config.json and generation_config.json. */
static int find_ends(struct convert_tokenizer *t, const char *folder, struct error *e)
{
    size_t n;
    const int32_t *ends = tokenizer_eos(t->opened, &n);
    json_t *config = NULL;
    for (size_t i = 0; i < n; i++) {
        add_end(t, ends[i]);
    }
    for (uint32_t i = 0; i < t->shape->n_eos; i++) {
        add_end(t, t->shape->eos[i]);
    }
    t->pad = -1;
    char *path = file_join(folder, "tokenizer_config.json");
    bool there = path != NULL && file_exists(path);
    free(path);
    int r = there ? load(folder, "tokenizer_config.json", &config, e) : 0;
    const json_t *pad = json_object_get(config, "pad_token");
    const char *text = json_string_value(json_is_object(pad) ? json_object_get(pad, "content") : pad);
    if (text != NULL) {
        t->pad = tokenizer_special_id(t->opened, text);
    }
    json_decref(config);
    return r;
}

static int allocate(struct convert_tokenizer *t, struct error *e)
{
    t->n = t->shape->vocab;
    t->n_merges = json_array_size(json_object_get(json_object_get(t->root, "model"), "merges"));
    t->tokens = calloc(t->n, sizeof(*t->tokens));
    t->types = calloc(t->n, sizeof(*t->types));
    t->pads = calloc(t->n, sizeof(*t->pads));
    t->merges = calloc(t->n_merges + 1, sizeof(*t->merges));
    t->joined = calloc(t->n_merges + 1, sizeof(*t->joined));
    bool ok = t->tokens != NULL && t->types != NULL && t->pads != NULL && t->merges != NULL && t->joined != NULL;
    return ok ? 0 : error_nomem(e, "vocabulary", t->n * sizeof(*t->tokens));
}

int convert_tokenizer_open(const char *folder, const char *pre, const struct shape *s, struct convert_tokenizer **ret, struct error *e)
{
    struct convert_tokenizer *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return error_nomem(e, "tokenizer", sizeof(*t));
    }
    t->shape = s;
    int r = tokenizer_open_folder(folder, &t->opened, e);
    r = r < 0 ? r : load(folder, "tokenizer.json", &t->root, e);
    r = r < 0 ? r : find_pre_tokenizer(t, folder, pre, e);
    r = r < 0 ? r : allocate(t, e);
    r = r < 0 ? r : add_vocabulary(t, e);
    r = r < 0 ? r : add_merges(t, e);
    r = r < 0 ? r : find_ends(t, folder, e);
    if (r < 0) {
        convert_tokenizer_close(t);
        return r;
    }
    *ret = t;
    return 0;
}

void convert_tokenizer_close(struct convert_tokenizer *t)
{
    if (t == NULL) {
        return;
    }
    for (size_t i = 0; t->joined != NULL && i < t->n_merges; i++) {
        free(t->joined[i]);
    }
    free(t->joined);
    free(t->merges);
    free(t->pads);
    free(t->types);
    free(t->tokens);
    json_decref(t->root);
    tokenizer_close(t->opened);
    free(t);
}

/* ---- keys ---- */

static void put_text(struct gguf_writer *w, const char *key, const char *text) { gguf_writer_string(w, key, text, strlen(text)); }

static void put_ids(struct gguf_writer *w, int32_t bos, const int32_t *ends, uint32_t n_ends)
{
    static const char *const keys[MAX_ENDS] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    if (bos >= 0) {
        gguf_writer_integer(w, "tokenizer.ggml.bos_token_id", GGUF_U32, (uint32_t)bos);
    }
    for (uint32_t i = 0; i < n_ends && i < MAX_ENDS; i++) {
        gguf_writer_integer(w, keys[i], GGUF_U32, (uint32_t)ends[i]);
    }
}

void convert_tokenizer_write(const struct convert_tokenizer *t, struct gguf_writer *w)
{
    int32_t bos = tokenizer_bos(t->opened);
    const char *template = tokenizer_chat_template(t->opened);
    put_text(w, "tokenizer.ggml.model", "gpt2");
    put_text(w, "tokenizer.ggml.pre", t->pre);
    gguf_writer_array(w, "tokenizer.ggml.tokens", GGUF_STRING, NULL, t->tokens, t->n);
    gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, t->types, NULL, t->n);
    gguf_writer_array(w, "tokenizer.ggml.merges", GGUF_STRING, NULL, t->merges, t->n_merges);
    put_ids(w, bos >= 0 ? bos : t->shape->bos, t->ends, t->n_ends);
    if (t->pad >= 0) {
        gguf_writer_integer(w, "tokenizer.ggml.padding_token_id", GGUF_U32, (uint32_t)t->pad);
    }
    gguf_writer_integer(w, "tokenizer.ggml.add_bos_token", GGUF_BOOL, tokenizer_adds_bos(t->opened));
    gguf_writer_integer(w, "tokenizer.ggml.add_eos_token", GGUF_BOOL, 0);
    if (template != NULL) {
        put_text(w, "tokenizer.chat_template", template);
    }
}

void convert_tokenizer_write_ids(const struct shape *s, struct gguf_writer *w) { put_ids(w, s->bos, s->eos, s->n_eos); }
