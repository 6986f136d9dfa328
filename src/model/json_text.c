/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: JSON text to a jansson tree, with this project's error codes. Must not know: what the text says. */
#include "src/model/json_text.h"

#include <errno.h>

/* jansson reports some failed allocations as syntax errors, and at others drops a character of a string. errno tells, as
 * long as no number follows (jansson resets it there). */
int json_text_parse(const char *text, size_t len, json_t **ret, struct error *e)
{
    json_error_t where;
    errno = 0;
    json_t *root = json_loadb(text, len, JSON_ALLOW_NUL, &where);
    if (errno == ENOMEM) {
        json_decref(root);
        return error_nomem(e, "JSON text", len);
    }
    if (root) {
        *ret = root;
        return 0;
    }
    return error_set(e, ERROR_FORMAT, "line %d column %d: %s", where.line, where.column, where.text);
}
