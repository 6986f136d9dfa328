/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: calibrate.h. Odds of an expert by its rate are multiplied by how much likelier an expert that is used is named (or not) than
 * one that is not. Must not know: who predicts. */
#include "src/tier/calibrate.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const double RATE_MOST = 0.98; /* nothing is certain */

int calibration_init(struct calibration *c, uint32_t layers, uint32_t experts, uint32_t used, struct error *e)
{
    assert(layers > 0 && used > 0 && used <= experts);
    *c = (struct calibration){.layers = layers, .experts = experts, .used = used};
    c->seen = calloc(layers, sizeof(*c->seen));
    c->named = calloc((size_t)layers * experts, sizeof(*c->named));
    c->is_set = calloc(layers, sizeof(*c->is_set));
    if (c->seen == NULL || c->named == NULL || c->is_set == NULL) {
        calibration_deinit(c);
        return error_nomem(e, "calibration of predictions", (uint64_t)layers * experts);
    }
    for (uint32_t l = 0; l < layers; l++) {
        double half = used / 2.0;
        c->seen[l][0][0] = experts - used > half ? experts - used - half : half;
        c->seen[l][0][1] = c->seen[l][1][0] = c->seen[l][1][1] = half;
    }
    return 0;
}

void calibration_deinit(struct calibration *c)
{
    free(c->seen);
    free(c->named);
    free(c->is_set);
    *c = (struct calibration){0};
}

void calibration_forget_sets(struct calibration *c)
{
    memset(c->is_set, 0, c->layers * sizeof(*c->is_set));
    memset(c->named, 0, (size_t)c->layers * c->experts * sizeof(*c->named));
}

static bool *named_in(const struct calibration *c, uint16_t layer)
{
    assert(layer < c->layers);
    return c->named + (size_t)layer * c->experts;
}

void calibration_set(struct calibration *c, uint16_t layer, const uint16_t *ids, uint32_t n)
{
    bool *named = named_in(c, layer);
    memset(named, 0, c->experts * sizeof(*named));
    for (uint32_t i = 0; i < n; i++) {
        named[ids[i]] = true;
    }
    c->is_set[layer] = true;
}

void calibration_outcome(struct calibration *c, uint16_t layer, const uint16_t *ids, uint32_t n)
{
    bool *named = named_in(c, layer);
    if (!c->is_set[layer]) {
        return;
    }
    for (uint32_t x = 0; x < c->experts; x++) {
        c->seen[layer][named[x]][0]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        c->seen[layer][named[ids[i]]][0]--;
        c->seen[layer][named[ids[i]]][1]++;
    }
    memset(named, 0, c->experts * sizeof(*named));
    c->is_set[layer] = false;
}

/* odds = rate / (1 - rate) * P(named | used) / P(named | not used) */
double calibration_chance(const struct calibration *c, struct expert_key key, double rate)
{
    const double(*seen)[2] = c->seen[key.layer];
    bool named = named_in(c, key.layer)[key.expert];
    double used = seen[0][1] + seen[1][1], unused = seen[0][0] + seen[1][0];
    double least = (double)c->used / c->experts / 64; /* an expert not seen yet is rare, not impossible */
    rate = rate < least ? least : rate > RATE_MOST ? RATE_MOST : rate;
    double odds = rate / (1 - rate);
    if (c->is_set[key.layer]) {
        odds *= seen[named][1] / used * unused / seen[named][0];
    }
    return odds / (1 + odds);
}
