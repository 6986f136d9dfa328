/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: expect.h. A row is learned from when the next step shows that it became part of the timeline. Must not know: the store. */
#include "src/run/expect.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"

enum {
    ROWS = OPS_MAX_ROWS, /* of a step that are predicted, at most */
    LEARNS = 12,         /* tokens before chances are worth something */
    WANTED = 1 << LEAD_TOKEN | 1 << LEAD_START | 1 << LEAD_LAYER,
};

struct expect {
    struct engine *engine;
    struct predict *predict;
    struct learned learned;
    bool has_learned;
    const struct session *session; /* whose timeline; NULL: none. Compared, never followed */
    uint32_t done, end;            /* positions below done are complete, those up to end have been through a step */
    uint32_t n;                    /* rows of the step under way */
    int32_t tokens[ROWS];          /* [n] theirs */
    uint64_t learned_tokens;
    uint32_t kept;                 /* tokens of earlier runs that count */
};

/* ---- create ---- */

static void read_learned(struct expect *x, const struct learned_shape *shape)
{
    struct error e = {0};
    char *path = learned_path(x->engine->weights->containers[0]);
    if (path != NULL && file_exists(path)) {
        x->has_learned = learned_read(&x->learned, shape, path, &x->engine->account, &e) == 0;
        if (!x->has_learned) {
            engine_step_down(x->engine, "predictors", "nothing learned is used: %s", e.text);
        }
    }
    free(path);
}

int expect_create(struct engine *g, struct expect **ret, struct error *e)
{
    const struct shape *s = g->shape;
    *ret = NULL;
    if (s->experts_used >= s->experts) {
        return 0;
    }
    struct expect *x = calloc(1, sizeof(*x));
    if (x == NULL) {
        return error_nomem(e, "expected experts", sizeof(*x));
    }
    const struct learned_shape shape = foresee_learned_shape(g);
    x->engine = g;
    read_learned(x, &shape);
    struct predict_options o = {.layers = s->layers, .experts = s->experts, .used = s->experts_used, .groups = s->groups, .groups_used = s->groups_used,
                                .learned = x->has_learned ? &x->learned : NULL, .leads = WANTED, .account = &g->account};
    int r = predict_create(&o, &x->predict, e);
    if (r < 0) {
        expect_destroy(x);
        return r;
    }
    *ret = x;
    return 0;
}

void expect_destroy(struct expect *x)
{
    if (x == NULL) {
        return;
    }
    predict_destroy(x->predict);
    learned_deinit(&x->learned);
    free(x);
}

/* ---- what comes in ---- */

void expect_sources(const struct expect *x, struct foresee_options *ret)
{
    ret->learned = x->has_learned ? &x->learned : NULL;
    ret->wanted = x->has_learned && x->learned.probe_weight != NULL ? 1u << FORESEE_PROBE | 1u << FORESEE_PROBE_DRAFT : 0;
    ret->wanted |= x->engine->drafts > 0 ? 1u << FORESEE_SHADOW : 0;
}

void expect_on_scores(void *ctx, const struct session *s, enum foresight source, uint32_t layer, uint32_t position, const float *scores)
{
    struct expect *x = ctx;
    bool late = source == FORESEE_PROBE && s->mtp; /* that MTP layer follows the row */
    if (s == x->session && !late) {
        enum predictor p = source == FORESEE_SHADOW ? PREDICT_SHADOW : source == FORESEE_PROBE ? PREDICT_PROBE : PREDICT_PROBE_DRAFT;
        predict_scores(x->predict, p, layer, position, scores);
    }
}

void expect_drafted(struct expect *x, const struct session *s, uint32_t position, int32_t token, float chance)
{
    if (s == x->session) {
        predict_draft(x->predict, position, token, chance);
    }
}

/* Rows of the step that can be predicted: all, or none. */
static uint32_t rows_of(const struct batch *b)
{
    uint32_t n = b->n_spans == 1 && !b->spans[0].bulk && b->n <= ROWS ? b->n : 0;
    for (uint32_t i = 0; i < n; i++) {
        if (b->rows[i].session != b->rows[0].session || b->rows[i].keep_kv) {
            return 0;
        }
    }
    return n > 0 && b->rows[n - 1].shadow ? n - 1 : n;
}

void expect_step(struct expect *x, const struct batch *b, const int32_t *tokens)
{
    uint32_t first = b->rows[0].position;
    const struct session *s = b->rows[0].session;
    x->n = rows_of(b);
    if (x->n == 0) {
        x->session = NULL;
        return;
    }
    if (s != x->session || first < x->done || first > x->end) {
        predict_begin(x->predict);
        x->session = s;
        x->done = first;
    }
    for (; x->done < first; x->done++, x->learned_tokens++) {
        predict_token(x->predict, x->done, s->tokens[x->done]);
    }
    x->end = first + x->n;
    for (uint32_t i = 0; i < x->n; i++) {
        predict_again(x->predict, first + i);
    }
    memcpy(x->tokens, tokens, x->n * sizeof(*tokens));
}

void expect_scores(struct expect *x, enum predictor which, uint32_t layer, uint32_t row, const float *scores)
{
    assert(row < x->n);
    predict_scores(x->predict, which, layer, x->done + row, scores);
}

void expect_route(struct expect *x, uint32_t layer)
{
    uint32_t k = x->engine->shape->experts_used;
    for (uint32_t i = 0; i < x->n; i++) {
        predict_route(x->predict, layer, x->done + i, x->engine->work.ids + (size_t)i * k, x->engine->work.weights + (size_t)i * k);
    }
}

/* ---- what goes out ---- */

uint32_t expect_rows(const struct expect *x) { return x->n; }

const float *expect_chances(struct expect *x, enum lead lead, uint32_t layer, uint32_t row)
{
    assert(row <= x->n);
    if (x->learned_tokens + x->kept < LEARNS) {
        return NULL;
    }
    return predict_chances(x->predict, lead, layer, x->done + row, row < x->n ? x->tokens[row] : -1);
}

/* ---- kept from run to run ---- */

size_t expect_state_bytes(const struct expect *x) { return predict_state_bytes(x->predict); }
void expect_save(const struct expect *x, void *ret) { predict_save(x->predict, ret); }

int expect_load(struct expect *x, const void *data, size_t bytes)
{
    int rows = predict_load(x->predict, data, bytes);
    x->kept = rows > 0 ? (uint32_t)rows : 0;
    return rows < 0 ? rows : 0;
}

/* ---- how good it was ---- */

static void rates_json(struct str *out, const char *name, const struct recall *r, const struct recall_cell *c, double (*rate)(const struct recall *, const struct recall_cell *, uint32_t))
{
    str_printf(out, "\"%s\": [", name);
    for (uint32_t i = 0; i < RECALL_BUDGETS; i++) {
        str_printf(out, "%s%.4f", i > 0 ? ", " : "", rate(r, c, i));
    }
    str_puts(out, "]");
}

static double weighted(const struct recall *r, const struct recall_cell *c, uint32_t budget)
{
    (void)r;
    return recall_weighted(c, budget);
}

static void cell_json(struct str *out, const struct recall *r, const struct recall_cell *c)
{
    rates_json(out, "recall", r, c, recall_plain);
    str_puts(out, ", ");
    rates_json(out, "gate_recall", r, c, weighted);
    str_puts(out, ", ");
    rates_json(out, "precision", r, c, recall_precision);
}

/* All layers together, then each. Returns whether there was anything to count. */
static bool list_json(const struct recall *r, uint32_t list, const char *kind, const char *name, bool first, struct str *out)
{
    struct recall_cell all = {0};
    for (uint32_t l = 0; l < r->layers; l++) {
        const struct recall_cell *c = recall_at(r, list, l);
        all.rows += c->rows;
        for (uint32_t i = 0; i < RECALL_BUDGETS; i++) {
            all.hits[i] += c->hits[i];
            all.mass[i] += c->mass[i];
        }
    }
    if (all.rows == 0) {
        return false;
    }
    str_printf(out, "%s{\"%s\": \"%s\", \"rows\": %llu, ", first ? "" : ", ", kind, name, (unsigned long long)all.rows);
    cell_json(out, r, &all);
    str_puts(out, ", \"layers\": [");
    for (uint32_t l = 0, n = 0; l < r->layers; l++) {
        const struct recall_cell *c = recall_at(r, list, l);
        if (c->rows > 0) {
            str_printf(out, "%s{\"layer\": %u, ", n++ > 0 ? ", " : "", l);
            cell_json(out, r, c);
            str_puts(out, "}");
        }
    }
    str_puts(out, "]}");
    return true;
}

void expect_json(const struct expect *x, struct str *out)
{
    const struct recall *r = predict_recall(x->predict);
    str_printf(out, "\"tokens\": %llu, \"kept\": %u, \"learned\": %s, \"budgets\": [%u, %u, %u], \"leads\": [", (unsigned long long)x->learned_tokens, x->kept, x->has_learned ? "true" : "false", r->budget[0],
               r->budget[1], r->budget[2]);
    for (uint32_t l = 0, n = 0; l < LEADS; l++) {
        n += list_json(r, PREDICTORS + l, "lead", lead_name((enum lead)l), n == 0, out);
    }
    str_puts(out, "], \"predictors\": [");
    for (uint32_t i = 0, n = 0; i < PREDICTORS; i++) {
        n += list_json(r, i, "name", predictor_name((enum predictor)i), n == 0, out);
    }
    str_puts(out, "]");
}
