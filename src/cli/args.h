/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: command lines: one table per command, help made from it, refusals that say what was meant.
 * Must not know: what a flag does. */
#ifndef SLUICE_CLI_ARGS_H
#define SLUICE_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice/sluice.h"

enum arg_kind {
    ARG_SWITCH, /* bool * */
    ARG_TEXT,   /* const char **, points into argv */
    ARG_INT,    /* int64_t * */
    ARG_FLOAT,  /* float *, finite */
    ARG_CALL,   /* `call` takes the value */
};

struct arg {
    const char *name;  /* "--temp" */
    const char *alias; /* "-s", or NULL */
    enum arg_kind kind;
    const char *value; /* "N"; NULL for a switch */
    const char *help;
    void *target;
    int (*call)(void *target, const char *value, struct sluice_error *e);
};

struct args_spec {
    const char *command, *usage, *summary, *examples; /* examples: lines, indented by two */
    const struct arg *args; /* [n] */
    size_t n;
    const char **positional; /* NULL: none is taken */
    bool settings;           /* flags of every command that runs a model, too */
};

/* *ret_help: help was asked for and has been printed. options: where settings go (NULL if !spec->settings). */
int args_parse(const struct args_spec *spec, int argc, char **argv, struct sluice_options *options, bool *ret_help, struct sluice_error *e);

#endif
