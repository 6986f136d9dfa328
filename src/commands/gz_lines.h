/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the lines of a text file, plain or gzip. Must not know: what is in them. */
#ifndef SLUICE_COMMANDS_GZ_LINES_H
#define SLUICE_COMMANDS_GZ_LINES_H

#include "common/error.h"

/* Calls `use` for every line, without its end, until one returns below 0, which is returned. `most`: bytes of a line with its end and a
 * NUL. Refused by path and line: zero bytes, longer lines, damaged gzip data (ERROR_FORMAT), what cannot be opened or read (-errno). */
int gz_lines_read(const char *path, int most, int (*use)(void *ctx, char *line, struct error *e), void *ctx, struct error *e);

#endif
