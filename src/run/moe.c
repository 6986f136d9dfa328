/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: routed experts of a layer (moe.h). An assignment is one (row, slot); assignments are sorted by expert, then row.
 * Must not know: tiers behind the lease. */
#include "src/run/moe.h"

#include <math.h>
#include <string.h>

enum { WAVE_MAX = 64 };

/* Lists of one span, in work.moe_lists. */
struct moe_lists {
    uint32_t *offset; /* [experts + 1] first assignment of each expert */
    uint32_t *row;    /* [assignments] row of the batch */
    uint32_t *slot;   /* [assignments] which of the row's k experts */
    struct expert_key *keys; /* [n_keys] experts in use, rising */
    uint32_t n_keys, n;
};

struct moe_job {
    struct engine *g;
    const struct activation *norm;
    struct activation *mid; /* expert_mid by assignment */
    struct moe_lists lists;
    struct expert_view *views; /* [n_views] of the wave */
    uint32_t n_views;
    bool bulk;
    /* sum */
    struct batch *b;
    const float *shared;
    uint32_t first;
};

static struct moe_lists lists_build(const struct engine *g, const struct span *span, uint32_t layer)
{
    const struct shape *s = g->shape;
    uint32_t k = s->experts_used, rows = span->end - span->begin;
    struct moe_lists l = {.n = rows * k};
    l.offset = g->work.moe_lists;
    l.keys = (struct expert_key *)(void *)(l.offset + s->experts + 1);
    l.row = l.offset + 2 * s->experts + 1;
    l.slot = l.row + l.n;
    const int32_t *ids = g->work.ids + (size_t)span->begin * k;
    memset(l.offset, 0, (s->experts + 1) * sizeof(*l.offset));
    for (uint32_t a = 0; a < l.n; a++) {
        l.offset[ids[a]]++;
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
        uint32_t to = --l.offset[ids[a]];
        l.row[to] = span->begin + a / k;
        l.slot[to] = a % k;
    }
    return l;
}

/* Exact arithmetic for exact rows, and in bulk chunks for experts with few rows: a function of (layer, its rows). */
static bool expert_is_bulk(const struct moe_job *j, uint32_t rows)
{
    return j->bulk && rows > OPS_MAX_ROWS;
}

/* n rows of the norm output, from assignment a on, in the form `format` needs: in place if there is one, else gathered. */
static struct act_rows gather(const struct moe_job *j, uint32_t a, uint32_t n, enum weight_format format, bool bulk, struct worker_scratch *ws)
{
    const struct activation *x = j->norm;
    struct act_rows src = activation_rows(j->g, x, bulk ? FORMAT_F32 : format, j->lists.row[a]);
    if (n == 1) {
        return src;
    }
    struct act_rows act = {.x = ws->gather, .stride = x->stride};
    uint32_t block = bulk ? 0 : product_act_block(j->g, format);
    if (block != 0) {
        act.q = ws->form.q;
        act.scale = ws->form.scale;
        act.bsum16 = ws->form.bsum16;
    }
    for (uint32_t i = 0; i < n; i++) {
        src = activation_rows(j->g, x, bulk ? FORMAT_F32 : format, j->lists.row[a + i]);
        if (block == 0) {
            memcpy(ws->gather + i * x->stride, src.x, x->cols * sizeof(float));
            continue;
        }
        memcpy(ws->form.q + i * x->stride, src.q, x->cols);
        memcpy(ws->form.scale + i * (x->stride / block), src.scale, x->cols / block * sizeof(float));
        memcpy(ws->form.bsum16 + i * (x->stride / 16), src.bsum16, x->cols / 16 * sizeof(int16_t));
    }
    return act;
}

/* Rows [r0, r1) of a matrix of one expert, for its assignments [begin, end), `block` of them at a time. */
struct expert_tile {
    const struct expert_view *view;
    uint32_t r0, r1, begin, end, block;
    bool bulk;
};

/* Tile `task` of matrices of [rows, cols] of all experts of the wave. */
static struct expert_tile expert_tile(const struct moe_job *j, uint32_t task, uint32_t rows, uint32_t cols)
{
    uint32_t tile = scratch_tile_rows(cols), tiles = (uint32_t)ceil_div_u64(rows, tile);
    struct expert_tile t = {.view = &j->views[task / tiles], .r0 = task % tiles * tile};
    t.r1 = min_u32(t.r0 + tile, rows);
    t.begin = j->lists.offset[t.view->key.expert];
    t.end = j->lists.offset[t.view->key.expert + 1];
    t.bulk = expert_is_bulk(j, t.end - t.begin);
    t.block = t.bulk ? MOE_ROW_BLOCK : OPS_MAX_ROWS;
    return t;
}

/* gate, up and SwiGLU of one tile of one expert, for all its rows. */
static void gate_up_task(void *ctx, uint32_t task, uint32_t worker)
{
    const struct moe_job *j = ctx;
    const struct engine *g = j->g;
    const struct shape *s = g->shape;
    struct worker_scratch *ws = &g->work.worker[worker];
    struct expert_tile t = expert_tile(j, task, s->expert_width, s->hidden);
    const struct matrix_view *gate = &t.view->gate, *up = &t.view->up;
    for (uint32_t a = t.begin; a < t.end; a += t.block) {
        uint32_t n = min_u32(t.block, t.end - a);
        struct act_rows act = gather(j, a, n, gate->format, t.bulk, ws);
        product_tile(g, gate, act, n, t.bulk, t.r0, t.r1, ws->tile, 2 * TILE_ROWS, ws);
        if (up->format != gate->format) {
            act = gather(j, a, n, up->format, t.bulk, ws);
        }
        product_tile(g, up, act, n, t.bulk, t.r0, t.r1, ws->tile + TILE_ROWS, 2 * TILE_ROWS, ws);
        for (uint32_t i = 0; i < n; i++) {
            const float *y = ws->tile + (size_t)i * 2 * TILE_ROWS;
            g->ops.swiglu(&(struct swiglu_args){.gate = y, .up = y + TILE_ROWS, .y = g->work.expert_mid + (a + i) * j->mid->stride + t.r0, .n = t.r1 - t.r0});
        }
    }
}

/* down of one tile of one expert, scattered to (row, slot). */
static void down_task(void *ctx, uint32_t task, uint32_t worker)
{
    const struct moe_job *j = ctx;
    const struct engine *g = j->g;
    const struct shape *s = g->shape;
    struct worker_scratch *ws = &g->work.worker[worker];
    struct expert_tile t = expert_tile(j, task, s->hidden, s->expert_width);
    const struct matrix_view *down = &t.view->down;
    for (uint32_t a = t.begin; a < t.end; a += t.block) {
        uint32_t n = min_u32(t.block, t.end - a);
        product_tile(g, down, activation_rows(g, j->mid, t.bulk ? FORMAT_F32 : down->format, a), n, t.bulk, t.r0, t.r1, ws->tile, TILE_ROWS, ws);
        for (uint32_t i = 0; i < n; i++) {
            size_t to = (size_t)j->lists.row[a + i] * s->experts_used + j->lists.slot[a + i];
            memcpy(g->work.expert_out + to * row_stride(s->hidden) + t.r0, ws->tile + (size_t)i * TILE_ROWS, (t.r1 - t.r0) * sizeof(float));
        }
    }
}

/* int8 forms of what the wave's matrices read. */
static int prepare_norm(struct moe_job *j, struct activation *norm, const struct span *span, struct error *e)
{
    int r = 0;
    for (uint32_t i = 0; i < j->n_views && r == 0; i++) {
        r = activation_prepare(j->g, norm, j->views[i].gate.format, span->begin, span->end, e);
        r = r < 0 ? r : activation_prepare(j->g, norm, j->views[i].up.format, span->begin, span->end, e);
    }
    return r;
}

static int prepare_mid(struct moe_job *j, struct error *e)
{
    uint32_t begin = j->lists.offset[j->views[0].key.expert], end = j->lists.offset[j->views[j->n_views - 1].key.expert + 1];
    int r = 0;
    for (uint32_t i = 0; i < j->n_views && r == 0; i++) {
        r = activation_prepare(j->g, j->mid, j->views[i].down.format, begin, end, e);
    }
    return r;
}

static int wave_run(struct moe_job *j, struct activation *norm, const struct span *span, struct error *e)
{
    struct engine *g = j->g;
    const struct shape *s = g->shape;
    for (uint32_t i = 0; i < j->n_views; i++) {
        const struct expert_view *v = &j->views[i];
        counter_add(g->weight_bytes, (uint64_t)s->expert_width * (v->gate.row_bytes + v->up.row_bytes) + (uint64_t)s->hidden * v->down.row_bytes);
    }
    int r = prepare_norm(j, norm, span, e);
    r = r < 0 ? r : engine_parallel(g, j->n_views * (uint32_t)ceil_div_u64(s->expert_width, scratch_tile_rows(s->hidden)), gate_up_task, j, e);
    r = r < 0 ? r : prepare_mid(j, e);
    return r < 0 ? r : engine_parallel(g, j->n_views * (uint32_t)ceil_div_u64(s->hidden, scratch_tile_rows(s->expert_width)), down_task, j, e);
}

static void sum_task(void *ctx, uint32_t task, uint32_t worker)
{
    const struct moe_job *j = ctx;
    const struct shape *s = j->g->shape;
    size_t stride = row_stride(s->hidden), row = j->first + task;
    (void)worker;
    j->g->ops.expert_sum(&(struct expert_sum_args){
        .e = j->g->work.expert_out + row * s->experts_used * stride, .e_stride = stride,
        .w = j->g->work.weights + row * s->experts_used, .k = s->experts_used,
        .shared = j->shared ? j->shared + row * stride : NULL,
        .residual = j->b->x + row * stride, .y = j->b->x + row * stride, .cols = s->hidden,
    });
}

static int span_run(struct moe_job *j, const struct span *span, uint32_t layer, struct activation *norm, struct error *e)
{
    struct engine *g = j->g;
    struct expert_view views[WAVE_MAX];
    struct activation mid = {.x = g->work.expert_mid, .stride = row_stride(g->shape->expert_width), .cols = g->shape->expert_width, .form = g->work.mid};
    struct lease *lease;
    j->lists = lists_build(g, span, layer);
    mid.n = j->lists.n;
    j->mid = &mid;
    j->views = views;
    j->bulk = span->bulk;
    int r = store_begin(g->store, j->lists.keys, j->lists.n_keys, &lease, e);
    if (r < 0) {
        return r;
    }
    while ((r = store_next(lease, g->cancel, views, WAVE_MAX, &j->n_views, e)) == 0 && j->n_views > 0) {
        r = wave_run(j, norm, span, e);
        store_release(lease, views, j->n_views);
        if (r < 0) {
            break;
        }
    }
    store_end(lease);
    j->first = span->begin;
    return r < 0 ? r : engine_parallel(g, span->end - span->begin, sum_task, j, e);
}

int moe_run(struct engine *g, struct batch *b, uint32_t layer, struct activation *norm, const float *shared, struct error *e)
{
    struct moe_job job = {.g = g, .norm = norm, .b = b, .shared = shared};
    int r = 0;
    for (uint32_t i = 0; i < b->n_spans && r == 0; i++) {
        r = span_run(&job, &b->spans[i], layer, norm, e);
    }
    return r;
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
