/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: formatting of log lines. Must not know: where they go. */
#include "common/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "src/base/str.h"

void log_print(const struct log *l, enum log_level level, const char *fmt, ...)
{
    if (l == NULL || l->write == NULL || level > l->level) {
        return;
    }
    char line[2001];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    text_one_line(line);
    l->write(l->ctx, level, line);
}
