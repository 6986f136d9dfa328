/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the tokenizer.* keys of GGUF metadata. Must not know: encoding, tensors. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/tokenizer_build.h"

/* Token types of the format; 2 (unknown) and 6 (byte) do not occur in byte-level vocabularies. */
enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_USER = 4, TYPE_UNUSED = 5 };

static int find_list(const struct gguf_meta *meta, const char *key, bool strings, const struct gguf_value **ret, struct error *e)
{
    const struct gguf_value *v = gguf_find(meta, key);
    bool fits = v && v->type == GGUF_ARRAY && (strings ? v->element == GGUF_STRING : v->element != GGUF_STRING && v->element != GGUF_F32 &&
                                                                                         v->element != GGUF_F64 && v->element != GGUF_ARRAY);
    if (!fits) {
        return error_set(e, ERROR_FORMAT, "%s %s, expected a list of %s", key, v ? "has another type" : "is missing", strings ? "strings" : "integers");
    }
    *ret = v;
    return 0;
}

static int add_tokens(struct tokenizer *t, const struct gguf_value *tokens, const struct gguf_value *types, bool added, struct error *e)
{
    for (uint64_t id = 0; id < tokens->count; id++) {
        const struct gguf_string *text = &tokens->strings[id];
        int64_t type = gguf_array_i64(types, id);
        bool is_added = type == TYPE_CONTROL || type == TYPE_USER;
        if (type == TYPE_UNUSED || is_added != added) {
            continue;
        }
        if (!is_added && type != TYPE_NORMAL) {
            return error_set(e, ERROR_FORMAT, "token %llu has type %lld, expected 1, 3, 4 or 5", (unsigned long long)id, (long long)type);
        }
        enum token_kind kind = type == TYPE_CONTROL ? TOKEN_CONTROL : type == TYPE_USER ? TOKEN_ADDED : TOKEN_NORMAL;
        int rc = tokenizer_add(t, (int64_t)id, text->data, text->len, kind, type == TYPE_USER ? ADDED_SECOND : ADDED_FIRST, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int add_merges(struct tokenizer *t, const struct gguf_value *merges, struct error *e)
{
    for (uint64_t i = 0; i < merges->count; i++) {
        int rc = tokenizer_add_merge_text(t, (uint32_t)i, merges->strings[i].data, merges->strings[i].len, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int read_vocabulary(const struct gguf_meta *meta, struct tokenizer **ret, struct error *e)
{
    const struct gguf_value *tokens = NULL, *types = NULL, *merges = NULL;
    int rc = find_list(meta, "tokenizer.ggml.tokens", true, &tokens, e);
    if (rc == 0 && (rc = find_list(meta, "tokenizer.ggml.token_type", false, &types, e)) == 0) {
        rc = find_list(meta, "tokenizer.ggml.merges", true, &merges, e);
    }
    if (rc < 0) {
        return rc;
    }
    if (types->count != tokens->count) {
        return error_set(e, ERROR_FORMAT, "tokenizer.ggml.token_type has %llu entries, expected %llu", (unsigned long long)types->count,
                         (unsigned long long)tokens->count);
    }
    struct tokenizer *t = NULL;
    rc = tokenizer_create(tokens->count, merges->count, &t, e);
    if (rc == 0 && (rc = add_tokens(t, tokens, types, false, e)) == 0 && (rc = add_tokens(t, tokens, types, true, e)) == 0 &&
        (rc = add_merges(t, merges, e)) == 0) {
        rc = tokenizer_finish(t, e);
    }
    if (rc < 0) {
        tokenizer_close(t);
        return rc;
    }
    *ret = t;
    return 0;
}

/* Kimi's tokenizer (tiktoken) takes a piece that is a token as it is, without merging. */
static int read_pre_tokenizer(struct tokenizer *t, const struct gguf_meta *meta, const char *pre_override, struct error *e)
{
    struct gguf_string pre = { 0 };
    if (pre_override && strcmp(pre_override, "auto") != 0) {
        pre = (struct gguf_string){ .data = pre_override, .len = strlen(pre_override) };
    } else {
        int rc = gguf_get_string(meta, "tokenizer.ggml.pre", &pre, e);
        if (rc <= 0) {
            return rc < 0 ? rc : error_set(e, ERROR_FORMAT, "tokenizer.ggml.pre is missing; name the pre-tokenizer with --pre-tokenizer NAME");
        }
    }
    t->whole_pieces = pre.len == 7 && memcmp(pre.data, "kimi-k2", 7) == 0;
    return pretokenizer_add_named(&t->pre, pre.data, pre.len, e);
}

static int read_special(struct tokenizer *t, const struct gguf_meta *meta, struct error *e)
{
    static const char *const ends[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id" };
    uint64_t id;
    int rc = gguf_get_u64(meta, "tokenizer.ggml.bos_token_id", &id, e);
    if (rc > 0) {
        if (id > INT32_MAX || !tokenizer_has(t, (int32_t)id)) {
            return error_set(e, ERROR_FORMAT, "tokenizer.ggml.bos_token_id %llu is not in the vocabulary", (unsigned long long)id);
        }
        t->bos = (int32_t)id;
    }
    for (size_t i = 0; i < ARRAY_LEN(ends) && rc >= 0; i++) {
        rc = gguf_get_u64(meta, ends[i], &id, e);
        if (rc > 0) {
            rc = tokenizer_add_eos(t, id > INT32_MAX ? -1 : (int64_t)id, e);
        }
    }
    if (rc >= 0) {
        rc = gguf_get_bool(meta, "tokenizer.ggml.add_bos_token", &t->adds_bos, e);
    }
    struct gguf_string template;
    if (rc < 0 || (rc = gguf_get_string(meta, "tokenizer.chat_template", &template, e)) <= 0) {
        return rc;
    }
    t->chat_template = strndup(template.data, template.len);
    return t->chat_template ? 0 : error_nomem(e, "chat template", template.len);
}

int tokenizer_open_gguf(const struct gguf_meta *meta, const char *where, const char *pre_override, struct tokenizer **ret, struct error *e)
{
    struct gguf_string model;
    struct tokenizer *t = NULL;
    int rc = gguf_get_string(meta, "tokenizer.ggml.model", &model, e);
    if (rc == 0) {
        return error_set(e, -ENOENT, "%s: no tokenizer in this file (key tokenizer.ggml.model)", where);
    }
    if (rc > 0 && (model.len != 4 || memcmp(model.data, "gpt2", 4) != 0)) {
        rc = error_set(e, ERROR_FORMAT, "tokenizer.ggml.model is '%.*s', expected gpt2 (byte-level BPE)", model.len > 40 ? 40 : (int)model.len,
                       model.data);
    }
    if (rc > 0 && (rc = read_vocabulary(meta, &t, e)) == 0 && (rc = read_pre_tokenizer(t, meta, pre_override, e)) == 0) {
        rc = read_special(t, meta, e);
    }
    if (rc < 0) {
        tokenizer_close(t);
        return error_prefix(e, rc, "%s", where);
    }
    *ret = t;
    return 0;
}
