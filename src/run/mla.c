/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: latent attention of exact rows and what both row classes share (mla.h). Stage 0 of the job of exact rows absorbs UK
 * into q, a task per head; stage 1 attends, a task per row, segment and group of heads; stage 2 merges segments and applies UV, a task
 * per head. */
#include "src/run/mla.h"

#include <stdatomic.h>
#include <string.h>

enum {
    SEGMENT_POSITIONS = KV_PAGE * KV_SEGMENT_PAGES,
    HEADS_AT_ONCE = 4,   /* what kernels take together */
    GROUP_HEADS_MAX = 64, /* their q and sums stay in the second-level cache beside a page */
    GROUPS_MAX = 256,
};

struct mla_job {
    struct engine *g;
    const struct batch *b;
    const struct resident_layer *l;
    uint32_t layer;
    uint32_t first, n;  /* rows whose attention is open */
    uint32_t segments;  /* most segments one of them sees */
    uint32_t groups, group_heads; /* of the tasks of stage 1 */
    _Atomic uint32_t absorbed[GROUPS_MAX], attended[GROUPS_MAX]; /* [groups] tasks done */
};

/* ---- projections, rope, cache append ---- */

static void q_norm_task(void *ctx, uint32_t row, uint32_t worker)
{
    const struct mla_job *j = ctx;
    const struct shape *s = j->g->shape;
    float *x = j->g->work.q_a + row * row_stride(s->q_lora);
    (void)worker;
    j->g->ops.rmsnorm(&(struct rmsnorm_args){.x = x, .w = j->l->vector[ROLE_Q_A_NORM], .y = x, .n = 1, .cols = s->q_lora, .eps = s->inner_eps});
}

/* Normalises the latent of one row, rotates its key, appends both to the cache. */
static void append_task(void *ctx, uint32_t row, uint32_t worker)
{
    const struct mla_job *j = ctx;
    const struct shape *s = j->g->shape;
    const struct batch_row *br = &j->b->rows[row];
    const struct ops *ops = &j->g->ops;
    const float *cs = j->g->cos_sin + (size_t)br->position * s->rope;
    float *kva = j->g->work.kv_a + row * row_stride(s->kv_lora + s->rope);
    (void)worker;
    if (br->keep_kv) {
        return;
    }
    ops->rmsnorm(&(struct rmsnorm_args){.x = kva, .w = j->l->vector[ROLE_KV_A_NORM], .y = kva, .n = 1, .cols = s->kv_lora, .eps = s->inner_eps});
    ops->rope(&(struct rope_args){.x = kva + s->kv_lora, .cos_sin = cs, .head_stride = s->rope, .heads = 1, .dim = s->rope, .half_split = s->rope_half_split});
    struct kv_layout layout = j->g->kv.layout;
    ops->kv_store[layout.type](&(struct kv_store_args){.layout = layout, .latent = kva, .rope = kva + s->kv_lora, .row = kv_table_row(&br->session->kv, j->layer, br->position)});
}

static void rotate_and_append_task(void *ctx, uint32_t row, uint32_t worker)
{
    const struct mla_job *j = ctx;
    const struct shape *s = j->g->shape;
    float *q = j->g->work.q + row * row_stride(s->heads * shape_q_head(s));
    j->g->ops.rope(&(struct rope_args){.x = q + s->nope, .cos_sin = j->g->cos_sin + (size_t)j->b->rows[row].position * s->rope, .head_stride = shape_q_head(s), .heads = s->heads, .dim = s->rope, .half_split = s->rope_half_split});
    append_task(ctx, row, worker);
}

static int project(struct mla_job *j, struct activation *norm, struct error *e)
{
    struct engine *g = j->g;
    const struct shape *s = g->shape;
    const struct batch *b = j->b;
    struct product q = {&j->l->matrix[s->q_lora ? ROLE_Q_B : ROLE_Q], g->work.q, row_stride(s->heads * shape_q_head(s))};
    struct product in[2] = {q, {&j->l->matrix[ROLE_KV_A], g->work.kv_a, row_stride(s->kv_lora + s->rope)}};
    if (s->q_lora) {
        in[0] = (struct product){&j->l->matrix[ROLE_Q_A], g->work.q_a, row_stride(s->q_lora)};
    }
    int r = products_run(g, in, 2, norm, b->spans, b->n_spans, false, e);
    if (r == 0 && s->q_lora) {
        r = engine_parallel(g, b->n, q_norm_task, j, e);
        struct activation qa = {.x = g->work.q_a, .stride = row_stride(s->q_lora), .n = b->n, .cols = s->q_lora, .form = g->work.form};
        r = r < 0 ? r : products_run(g, &q, 1, &qa, b->spans, b->n_spans, false, e);
    }
    return r < 0 ? r : engine_parallel(g, b->n, rotate_and_append_task, j, e);
}

int mla_append(struct engine *g, const struct batch *b, uint32_t layer, struct activation *norm, struct error *e)
{
    const struct shape *s = g->shape;
    struct mla_job job = {.g = g, .b = b, .l = &g->resident->layers[layer], .layer = layer};
    struct product in = {&job.l->matrix[ROLE_KV_A], g->work.kv_a, row_stride(s->kv_lora + s->rope)};
    int r = products_run(g, &in, 1, norm, b->spans, b->n_spans, false, e);
    counter_add(g->weight_bytes, s->kv_lora * sizeof(float));
    return r < 0 ? r : engine_parallel(g, b->n, append_task, &job, e);
}

/* ---- absorbed attention of up to attn_rows exact rows ---- */

/* n rows gathered in ws->gather [n, stride(cols)], with the form `format` needs. */
static struct act_rows gathered(const struct engine *g, struct worker_scratch *ws, uint32_t n, uint32_t cols, enum weight_format format)
{
    size_t stride = row_stride(cols);
    struct act_rows act = {.x = ws->gather, .stride = stride};
    uint32_t block = product_act_block(g, format, false);
    if (block != 0) {
        g->ops.quantise(&(struct quantise_args){.x = ws->gather, .q = ws->form.q, .scale = ws->form.scale, .bsum16 = ws->form.bsum16, .stride = stride, .n = n, .cols = cols, .block = block});
        act.q = ws->form.q;
        act.scale = ws->form.scale;
        act.bsum16 = ws->form.bsum16;
    }
    return act;
}

/* q'_h = UK_h^T qn_h for all open rows of one head. */
static void absorb(const struct mla_job *j, uint32_t head, struct worker_scratch *ws)
{
    const struct engine *g = j->g;
    const struct shape *s = g->shape;
    size_t q_stride = row_stride(s->heads * shape_q_head(s)), y_stride = (size_t)s->heads * s->kv_lora;
    const float *q = g->work.q + j->first * q_stride + (size_t)head * shape_q_head(s);
    float *y = g->work.q_latent + (size_t)head * s->kv_lora;
    const struct weight_view *fused = &j->l->matrix[ROLE_KV_B], *split = &j->l->matrix[ROLE_K_B];
    if (fused->rows) {
        struct matrix_view uk = weight_rows(fused, head * (s->nope + s->v_head), s->nope);
        for (uint32_t i = 0; i < j->n; i++) {
            g->ops.matvec_t[uk.format](&(struct matvec_t_args){.w = uk, .x = q + i * q_stride, .y = y + i * y_stride});
        }
        return;
    }
    for (uint32_t i = 0; i < j->n; i++) {
        memcpy(ws->gather + i * row_stride(s->nope), q + i * q_stride, s->nope * sizeof(float));
    }
    struct act_rows act = gathered(g, ws, j->n, s->nope, split->format);
    struct matrix_view uk = weight_rows(split, head * s->kv_lora, s->kv_lora);
    product_tile(g, &uk, act, j->n, false, y, y_stride, ws);
}

/* One row, one segment of 1,024 positions, a group of heads from h0 on. */
static void attend_segment(const struct mla_job *j, uint32_t i, uint32_t segment, uint32_t h0, struct worker_scratch *ws)
{
    const struct engine *g = j->g;
    const struct shape *s = g->shape;
    const struct work *w = &g->work;
    const struct batch_row *row = &j->b->rows[j->first + i];
    uint32_t t0 = segment * SEGMENT_POSITIONS;
    if (t0 > row->position) {
        return;
    }
    uint32_t n = min_u32(SEGMENT_POSITIONS, row->position + 1 - t0);
    const void *pages[KV_SEGMENT_PAGES];
    for (uint32_t k = 0; k * KV_PAGE < n; k++) {
        pages[k] = kv_table_row(&row->session->kv, j->layer, t0 + k * KV_PAGE);
    }
    size_t part = ((size_t)i * w->size.segments + segment) * s->heads + h0;
    g->ops.attn_segment(&(struct attn_segment_args){
        .layout = g->kv.layout, .pages = pages, .n = n,
        .q_latent = w->q_latent + ((size_t)i * s->heads + h0) * s->kv_lora,
        .q_rope = w->q + (j->first + i) * row_stride(s->heads * shape_q_head(s)) + (size_t)h0 * shape_q_head(s) + s->nope,
        .q_rope_stride = shape_q_head(s),
        .scratch = ws->attn,
        .m = w->part_m + part, .z = w->part_z + part, .u = w->part_u + part * s->kv_lora,
        .scale = (float)s->attn_scale,
        .heads = min_u32(j->group_heads, s->heads - h0),
    });
}

/* Joins segments and applies UV_h for all open rows of one head. */
static void value(const struct mla_job *j, uint32_t head, struct worker_scratch *ws)
{
    const struct engine *g = j->g;
    const struct shape *s = g->shape;
    const struct work *w = &g->work;
    for (uint32_t i = 0; i < j->n; i++) {
        size_t part = (size_t)i * w->size.segments * s->heads + head;
        g->ops.attn_merge(&(struct attn_merge_args){
            .m = w->part_m + part, .z = w->part_z + part, .u = w->part_u + part * s->kv_lora,
            .m_stride = s->heads, .u_stride = (size_t)s->heads * s->kv_lora,
            .y = ws->gather + i * row_stride(s->kv_lora),
            .segments = j->b->rows[j->first + i].position / SEGMENT_POSITIONS + 1, .latent = s->kv_lora,
        });
    }
    const struct weight_view *fused = &j->l->matrix[ROLE_KV_B], *split = &j->l->matrix[ROLE_V_B];
    struct matrix_view uv = fused->rows ? weight_rows(fused, head * (s->nope + s->v_head) + s->nope, s->v_head) : weight_rows(split, head * s->v_head, s->v_head);
    size_t y_stride = row_stride(s->heads * s->v_head);
    struct act_rows act = gathered(g, ws, j->n, s->kv_lora, uv.format);
    product_tile(g, &uv, act, j->n, false, w->heads + j->first * y_stride + (size_t)head * s->v_head, y_stride, ws);
}

/* Counts on even when cancelled: others wait for it. */
static void attend_task(void *ctx, uint32_t task, uint32_t worker)
{
    struct mla_job *j = ctx;
    uint32_t heads = j->g->shape->heads, parts = j->n * j->segments;
    struct worker_scratch *ws = &j->g->work.worker[worker];
    bool cancelled = engine_cancelled(j->g);
    if (task < heads) {
        if (!cancelled) {
            absorb(j, task, ws);
        }
        atomic_fetch_add_explicit(&j->absorbed[task / j->group_heads], 1, memory_order_release);
        return;
    }
    task -= heads;
    if (task < j->groups * parts) { /* neighbours share a segment: the second one finds it in cache */
        uint32_t group = task % j->groups, part = task / j->groups, h0 = group * j->group_heads;
        pool_wait_count(&j->absorbed[group], min_u32(j->group_heads, heads - h0));
        if (!cancelled) {
            attend_segment(j, part / j->segments, part % j->segments, h0, ws);
        }
        atomic_fetch_add_explicit(&j->attended[group], 1, memory_order_release);
        return;
    }
    task -= j->groups * parts;
    pool_wait_count(&j->attended[task / j->group_heads], parts);
    if (!cancelled) {
        value(j, task, ws);
    }
}

/* Groups as large as two tasks per worker allow: heads of a group share a page's conversion. No result depends on it. */
static void choose_groups(struct mla_job *j)
{
    uint32_t heads = j->g->shape->heads, wanted = (uint32_t)ceil_div_u64(2 * j->g->work.workers, j->n * j->segments);
    uint32_t each = (uint32_t)align_up_u64(ceil_div_u64(heads, wanted), HEADS_AT_ONCE);
    each = max_u32(min_u32(each, GROUP_HEADS_MAX), (uint32_t)ceil_div_u64(heads, GROUPS_MAX));
    j->group_heads = each;
    j->groups = (uint32_t)ceil_div_u64(heads, each);
    for (uint32_t k = 0; k < j->groups; k++) {
        atomic_init(&j->absorbed[k], 0);
        atomic_init(&j->attended[k], 0);
    }
}

static int attend_exact(struct mla_job *j, const struct span *span, struct error *e)
{
    struct engine *g = j->g;
    uint32_t heads = g->shape->heads;
    int r = 0;
    for (j->first = span->begin; j->first < span->end && r == 0; j->first += j->n) {
        j->n = min_u32(g->work.size.attn_rows, span->end - j->first);
        j->segments = 0;
        for (uint32_t i = 0; i < j->n; i++) {
            j->segments = max_u32(j->segments, j->b->rows[j->first + i].position / SEGMENT_POSITIONS + 1);
        }
        choose_groups(j);
        const uint32_t count[3] = {heads, j->n * j->segments * j->groups, heads};
        pool_run_job(g->pool, &(struct pool_job){.fn = attend_task, .ctx = j, .stages = 3, .nodes = 1, .count = count});
        r = engine_interrupted(g, e);
    }
    return r;
}

/* Norms, and heads of the latent once for as many rows as attend together. */
static void count_weights(const struct mla_job *j)
{
    const struct engine *g = j->g;
    const struct weight_view *fused = &j->l->matrix[ROLE_KV_B], *k = &j->l->matrix[ROLE_K_B], *v = &j->l->matrix[ROLE_V_B];
    uint64_t latent = weight_rows_bytes(fused, fused->rows) + weight_rows_bytes(k, k->rows) + weight_rows_bytes(v, v->rows), times = 0;
    for (uint32_t i = 0; i < j->b->n_spans; i++) {
        const struct span *s = &j->b->spans[i];
        times += s->bulk ? 1 : ceil_div_u64(s->end - s->begin, g->work.size.attn_rows);
    }
    counter_add(g->weight_bytes, times * latent + (g->shape->q_lora + g->shape->kv_lora) * sizeof(float));
}

int mla_run(struct engine *g, const struct batch *b, uint32_t layer, struct activation *norm, struct error *e)
{
    const struct shape *s = g->shape;
    struct mla_job job = {.g = g, .b = b, .l = &g->resident->layers[layer], .layer = layer};
    int r = project(&job, norm, e);
    for (uint32_t i = 0; i < b->n_spans && r == 0; i++) {
        r = b->spans[i].bulk ? mla_bulk(g, b, &b->spans[i], layer, e) : attend_exact(&job, &b->spans[i], e);
    }
    if (r < 0) {
        return r;
    }
    count_weights(&job);
    struct activation heads = {.x = g->work.heads, .stride = row_stride(s->heads * s->v_head), .n = b->n, .cols = s->heads * s->v_head, .form = g->work.form};
    struct product o = {&job.l->matrix[ROLE_O], g->work.out, row_stride(s->hidden)};
    return products_run(g, &o, 1, &heads, b->spans, b->n_spans, false, e);
}
