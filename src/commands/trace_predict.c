/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice trace predict`: every predictor in ghost while a model goes through texts, and how many of the experts each one
 * named. Must not know: how a predictor works. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "src/commands/trace.h"
#include "src/commands/trace_model.h"
#include "src/commands/trace_predict.h"
#include "src/tier/predict.h"

/* What the hooks write to. Two passes: as drafted, and - for the bound of the shadow row - with every draft right. */
struct ghost {
    const struct trace_model *model;
    const struct trace_text *text;
    struct predict *predict;
    struct recall exact;  /* one list: the shadow row if the draft is right */
    float *guess;         /* [layers][experts] of the next position, in the second pass */
    float *held;          /* [layers][experts] of this one */
    bool has_held;
    int32_t *drafts;      /* [longest] of each position */
    float *chances;       /* [longest] theirs */
    uint32_t first_position;
    bool second;
    uint64_t drafted, right; /* positions counted; those with the right draft */
};

/* How the outcome is shown. */
struct show {
    bool json;
    const char *plot; /* path or NULL */
};

static const enum predictor predictor_of[FORESIGHTS] = {
    [FORESEE_SHADOW] = PREDICT_SHADOW,   [FORESEE_GATE] = PREDICT_GATE,           [FORESEE_GATE_SHARED] = PREDICT_GATE_SHARED,
    [FORESEE_GATE_TWO] = PREDICT_GATE_TWO, [FORESEE_GATE_FULL] = PREDICT_GATE_FULL, [FORESEE_PROBE] = PREDICT_PROBE,
    [FORESEE_PROBE_DRAFT] = PREDICT_PROBE_DRAFT,
};

static void on_scores(void *ctx, const struct session *s, enum foresight source, uint32_t layer, uint32_t position, const float *scores)
{
    struct ghost *g = ctx;
    uint32_t experts = g->model->engine->shape->experts;
    (void)s;
    if (!g->second) {
        predict_scores(g->predict, predictor_of[source], layer, position, scores);
    } else if (source == FORESEE_SHADOW) {
        memcpy(g->guess + (size_t)layer * experts, scores, experts * sizeof(*scores));
    }
}

static void on_route(void *ctx, uint32_t layer, uint32_t position, const int32_t *ids, const float *weights)
{
    struct ghost *g = ctx;
    const struct shape *s = g->model->engine->shape;
    if (layer >= s->layers) {
        return; /* the MTP layer's own experts */
    }
    if (!g->second) {
        predict_route(g->predict, layer, position, ids, weights);
    } else if (g->has_held && position >= g->first_position) {
        recall_count(&g->exact, 0, layer, g->held + (size_t)layer * s->experts, ids, weights);
    }
}

/* The draft of the position after is known before its shadow row rides along. */
static void on_token(void *ctx, uint32_t position, int32_t token)
{
    struct ghost *g = ctx;
    uint32_t next = position + 1;
    if (g->second) {
        float *held = g->held;
        g->held = g->guess;
        g->guess = held;
        g->has_held = true;
        return;
    }
    predict_token(g->predict, position, token);
    if (next < g->text->n && g->drafts[next] >= 0) {
        predict_draft(g->predict, next, g->drafts[next], g->chances[next]);
    }
}

static int run_text(struct ghost *g, struct error *e)
{
    const struct session_hooks hooks = {.on_token = on_token, .on_route = on_route, .ctx = g};
    bool mtp = g->model->engine->shape->mtp_layers > 0;
    for (uint32_t p = 0; p < g->text->n; p++) {
        g->drafts[p] = -1;
    }
    int r = mtp ? trace_model_drafts(g->model, g->text, g->drafts, g->chances, e) : 0;
    predict_begin(g->predict);
    g->second = g->has_held = false;
    r = r < 0 ? r : trace_model_step(g->model, g->text, &hooks, mtp, g->drafts, e);
    g->second = true;
    return r < 0 || !mtp ? r : trace_model_step(g->model, g->text, &hooks, false, g->text->tokens, e);
}

static int run_texts(struct ghost *g, const struct learned *learned, struct error *e)
{
    struct foresee *foresee = NULL;
    const struct foresee_options watch = {.wanted = (1u << FORESIGHTS) - 1 - (1u << FORESEE_ROUTER), .learned = learned, .on_scores = on_scores, .ctx = g};
    int r = foresee_create(g->model->engine, &watch, &foresee, e);
    for (size_t i = 0; r == 0 && i < g->model->texts.n; i++) {
        const struct trace_text *t = &g->model->texts.item[i];
        g->text = t;
        r = run_text(g, e);
        for (uint32_t p = max_u32(2, g->first_position); r == 0 && p < t->n; p++) {
            g->drafted++;
            g->right += g->drafts[p] == t->tokens[p];
        }
    }
    foresee_destroy(foresee);
    return r;
}

static int allocate(struct ghost *g, struct error *e)
{
    const struct shape *s = g->model->engine->shape;
    size_t n = (size_t)s->layers * s->experts;
    g->guess = calloc(n, sizeof(*g->guess));
    g->held = calloc(n, sizeof(*g->held));
    g->drafts = calloc(g->model->texts.longest, sizeof(*g->drafts));
    g->chances = calloc(g->model->texts.longest, sizeof(*g->chances));
    bool ok = g->guess && g->held && g->drafts && g->chances;
    return ok ? recall_init(&g->exact, 1, s->layers, s->experts, s->experts_used, e) : error_nomem(e, "scores of a position", n * sizeof(*g->guess));
}

static void deinit(struct ghost *g)
{
    predict_destroy(g->predict);
    recall_deinit(&g->exact);
    free(g->guess);
    free(g->held);
    free(g->drafts);
    free(g->chances);
}

static int predict(struct ghost *g, const char *file, const struct show *show, struct error *e)
{
    const struct shape *s = g->model->engine->shape;
    const struct learned_shape shape = foresee_learned_shape(g->model->engine);
    struct learned learned = {0};
    if (g->first_position >= g->model->texts.longest) {
        return error_set(e, ERROR_USAGE, "--first-position %u: nothing is counted, the longest text has %u tokens", g->first_position, g->model->texts.longest);
    }
    if (s->experts_used >= s->experts) {
        return error_set(e, ERROR_USAGE, "this model uses all %u experts of a layer for every token: there is nothing to predict", s->experts);
    }
    int r = file != NULL ? learned_read(&learned, &shape, file, NULL, e) : 0;
    const struct predict_options o = {.layers = s->layers, .experts = s->experts, .used = s->experts_used, .groups = s->groups, .groups_used = s->groups_used,
                                      .learned = file != NULL ? &learned : NULL, .first_position = g->first_position};
    r = r < 0 ? r : predict_create(&o, &g->predict, e);
    r = r < 0 ? r : allocate(g, e);
    r = r < 0 ? r : run_texts(g, o.learned, e);
    if (r == 0) {
        struct str out = {0};
        const struct predict_report report = {.predict = g->predict, .exact = &g->exact, .texts = g->model->texts.n, .learned = file, .first_position = g->first_position,
                                              .drafted = s->mtp_layers > 0 ? g->drafted : 0, .right = g->right};
        (show->json ? predict_report_json : predict_report_text)(&report, &out);
        r = arguments_print(&out, e);
        r = r < 0 || show->plot == NULL ? r : predict_report_plot(&report, show->plot, e);
    }
    learned_deinit(&learned);
    return r;
}

static int read_first_position(const char *text, uint32_t *ret, struct error *e)
{
    uint64_t n = 0;
    if (text != NULL && (!parse_u64(text, &n) || n >= UINT32_MAX)) {
        return error_set(e, ERROR_USAGE, "--first-position %s: expected a number from 0 to %u", text, UINT32_MAX - 1);
    }
    *ret = (uint32_t)n;
    return 0;
}

int trace_predict(int argc, char **argv, const volatile int *cancel, bool *ret_help, struct error *e)
{
    struct trace_model m = {0};
    struct ghost g = {.model = &m};
    const char *file = NULL, *first = NULL;
    char *beside = NULL;
    struct show show = {0};
    const struct argument own[] = {{"--predictors", NULL, &file}, {"--first-position", NULL, &first}, {"--json", &show.json, NULL}, {"--plot", NULL, &show.plot}, {0}};
    int r = trace_model_arguments(&m, argc, argv, own, ret_help, e);
    r = r < 0 ? r : read_first_position(first, &g.first_position, e);
    if (r == 0 && !*ret_help) {
        r = trace_model_open(&m, cancel, e);
        r = r < 0 ? r : trace_model_predictors(&m, &beside, e);
        if (r == 0 && file == NULL && file_exists(beside)) {
            file = beside;
        }
        r = r < 0 ? r : predict(&g, file != NULL && strcmp(file, "off") != 0 ? file : NULL, &show, e);
        deinit(&g);
        free(beside);
    }
    trace_model_deinit(&m);
    return r;
}
