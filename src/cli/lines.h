/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: line editing on a terminal with history, pastes of several lines, interruption. Must not know: what is typed. */
#ifndef SLUICE_CLI_LINES_H
#define SLUICE_CLI_LINES_H

#include <stdbool.h>

#include "sluice/sluice.h"
#include "src/base/str.h"
#include "src/cli/signals.h"

struct lines;

/* Prompts and echo go to stderr: stdout is the answer's. */
int lines_create(struct signals *signals, struct lines **ret, struct sluice_error *e);
void lines_destroy(struct lines *l); /* saves the history; accepts NULL */

enum lines_result { LINES_TEXT, LINES_END, LINES_INTERRUPTED, LINES_STOP };

/* Appends what was typed, without the last newline. A line that ends in a backslash goes on, and so does a paste.
 * INTERRUPTED: Ctrl-C at an empty prompt (on a line with text it starts the line anew). STOP: SIGTERM. */
enum lines_result lines_read(struct lines *l, const char *prompt, struct str *out);

#endif
