/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: whether a scout rides with each token: a draft that is not computed for its own sake but shows, as a shadow row, which experts the
 * next token will use, so that those stay in RAM. Its price is seconds of every token, its worth are experts that need not be read
 * again, some tokens later. So it goes in rides of many tokens: the price is what tokens with it take longer at the same number of
 * experts that were not in RAM, the worth what such an expert takes, times those spared. A ride begins where it may pay and goes on
 * while it does. A pure struct; times and counts come in. Must not know: rows, slots, clocks. */
#ifndef SLUICE_RUN_SCOUT_H
#define SLUICE_RUN_SCOUT_H

#include "src/run/ways.h"

struct scout {
    struct ways ways;   /* without, with */
    double computes, reads; /* what riding is taken to cost before that was measured: shares of what a token computes, and reads */
    double spared;      /* experts of a token, mean of this ride */
    bool rides;
    uint32_t ridden;    /* tokens of this ride */
    uint64_t tokens, next_try, pause; /* pause: tokens until the next try if this ride fails */
};

void scout_init(struct scout *s, double computes, double reads);

/* Whether it goes with the next token. */
bool scout_choose(const struct scout *s);

struct scout_token {
    bool rode;
    double seconds;
    uint64_t experts; /* that were not in RAM */
    int64_t spared;   /* that were, thanks to what scouts had shown; below 0: fewer were */
};

/* A token is done. */
void scout_token(struct scout *s, const struct scout_token *t);

#endif
