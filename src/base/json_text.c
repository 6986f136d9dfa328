/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: JSON text to a jansson tree and back, with this project's error codes. Must not know: what the text says.
 *
 * jansson keeps the token it reads in one growing buffer and goes on when growing fails: a character is lost, or an assertion
 * ends the process. So the text is parsed as the second element of a list whose first is a string longer than any of its
 * tokens: if that string comes out whole, the buffer never grows again. Other failed allocations end the parse and show in
 * errno. */
#include "src/base/json_text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"

enum { PAD = 'x' };
static const char open_text[] = "[\"", middle_text[] = "\",\n", close_text[] = "]";

/* What jansson reads: open, pad, middle, text, close. */
struct source {
    const char *text;
    size_t len, pad, at; /* at: over all five parts */
};

/* Bytes of the longest string or word. */
static size_t longest_token(const char *text, size_t len)
{
    size_t longest = 0, start = 0;
    bool string = false;
    for (size_t i = 0; i < len; i++) {
        if (string && text[i] == '\\') {
            i++;
        } else if (text[i] == '"' || (!string && memchr(" \t\r\n,:[]{}", text[i], 10) != NULL)) {
            longest = max_u64(longest, i - start);
            start = i + 1;
            string = string != (text[i] == '"');
        }
    }
    return max_u64(longest, len - start);
}

static size_t take(struct source *s, char *out, size_t n, const char *part, size_t part_len, size_t part_at)
{
    if (s->at < part_at || s->at >= part_at + part_len) {
        return 0;
    }
    size_t from = s->at - part_at, got = min_u64(n, part_len - from);
    if (part != NULL) {
        memcpy(out, part + from, got);
    } else {
        memset(out, PAD, got);
    }
    s->at += got;
    return got;
}

static size_t read_source(void *out, size_t n, void *ctx)
{
    struct source *s = ctx;
    const struct {
        const char *text;
        size_t len;
    } parts[] = { { open_text, 2 }, { NULL, s->pad }, { middle_text, 3 }, { s->text, s->len }, { close_text, 1 } };
    size_t done = 0, at = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        done += take(s, (char *)out + done, n - done, parts[i].text, parts[i].len, at);
        at += parts[i].len;
    }
    return done;
}

static int refuse(const struct source *s, const json_error_t *where, struct error *e)
{
    size_t before = 2 + s->pad + 3;
    if (where->position >= 0 && (size_t)where->position > before + s->len) {
        return error_set(e, ERROR_FORMAT, "line %d: the text ends before its value does; it is empty or cut off", where->line - 1);
    }
    return error_set(e, ERROR_FORMAT, "line %d column %d: %s", where->line - 1, where->column, where->text);
}

int json_text_parse(const char *text, size_t len, size_t flags, json_t **ret, struct error *e)
{
    struct source s = { .text = text, .len = len, .pad = longest_token(text, len) + 64 };
    json_error_t where;
    errno = 0;
    json_t *list = json_load_callback(read_source, &s, flags, &where);
    bool lost = errno == ENOMEM || (list != NULL && json_string_length(json_array_get(list, 0)) != s.pad);
    int r = lost ? error_nomem(e, "JSON text", len) : list == NULL ? refuse(&s, &where, e) : 0;
    json_t *root = json_array_get(list, 1);
    if (r == 0 && (json_array_size(list) != 2 || !(json_is_object(root) || json_is_array(root)))) {
        r = error_set(e, ERROR_FORMAT, "the text is not one object or list");
    }
    if (r == 0) {
        *ret = json_incref(root);
    }
    json_decref(list);
    return r;
}

/* Here too jansson goes on with a piece less when its buffer cannot grow. */
char *json_text_print(const json_t *value, size_t flags)
{
    errno = 0;
    char *text = json_dumps(value, flags);
    if (errno == ENOMEM) {
        free(text);
        text = NULL;
    }
    return text;
}
