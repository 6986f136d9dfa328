/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: prefetch.h. Must not know: slots, how reads are done. */
#include "src/run/prefetch.h"

#include <stdlib.h>
#include <string.h>

#include "src/run/finite.h"
#include "src/run/foresee.h"
#include "src/run/product.h"

enum {
    NEXT = 64,         /* experts of the next layer of a prompt, in the order of the file */
    TRY = 8,           /* tokens each way before the cheaper one is taken */
    TRY_AGAIN = 64,    /* tokens after which the other way gets one */
    PAUSE_NS = 2000000000, /* a gap between tokens that is no token: a prompt, a user who thinks */
};

static const double FADE = 0.9; /* of a cost, per token of its kind */

/* ---- governor ---- */

bool prefetch_governor_choose(const struct prefetch_governor *g)
{
    if (g->seen[0] < TRY || g->seen[1] < TRY) {
        return g->seen[1] <= g->seen[0];
    }
    bool better = g->cost[1] < g->cost[0];
    return g->tokens % TRY_AGAIN == 0 ? !better : better;
}

void prefetch_governor_token(struct prefetch_governor *g, bool hinted, double seconds, uint64_t experts)
{
    g->tokens++;
    if (experts == 0) {
        return; /* says nothing of reading */
    }
    double cost = seconds / (double)experts;
    g->cost[hinted] = g->seen[hinted] == 0 ? cost : FADE * g->cost[hinted] + (1 - FADE) * cost;
    g->seen[hinted]++;
}

/* ---- prefetch ---- */

struct prefetch {
    struct engine *engine;
    struct foresee *foresee;     /* NULL: routers cannot be asked */
    enum prefetch_mode mode;
    uint32_t first_layer;        /* with experts */
    int32_t *ids, *first_ids;    /* [experts_used] named for a row; for the first row of a step */
    float *weights, *sorted;     /* [experts_used] of ids; of hints */
    struct prediction *hints;    /* [max(experts_used, NEXT)] */
    uint32_t named_layer;        /* first_ids are what was named for it; 0: nothing */
    struct prefetch_governor governor;
    bool hinting;                /* this token */
    uint64_t token_ns;           /* when this token came to the first layer; 0: it is none to measure */
    uint64_t before;             /* experts not in RAM up to then */
    struct counter *named, *right;
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
    uint32_t k = g->shape->experts_used;
    p->ids = malloc(2 * k * sizeof(*p->ids));
    p->weights = malloc(k * sizeof(*p->weights));
    p->sorted = malloc(k * sizeof(*p->sorted));
    p->hints = malloc(max_u32(k, NEXT) * sizeof(*p->hints));
    if (p->ids == NULL || p->weights == NULL || p->sorted == NULL || p->hints == NULL) {
        return error_nomem(e, "predicted experts", k * sizeof(*p->hints));
    }
    p->first_ids = p->ids + k;
    while (!shape_layer_is_moe(g->shape, p->first_layer)) {
        p->first_layer++;
    }
    p->named = counters_register(&g->counters, "prefetch.named", "experts that a layer's router named a layer ahead");
    p->right = counters_register(&g->counters, "prefetch.right", "of them chosen by the layer");
    if (!routers_can_be_asked(g)) {
        engine_step_down(g, "prefetch", "of prompts only: the routers of this file are quantised and cannot be asked ahead");
        return 0;
    }
    return foresee_create(g, &(struct foresee_options){.apart = true}, &p->foresee, e);
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
    free(p->ids);
    free(p->weights);
    free(p->sorted);
    free(p->hints);
    free(p);
}

static uint64_t count_of(const struct engine *g, const char *name) { return counter_get(counters_find(&g->counters, name)); }

/* Experts that were not in RAM before they were asked for, whether or not a hint brought them in time. */
static uint64_t experts_read(const struct engine *g) { return count_of(g, "expert.ram.misses") + count_of(g, "prefetch.useful"); }

/* A step comes to the first layer: the one before is measured, if both have no rows of prompts, and how this one goes is chosen. */
static void begin_token(struct prefetch *p, bool decodes)
{
    uint64_t now = clock_now_ns(&p->engine->clock), experts = experts_read(p->engine);
    if (p->token_ns != 0 && decodes && now - p->token_ns < PAUSE_NS) {
        prefetch_governor_token(&p->governor, p->hinting, 1e-9 * (double)(now - p->token_ns), experts - p->before);
    }
    p->token_ns = decodes ? now : 0;
    p->before = experts;
    p->hinting = p->mode == PREFETCH_ON || (p->mode == PREFETCH_AUTO && prefetch_governor_choose(&p->governor));
}

/* How many of the names were right. */
static void compare(struct prefetch *p, const int32_t *chosen)
{
    uint32_t k = p->engine->shape->experts_used, right = 0;
    for (uint32_t i = 0; i < k; i++) {
        for (uint32_t j = 0; j < k; j++) {
            right += p->first_ids[i] == chosen[j];
        }
    }
    counter_add(p->named, k);
    counter_add(p->right, right);
}

/* What the next layer's router names for a row, likeliest first. */
static void name_experts(struct prefetch *p, uint32_t layer, const float *logits)
{
    const struct engine *g = p->engine;
    const struct shape *s = g->shape;
    uint32_t k = s->experts_used;
    g->ops.router(&(struct router_args){
        .logits = logits, .bias = g->resident->layers[layer].vector[ROLE_ROUTER_BIAS], .scratch = g->work.worker[0].router, .ids = p->ids, .weights = p->weights,
        .experts = s->experts, .k = k, .groups = s->groups, .groups_used = s->groups_used, .score = s->score, .group = s->group, .normalise = s->normalise, .factor = s->routed_factor});
    float share = counter_get(p->named) > 0 ? (float)counter_get(p->right) / (float)counter_get(p->named) : 0.5f;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t at = i;
        for (; at > 0 && p->sorted[at - 1] < p->weights[i]; at--) {
            p->sorted[at] = p->sorted[at - 1];
            p->hints[at] = p->hints[at - 1];
        }
        p->sorted[at] = p->weights[i];
        p->hints[at] = (struct prediction){{(uint16_t)layer, (uint16_t)p->ids[i]}, share, 1};
    }
}

int prefetch_layer(struct prefetch *p, const struct batch *b, const struct span *span, uint32_t layer, struct error *e)
{
    if (p == NULL || p->foresee == NULL || span->bulk || layer >= p->engine->shape->layers) {
        return 0;
    }
    const struct shape *s = p->engine->shape;
    uint32_t n = min_u32(span->end - span->begin, OPS_MAX_ROWS);
    if (layer == p->first_layer) {
        begin_token(p, b->n_spans == 1);
    }
    if (p->named_layer == layer) {
        compare(p, p->engine->work.ids + (size_t)span->begin * s->experts_used);
    }
    p->named_layer = 0;
    if (layer + 1 >= s->layers || !shape_layer_is_moe(s, layer + 1)) {
        return 0;
    }
    const float *logits;
    int r = foresee_ask(p->foresee, b, span->begin, n, layer + 1, NULL, &logits, e);
    for (uint32_t i = 0; i < n && r == 0 && all_finite(logits, n * s->experts); i++) { /* otherwise the layer is about to say so */
        if (b->rows[span->begin + i].shadow) {
            continue; /* its experts are not read */
        }
        name_experts(p, layer + 1, logits + (size_t)i * s->experts);
        if (i == 0) {
            memcpy(p->first_ids, p->ids, s->experts_used * sizeof(*p->ids));
            p->named_layer = layer + 1;
        }
        if (p->hinting) {
            store_hint(p->engine->store, p->hints, s->experts_used);
        }
    }
    return r;
}

void prefetch_next(struct prefetch *p, uint32_t layer, uint32_t used)
{
    if (p == NULL || p->mode == PREFETCH_GHOST || layer + 1 >= p->engine->shape->layers || !shape_layer_is_moe(p->engine->shape, layer + 1)) {
        return;
    }
    uint32_t experts = p->engine->shape->experts, n = min_u32(experts, NEXT);
    for (uint32_t x = 0; x < n; x++) {
        p->hints[x] = (struct prediction){{(uint16_t)(layer + 1), (uint16_t)x}, (float)used / (float)experts, 1};
    }
    store_hint(p->engine->store, p->hints, n);
}
