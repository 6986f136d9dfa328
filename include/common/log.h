/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the shape of a log sink. A sink belongs to an engine or a command and is handed down; there is no global one.
 * Must not know: terminals, files. */
#ifndef SLUICE_COMMON_LOG_H
#define SLUICE_COMMON_LOG_H

#include "common/attr.h"

#ifdef __cplusplus
extern "C" {
#endif

enum log_level { LOG_ERROR, LOG_WARN, LOG_NOTICE, LOG_INFO, LOG_DEBUG };

/* `write` receives one finished line without newline; it may be called from any thread. */
struct log {
    enum log_level level; /* lines above it are not formatted */
    void (*write)(void *ctx, enum log_level level, const char *line);
    void *ctx;
};

/* Formats (cut at 2,000 bytes) and hands the line to the sink. `l` may be NULL: nothing happens. */
void log_print(const struct log *l, enum log_level level, const char *fmt, ...) ATTR_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif

#endif
