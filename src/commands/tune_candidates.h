/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what `sluice tune` tries: single settings that can matter for this machine and model. Must not know: measuring. */
#ifndef SLUICE_COMMANDS_TUNE_CANDIDATES_H
#define SLUICE_COMMANDS_TUNE_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/settings.h"
#include "src/commands/tune_judge.h"

enum { TUNE_CANDIDATES_MAX = 24 };

struct tune_candidate {
    const char *setting; /* "threads" */
    char value[12];
    enum tune_goal goal; /* what it has to make faster */
};

struct tune_list {
    struct tune_candidate of[TUNE_CANDIDATES_MAX];
    uint32_t n;
};

/* Of the machine and of the model as the start opened it. */
struct tune_facts {
    uint32_t threads, auto_threads; /* in use; by default */
    uint32_t nodes;                 /* memory nodes that there are to use */
    bool spread;                    /* weights are spread over several */
    bool streams;                   /* experts are read while tokens are computed */
    bool drafts;                    /* the MTP layer drafts */
    uint32_t prompt_n;              /* tokens of the prompts that are measured; 0: none are */
    bool decodes;                   /* decoding is measured */
};

/* Settings that the command line or the environment gave stay as they are; those of a profile are where tuning starts. */
void tune_candidates(const struct tune_facts *f, const struct settings *start, struct tune_list *ret);

#endif
