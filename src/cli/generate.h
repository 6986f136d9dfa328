/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the loop from logits to tokens of one answer, and the stream of its text. Must not know: prompts, JSON. */
#ifndef SLUICE_CLI_GENERATE_H
#define SLUICE_CLI_GENERATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sluice/sluice.h"
#include "src/cli/dump.h"
#include "src/cli/input.h"
#include "src/cli/timeline.h"

/* Bytes to a reader of UTF-8: a sequence is held until it is whole; bytes that are none become U+FFFD. */
struct text_stream {
    FILE *file;
    bool terminal; /* control bytes are not sent */
    char held[4];
    size_t n_held;
    bool newline;  /* the last byte written was one */
    bool failed;   /* no memory: text is missing */
};
void text_stream_init(struct text_stream *s, FILE *file);
void text_stream_put(struct text_stream *s, const char *bytes, size_t len);
void text_stream_end(struct text_stream *s);

struct generation {
    struct ids tokens;
    struct str text;               /* bytes of the tokens that are shown */
    struct sluice_choice *choices; /* [tokens.n] */
    struct sluice_choice *top;     /* [tokens.n, n_top] */
    size_t cap;
    bool stopped; /* an end token came; otherwise a limit */
    uint32_t decode_n; /* steps of one token */
    double decode_s;
    uint64_t decode_ram;  /* bytes of weights that kernels read meanwhile */
    uint64_t decode_nvme; /* bytes of experts read from a drive meanwhile, ahead or for nothing too */
};

struct generate_options {
    int64_t limit; /* tokens; < 0: until the context is full */
    uint32_t n_top;
    struct sluice_sampler *sampler;
    struct text_stream *stream; /* NULL: none */
    struct dump *dump;          /* NULL: none; array 0 takes the logits of each token */
};

/* Continues the timeline, whose last logits are there. An ending token is not part of the result; the last token of the
 * result need not have been computed. *ret is valid (and partly filled) on failure, too. */
int generate(struct timeline *t, const struct generate_options *o, struct generation *ret, struct sluice_error *e);
void generation_deinit(struct generation *g);

#endif
