/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a trace played through the cache decisions of the engine (src/tier), under one policy and one number of slots.
 * Must not know: how results are shown. */
#ifndef SLUICE_COMMANDS_TRACE_REPLAY_H
#define SLUICE_COMMANDS_TRACE_REPLAY_H

#include "common/error.h"
#include "src/commands/trace_csv.h"
#include "src/tier/evict.h"

/* What a policy knows of uses to come. */
enum trace_ahead {
    AHEAD_NONE,
    AHEAD_SHADOW, /* the predicted ids of the rows of one cycle */
    AHEAD_EXACT,  /* the ids of the rows of one cycle */
    AHEAD_ALL,    /* every use to the end of the window */
};

struct trace_policy {
    const char *name, *summary;
    enum evict_policy policy;
    enum trace_ahead ahead;
    uint32_t half_life; /* tokens, unless asked otherwise */
};

/* Ends with a NULL name; the last is MIN. */
extern const struct trace_policy trace_policies[];

/* A visit after its decisions: keys [n]; missed [n_missed] of them, in their order. Not 0 ends the replay with that code. */
struct replay_visit {
    uint32_t window, position;
    const struct expert_key *keys, *missed;
    uint32_t n, n_missed;
};

struct replay_options {
    uint32_t experts;        /* per layer, at least trace->experts */
    uint32_t slots;
    uint32_t half_life;      /* tokens; 0: the policy's */
    uint32_t first_position; /* positions before it warm the cache and are not counted */
    uint64_t tokens;         /* at most so many of the trace; 0: all */
    int (*on_visit)(void *ctx, const struct replay_visit *v, struct error *e); /* may be NULL */
    void *ctx;
    const volatile int *cancel;
};

struct replay_counts {
    uint64_t uses, hits; /* of experts */
    uint64_t admitted, evicted;
    uint64_t layer_hits[TRACE_LAYERS]; /* [n_layers] */
};

/* By name; NULL: there is none. */
const struct trace_policy *trace_policy_find(const char *name);

/* Every window begins with an empty cache. ERROR_INTERRUPTED when cancelled. */
int trace_replay(const struct trace *t, const struct trace_policy *p, const struct replay_options *o, struct replay_counts *ret, struct error *e);

/* A list as "90,10%": slots, or shares of `total`. At most `most` numbers go to slots. ERROR_USAGE naming `flag`. */
int trace_parse_slots(const char *flag, const char *text, uint64_t total, uint32_t *slots, uint32_t most, uint32_t *ret_n, struct error *e);

/* Tokens that are counted. */
uint64_t replay_tokens(const struct trace *t, uint32_t first_position);

#endif
