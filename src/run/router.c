/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: routing of a batch (router.h). */
#include "src/run/router.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/run/foresee.h"

struct router_job {
    const struct engine *g;
    const float *bias;
};

static void router_task(void *ctx, uint32_t row, uint32_t worker)
{
    const struct router_job *j = ctx;
    const struct work *w = &j->g->work;
    const struct shape *s = j->g->shape;
    j->g->ops.router(&(struct router_args){
        .logits = w->router_logits + (size_t)row * s->experts,
        .bias = j->bias,
        .scratch = w->worker[worker].router,
        .ids = w->ids + (size_t)row * s->experts_used,
        .weights = w->weights + (size_t)row * s->experts_used,
        .experts = s->experts, .k = s->experts_used, .groups = s->groups, .groups_used = s->groups_used,
        .score = s->score, .group = s->group, .normalise = s->normalise, .factor = s->routed_factor,
    });
}

/* A score that is no number would choose experts at random, and no later check would see it. */
static int check_scores(const struct engine *g, const struct batch *b, uint32_t layer, struct error *e)
{
    uint32_t n = g->shape->experts;
    for (uint32_t i = 0; i < b->n; i++) {
        float *score = g->work.router_logits + (size_t)i * n;
        uint32_t bad = 0, first = n;
        for (uint32_t x = n; x-- > 0;) {
            bool finite = isfinite(score[x]);
            bad += !finite;
            first = finite ? first : x;
        }
        if (bad > 0 && b->rows[i].shadow) { /* a guess may be anything, but not stop the step */
            memset(score, 0, n * sizeof(*score));
        } else if (bad > 0) {
            char where[40] = ""; /* all of them: what came in was bad already */
            if (bad < n) {
                snprintf(where, sizeof(where), ", expert %u", first);
            }
            return error_set(e, ERROR_FORMAT, "layer %u%s, position %u: the router score is not finite (NaN or Inf); run `sluice check` on the model file",
                             layer, where, b->rows[i].position);
        }
    }
    return 0;
}

int router_run(struct engine *g, const struct batch *b, uint32_t layer, struct activation *norm, struct error *e)
{
    const struct resident_layer *l = &g->resident->layers[layer];
    struct product p = {&l->matrix[ROLE_ROUTER], g->work.router_logits, g->shape->experts};
    int r = products_run(g, &p, 1, norm, b->spans, b->n_spans, true, e);
    if (r < 0) {
        return r;
    }
    struct router_job job = {g, l->vector[ROLE_ROUTER_BIAS]};
    r = check_scores(g, b, layer, e);
    r = r < 0 ? r : engine_parallel(g, b->n, router_task, &job, e);
    if (r < 0) {
        return r;
    }
    foresee_routed(g, b, layer);
    counter_add(g->weight_bytes, job.bias != NULL ? g->shape->experts * sizeof(*job.bias) : 0);
    uint32_t k = g->shape->experts_used;
    for (uint32_t i = 0; i < b->n; i++) {
        const struct session_hooks *h = &b->rows[i].session->hooks;
        if (h->on_route && !b->quiet && !b->rows[i].shadow) {
            h->on_route(h->ctx, layer, b->rows[i].position, g->work.ids + (size_t)i * k, g->work.weights + (size_t)i * k);
        }
    }
    return 0;
}
