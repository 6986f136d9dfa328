/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: routed experts of a layer (moe.h). An assignment is one (row, slot); assignments are sorted by expert, then row.
 * Must not know: tiers behind the lease. */
#include "src/run/moe.h"

#include <math.h>
#include <string.h>

#include "src/run/ffn.h"
#include "src/run/foresee.h"
#include "src/run/prefetch.h"

enum { WAVE_MAX = FFN_UNITS_MAX - 1 };

/* Lists of one span, in work.moe_lists. */
struct moe_lists {
    uint32_t *offset; /* [experts + 1] first assignment of each expert */
    uint32_t *row;    /* [n] row of the batch */
    uint32_t *to;     /* [n] row of expert_out: k to a row of the batch */
    struct expert_key *keys; /* [n_keys] experts in use, rising */
    uint32_t *rows;   /* [n_keys] rows that use each, shadow rows apart */
    uint32_t n_keys, n;
};

static bool chose(const struct engine *g, uint32_t row, int32_t id)
{
    const int32_t *ids = g->work.ids + (size_t)row * g->shape->experts_used;
    for (uint32_t k = 0; k < g->shape->experts_used; k++) {
        if (ids[k] == id) {
            return true;
        }
    }
    return false;
}

/* A shadow row has no expert read: what the row before did not choose, it goes without. */
static bool is_skipped(const struct engine *g, const struct batch *b, uint32_t row, int32_t id) { return b->rows[row].shadow && !chose(g, row - 1, id); }

/* Shadow rows are no use of an expert: what stays in RAM does not depend on them. */
static void count_rows(struct moe_lists *l, const struct batch *b)
{
    for (uint32_t i = 0; i < l->n_keys; i++) {
        l->rows[i] = 0;
        for (uint32_t a = l->offset[l->keys[i].expert]; a < l->offset[l->keys[i].expert + 1u]; a++) {
            l->rows[i] += !b->rows[l->row[a]].shadow;
        }
    }
}

static struct moe_lists lists_build(const struct engine *g, const struct batch *b, const struct span *span, uint32_t layer)
{
    const struct shape *s = g->shape;
    uint32_t k = s->experts_used, rows = span->end - span->begin;
    struct moe_lists l = {.n = rows * k};
    l.offset = g->work.moe_lists;
    l.keys = (struct expert_key *)(void *)(l.offset + s->experts + 1);
    l.rows = l.offset + 2 * s->experts + 1;
    l.row = l.rows + s->experts;
    l.to = l.row + l.n;
    const int32_t *ids = g->work.ids + (size_t)span->begin * k;
    memset(l.offset, 0, (s->experts + 1) * sizeof(*l.offset));
    for (uint32_t a = 0; a < l.n; a++) {
        l.offset[ids[a]] += !is_skipped(g, b, span->begin + a / k, ids[a]);
    }
    uint32_t at = 0;
    for (uint32_t x = 0; x < s->experts; x++) { /* offset[x]: end of expert x for the moment */
        if (l.offset[x]) {
            l.keys[l.n_keys++] = (struct expert_key){(uint16_t)layer, (uint16_t)x};
        }
        at += l.offset[x];
        l.offset[x] = at;
    }
    l.offset[s->experts] = at;
    for (uint32_t a = l.n; a-- > 0;) { /* backwards, so that rows of an expert rise */
        if (is_skipped(g, b, span->begin + a / k, ids[a])) {
            continue;
        }
        uint32_t to = --l.offset[ids[a]];
        l.row[to] = span->begin + a / k;
        l.to[to] = span->begin * k + a;
    }
    count_rows(&l, b);
    return l;
}

/* Exact arithmetic for exact rows, and in bulk chunks for experts with few rows: a function of (layer, its rows). */
static struct ffn_unit expert_unit(struct engine *g, const struct expert_view *v, const struct moe_lists *l, bool bulk)
{
    uint32_t begin = l->offset[v->key.expert], n = l->offset[v->key.expert + 1] - begin;
    return (struct ffn_unit){
        .gate = &v->gate, .up = &v->up, .down = &v->down,
        .row = l->row + begin, .to = l->to + begin, .n = n, .bulk = bulk && n > OPS_MAX_ROWS,
        .mid = {g->work.expert_mid, g->work.expert_form}, .mid_row = begin,
        .out = g->work.expert_out,
    };
}

struct sum_job {
    const struct engine *g;
    struct batch *b;
    bool shared;
};

static void sum_task(void *ctx, uint32_t row, uint32_t worker)
{
    const struct sum_job *j = ctx;
    const struct shape *s = j->g->shape;
    size_t stride = row_stride(s->hidden);
    (void)worker;
    j->g->ops.expert_sum(&(struct expert_sum_args){
        .e = j->g->work.expert_out + (size_t)row * s->experts_used * stride, .e_stride = stride,
        .w = j->g->work.weights + (size_t)row * s->experts_used, .k = s->experts_used,
        .shared = j->shared ? j->g->work.out + row * stride : NULL,
        .residual = j->b->x + row * stride, .y = j->b->x + row * stride, .cols = s->hidden,
    });
}

/* All networks of a layer for one span: the shared expert goes with the first wave of the routed ones. */
static int networks_run(struct engine *g, const struct batch *b, const struct span *span, uint32_t layer, struct activation *norm, struct error *e)
{
    const struct resident_layer *l = &g->resident->layers[layer];
    struct moe_lists lists = lists_build(g, b, span, layer);
    struct expert_view views[WAVE_MAX];
    struct ffn_unit units[FFN_UNITS_MAX];
    struct lease *lease;
    uint32_t n_views, n = 0;
    if (l->matrix[ROLE_SHARED_GATE].rows != 0) {
        units[n++] = ffn_span_unit(g, span, &l->matrix[ROLE_SHARED_GATE], &l->matrix[ROLE_SHARED_UP], &l->matrix[ROLE_SHARED_DOWN]);
    }
    prefetch_routed(g->prefetch, b, layer);
    int r = store_begin(g->store, &(struct store_visit){.keys = lists.keys, .rows = lists.rows, .n = lists.n_keys, .passing = span->bulk}, &lease, e);
    if (r < 0) {
        return r;
    }
    r = prefetch_layer(g->prefetch, b, span, layer, e);
    while (r == 0 && (r = store_next(lease, g->cancel, views, WAVE_MAX, &n_views, e)) == 0 && n_views > 0) {
        for (uint32_t i = 0; i < n_views; i++) {
            units[n++] = expert_unit(g, &views[i], &lists, span->bulk);
        }
        if (span->bulk && store_waiting(lease) == 0) {
            prefetch_next(g->prefetch, layer, lists.n_keys);
        }
        r = ffn_run(g, norm, units, n, e);
        store_release(lease, views, n_views);
        if (r < 0) {
            break;
        }
        n = 0;
    }
    store_end(lease);
    return r;
}

/* The sum takes nothing of an expert that a shadow row went without. */
static void clear_skipped(struct engine *g, const struct batch *b)
{
    uint32_t k = g->shape->experts_used;
    for (uint32_t a = 0; a < b->n * k; a++) {
        if (is_skipped(g, b, a / k, g->work.ids[a])) {
            memset(g->work.expert_out + a * row_stride(g->shape->hidden), 0, g->shape->hidden * sizeof(float));
            g->work.weights[a] = 0;
        }
    }
}

int moe_run(struct engine *g, struct batch *b, uint32_t layer, struct activation *norm, struct error *e)
{
    struct sum_job job = {.g = g, .b = b, .shared = g->resident->layers[layer].matrix[ROLE_SHARED_GATE].rows != 0};
    int r = 0;
    for (uint32_t i = 0; i < b->n_spans && r == 0; i++) {
        r = networks_run(g, b, &b->spans[i], layer, norm, e);
    }
    r = r < 0 ? r : foresee_after_experts(g, b, layer, e);
    clear_skipped(g, b);
    return r < 0 ? r : engine_parallel(g, b->n, sum_task, &job, e);
}

int32_t moe_find_non_finite(const struct engine *g, uint32_t row)
{
    const struct shape *s = g->shape;
    for (uint32_t k = 0; k < s->experts_used; k++) {
        const float *x = g->work.expert_out + ((size_t)row * s->experts_used + k) * row_stride(s->hidden);
        for (uint32_t i = 0; i < s->hidden; i++) {
            if (!isfinite(x[i])) {
                return g->work.ids[(size_t)row * s->experts_used + k];
            }
        }
    }
    return -1;
}
