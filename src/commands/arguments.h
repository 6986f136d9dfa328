/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the command line of commands that only look at a model: its flags, the few settings that matter, help; and
 * printing a finished text. Must not know: what a command does. */
#ifndef SLUICE_COMMANDS_ARGUMENTS_H
#define SLUICE_COMMANDS_ARGUMENTS_H

#include <stdbool.h>

#include "common/error.h"
#include "src/base/settings.h"
#include "src/base/str.h"
#include "src/model/bind.h"

/* A flag of the command itself. Exactly one of the two targets is set. */
struct argument {
    const char *flag;
    bool *present;     /* flag without a value */
    const char **text; /* flag with a value, as typed */
};

/* Reads SLUICE_* and argv into *s (initialised): -m, --mtp-from, --mtp, --expert-groups, and `own` (ends with a NULL
 * flag). Without --help a model is required; *ret_help: help was asked for. */
int arguments_read(int argc, char **argv, const struct argument *own, struct settings *s, bool *ret_help, struct error *e);

/* The same without requiring a model. */
int arguments_read_few(int argc, char **argv, const struct argument *own, struct settings *s, bool *ret_help, struct error *e);

/* The same with every setting of `sluice run`, and no model required. A flag of `own` goes before a setting. */
int arguments_read_all(int argc, char **argv, const struct argument *own, struct settings *s, bool *ret_help, struct error *e);

/* ERROR_USAGE for a word that is no flag: what does the same as a flag of llama.cpp, else the nearest flag there is. */
int arguments_refuse(const char *flag, const struct argument *own, bool all, struct error *e);

struct bind_options arguments_bind(const struct settings *s); /* pointers into s; header-only files are not allowed */

/* Writes s to standard output and empties it. */
int arguments_print(struct str *s, struct error *e);

/* "sluice COMMAND: text" on stderr for a negative code; returns the exit status. */
int arguments_finish(const char *command, int code, const struct error *e);

#endif
