/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading files, stdin and token lists. Must not know: what they are for. */
#include "src/cli/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/json_text.h"
#include "src/cli/term.h"

void ids_deinit(struct ids *l)
{
    free(l->item);
    *l = (struct ids){ 0 };
}

int ids_append(struct ids *l, const int32_t *item, size_t n, struct sluice_error *e)
{
    if (n > l->cap - l->n) {
        size_t cap = l->n + n > 2 * l->cap ? l->n + n + 16 : 2 * l->cap;
        int32_t *grown = cap > SIZE_MAX / sizeof(*grown) ? NULL : realloc(l->item, cap * sizeof(*grown));
        if (grown == NULL) {
            return cli_fail(e, SLUICE_FAILED, "out of memory: list of %zu tokens", l->n + n);
        }
        l->item = grown;
        l->cap = cap;
    }
    if (n > 0) {
        memcpy(l->item + l->n, item, n * sizeof(*item));
    }
    l->n += n;
    return SLUICE_OK;
}

int ids_push(struct ids *l, int32_t id, struct sluice_error *e) { return ids_append(l, &id, 1, e); }

int ids_parse(const char *text, const char *what, struct ids *l, struct sluice_error *e)
{
    static const char between[] = ", \t\r\n[]";
    for (const char *p = text + strspn(text, between); *p != '\0'; p += strspn(p, between)) {
        char *end;
        errno = 0;
        long id = strtol(p, &end, 10);
        if (end == p || errno != 0 || id < 0 || id > INT32_MAX || (*end != '\0' && strchr(between, *end) == NULL)) {
            int len = (int)strcspn(p, between);
            return cli_fail(e, SLUICE_USAGE, "%s: \"%.*s\" is no token id; expected a list such as 5,17,23", what, len < 40 ? len : 40, p);
        }
        int r = ids_push(l, (int32_t)id, e);
        if (r != SLUICE_OK) {
            return r;
        }
        p = end;
    }
    return SLUICE_OK;
}

int ids_from_json(const json_t *list, const char *what, struct ids *l, struct sluice_error *e)
{
    if (!json_is_array(list)) {
        return cli_fail(e, SLUICE_FAILED, "%s: expected a list of token ids", what);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id > INT32_MAX) {
            return cli_fail(e, SLUICE_FAILED, "%s: item %zu is no token id; expected a whole number of at least 0", what, i);
        }
        int r = ids_push(l, (int32_t)id, e);
        if (r != SLUICE_OK) {
            return r;
        }
    }
    return SLUICE_OK;
}

void ids_print(struct str *out, const int32_t *item, size_t n)
{
    str_puts(out, "[");
    for (size_t i = 0; i < n; i++) {
        str_printf(out, i == 0 ? "%d" : ", %d", (int)item[i]);
    }
    str_puts(out, "]");
}

static int read_all(struct signals *s, int fd, const char *name, struct str *out, struct sluice_error *e)
{
    char chunk[16384];
    for (;;) {
        ssize_t n = signals_read(s, fd, chunk, sizeof(chunk));
        if (n == -EINTR) {
            return cli_fail(e, SLUICE_INTERRUPTED, "interrupted");
        }
        if (n < 0) {
            return cli_fail(e, SLUICE_FAILED, "%s: cannot read: %s", name, strerror((int)-n));
        }
        if (n == 0) {
            return out->failed ? cli_fail(e, SLUICE_FAILED, "%s: out of memory", name) : SLUICE_OK;
        }
        str_append(out, chunk, (size_t)n);
    }
}

int input_read(struct signals *s, const char *path, struct str *out, struct sluice_error *e)
{
    if (strcmp(path, "-") == 0) {
        return read_all(s, STDIN_FILENO, "stdin", out, e);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return cli_fail(e, SLUICE_FAILED, "%s: cannot open: %s", path, strerror(errno));
    }
    int r = read_all(s, fd, path, out, e);
    close(fd);
    return r;
}

int input_json(struct signals *s, const char *path, json_t **ret, struct sluice_error *e)
{
    struct str text = { 0 };
    int r = input_read(s, path, &text, e);
    if (r == SLUICE_OK) {
        struct error failed = { 0 };
        if (json_text_parse(text.data != NULL ? text.data : "", text.len, JSON_ALLOW_NUL, ret, &failed) < 0) {
            r = cli_fail(e, SLUICE_FAILED, "%s: %s; expected JSON", strcmp(path, "-") == 0 ? "stdin" : path, failed.text);
        }
    }
    str_deinit(&text);
    return r;
}
