/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the sampling flags and the sampler made from them. Must not know: generation. */
#ifndef SLUICE_CLI_SAMPLING_H
#define SLUICE_CLI_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice/sluice.h"
#include "src/cli/args.h"

struct sampling {
    struct sluice_sampling value;
    struct sluice_bias *bias; /* [value.n_bias] */
    int64_t top_k, window, seed; /* seed < 0: a random one */
    bool ignore_eos;
};

void sampling_init(struct sampling *s);
void sampling_deinit(struct sampling *s);

int sampling_add_bias(void *ctx, const char *text, struct sluice_error *e); /* ARG_CALL; ctx is the struct sampling */
#define SAMPLING_ARGS(s)                                                                                                            \
    { "--temp", NULL, ARG_FLOAT, "T", "temperature; 0: greedy [0.6]", &(s)->value.temperature, NULL },                              \
        { "--top-k", NULL, ARG_INT, "K", "only the K most likely tokens; 0: all [0]", &(s)->top_k, NULL },                          \
        { "--top-p", NULL, ARG_FLOAT, "P", "only the most likely tokens that make up P [0.95]", &(s)->value.top_p, NULL },          \
        { "--min-p", NULL, ARG_FLOAT, "P", "only tokens at least P times as likely as the best [0]", &(s)->value.min_p, NULL },     \
        { "--seed", "-s", ARG_INT, "N", "same seed, same text; -1: random [-1]", &(s)->seed, NULL },                                \
        { "--repeat-penalty", NULL, ARG_FLOAT, "X", "1: off [1]", &(s)->value.repetition_penalty, NULL },                           \
        { "--presence-penalty", NULL, ARG_FLOAT, "X", "0: off [0]", &(s)->value.presence_penalty, NULL },                           \
        { "--frequency-penalty", NULL, ARG_FLOAT, "X", "0: off [0]", &(s)->value.frequency_penalty, NULL },                         \
        { "--repeat-last-n", NULL, ARG_INT, "N", "last tokens that penalties look at; 0: all [64]", &(s)->window, NULL },           \
        { "--logit-bias", NULL, ARG_CALL, "ID(+|-)X", "added to a token's logit, \"-inf\": never; repeatable", (s), sampling_add_bias }, \
        { "--ignore-eos", NULL, ARG_SWITCH, NULL, "never end by itself", &(s)->ignore_eos, NULL }

/* Checks ranges and draws a random seed; call once after parsing. */
int sampling_finish(struct sampling *s, struct sluice_error *e);
int sampling_open(struct sampling *s, const struct sluice_engine *engine, struct sluice_sampler **ret, struct sluice_error *e);

#endif
