/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: fuser.h. Bins are narrow near the score that is just chosen: the root of the distance, in units of its mean.
 * Weights move by AdaGrad, one step a row. Must not know: who predicts. */
#include "src/tier/fuser.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BINS = 32, TERMS = FUSER_INPUTS + 1 /* and a constant */ };

static const double SMOOTH = 4;   /* rows' worth of "no difference" in every table of bins */
static const double RATE = 0.05;  /* of AdaGrad: the first step of a weight */
static const double KEPT = 64;    /* rows, at most, that count of what another fuser learned */

/* Experts seen in each bin: not chosen, chosen. */
struct bins {
    double seen[BINS][2], all[2];
};

struct regression {
    double weight[TERMS], square[TERMS]; /* square: sum of squared gradients */
};

struct fuser {
    struct fuser_options o;
    struct bins *bins;             /* [layers][inputs][classes] */
    double (*spread)[2];           /* [layers][inputs]: sum of distances, how many */
    double (*row_spread)[2];       /* [inputs] the same with those of the last row */
    struct regression *regression; /* [layers][stages] */
    uint8_t *bin;                  /* [inputs][experts] of the last row */
    double *likelihood;            /* [inputs][experts] of the last row: logs of ratios */
    double *chance;                /* [stages][experts] of the last row */
    float *sorted;                 /* [used + 1] */
    bool *chosen;                  /* [experts] */
    struct buffer memory;          /* of the bins */
};

static struct bins *bins_at(const struct fuser *f, uint32_t layer, uint32_t input, uint32_t class)
{
    return &f->bins[((size_t)layer * f->o.inputs + input) * FUSER_CLASSES + class];
}

static void start(struct fuser *f)
{
    double rate = (double)f->o.used / f->o.experts;
    for (size_t i = 0; i < (size_t)f->o.layers * f->o.stages; i++) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < f->o.inputs; k++) {
            n += f->o.reads[i % f->o.stages] >> k & 1;
        }
        for (uint32_t k = 0; k < f->o.inputs; k++) { /* inputs say much the same: together they count as one and a half */
            f->regression[i].weight[k] = f->o.reads[i % f->o.stages] >> k & 1 ? 1.5 / n : 0;
        }
        f->regression[i].weight[f->o.inputs] = log(rate / (1 - rate));
    }
}

uint64_t fuser_bytes(const struct fuser_options *o)
{
    uint64_t pairs = (uint64_t)o->layers * o->inputs, numbers = (uint64_t)o->inputs * o->experts;
    return pairs * (FUSER_CLASSES * sizeof(struct bins) + 2 * sizeof(double)) + (uint64_t)o->layers * o->stages * sizeof(struct regression) +
           numbers * (sizeof(double) + 1) + (uint64_t)o->stages * o->experts * sizeof(double);
}

int fuser_create(const struct fuser_options *o, struct fuser **ret, struct error *e)
{
    assert(o->used > 0 && o->used < o->experts && o->inputs <= FUSER_INPUTS && o->stages <= FUSER_STAGES);
    struct fuser *f = calloc(1, sizeof(*f));
    if (f == NULL) {
        return error_nomem(e, "fuser", sizeof(*f));
    }
    size_t pairs = (size_t)o->layers * o->inputs;
    f->o = *o;
    int r = buffer_init(&f->memory, o->account, PURPOSE_TABLES, pairs * FUSER_CLASSES * sizeof(*f->bins), e);
    f->bins = f->memory.data;
    f->spread = calloc(pairs, sizeof(*f->spread));
    f->row_spread = calloc(o->inputs, sizeof(*f->row_spread));
    f->regression = calloc((size_t)o->layers * o->stages, sizeof(*f->regression));
    f->bin = calloc((size_t)o->inputs * o->experts, sizeof(*f->bin));
    f->likelihood = calloc((size_t)o->inputs * o->experts, sizeof(*f->likelihood));
    f->chance = calloc((size_t)o->stages * o->experts, sizeof(*f->chance));
    f->sorted = calloc(o->used + 1u, sizeof(*f->sorted));
    f->chosen = calloc(o->experts, sizeof(*f->chosen));
    if (r < 0) {
        fuser_destroy(f);
        return r;
    }
    if (!f->spread || !f->row_spread || !f->regression || !f->bin || !f->likelihood || !f->chance || !f->sorted || !f->chosen) {
        fuser_destroy(f);
        return error_nomem(e, "fuser", (uint64_t)o->inputs * o->experts * sizeof(*f->likelihood));
    }
    start(f);
    *ret = f;
    return 0;
}

void fuser_destroy(struct fuser *f)
{
    if (f == NULL) {
        return;
    }
    buffer_deinit(&f->memory);
    free(f->spread);
    free(f->row_spread);
    free(f->regression);
    free(f->bin);
    free(f->likelihood);
    free(f->chance);
    free(f->sorted);
    free(f->chosen);
    free(f);
}

/* Half way between the last score that would be chosen and the next. */
static float threshold(const struct fuser *f, const float *scores)
{
    uint32_t n = 0, most = f->o.used + 1;
    for (uint32_t x = 0; x < f->o.experts; x++) {
        if (n == most && scores[x] <= f->sorted[most - 1]) {
            continue;
        }
        uint32_t at = n < most ? n++ : most - 1;
        for (; at > 0 && f->sorted[at - 1] < scores[x]; at--) {
            f->sorted[at] = f->sorted[at - 1];
        }
        f->sorted[at] = scores[x];
    }
    return (f->sorted[most - 2] + f->sorted[most - 1]) / 2;
}

static uint8_t bin_of(double distance, double mean)
{
    double t = mean > 0 ? sqrt(fabs(distance) / mean) * (BINS / 4) : 0;
    int step = t < BINS / 2 - 1 ? (int)t : BINS / 2 - 1;
    return (uint8_t)(distance > 0 ? BINS / 2 + step : BINS / 2 - 1 - step);
}

/* Log of how much likelier a chosen expert lies in each bin than another one. */
static void bins_say(const struct fuser *f, const struct bins *b, double ret[BINS])
{
    double none = SMOOTH * (f->o.experts - f->o.used), some = SMOOTH * f->o.used;
    for (uint32_t i = 0; i < BINS; i++) {
        double chosen = (b->seen[i][1] + some / BINS) / (b->all[1] + some);
        double other = (b->seen[i][0] + none / BINS) / (b->all[0] + none);
        ret[i] = log(chosen / other);
    }
}

/* Bins of an input and what they say. */
static void read_input(struct fuser *f, uint32_t layer, uint32_t input, const struct fuser_row *row)
{
    const float *scores = row->scores[input];
    double *likelihood = f->likelihood + (size_t)input * f->o.experts;
    uint8_t *bin = f->bin + (size_t)input * f->o.experts;
    if (scores == NULL) {
        memset(likelihood, 0, f->o.experts * sizeof(*likelihood));
        return;
    }
    double says[BINS], *spread = f->row_spread[input], at = (double)threshold(f, scores);
    memcpy(spread, f->spread[(size_t)layer * f->o.inputs + input], sizeof(*f->row_spread));
    for (uint32_t x = 0; x < f->o.experts; x++) {
        spread[0] += fabs((double)scores[x] - at);
    }
    spread[1] += f->o.experts;
    bins_say(f, bins_at(f, layer, input, row->class[input]), says);
    for (uint32_t x = 0; x < f->o.experts; x++) {
        bin[x] = bin_of((double)scores[x] - at, spread[0] / spread[1]);
        likelihood[x] = says[bin[x]];
    }
}

/* From the inputs that have been read. */
static void weigh(struct fuser *f, uint32_t layer, uint32_t stage, float *ret)
{
    uint32_t n = f->o.experts, reads = f->o.reads[stage];
    const double *w = f->regression[(size_t)layer * f->o.stages + stage].weight;
    double *chance = f->chance + (size_t)stage * n;
    for (uint32_t x = 0; reads != 0 && x < n; x++) {
        double odds = w[f->o.inputs];
        for (uint32_t i = 0; i < f->o.inputs; i++) {
            odds += reads >> i & 1 ? w[i] * f->likelihood[(size_t)i * n + x] : 0;
        }
        chance[x] = 1 / (1 + exp(-odds));
    }
    for (uint32_t x = 0; x < n; x++) {
        ret[x] = (float)chance[x];
    }
}

void fuser_chances(struct fuser *f, uint32_t layer, const struct fuser_row *row, float *ret)
{
    for (uint32_t i = 0; i < f->o.inputs; i++) {
        read_input(f, layer, i, row);
    }
    for (uint32_t s = 0; s < f->o.stages; s++) {
        weigh(f, layer, s, ret + (size_t)s * f->o.experts);
    }
}

void fuser_stage_chances(struct fuser *f, uint32_t layer, const struct fuser_row *row, uint32_t stage, float *ret)
{
    assert(stage < f->o.stages);
    for (uint32_t i = 0; i < f->o.inputs; i++) {
        if (f->o.reads[stage] >> i & 1) {
            read_input(f, layer, i, row);
        }
    }
    weigh(f, layer, stage, ret);
}

static void learn_weights(struct fuser *f, struct regression *r, const double *chance, uint32_t reads)
{
    uint32_t n = f->o.experts;
    for (uint32_t i = 0; i <= f->o.inputs; i++) {
        double gradient = 0;
        if (i < f->o.inputs && !(reads >> i & 1)) {
            continue;
        }
        for (uint32_t x = 0; x < n; x++) {
            gradient += (chance[x] - f->chosen[x]) * (i < f->o.inputs ? f->likelihood[(size_t)i * n + x] : 1);
        }
        r->square[i] += gradient * gradient;
        r->weight[i] -= r->square[i] > 0 ? RATE * gradient / sqrt(r->square[i]) : 0;
    }
}

void fuser_learn(struct fuser *f, uint32_t layer, const struct fuser_row *row, const int32_t *ids)
{
    uint32_t n = f->o.experts;
    memset(f->chosen, 0, n * sizeof(*f->chosen));
    for (uint32_t k = 0; k < f->o.used; k++) {
        f->chosen[ids[k]] = true;
    }
    for (uint32_t s = 0; s < f->o.stages; s++) {
        if (f->o.reads[s] == 0) {
            continue;
        }
        learn_weights(f, &f->regression[(size_t)layer * f->o.stages + s], f->chance + (size_t)s * n, f->o.reads[s]);
    }
    for (uint32_t i = 0; i < f->o.inputs; i++) {
        struct bins *b = bins_at(f, layer, i, row->class[i]);
        if (row->scores[i] == NULL) {
            continue;
        }
        memcpy(f->spread[(size_t)layer * f->o.inputs + i], f->row_spread[i], sizeof(*f->row_spread));
        for (uint32_t x = 0; x < n; x++) {
            b->seen[f->bin[(size_t)i * n + x]][f->chosen[x]]++;
            b->all[f->chosen[x]]++;
        }
    }
}

/* ---- kept for another fuser ---- */

enum { STATE_VERSION = 1, STATE_PARTS = 3 };

static const double WEIGHT_MOST = 1e3; /* of a regression: more is none */

struct state_head {
    uint32_t version, layers, experts, used, inputs, stages, classes, bins, reads[FUSER_STAGES];
};

/* Arrays of doubles. */
struct state_part {
    double *at;
    size_t n;
};

static void state_parts(const struct fuser *f, struct state_part ret[STATE_PARTS])
{
    size_t pairs = (size_t)f->o.layers * f->o.inputs;
    ret[0] = (struct state_part){(double *)f->spread, 2 * pairs};
    ret[1] = (struct state_part){(double *)f->bins, pairs * FUSER_CLASSES * (sizeof(struct bins) / sizeof(double))};
    ret[2] = (struct state_part){(double *)f->regression, (size_t)f->o.layers * f->o.stages * (sizeof(struct regression) / sizeof(double))};
}

static struct state_head state_head(const struct fuser *f)
{
    struct state_head h = {.version = STATE_VERSION, .layers = f->o.layers, .experts = f->o.experts, .used = f->o.used, .inputs = f->o.inputs, .stages = f->o.stages,
                           .classes = FUSER_CLASSES, .bins = BINS};
    memcpy(h.reads, f->o.reads, f->o.stages * sizeof(*h.reads));
    return h;
}

size_t fuser_state_bytes(const struct fuser *f)
{
    struct state_part part[STATE_PARTS];
    state_parts(f, part);
    return sizeof(struct state_head) + (part[0].n + part[1].n + part[2].n) * sizeof(float);
}

void fuser_save(const struct fuser *f, void *ret)
{
    struct state_part part[STATE_PARTS];
    const struct state_head head = state_head(f);
    char *at = ret;
    state_parts(f, part);
    memcpy(at, &head, sizeof(head));
    at += sizeof(head);
    for (int p = 0; p < STATE_PARTS; p++) {
        for (size_t i = 0; i < part[p].n; i++, at += sizeof(float)) {
            float x = (float)part[p].at[i];
            memcpy(at, &x, sizeof(x));
        }
    }
}

/* Counts, sums of squares and distances are not below 0; weights may be. */
static bool is_state(const struct state_part *part, const char *at)
{
    for (int p = 0; p < STATE_PARTS; p++) {
        for (size_t i = 0; i < part[p].n; i++, at += sizeof(float)) {
            float x;
            memcpy(&x, at, sizeof(x));
            bool weight = p == 2 && i % (2 * TERMS) < TERMS;
            if (!isfinite(x) || (weight ? fabs((double)x) > WEIGHT_MOST : x < 0)) {
                return false;
            }
        }
    }
    return true;
}

/* Rows of a layer that its busiest input has seen. */
static double rows_seen(const struct fuser *f, uint32_t layer)
{
    double most = 0;
    for (uint32_t i = 0; i < f->o.inputs; i++) {
        double chosen = 0;
        for (uint32_t c = 0; c < FUSER_CLASSES; c++) {
            chosen += bins_at(f, layer, i, c)->all[1];
        }
        most = chosen > most ? chosen : most;
    }
    return most / f->o.used;
}

static void scale(double *x, size_t n, double by)
{
    for (size_t i = 0; i < n; i++) {
        x[i] *= by;
    }
}

static double share(double most, double have) { return have > most ? most / have : 1; }

/* Leaves KEPT rows of a layer at most, of each input and class. */
static void fade(struct fuser *f, uint32_t layer, double rows)
{
    for (uint32_t i = 0; i < f->o.inputs; i++) {
        double *spread = f->spread[(size_t)layer * f->o.inputs + i];
        scale(spread, 2, share(KEPT * f->o.experts, spread[1]));
        for (uint32_t c = 0; c < FUSER_CLASSES; c++) {
            struct bins *b = bins_at(f, layer, i, c);
            scale((double *)b, sizeof(*b) / sizeof(double), share(KEPT * f->o.used, b->all[1]));
        }
    }
    for (uint32_t s = 0; s < f->o.stages; s++) {
        scale(f->regression[(size_t)layer * f->o.stages + s].square, TERMS, share(KEPT, rows));
    }
}

int fuser_load(struct fuser *f, const void *data, size_t bytes)
{
    struct state_part part[STATE_PARTS];
    const struct state_head head = state_head(f);
    const char *at = (const char *)data + sizeof(head);
    double most = 0;
    state_parts(f, part);
    if (bytes != fuser_state_bytes(f) || memcmp(data, &head, sizeof(head)) != 0 || !is_state(part, at)) {
        return -EINVAL;
    }
    for (int p = 0; p < STATE_PARTS; p++) {
        for (size_t i = 0; i < part[p].n; i++, at += sizeof(float)) {
            float x;
            memcpy(&x, at, sizeof(x));
            part[p].at[i] = (double)x;
        }
    }
    for (uint32_t l = 0; l < f->o.layers; l++) {
        double rows = rows_seen(f, l);
        fade(f, l, rows);
        most = rows > most ? rows : most;
    }
    return (int)(most < KEPT ? most : KEPT);
}
