/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: ahead.h. Must not know: slots, who predicts. */
#include "src/tier/ahead.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define NAMES(of) {{of ".begun", of ".begun_bytes"}, {of ".useful", of ".useful_bytes"}, {of ".late", of ".late_bytes"}, {of ".wasted", of ".wasted_bytes"}, {of ".cancelled", of ".cancelled_bytes"}}

static const char *const names[HINT_LEADS + 1][AHEAD_OUTCOMES][2] = {
    NAMES("prefetch.token"), NAMES("prefetch.start"), NAMES("prefetch.layer"), NAMES("prefetch.chunk"), NAMES("prefetch")};

static const char *const helps[AHEAD_OUTCOMES][2] = {
    [AHEAD_BEGUN] = {"experts whose read ahead was begun", "bytes of those"},
    [AHEAD_USEFUL] = {"experts read ahead that were there when asked for", "bytes of those"},
    [AHEAD_LATE] = {"experts read ahead that were on their way when asked for", "bytes of those"},
    [AHEAD_WASTED] = {"experts read ahead that nobody asked for in time", "bytes of those"},
    [AHEAD_CANCELLED] = {"experts whose read ahead was given up on its way", "bytes of those, what was read before included"},
};

static const char *const leads[HINT_LEADS] = {"one token", "token start", "one layer", "prompt"};
static const char *const outcomes[AHEAD_OUTCOMES] = {"begun", "useful", "late", "wasted", "cancelled"};

const char *ahead_counter_name(uint32_t lead, enum ahead_outcome o, bool bytes)
{
    assert(lead <= HINT_LEADS && o < AHEAD_OUTCOMES);
    return names[lead][o][bytes];
}

int ahead_init(struct ahead *a, uint32_t layers, struct counters *counters, struct error *e)
{
    *a = (struct ahead){.layers = layers, .cells = calloc((size_t)HINT_LEADS * layers, sizeof(*a->cells))};
    if (a->cells == NULL) {
        return error_nomem(e, "counts of reads ahead", (uint64_t)HINT_LEADS * layers * sizeof(*a->cells));
    }
    for (uint32_t i = 0; i < (HINT_LEADS + 1) * AHEAD_OUTCOMES * 2; i++) {
        uint32_t lead = i / (AHEAD_OUTCOMES * 2), o = i / 2 % AHEAD_OUTCOMES, bytes = i % 2;
        a->counters[lead][o][bytes] = counters_register(counters, names[lead][o][bytes], helps[o][bytes]);
        if (a->counters[lead][o][bytes] == NULL) {
            return error_set(e, -ENOSPC, "the table of counters is full");
        }
    }
    return 0;
}

void ahead_deinit(struct ahead *a)
{
    free(a->cells);
    *a = (struct ahead){0};
}

void ahead_count(struct ahead *a, enum hint_lead lead, uint32_t layer, enum ahead_outcome o, uint64_t bytes)
{
    assert(lead < HINT_LEADS && layer < a->layers);
    struct ahead_cell *c = &a->cells[(size_t)lead * a->layers + layer];
    const uint32_t rows[] = {lead, HINT_LEADS};
    c->n[o]++;
    c->bytes[o] += bytes;
    for (size_t i = 0; i < 2; i++) {
        counter_add(a->counters[rows[i]][o][0], 1);
        counter_add(a->counters[rows[i]][o][1], bytes);
    }
}

/* ---- JSON ---- */

static void cell_json(const struct ahead_cell *c, struct str *out)
{
    for (uint32_t o = 0; o < AHEAD_OUTCOMES; o++) {
        str_printf(out, "%s\"%s\": %llu, \"%s_bytes\": %llu", o > 0 ? ", " : "", outcomes[o], (unsigned long long)c->n[o], outcomes[o], (unsigned long long)c->bytes[o]);
    }
}

static struct ahead_cell sum_of(const struct ahead *a, uint32_t lead)
{
    struct ahead_cell sum = {0};
    for (uint32_t l = 0; l < a->layers; l++) {
        const struct ahead_cell *c = &a->cells[(size_t)lead * a->layers + l];
        for (uint32_t o = 0; o < AHEAD_OUTCOMES; o++) {
            sum.n[o] += c->n[o];
            sum.bytes[o] += c->bytes[o];
        }
    }
    return sum;
}

void ahead_json(const struct ahead *a, struct str *out)
{
    uint32_t shown = 0;
    str_puts(out, "[");
    for (uint32_t i = 0; i < HINT_LEADS; i++) {
        const struct ahead_cell sum = sum_of(a, i);
        if (sum.n[AHEAD_BEGUN] == 0) {
            continue;
        }
        str_printf(out, "%s{\"lead\": \"%s\", ", shown++ > 0 ? ", " : "", leads[i]);
        cell_json(&sum, out);
        str_puts(out, ", \"layers\": [");
        for (uint32_t l = 0, n = 0; l < a->layers; l++) {
            const struct ahead_cell *c = &a->cells[(size_t)i * a->layers + l];
            if (c->n[AHEAD_BEGUN] > 0) {
                str_printf(out, "%s{\"layer\": %u, ", n++ > 0 ? ", " : "", l);
                cell_json(c, out);
                str_puts(out, "}");
            }
        }
        str_puts(out, "]}");
    }
    str_puts(out, "]");
}
