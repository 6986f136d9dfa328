/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: how errors are stored, joined and turned into an exit status. Must not know: who prints them. */
#include "common/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/str.h"

int error_set(struct error *e, int code, const char *fmt, ...)
{
    if (e == NULL) {
        return code;
    }
    char text[sizeof(e->text)]; /* arguments may point into e->text */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    text_one_line(text);
    memcpy(e->text, text, sizeof(text));
    e->code = code;
    return code;
}

int error_prefix(struct error *e, int code, const char *fmt, ...)
{
    if (e == NULL) {
        return code;
    }
    char text[2 * sizeof(e->text) + 3];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(e->text), fmt, ap);
    va_end(ap);
    size_t len = strlen(text);
    snprintf(text + len, sizeof(text) - len, ": %s", e->text);
    text[sizeof(e->text) - 1] = '\0';
    text_one_line(text);
    memcpy(e->text, text, sizeof(e->text));
    if (e->code == 0) {
        e->code = code;
    }
    return e->code;
}

int error_nomem(struct error *e, const char *what, unsigned long long bytes)
{
    return error_set(e, -ENOMEM, "out of memory: %s (%llu bytes)", what, bytes);
}

int error_exit_status(int code)
{
    switch (code) {
    case 0:
        return 0;
    case ERROR_USAGE:
        return 2;
    case ERROR_DOES_NOT_FIT:
        return 3;
    case ERROR_INTERRUPTED:
        return 130;
    default:
        return 1;
    }
}
