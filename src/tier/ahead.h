/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what came of reads that were begun for hints, by how early the hint was given and by layer: in counters for reports, and as JSON.
 * Every read that was begun is useful, late, wasted or cancelled in the end, and one of these. Must not know: slots, who predicts. */
#ifndef SLUICE_TIER_AHEAD_H
#define SLUICE_TIER_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "src/base/counters.h"
#include "src/base/str.h"

/* How early a hint is given. For counting alone. */
enum hint_lead {
    HINT_TOKEN, /* one token before */
    HINT_START, /* at the token's start, for its first layer with experts */
    HINT_LAYER, /* one layer before */
    HINT_CHUNK, /* one layer before, for rows of a prompt */
    HINT_LEADS,
};

enum ahead_outcome {
    AHEAD_BEGUN,     /* not an outcome: what the others add up to, but for reads under way */
    AHEAD_USEFUL,    /* there when a lease asked for it */
    AHEAD_LATE,      /* on its way when a lease asked for it */
    AHEAD_WASTED,    /* read, or failed, before anybody asked for it */
    AHEAD_CANCELLED, /* given up on its way: at least a part was not read */
    AHEAD_OUTCOMES,
};

struct ahead {
    uint32_t layers;
    struct ahead_cell {
        uint64_t n[AHEAD_OUTCOMES], bytes[AHEAD_OUTCOMES];
    } *cells; /* [HINT_LEADS][layers] */
    struct counter *counters[HINT_LEADS + 1][AHEAD_OUTCOMES][2]; /* the last row: of all leads */
};

/* Registers its counters. */
int ahead_init(struct ahead *a, uint32_t layers, struct counters *counters, struct error *e);
void ahead_deinit(struct ahead *a);

/* Name of a counter, "prefetch.start.late" or, for HINT_LEADS, "prefetch.late"; bytes: its bytes, "..._bytes". Static. */
const char *ahead_counter_name(uint32_t lead, enum ahead_outcome o, bool bytes);

/* Of one expert. */
void ahead_count(struct ahead *a, enum hint_lead lead, uint32_t layer, enum ahead_outcome o, uint64_t bytes);

/* A list of leads in which reads were begun, each with a list of layers in which some were (docs/trace.md). */
void ahead_json(const struct ahead *a, struct str *out);

#endif
