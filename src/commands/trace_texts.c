/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: trace_texts.h. Must not know: what is made of texts. */
#include "src/commands/trace_texts.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>

#include "io/file.h"
#include "src/base/json_text.h"

enum { FILE_MOST = 1 << 30 };

static int wrong(const char *path, size_t text, size_t at, struct error *e)
{
    return error_set(e, ERROR_FORMAT, "%s: text %zu, token %zu: expected a token id, a number that is not negative", path, text, at);
}

static int read_text(struct trace_text *t, const json_t *list, const char *path, size_t number, struct error *e)
{
    size_t n = json_array_size(list);
    if (n == 0 || n > INT32_MAX) {
        return error_set(e, ERROR_FORMAT, "%s: text %zu: expected a list of at least one token id", path, number);
    }
    t->tokens = malloc(n * sizeof(*t->tokens));
    if (t->tokens == NULL) {
        return error_nomem(e, "texts", n * sizeof(*t->tokens));
    }
    t->n = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX) {
            return wrong(path, number, i, e);
        }
        t->tokens[i] = (int32_t)json_integer_value(id);
    }
    return 0;
}

static int read_texts(struct trace_texts *t, const json_t *root, const char *path, struct error *e)
{
    bool one = json_is_integer(json_array_get(root, 0));
    size_t n = one ? 1 : json_array_size(root);
    if (n == 0) {
        return error_set(e, ERROR_FORMAT, "%s: expected a list of token ids, or a list of such lists", path);
    }
    t->item = calloc(n, sizeof(*t->item));
    if (t->item == NULL) {
        return error_nomem(e, "texts", n * sizeof(*t->item));
    }
    int r = 0;
    for (; r == 0 && t->n < n; t->n++) {
        r = read_text(&t->item[t->n], one ? root : json_array_get(root, t->n), path, t->n, e);
        t->longest = t->item[t->n].n > t->longest ? t->item[t->n].n : t->longest;
    }
    return r;
}

int trace_texts_read(const char *path, struct trace_texts *ret, struct error *e)
{
    struct trace_texts t = {0};
    json_t *root = NULL;
    char *text = NULL;
    size_t bytes = 0;
    int r = file_read_all(path, FILE_MOST, &text, &bytes, e);
    if (r < 0) {
        return r;
    }
    r = json_text_parse(text, bytes, 0, &root, e);
    free(text);
    if (r < 0) {
        return error_prefix(e, r, "%s", path);
    }
    r = read_texts(&t, root, path, e);
    json_decref(root);
    if (r < 0) {
        trace_texts_deinit(&t);
        return r;
    }
    *ret = t;
    return 0;
}

void trace_texts_deinit(struct trace_texts *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free(t->item[i].tokens);
    }
    free(t->item);
    *t = (struct trace_texts){0};
}

int trace_texts_check(const struct trace_texts *t, const char *path, uint32_t vocab, struct error *e)
{
    for (size_t i = 0; i < t->n; i++) {
        for (uint32_t k = 0; k < t->item[i].n; k++) {
            if ((uint32_t)t->item[i].tokens[k] >= vocab) {
                return error_set(e, ERROR_USAGE, "%s: text %zu, token %u is %d; the model has ids 0 to %u", path, i, k, (int)t->item[i].tokens[k], vocab - 1);
            }
        }
    }
    return 0;
}
