/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: prefetch.h. Must not know: slots, how reads are done. */
#include "src/run/prefetch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/run/expect.h"
#include "src/run/finite.h"
#include "src/run/product.h"
#include "src/run/scout.h"

static const uint32_t NOTHING = UINT32_MAX; /* layer 0 may have experts */

enum {
    NEXT = 64,         /* experts of the next layer of a prompt, in the order of the file */
    TRY = 8,           /* tokens each way before the cheaper one is taken */
    TRY_AGAIN = 64,    /* tokens after which the other way gets one */
    MEMORY = 16,       /* tokens in the means of a way */
};

static const double GAIN = 0.01; /* of a token's seconds: less is not worth the reads in vain */
static const float PAYS = 0.5f; /* chance from which on an expert is read ahead */

/* ---- governor ---- */

bool prefetch_governor_choose(const struct prefetch_governor *g)
{
    const struct way *w = g->ways.way;
    if (w[0].seen < TRY || w[1].seen < TRY) {
        return w[1].seen <= w[0].seen;
    }
    bool better = ways_saved(&g->ways) > GAIN * w[0].seconds;
    return g->tokens % TRY_AGAIN == 0 ? !better : better;
}

void prefetch_governor_token(struct prefetch_governor *g, bool hinted, double seconds, uint64_t experts)
{
    ways_token(&g->ways, hinted, seconds, experts, MEMORY);
    g->tokens++;
}

/* ---- prefetch ---- */

struct prefetch {
    struct engine *engine;
    struct foresee *foresee;     /* asks routers, watches the MTP layer */
    struct expect *expect;       /* NULL: nothing to predict */
    bool asks;                   /* routers can be asked */
    enum prefetch_mode mode;
    const struct batch *step;    /* whose rows came to the first layer last */
    uint32_t first_layer;        /* with experts */
    int32_t *ids;                /* [experts_used] a router named for a row */
    float *weights;              /* [experts_used] of ids */
    float *chance;               /* [experts] of the next layer's, by all rows */
    bool *named, *used;          /* [experts] worth a read for named_layer; chosen by it */
    struct prediction *hints;    /* [max(experts, NEXT)] */
    uint32_t named_layer;        /* NOTHING, or whose experts are named */
    struct prefetch_governor governor;
    struct scout scout;
    uint8_t *chances;            /* [experts] of a layer's for the next token, in 255ths */
    uint32_t cycle;              /* visits of a token with a scout */
    bool alone, rides;           /* this token: has no drafts; has a scout */
    uint64_t start_ns;           /* of its step */
    bool compares;               /* the store keeps account of what they spare */
    int64_t spared, spared_all;  /* experts, up to this token of what is accounted for; in all */
    struct counter *count_scouts;
    bool hinting;                /* this token */
    uint64_t token_ns;           /* when this token came to the first layer; 0: it is none to measure */
    uint64_t before;             /* experts not in RAM up to then */
    struct counter *count_named, *count_right;
};

static enum prefetch_mode mode_of(const char *name)
{
    return strcmp(name, "off") == 0 ? PREFETCH_OFF : strcmp(name, "ghost") == 0 ? PREFETCH_GHOST : strcmp(name, "on") == 0 ? PREFETCH_ON : PREFETCH_AUTO;
}

/* A quantised router would take the buffers of the activations that the experts are about to read. */
static bool routers_can_be_asked(const struct engine *g)
{
    for (uint32_t i = 0; i < g->shape->layers; i++) {
        if (shape_layer_is_moe(g->shape, i) && product_act_block(g, g->resident->layers[i].matrix[ROLE_ROUTER].format, false) != 0) {
            return false;
        }
    }
    return true;
}

static int open_all(struct prefetch *p, struct error *e)
{
    struct engine *g = p->engine;
    uint32_t k = g->shape->experts_used, experts = g->shape->experts;
    p->ids = malloc(k * sizeof(*p->ids));
    p->weights = malloc(k * sizeof(*p->weights));
    p->chance = calloc(experts, sizeof(*p->chance));
    p->named = calloc(2 * (size_t)experts, sizeof(*p->named));
    p->hints = malloc(max_u32(experts, NEXT) * sizeof(*p->hints));
    p->chances = malloc(experts);
    if (p->chances == NULL || p->ids == NULL || p->weights == NULL || p->chance == NULL || p->named == NULL || p->hints == NULL) {
        return error_nomem(e, "predicted experts", experts * sizeof(*p->hints));
    }
    p->used = p->named + experts;
    while (!shape_layer_is_moe(g->shape, p->first_layer)) {
        p->first_layer++;
    }
    p->cycle = g->shape->mtp_layers;
    for (uint32_t i = 0; i < g->shape->layers; i++) {
        p->cycle += shape_layer_is_moe(g->shape, i);
    }
    scout_init(&p->scout, 2.0 / (g->shape->layers + 1), 1.0 / p->cycle); /* the MTP layer, and about as much for the head and the row */
    p->count_scouts = counters_register(&g->counters, "prefetch.scouts", "tokens with a shadow row that shows what the next one uses");
    p->count_named = counters_register(&g->counters, "prefetch.named", "experts whose chance a layer ahead was worth a read");
    p->count_right = counters_register(&g->counters, "prefetch.right", "of them used by the layer");
    p->asks = routers_can_be_asked(g);
    if (!p->asks) {
        engine_step_down(g, "prefetch", "the routers of this file are quantised and cannot be asked ahead: chances go by tokens alone");
    }
    int r = expect_create(g, &p->expect, e);
    struct foresee_options o = {.on_scores = expect_on_scores, .ctx = p->expect};
    if (r == 0 && p->expect != NULL) {
        expect_sources(p->expect, &o);
    }
    o.apart = o.wanted == 0;
    return r < 0 ? r : foresee_create(g, &o, &p->foresee, e);
}

int prefetch_create(struct engine *g, struct prefetch **ret, struct error *e)
{
    enum prefetch_mode mode = mode_of(g->settings.prefetch);
    *ret = NULL;
    if (mode == PREFETCH_OFF || !store_streams(g->store)) {
        return 0;
    }
    struct prefetch *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return error_nomem(e, "prefetch", sizeof(*p));
    }
    p->engine = g;
    p->mode = mode;
    int r = open_all(p, e);
    if (r < 0) {
        prefetch_destroy(p);
        return r;
    }
    *ret = p;
    return 0;
}

void prefetch_destroy(struct prefetch *p)
{
    if (p == NULL) {
        return;
    }
    foresee_destroy(p->foresee);
    expect_destroy(p->expect);
    free(p->ids);
    free(p->weights);
    free(p->chance);
    free(p->named);
    free(p->hints);
    free(p->chances);
    free(p);
}

static uint64_t count_of(const struct engine *g, const char *name) { return counter_get(counters_find(&g->counters, name)); }

/* Experts that were not in RAM before they were asked for, whether or not a hint brought them in time. */
static uint64_t experts_read(const struct engine *g) { return count_of(g, "expert.ram.misses") + count_of(g, "prefetch.useful"); }

/* A step comes to the first layer: how it goes is chosen, and it is measured if it has no rows of prompts. */
static void begin_token(struct prefetch *p, const struct batch *b, uint64_t start_ns)
{
    bool decodes = b->n_spans == 1 && !b->spans[0].bulk;
    p->rides = decodes && b->rows[b->n - 1].shadow;
    p->alone = decodes && b->n - p->rides == 1;
    p->start_ns = start_ns;
    p->spared = store_spared(p->engine->store);
    counter_add(p->count_scouts, p->rides);
    p->token_ns = decodes ? clock_now_ns(&p->engine->clock) : 0;
    p->before = experts_read(p->engine);
    p->hinting = p->mode == PREFETCH_ON || (p->mode == PREFETCH_AUTO && prefetch_governor_choose(&p->governor));
}

/* ---- chances ---- */

static bool has_experts(const struct prefetch *p, uint32_t layer) { return layer < p->engine->shape->layers && shape_layer_is_moe(p->engine->shape, layer); }

static uint32_t rows_predicted(const struct prefetch *p, const struct batch *b) { return p->expect != NULL && b == p->step ? expect_rows(p->expect) : 0; }

/* A row that makes the layer use an expert with this chance, beside what other rows do. */
static void add_chance(struct prefetch *p, uint32_t expert, float chance) { p->chance[expert] = 1 - (1 - p->chance[expert]) * (1 - chance); }

/* What the router names for a row of which nothing else is known. */
static void add_names(struct prefetch *p, uint32_t layer, const float *logits)
{
    const struct engine *g = p->engine;
    const struct shape *s = g->shape;
    g->ops.router(&(struct router_args){
        .logits = logits, .bias = g->resident->layers[layer].vector[ROLE_ROUTER_BIAS], .scratch = g->work.worker[0].router, .ids = p->ids, .weights = p->weights,
        .experts = s->experts, .k = s->experts_used, .groups = s->groups, .groups_used = s->groups_used, .score = s->score, .group = s->group, .normalise = s->normalise, .factor = s->routed_factor});
    for (uint32_t i = 0; i < s->experts_used; i++) {
        add_chance(p, (uint32_t)p->ids[i], PAYS);
    }
}

/* Chances of a layer's experts by one row; logits: of the layer's router, or NULL. Returns whether anything is known. */
static bool add_row(struct prefetch *p, const struct batch *b, enum lead lead, uint32_t layer, uint32_t row, const float *logits)
{
    bool predicted = row < rows_predicted(p, b);
    if (predicted && logits != NULL) {
        expect_scores(p->expect, PREDICT_GATE, layer, row, foresee_scores(p->foresee, layer, logits));
    }
    const float *chances = predicted ? expect_chances(p->expect, lead, layer, row) : NULL;
    for (uint32_t x = 0; chances != NULL && x < p->engine->shape->experts; x++) {
        add_chance(p, x, chances[x]);
    }
    if (chances == NULL && logits != NULL) {
        add_names(p, layer, logits);
    }
    return chances != NULL || logits != NULL;
}

/* Hints those experts of a layer `ahead` visits away whose chance pays, likeliest first. */
static void hint(struct prefetch *p, uint32_t layer, uint32_t ahead, enum hint_lead lead)
{
    uint32_t n = 0;
    for (uint32_t x = 0; x < p->engine->shape->experts; x++) {
        p->named[x] = p->chance[x] >= PAYS;
        if (!p->named[x]) {
            continue;
        }
        uint32_t at = n++;
        for (; at > 0 && p->hints[at - 1].probability < p->chance[x]; at--) {
            p->hints[at] = p->hints[at - 1];
        }
        p->hints[at] = (struct prediction){{(uint16_t)layer, (uint16_t)x}, p->chance[x], ahead, lead};
    }
    p->named_layer = layer;
    if (p->hinting) {
        store_hint(p->engine->store, p->hints, n);
    }
}

/* What is known of the token after this one, by its shadow row, for who decides what stays. */
static void expect_next(struct prefetch *p, uint32_t layer)
{
    const float *chances = expect_chances(p->expect, LEAD_TOKEN, layer, expect_rows(p->expect));
    if (chances == NULL) {
        return;
    }
    for (uint32_t x = 0; x < p->engine->shape->experts; x++) {
        p->chances[x] = (uint8_t)lrintf(chances[x] * UINT8_MAX);
    }
    store_expect(p->engine->store, (uint16_t)layer, p->cycle + 1, p->chances);
}

/* How many of the names were right. */
static void compare(struct prefetch *p, const struct span *span)
{
    uint32_t k = p->engine->shape->experts_used, named = 0, right = 0;
    memset(p->used, 0, p->engine->shape->experts * sizeof(*p->used));
    for (uint32_t a = span->begin * k; a < span->end * k; a++) {
        p->used[p->engine->work.ids[a]] = true;
    }
    for (uint32_t x = 0; x < p->engine->shape->experts; x++) {
        named += p->named[x];
        right += p->named[x] && p->used[x];
    }
    counter_add(p->count_named, named);
    counter_add(p->count_right, right);
    p->named_layer = NOTHING;
}

/* ---- places of the token loop ---- */

bool prefetch_scouts(const struct prefetch *p)
{
    if (p == NULL || p->expect == NULL || p->mode == PREFETCH_GHOST) {
        return false;
    }
    return p->mode == PREFETCH_ON || (p->alone && scout_choose(&p->scout));
}

void prefetch_drafted(struct prefetch *p, const struct batch_row *row, int32_t token, const float *logits)
{
    if (p == NULL || p->expect == NULL) {
        return;
    }
    float sum = 0;
    for (uint32_t i = 0; i < p->engine->shape->vocab; i++) {
        sum += expf(logits[i] - logits[token]);
    }
    expect_drafted(p->expect, row->session, row->position + 2, token, sum >= 1 ? 1 / sum : 0);
}

void prefetch_step(struct prefetch *p, const struct batch *b, const int32_t *tokens, uint64_t start_ns)
{
    if (p == NULL) {
        return;
    }
    begin_token(p, b, start_ns);
    p->named_layer = NOTHING;
    p->step = b;
    if (p->expect == NULL) {
        return;
    }
    expect_step(p->expect, b, tokens);
    bool known = false;
    memset(p->chance, 0, p->engine->shape->experts * sizeof(*p->chance));
    for (uint32_t i = 0; i < rows_predicted(p, b); i++) {
        known = add_row(p, b, LEAD_START, p->first_layer, i, NULL);
    }
    if (known) {
        hint(p, p->first_layer, 1, HINT_START);
    }
}

void prefetch_routed(struct prefetch *p, const struct batch *b, uint32_t layer)
{
    if (p == NULL || !has_experts(p, layer) || rows_predicted(p, b) == 0) {
        return;
    }
    expect_route(p->expect, layer);
    if (p->rides && p->mode != PREFETCH_GHOST) {
        expect_next(p, layer);
    }
}

int prefetch_layer(struct prefetch *p, const struct batch *b, const struct span *span, uint32_t layer, struct error *e)
{
    if (p == NULL || span->bulk || layer >= p->engine->shape->layers) {
        return 0;
    }
    const struct shape *s = p->engine->shape;
    uint32_t n = min_u32(span->end - span->begin, OPS_MAX_ROWS);
    const float *logits = NULL;
    if (p->named_layer == layer && b == p->step) {
        compare(p, span);
    }
    if (!has_experts(p, layer + 1)) {
        return 0;
    }
    if (p->mode == PREFETCH_AUTO && !p->hinting) {
        return 0; /* asking takes time, too */
    }
    int r = p->asks ? foresee_ask(p->foresee, b, span->begin, n, layer + 1, NULL, &logits, e) : 0;
    if (r < 0 || (logits != NULL && !all_finite(logits, n * s->experts))) {
        return r; /* not finite: the layer is about to say so */
    }
    bool known = false;
    memset(p->chance, 0, s->experts * sizeof(*p->chance));
    for (uint32_t i = 0; i < n; i++) {
        if (!b->rows[span->begin + i].shadow) { /* whose experts are not read */
            known = add_row(p, b, LEAD_LAYER, layer + 1, i, logits != NULL ? logits + (size_t)i * s->experts : NULL);
        }
    }
    if (known) {
        hint(p, layer + 1, 1, HINT_LAYER);
    }
    return 0;
}

/* A token without drafts is done. While scouts ride, the store keeps account of what they spare. */
static void judge_scout(struct prefetch *p, double seconds, uint64_t experts)
{
    int64_t spared = store_spared(p->engine->store) - p->spared;
    p->spared_all += spared;
    scout_token(&p->scout, &(struct scout_token){p->rides, seconds, experts, spared});
    bool rides = p->scout.rides || (p->rides && p->mode == PREFETCH_ON);
    if (rides != p->compares) {
        store_compare(p->engine->store, rides);
        p->compares = rides;
    }
}

void prefetch_done(struct prefetch *p, const struct batch *b)
{
    if (p == NULL || b != p->step || p->token_ns == 0) {
        return;
    }
    uint64_t now = clock_now_ns(&p->engine->clock), experts = experts_read(p->engine) - p->before;
    prefetch_governor_token(&p->governor, p->hinting, 1e-9 * (double)(now - p->token_ns), experts);
    p->token_ns = 0;
    if (p->alone) {
        judge_scout(p, 1e-9 * (double)(now - p->start_ns), experts);
    }
}

void prefetch_next(struct prefetch *p, uint32_t layer, uint32_t used)
{
    if (p == NULL || p->mode == PREFETCH_GHOST || !has_experts(p, layer + 1)) {
        return;
    }
    uint32_t experts = p->engine->shape->experts, n = min_u32(experts, NEXT);
    p->named_layer = NOTHING;
    for (uint32_t x = 0; x < n; x++) {
        p->hints[x] = (struct prediction){{(uint16_t)(layer + 1), (uint16_t)x}, (float)used / (float)experts, 1, HINT_CHUNK};
    }
    store_hint(p->engine->store, p->hints, n);
}

struct expect *prefetch_expect(struct prefetch *p) { return p != NULL ? p->expect : NULL; }

void prefetch_json(const struct prefetch *p, struct str *out)
{
    if (p == NULL || p->expect == NULL) {
        str_puts(out, "null");
        return;
    }
    str_printf(out, "{\"scouts\": {\"tokens\": %llu, \"spared\": %lld}, ", (unsigned long long)counter_get(p->count_scouts), (long long)p->spared_all);
    expect_json(p->expect, out);
    str_puts(out, ", \"reads\": ");
    ahead_json(store_ahead(p->engine->store), out);
    str_puts(out, "}");
}
