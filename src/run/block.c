/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: one layer (block.h): the order of docs/numerics.md and spec 3.1. */
#include "src/run/block.h"

#include <stdio.h>

#include "src/run/ffn.h"
#include "src/run/finite.h"
#include "src/run/foresee.h"
#include "src/run/mla.h"
#include "src/run/moe.h"
#include "src/run/router.h"

struct row_job {
    const struct engine *g;
    struct batch *b;
    const float *w; /* norm weight */
};

static void norm_task(void *ctx, uint32_t row, uint32_t worker)
{
    const struct row_job *j = ctx;
    const struct shape *s = j->g->shape;
    size_t stride = row_stride(s->hidden);
    (void)worker;
    j->g->ops.rmsnorm(&(struct rmsnorm_args){.x = j->b->x + row * stride, .w = j->w, .y = j->g->work.norm + row * stride, .n = 1, .cols = s->hidden, .eps = s->rms_eps});
}

static void add_task(void *ctx, uint32_t row, uint32_t worker)
{
    const struct row_job *j = ctx;
    size_t stride = row_stride(j->g->shape->hidden);
    (void)worker;
    j->g->ops.add(&(struct add_args){.x = j->g->work.out + row * stride, .y = j->b->x + row * stride, .n = j->g->shape->hidden});
}

static int add_residual(struct engine *g, struct batch *b, struct error *e)
{
    struct row_job j = {.g = g, .b = b};
    return engine_parallel(g, b->n, add_task, &j, e);
}

static int normalise(struct engine *g, struct batch *b, const float *w, struct activation *ret, struct error *e)
{
    struct row_job j = {.g = g, .b = b, .w = w};
    counter_add(g->weight_bytes, g->shape->hidden * sizeof(*w));
    *ret = (struct activation){.x = g->work.norm, .stride = row_stride(g->shape->hidden), .n = b->n, .cols = g->shape->hidden, .form = g->work.form};
    return engine_parallel(g, b->n, norm_task, &j, e);
}

static int feed_forward(struct engine *g, struct batch *b, uint32_t layer, struct error *e)
{
    const struct resident_layer *l = &g->resident->layers[layer];
    struct activation norm;
    int r = normalise(g, b, l->vector[ROLE_FFN_NORM], &norm, e);
    if (r < 0) {
        return r;
    }
    if (shape_layer_is_moe(g->shape, layer)) {
        r = router_run(g, b, layer, &norm, e);
        return r < 0 ? r : moe_run(g, b, layer, &norm, e);
    }
    r = ffn_dense(g, b, l, &norm, e);
    return r < 0 ? r : add_residual(g, b, e);
}

static int check_finite(const struct engine *g, const struct batch *b, uint32_t layer, struct error *e)
{
    for (uint32_t i = 0; i < b->n; i++) {
        const float *x = b->x + i * row_stride(g->shape->hidden);
        if (b->rows[i].shadow || all_finite(x, g->shape->hidden)) {
            continue;
        }
        int32_t expert = shape_layer_is_moe(g->shape, layer) ? moe_find_non_finite(g, i) : -1;
        char where[40] = "";
        if (expert >= 0) {
            snprintf(where, sizeof(where), ", expert %d", (int)expert);
        }
        return error_set(e, ERROR_FORMAT, "layer %u%s, position %u: the state is not finite (NaN or Inf); run `sluice check` on the model file", layer, where, b->rows[i].position);
    }
    return 0;
}

int block_run(struct engine *g, struct batch *b, uint32_t layer, struct error *e)
{
    struct activation norm;
    int r = normalise(g, b, g->resident->layers[layer].vector[ROLE_ATTN_NORM], &norm, e);
    r = r < 0 ? r : mla_run(g, b, layer, &norm, e);
    r = r < 0 ? r : add_residual(g, b, e);
    r = r < 0 ? r : feed_forward(g, b, layer, e);
    r = r < 0 ? r : check_finite(g, b, layer, e);
    r = r < 0 ? r : foresee_after_layer(g, b, layer, e);
    for (uint32_t i = 0; i < b->n && r == 0 && layer < g->shape->layers; i++) {
        const struct session_hooks *h = &b->rows[i].session->hooks;
        if (h->on_hidden && !b->rows[i].shadow) {
            h->on_hidden(h->ctx, layer, b->rows[i].position, b->x + i * row_stride(g->shape->hidden));
        }
    }
    return r;
}

int block_append(struct engine *g, struct batch *b, uint32_t layer, struct error *e)
{
    struct activation norm;
    int r = normalise(g, b, g->resident->layers[layer].vector[ROLE_ATTN_NORM], &norm, e);
    return r < 0 ? r : mla_append(g, b, layer, &norm, e);
}
