/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: public API: tokenizer and chat layouts. Must not compute. */
#include <stdlib.h>
#include <string.h>

#include "src/run/api.h"

int sluice_tokenizer_open(const char *path, const char *pre, struct sluice_tokenizer **ret, struct sluice_error *error)
{
    struct error e = {0};
    struct sluice_tokenizer *t = calloc(1, sizeof(*t));
    int r = t ? tokenizer_open(path, pre, &t->tokenizer, &e) : error_nomem(&e, "tokenizer", sizeof(*t));
    if (r < 0) {
        free(t);
        return api_status(r, &e, error);
    }
    *ret = t;
    return api_status(0, &e, error);
}

void sluice_tokenizer_close(struct sluice_tokenizer *t)
{
    if (t) {
        tokenizer_close(t->tokenizer);
        free(t);
    }
}

static int take_ids(int code, struct token_list *l, int32_t **ret_ids, size_t *ret_n, const struct error *e, struct sluice_error *error)
{
    if (code < 0) {
        token_list_deinit(l);
        return api_status(code, e, error);
    }
    *ret_ids = l->ids; /* NULL when there are none */
    *ret_n = l->n;
    return api_status(0, e, error);
}

int sluice_tokenize(const struct sluice_tokenizer *t, const char *text, size_t len, unsigned flags, int32_t **ret_ids, size_t *ret_n, struct sluice_error *error)
{
    struct error e = {0};
    struct token_list l = {0};
    int r = 0;
    if ((flags & SLUICE_BOS) && tokenizer_bos(t->tokenizer) >= 0 && token_list_push(&l, tokenizer_bos(t->tokenizer)) < 0) {
        r = error_nomem(&e, "token list", 4);
    }
    r = r < 0 ? r : tokenizer_encode(t->tokenizer, text, len, flags & SLUICE_SPECIAL ? TOKENIZE_SPECIAL : 0, &l, &e);
    return take_ids(r, &l, ret_ids, ret_n, &e, error);
}

int sluice_detokenize(const struct sluice_tokenizer *t, const int32_t *ids, size_t n, char **ret_bytes, size_t *ret_len, struct sluice_error *error)
{
    struct str s = {0};
    str_append(&s, "", 0);
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(t->tokenizer, ids[i], &len);
        str_append(&s, bytes, len);
    }
    return api_take(&s, ret_bytes, ret_len, error);
}

const char *sluice_token_bytes(const struct sluice_tokenizer *t, int32_t id, size_t *ret_len)
{
    return tokenizer_token_bytes(t->tokenizer, id, ret_len);
}

bool sluice_token_is_special(const struct sluice_tokenizer *t, int32_t id)
{
    return tokenizer_is_special(t->tokenizer, id);
}

bool sluice_tokenizer_adds_bos(const struct sluice_tokenizer *t)
{
    return tokenizer_adds_bos(t->tokenizer);
}

const char *sluice_chat_layout(const struct sluice_tokenizer *t)
{
    enum chat_layout l = chat_layout_of_template(tokenizer_chat_template(t->tokenizer));
    return l == CHAT_NONE ? NULL : l == CHAT_UNKNOWN ? "unknown" : chat_layout_name(l);
}

static int render(const struct sluice_tokenizer *t, const char *layout, const char *request, size_t len, struct chat_prompt *ret, struct error *e)
{
    enum chat_layout l = layout ? chat_layout_by_name(layout) : chat_layout_of_template(tokenizer_chat_template(t->tokenizer));
    if (layout && l == CHAT_UNKNOWN) {
        return error_set(e, ERROR_USAGE, "no chat template is called \"%s\"; built in are v3, r1, r1-0528, v3.1 and plain", layout);
    }
    return chat_render(l, t->tokenizer, request, len, ret, e);
}

int sluice_chat_text(const struct sluice_tokenizer *t, const char *layout, const char *request, size_t len, char **ret_text, size_t *ret_len, struct sluice_error *error)
{
    struct error e = {0};
    struct chat_prompt p = {0};
    int r = render(t, layout, request, len, &p, &e);
    if (r == 0) {
        char *text = chat_prompt_text(&p, ret_len);
        r = text ? 0 : error_nomem(&e, "chat text", len);
        if (text) {
            *ret_text = text;
        }
    }
    chat_prompt_deinit(&p);
    return api_status(r, &e, error);
}

int sluice_chat_tokens(const struct sluice_tokenizer *t, const char *layout, const char *request, size_t len, int32_t **ret_ids, size_t *ret_n, struct sluice_error *error)
{
    struct error e = {0};
    struct chat_prompt p = {0};
    struct token_list l = {0};
    int r = render(t, layout, request, len, &p, &e);
    r = r < 0 ? r : chat_prompt_tokens(&p, t->tokenizer, &l, &e);
    chat_prompt_deinit(&p);
    return take_ids(r, &l, ret_ids, ret_n, &e, error);
}
