/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the commands of src/cli share: the process's terminal and signals, options, opening a model.
 * Must not know: what a command does. */
#ifndef SLUICE_CLI_H
#define SLUICE_CLI_H

#include "sluice/sluice.h"
#include "src/cli/args.h"
#include "src/cli/signals.h"
#include "src/cli/term.h"

struct cli {
    struct term term;
    struct signals signals;
};

/* argv[0] is the command's name; return the exit status. */
int cli_run(struct cli *c, int argc, char **argv);
int cli_score(struct cli *c, int argc, char **argv);
int cli_tokenize(struct cli *c, int argc, char **argv);
int cli_detokenize(struct cli *c, int argc, char **argv);
int cli_template(struct cli *c, int argc, char **argv);

/* Rows of every table: how much is said on stderr. */
struct verbosity {
    bool quiet, verbose, debug;
};
#define VERBOSITY_ARGS(v)                                                                        \
    { "--quiet", "-q", ARG_SWITCH, NULL, "only errors on stderr", &(v)->quiet, NULL },           \
        { "--verbose", "-v", ARG_SWITCH, NULL, "more on stderr", &(v)->verbose, NULL },          \
        { "--debug", NULL, ARG_SWITCH, NULL, "everything on stderr", &(v)->debug, NULL }
void cli_set_verbosity(struct cli *c, const struct verbosity *v);

/* Defaults and the environment; freed with sluice_options_destroy. */
int cli_options(struct sluice_options **ret, struct sluice_error *e);
/* Opens the model with progress and log lines on stderr. */
int cli_open(struct cli *c, const struct sluice_options *o, struct sluice_engine **ret, struct sluice_error *e);

#endif
