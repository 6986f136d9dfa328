/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the arguments of sluice run, shared by the one-shot and the interactive form. Must not know: either. */
#ifndef SLUICE_CLI_RUN_H
#define SLUICE_CLI_RUN_H

#include "src/cli/cli.h"
#include "src/cli/prompt.h"
#include "src/cli/sampling.h"

struct run_args {
    const char *prompt, *file, *tokens, *dump, *session;
    struct prompt_options form;
    struct sampling sampling;
    int64_t limit, logprobs;
    bool json;
    struct verbosity verbosity;
};

/* Talks until the end of input; returns the exit status. `chat`: the model has a layout, else text is continued. */
int chat_run(struct cli *c, struct run_args *a, struct sluice_engine *engine, bool chat, struct sluice_error *e);

#endif
