/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice trace fit`: what predictors can learn from texts, written to a file. Must not know: who predicts with it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exact.h"
#include "src/commands/trace.h"
#include "src/commands/trace_model.h"
#include "src/commands/trace_ridge.h"

static const double PENALTY = 30; /* of the probes' squared weights: prediction improves from 0 to here and is flat beyond */

struct fit {
    struct trace_model *model;
    const struct trace_text *text; /* in work */
    struct learned learned;
    struct token_counts counts;
    struct ridge ridge;
    float *states;  /* [longest][inputs] of MTP rows */
    float *scores;  /* [longest][probe rows] of the routers by position */
    float *columns; /* [inputs + 1][longest] */
    float *rows;    /* [longest][ridge_width] */
    uint64_t tokens;
    struct error failed;
};

/* ---- what the model shows ---- */

static void on_route(void *ctx, uint32_t layer, uint32_t position, const int32_t *ids, const float *weights)
{
    struct fit *f = ctx;
    const struct shape *s = f->model->engine->shape;
    (void)weights;
    for (uint32_t k = 0; layer < s->layers && k < s->experts_used && f->failed.code == 0; k++) {
        f->learned.popularity[(size_t)layer * s->experts + (uint32_t)ids[k]]++;
        struct expert_key key = {(uint16_t)layer, (uint16_t)ids[k]};
        f->failed.code = token_counts_add(&f->counts, (uint32_t)f->text->tokens[position], key, &f->failed);
    }
}

static void on_scores(void *ctx, const struct session *s, enum foresight source, uint32_t layer, uint32_t position, const float *scores)
{
    struct fit *f = ctx;
    const struct learned_shape *l = &f->learned.shape;
    (void)s;
    (void)source;
    memcpy(f->scores + (size_t)position * learned_probe_rows(l) + (size_t)(layer - l->first_layer) * l->experts, scores, l->experts * sizeof(*scores));
}

static void on_mtp(void *ctx, const struct session *s, uint32_t row, const float *state)
{
    struct fit *f = ctx;
    (void)s;
    memcpy(f->states + (size_t)row * f->learned.shape.inputs, state, f->learned.shape.inputs * sizeof(*state));
}

/* ---- probes ---- */

/* State i has read token i + 1 and drafts i + 2: the outputs are the routers' scores of both. */
static int add_states(struct fit *f, struct error *e)
{
    uint32_t inputs = f->learned.shape.inputs, outputs = learned_probe_rows(&f->learned.shape), n = f->text->n > 2 ? f->text->n - 2 : 0;
    size_t width = ridge_width(&f->ridge);
    for (uint32_t i = 0; i < n; i++) {
        float *row = f->rows + i * width;
        memcpy(row, f->states + (size_t)i * inputs, inputs * sizeof(*row));
        row[inputs] = 1;
        memcpy(row + inputs + 1, f->scores + (size_t)(i + 1) * outputs, outputs * sizeof(*row));
        memcpy(row + inputs + 1 + outputs, f->scores + (size_t)(i + 2) * outputs, outputs * sizeof(*row));
        for (uint32_t c = 0; c <= inputs; c++) {
            f->columns[(size_t)c * n + i] = row[c];
        }
    }
    return ridge_add(&f->ridge, f->model->engine, f->columns, f->rows, n, e);
}

static int solve_probes(struct fit *f, struct error *e)
{
    uint32_t inputs = f->learned.shape.inputs, outputs = LEARNED_PROBES * learned_probe_rows(&f->learned.shape);
    int r = ridge_solve(&f->ridge, PENALTY, e);
    for (uint32_t i = 0; r == 0 && i <= inputs; i++) {
        const double *weights = f->ridge.sums + i * ridge_width(&f->ridge) + inputs + 1;
        for (uint32_t o = 0; o < outputs; o++) {
            if (i == inputs) {
                f->learned.probe_bias[o] = (float)weights[o];
            } else {
                f->learned.probe_weight[(size_t)o * inputs + i] = float_to_half((float)weights[o]);
            }
        }
    }
    return r;
}

/* ---- the command ---- */

static int allocate(struct fit *f, struct error *e)
{
    const struct learned_shape s = foresee_learned_shape(f->model->engine);
    size_t longest = f->model->texts.longest;
    if (s.layers > TOKEN_TABLE_LAYERS || s.vocab > TOKEN_TABLE_VOCAB || s.experts > TOKEN_TABLE_EXPERTS) {
        return error_set(e, ERROR_FORMAT, "%u tokens, %u layers, %u experts: the token table holds at most %d, %d, %d", s.vocab, s.layers, s.experts,
                         TOKEN_TABLE_VOCAB, TOKEN_TABLE_LAYERS, TOKEN_TABLE_EXPERTS);
    }
    int r = learned_init(&f->learned, &s, NULL, e);
    if (r < 0 || s.inputs == 0) {
        return r;
    }
    r = ridge_init(&f->ridge, s.inputs, LEARNED_PROBES * learned_probe_rows(&s), pool_workers(f->model->engine->pool), e);
    if (r < 0) {
        return r;
    }
    f->states = malloc(longest * s.inputs * sizeof(*f->states));
    f->scores = calloc(longest * learned_probe_rows(&s), sizeof(*f->scores));
    f->columns = malloc(longest * (s.inputs + 1ull) * sizeof(*f->columns));
    f->rows = malloc(longest * ridge_width(&f->ridge) * sizeof(*f->rows));
    return f->states && f->scores && f->columns && f->rows ? 0 : error_nomem(e, "states of a text", longest * ridge_width(&f->ridge) * sizeof(float));
}

static void deinit(struct fit *f)
{
    learned_deinit(&f->learned);
    token_counts_deinit(&f->counts);
    ridge_deinit(&f->ridge);
    free(f->states);
    free(f->scores);
    free(f->columns);
    free(f->rows);
}

static int read_texts(struct fit *f, struct error *e)
{
    const struct session_hooks hooks = {.on_route = on_route, .ctx = f};
    const struct foresee_options watch = {.wanted = 1u << FORESEE_ROUTER, .on_scores = on_scores, .on_mtp = on_mtp, .ctx = f};
    bool mtp = f->learned.shape.inputs > 0;
    struct foresee *foresee = NULL;
    int r = mtp ? foresee_create(f->model->engine, &watch, &foresee, e) : 0;
    for (size_t i = 0; r == 0 && i < f->model->texts.n; i++) {
        f->text = &f->model->texts.item[i];
        f->tokens += f->text->n;
        r = trace_model_feed(f->model, f->text, &hooks, mtp, e);
        r = r < 0 || f->failed.code == 0 ? r : error_set(e, f->failed.code, "%s", f->failed.text);
        r = r < 0 || !mtp ? r : add_states(f, e);
    }
    foresee_destroy(foresee);
    return r;
}

static int fit(struct fit *f, const char *path, struct error *e)
{
    const struct shape *s = f->model->engine->shape;
    if (s->mtp_layers > 0 && f->model->engine->ubatch <= OPS_MAX_ROWS) {
        return error_set(e, ERROR_USAGE, "-ub %u: fitting needs prompt chunks of more than %d rows", f->model->engine->ubatch, OPS_MAX_ROWS);
    }
    int r = allocate(f, e);
    r = r < 0 ? r : read_texts(f, e);
    r = r < 0 ? r : token_table_make(&f->learned.table, s->vocab, s->layers, &f->counts, e);
    r = r < 0 || s->mtp_layers == 0 ? r : solve_probes(f, e);
    r = r < 0 ? r : learned_write(&f->learned, path, e);
    if (r == 0) {
        printf("%s: %zu texts, %llu tokens; token table of %u entries, %s\n", path, f->model->texts.n, (unsigned long long)f->tokens,
               f->learned.table.begin[(size_t)s->vocab * s->layers], s->mtp_layers > 0 ? "probes" : "no probes: the model has no MTP layer");
    }
    return r;
}

int trace_fit(int argc, char **argv, const volatile int *cancel, bool *ret_help, struct error *e)
{
    struct trace_model m = {0};
    const char *out = NULL;
    char *beside = NULL;
    const struct argument own[] = {{"-o", NULL, &out}, {0}};
    struct fit f = {.model = &m};
    int r = trace_model_arguments(&m, argc, argv, own, ret_help, e);
    if (r == 0 && !*ret_help) {
        r = trace_model_open(&m, cancel, e);
        r = r < 0 ? r : trace_model_predictors(&m, &beside, e);
        r = r < 0 ? r : fit(&f, out != NULL ? out : beside, e);
        deinit(&f);
        free(beside);
    }
    trace_model_deinit(&m);
    return r;
}
