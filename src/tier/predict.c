/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: predict.h. Positions in flight have a slot each, found by position. Must not know: how scores are computed. */
#include "src/tier/predict.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "src/tier/fuser.h"
#include "src/tier/heat.h"

enum { SLOTS = 16 }; /* rows of a step and the one after */

static const double KEEPS = 0.9;     /* of popularity, per token */
static const float BACK_OFF = 0.02f; /* popularity beside the token table: decides among experts it does not know */
static const float TIE = 1e-3f;      /* popularity beside the token before */

static const struct {
    const char *name;
    enum lead lead;
    bool by_draft; /* is as good as the draft */
} predictors[PREDICTORS] = {
    [PREDICT_POPULARITY] = {"popularity", LEAD_TOKEN, false},
    [PREDICT_PREVIOUS] = {"previous-token", LEAD_TOKEN, false},
    [PREDICT_TABLE_DRAFT] = {"token-table-draft", LEAD_TOKEN, true},
    [PREDICT_PROBE_DRAFT] = {"mtp-probe-draft", LEAD_TOKEN, true},
    [PREDICT_SHADOW] = {"shadow-row", LEAD_TOKEN, true},
    [PREDICT_TABLE] = {"token-table", LEAD_START, false},
    [PREDICT_PROBE] = {"mtp-probe", LEAD_START, false},
    [PREDICT_GATE_TWO] = {"gate-two-layers", LEAD_TWO_LAYERS, false},
    [PREDICT_GATE] = {"gate", LEAD_LAYER, false},
    [PREDICT_GATE_SHARED] = {"gate-shared", LEAD_LAYER, false},
    [PREDICT_GATE_FULL] = {"gate-full", LEAD_ATTENTION, false},
};

static const char *const leads[LEADS] = {"one token", "token start", "two layers", "one layer", "one attention"};

struct slot {
    bool open;
    uint32_t position;
    bool drafted;
    int32_t draft;
    float draft_chance;
    float *scores;  /* [PREDICTORS][layers][experts] */
    bool *known;    /* [PREDICTORS][layers] */
    int32_t *ids;   /* [layers][used] */
    float *weights; /* [layers][used] */
    bool *routed;   /* [layers] */
};

struct predict {
    struct predict_options o;
    struct slot slots[SLOTS];
    struct buffer scores; /* of the slots */
    struct heat heat;
    uint64_t tokens;       /* heat's time */
    int32_t *previous;     /* [layers][used] of the token before */
    bool has_previous;
    float *share;          /* [layers][experts] learned popularity, 1 in all per layer; 0: nothing learned */
    struct fuser *fuser;
    float *chances;        /* [LEADS][experts] */
    float *ranks;          /* [experts] */
    struct recall recall;
    struct predict_calibration calibration[LEADS];
};

const char *predictor_name(enum predictor p) { return predictors[p].name; }
enum lead predictor_lead(enum predictor p) { return predictors[p].lead; }
const char *lead_name(enum lead l) { return leads[l]; }

/* ---- memory ---- */

static int slot_init(struct slot *s, const struct predict_options *o, float *scores, struct error *e)
{
    size_t layers = o->layers;
    s->scores = scores;
    s->known = calloc(PREDICTORS * layers, sizeof(*s->known));
    s->ids = calloc(layers * o->used, sizeof(*s->ids));
    s->weights = calloc(layers * o->used, sizeof(*s->weights));
    s->routed = calloc(layers, sizeof(*s->routed));
    bool ok = s->known && s->ids && s->weights && s->routed;
    return ok ? 0 : error_nomem(e, "predictions of a token", layers * o->used * sizeof(*s->ids));
}

static void learn_share(struct predict *p)
{
    const struct learned *learned = p->o.learned;
    for (uint32_t l = 0; learned != NULL && l < p->o.layers; l++) {
        double all = 0;
        for (uint32_t x = 0; x < p->o.experts; x++) {
            all += (double)learned->popularity[(size_t)l * p->o.experts + x];
        }
        for (uint32_t x = 0; all > 0 && x < p->o.experts; x++) {
            p->share[(size_t)l * p->o.experts + x] = (float)((double)learned->popularity[(size_t)l * p->o.experts + x] / all);
        }
    }
}

static bool wants(const struct predict_options *o, enum lead l) { return o->leads == 0 || o->leads >> l & 1; }

static struct fuser_options fuser_options_of(const struct predict_options *o)
{
    struct fuser_options f = {.layers = o->layers, .experts = o->experts, .used = o->used, .inputs = PREDICTORS, .stages = LEADS, .account = o->account};
    for (uint32_t i = 0; i < PREDICTORS; i++) {
        for (uint32_t s = predictors[i].lead; s < LEADS; s++) {
            f.reads[s] |= wants(o, (enum lead)s) ? 1u << i : 0;
        }
    }
    return f;
}

uint64_t predict_bytes(const struct predict_options *o)
{
    const struct fuser_options f = fuser_options_of(o);
    uint64_t experts = (uint64_t)o->layers * o->experts;
    return fuser_bytes(&f) + SLOTS * PREDICTORS * experts * sizeof(float) + experts * (sizeof(float) + sizeof(double)) +
           (uint64_t)PREDICT_LISTS * o->layers * sizeof(struct recall_cell) + (uint64_t)(LEADS + 1) * o->experts * sizeof(float);
}

int predict_create(const struct predict_options *o, struct predict **ret, struct error *e)
{
    struct predict *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return error_nomem(e, "predictors", sizeof(*p));
    }
    p->o = *o;
    p->previous = calloc((size_t)o->layers * o->used, sizeof(*p->previous));
    p->share = calloc((size_t)o->layers * o->experts, sizeof(*p->share));
    p->chances = calloc((size_t)LEADS * o->experts, sizeof(*p->chances));
    p->ranks = calloc(o->experts, sizeof(*p->ranks));
    bool ok = p->previous && p->share && p->chances && p->ranks;
    int r = ok ? 0 : error_nomem(e, "predictors", (uint64_t)o->layers * o->experts * sizeof(*p->share));
    size_t scores = (size_t)PREDICTORS * o->layers * o->experts; /* of a slot */
    r = r < 0 ? r : buffer_init(&p->scores, o->account, PURPOSE_TABLES, SLOTS * scores * sizeof(float), e);
    for (uint32_t i = 0; r == 0 && i < SLOTS; i++) {
        r = slot_init(&p->slots[i], o, (float *)p->scores.data + i * scores, e);
    }
    r = r < 0 ? r : heat_init(&p->heat, o->layers, o->experts, (uint32_t)(o->layers * log(0.5) / log(KEEPS) + 0.5), e);
    const struct fuser_options f = fuser_options_of(o);
    r = r < 0 ? r : fuser_create(&f, &p->fuser, e);
    r = r < 0 ? r : recall_init(&p->recall, PREDICT_LISTS, o->layers, o->experts, o->used, e);
    if (r < 0) {
        predict_destroy(p);
        return r;
    }
    learn_share(p);
    predict_begin(p);
    *ret = p;
    return 0;
}

void predict_destroy(struct predict *p)
{
    if (p == NULL) {
        return;
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        free(p->slots[i].known);
        free(p->slots[i].ids);
        free(p->slots[i].weights);
        free(p->slots[i].routed);
    }
    buffer_deinit(&p->scores);
    heat_deinit(&p->heat);
    fuser_destroy(p->fuser);
    recall_deinit(&p->recall);
    free(p->previous);
    free(p->share);
    free(p->chances);
    free(p->ranks);
    free(p);
}

/* ---- what comes in ---- */

void predict_begin(struct predict *p)
{
    double steady = p->o.used / heat_per_use(&p->heat, p->o.layers); /* uses that a rate of K per token adds up to */
    for (uint32_t i = 0; i < SLOTS; i++) {
        p->slots[i].open = false;
    }
    heat_clear(&p->heat);
    p->tokens = 0;
    for (uint32_t l = 0; l < p->o.layers; l++) {
        for (uint32_t x = 0; x < p->o.experts; x++) {
            heat_use(&p->heat, (struct expert_key){(uint16_t)l, (uint16_t)x}, steady * (double)p->share[(size_t)l * p->o.experts + x]);
        }
    }
    p->has_previous = false;
}

/* The slot of a position; another position's is emptied. */
static struct slot *slot_of(struct predict *p, uint32_t position)
{
    struct slot *s = &p->slots[position % SLOTS];
    if (!s->open || s->position != position) {
        s->open = true;
        s->position = position;
        s->drafted = false;
        memset(s->known, 0, PREDICTORS * (size_t)p->o.layers * sizeof(*s->known));
        memset(s->routed, 0, p->o.layers * sizeof(*s->routed));
    }
    return s;
}

static float *scores_at(const struct predict *p, const struct slot *s, enum predictor which, uint32_t layer)
{
    return s->scores + ((size_t)which * p->o.layers + layer) * p->o.experts;
}

void predict_draft(struct predict *p, uint32_t position, int32_t token, float chance)
{
    struct slot *s = slot_of(p, position);
    s->drafted = true;
    s->draft = token;
    s->draft_chance = chance;
}

void predict_again(struct predict *p, uint32_t position)
{
    struct slot *s = slot_of(p, position);
    memset(s->routed, 0, p->o.layers * sizeof(*s->routed));
    memset(s->known + (size_t)PREDICT_GATE_TWO * p->o.layers, 0, (PREDICTORS - PREDICT_GATE_TWO) * (size_t)p->o.layers * sizeof(*s->known));
}

void predict_scores(struct predict *p, enum predictor which, uint32_t layer, uint32_t position, const float *scores)
{
    assert(layer < p->o.layers && which < PREDICTORS);
    struct slot *s = slot_of(p, position);
    memcpy(scores_at(p, s, which, layer), scores, p->o.experts * sizeof(*scores));
    s->known[(size_t)which * p->o.layers + layer] = true;
}

void predict_route(struct predict *p, uint32_t layer, uint32_t position, const int32_t *ids, const float *weights)
{
    assert(layer < p->o.layers);
    struct slot *s = slot_of(p, position);
    memcpy(s->ids + (size_t)layer * p->o.used, ids, p->o.used * sizeof(*ids));
    memcpy(s->weights + (size_t)layer * p->o.used, weights, p->o.used * sizeof(*weights));
    s->routed[layer] = true;
}

/* ---- predictors from ids and counts ---- */

static void from_table(const struct predict *p, uint32_t layer, int32_t token, float *ret)
{
    for (uint32_t x = 0; x < p->o.experts; x++) {
        ret[x] = BACK_OFF * p->share[(size_t)layer * p->o.experts + x];
    }
    token_table_add_shares(&p->o.learned->table, (uint32_t)token, layer, ret);
}

static float *own_scores(const struct predict *p, struct slot *s, enum predictor which, uint32_t layer)
{
    s->known[(size_t)which * p->o.layers + layer] = true;
    return scores_at(p, s, which, layer);
}

/* The slot of a position whose routing of the layer is there, if it is not complete; else NULL. */
static const struct slot *pending(const struct predict *p, uint32_t position, uint32_t layer)
{
    const struct slot *s = &p->slots[position % SLOTS];
    return s->open && s->position == position && s->routed[layer] ? s : NULL;
}

/* Uses per token: by heat up to the last complete token, then by those behind it that lead to this one. */
static void popularity(const struct predict *p, uint32_t position, uint32_t layer, float *ret)
{
    double per_use = heat_per_use(&p->heat, p->o.layers);
    uint32_t first = position;
    for (uint32_t x = 0; x < p->o.experts; x++) {
        ret[x] = (float)(per_use * heat_value(&p->heat, (struct expert_key){(uint16_t)layer, (uint16_t)x}));
    }
    while (first > 0 && position - first < SLOTS - 1 && pending(p, first - 1, layer) != NULL) {
        first--;
    }
    for (; first < position; first++) {
        const int32_t *ids = pending(p, first, layer)->ids + (size_t)layer * p->o.used;
        for (uint32_t k = 0; k < p->o.used; k++) {
            ret[ids[k]] += (float)per_use;
        }
        for (uint32_t x = 0; x < p->o.experts; x++) {
            ret[x] *= (float)(1 - per_use);
        }
    }
}

/* token: of the slot's position; below 0: not known. */
static void from_ids(const struct predict *p, struct slot *s, uint32_t layer, int32_t token)
{
    float *rate = own_scores(p, s, PREDICT_POPULARITY, layer);
    const struct slot *before = s->position > 0 ? pending(p, s->position - 1, layer) : NULL;
    popularity(p, s->position, layer, rate);
    if (p->has_previous || before != NULL) {
        const int32_t *ids = before != NULL ? before->ids : p->previous;
        float *previous = own_scores(p, s, PREDICT_PREVIOUS, layer);
        for (uint32_t x = 0; x < p->o.experts; x++) {
            previous[x] = TIE * rate[x];
        }
        for (uint32_t k = 0; k < p->o.used; k++) {
            previous[ids[(size_t)layer * p->o.used + k]] += 1;
        }
    }
    if (p->o.learned != NULL && token >= 0) {
        from_table(p, layer, token, own_scores(p, s, PREDICT_TABLE, layer));
    }
    if (p->o.learned != NULL && s->drafted) {
        from_table(p, layer, s->draft, own_scores(p, s, PREDICT_TABLE_DRAFT, layer));
    }
}

/* ---- fused ---- */

static struct fuser_row row_of(const struct predict *p, const struct slot *s, uint32_t layer)
{
    struct fuser_row row = {0};
    uint32_t trust = s->drafted ? min_u32((uint32_t)(s->draft_chance * FUSER_CLASSES), FUSER_CLASSES - 1) : 0;
    for (uint32_t i = 0; i < PREDICTORS; i++) {
        row.scores[i] = s->known[(size_t)i * p->o.layers + layer] ? scores_at(p, s, (enum predictor)i, layer) : NULL;
        row.class[i] = predictors[i].by_draft ? trust : 0;
    }
    return row;
}

/* The two best chances of a group. */
static float group_chance(const float *chances, uint32_t n)
{
    float best = 0, second = 0;
    for (uint32_t x = 0; x < n; x++) {
        second = chances[x] > best ? best : chances[x] > second ? chances[x] : second;
        best = chances[x] > best ? chances[x] : best;
    }
    return best + second;
}

/* Ranks experts: first those that a router would choose by these chances - from the best groups alone - then all others by chance.
 * More than K are asked for to be safe from a wrong guess, also of the groups. */
static void rank(const struct predict *p, const float *chances, float *ret)
{
    uint32_t groups = p->o.groups, size = p->o.experts / groups;
    for (uint32_t g = 0; g < groups; g++) {
        float mine = group_chance(chances + (size_t)g * size, size);
        uint32_t better = 0;
        for (uint32_t h = 0; h < groups; h++) {
            float other = group_chance(chances + (size_t)h * size, size);
            better += other > mine || (other == mine && h < g);
        }
        for (uint32_t x = g * size; x < (g + 1) * size; x++) {
            ret[x] = better < p->o.groups_used ? chances[x] : -1;
        }
    }
    for (uint32_t k = 0; k < p->o.used; k++) {
        uint32_t best = 0;
        for (uint32_t x = 1; x < p->o.experts; x++) {
            best = ret[x] > ret[best] ? x : best;
        }
        ret[best] = -2; /* chosen */
    }
    for (uint32_t x = 0; x < p->o.experts; x++) {
        ret[x] = chances[x] + (ret[x] == -2 ? 1 : 0);
    }
}

static void calibrate(struct predict_calibration *c, const float *chances, uint32_t experts, const int32_t *ids, uint32_t used)
{
    for (uint32_t x = 0, k = 0; x < experts; x++) {
        bool is = k < used && (uint32_t)ids[k] == x; /* ids rise */
        uint32_t bin = min_u32((uint32_t)(chances[x] * PREDICT_BINS), PREDICT_BINS - 1);
        double off = (double)chances[x] - is;
        k += is;
        c->n[bin]++;
        c->chance[bin] += (double)chances[x];
        c->used[bin] += is;
        c->square += off * off;
    }
}

static void count(struct predict *p, const struct slot *s, uint32_t layer, const struct fuser_row *row)
{
    const int32_t *ids = s->ids + (size_t)layer * p->o.used;
    const float *weights = s->weights + (size_t)layer * p->o.used;
    for (uint32_t i = 0; i < PREDICTORS; i++) {
        if (row->scores[i] != NULL) {
            recall_count(&p->recall, i, layer, row->scores[i], ids, weights);
        }
    }
    for (uint32_t l = 0; l < LEADS; l++) {
        if (!wants(&p->o, (enum lead)l)) {
            continue;
        }
        const float *chances = p->chances + (size_t)l * p->o.experts;
        rank(p, chances, p->ranks);
        recall_count(&p->recall, PREDICTORS + l, layer, p->ranks, ids, weights);
        calibrate(&p->calibration[l], chances, p->o.experts, ids, p->o.used);
    }
}

const float *predict_chances(struct predict *p, enum lead lead, uint32_t layer, uint32_t position, int32_t token)
{
    assert(layer < p->o.layers && wants(&p->o, lead));
    struct slot *s = slot_of(p, position);
    from_ids(p, s, layer, token);
    struct fuser_row row = row_of(p, s, layer);
    fuser_stage_chances(p->fuser, layer, &row, lead, p->chances);
    return p->chances;
}

void predict_token(struct predict *p, uint32_t position, int32_t token)
{
    struct slot *s = slot_of(p, position);
    for (uint32_t layer = 0; layer < p->o.layers; layer++) {
        if (!s->routed[layer]) {
            continue;
        }
        const int32_t *ids = s->ids + (size_t)layer * p->o.used;
        from_ids(p, s, layer, token);
        struct fuser_row row = row_of(p, s, layer);
        fuser_chances(p->fuser, layer, &row, p->chances);
        if (position >= p->o.first_position) {
            count(p, s, layer, &row);
        }
        fuser_learn(p->fuser, layer, &row, ids);
        for (uint32_t k = 0; k < p->o.used; k++) {
            heat_use(&p->heat, (struct expert_key){(uint16_t)layer, (uint16_t)ids[k]}, 1);
        }
        memcpy(p->previous + (size_t)layer * p->o.used, ids, p->o.used * sizeof(*ids));
    }
    p->has_previous = true;
    heat_advance(&p->heat, ++p->tokens * p->o.layers);
    s->open = false;
}

size_t predict_state_bytes(const struct predict *p) { return fuser_state_bytes(p->fuser); }
void predict_save(const struct predict *p, void *ret) { fuser_save(p->fuser, ret); }
int predict_load(struct predict *p, const void *data, size_t bytes) { return fuser_load(p->fuser, data, bytes); }

const struct recall *predict_recall(const struct predict *p) { return &p->recall; }
const struct predict_calibration *predict_calibration(const struct predict *p, enum lead l) { return &p->calibration[l]; }
