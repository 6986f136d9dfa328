/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: attention of one bulk chunk, a task per head, the context in tiles of BULK_T positions with a running softmax.
 * Expanded (keys and values per head) or absorbed (latents) by multiply count, spec 3.3. Must not know: exact rows. */
#include <math.h>
#include <string.h>

#include "src/run/mla.h"

struct bulk_job {
    struct engine *g;
    const struct batch *b;
    const struct resident_layer *l;
    uint32_t layer, first, rows, p0, total; /* rows [first, first + rows) at positions p0.., total = p0 + rows cached */
    bool absorbed;
};

/* Scratch of one worker: sizes in place/scratch.c. */
struct bulk_scratch {
    float *c;      /* [BULK_T, latent + rope] */
    float *k;      /* [BULK_T, nope] */
    float *v;      /* [BULK_T, v_head] */
    float *scores; /* [rows, BULK_T] */
    float *acc;    /* [rows, width] width: latent if absorbed, else v_head */
    float *q_latent; /* [rows, latent] */
    float *m, *z;  /* [rows] */
    float *uk, *uv; /* panel: UK_h as stored, UV_h [v_head, latent] */
};

static struct bulk_scratch scratch_of(const struct bulk_job *j, struct worker_scratch *ws)
{
    const struct shape *s = j->g->shape;
    struct bulk_scratch t;
    float *at = ws->bulk;
    t.c = at, at += (size_t)BULK_T * (s->kv_lora + s->rope);
    t.k = at, at += (size_t)BULK_T * s->nope;
    t.v = at, at += (size_t)BULK_T * s->v_head;
    t.scores = at, at += (size_t)j->rows * BULK_T;
    t.acc = at, at += (size_t)j->rows * max_u32(s->kv_lora, s->v_head);
    t.q_latent = at, at += (size_t)j->rows * s->kv_lora;
    t.m = at, at += j->rows;
    t.z = at;
    t.uk = ws->panel;
    t.uv = ws->panel + (size_t)s->nope * s->kv_lora;
    return t;
}

static void gemm(const struct engine *g, const float *x, size_t xs, const float *b, size_t bs, bool outputs, float *y, size_t ys, uint32_t m, uint32_t n, uint32_t k, float alpha, float beta)
{
    g->ops.gemm(&g->ops, &(struct gemm_args){.x = x, .b = b, .y = y, .x_stride = xs, .b_stride = bs, .y_stride = ys, .m = m, .n = n, .k = k, .b_rows_are_outputs = outputs, .alpha = alpha, .beta = beta});
}

/* UK_h [nope, latent] of a fused matrix or [latent, nope] of a split one, and UV_h [v_head, latent], as float32. */
static void load_head(const struct bulk_job *j, uint32_t head, const struct bulk_scratch *t)
{
    const struct shape *s = j->g->shape;
    const struct weight_view *fused = &j->l->matrix[ROLE_KV_B];
    uint32_t per_head = s->nope + s->v_head;
    struct matrix_view uk, uv;
    if (fused->rows) {
        uk = weight_rows(fused, head * per_head, s->nope);
        uv = weight_rows(fused, head * per_head + s->nope, s->v_head);
    } else {
        uk = weight_rows(&j->l->matrix[ROLE_K_B], head * s->kv_lora, s->kv_lora);
        uv = weight_rows(&j->l->matrix[ROLE_V_B], head * s->v_head, s->v_head);
    }
    j->g->ops.dequantise[uk.format](&(struct dequantise_args){.w = uk, .y = t->uk, .row_begin = 0, .row_end = uk.rows});
    j->g->ops.dequantise[uv.format](&(struct dequantise_args){.w = uv, .y = t->uv, .row_begin = 0, .row_end = uv.rows});
}

/* Positions [t0, t0 + n) of the cache as float32, page by page. */
static void load_tile(const struct bulk_job *j, uint32_t t0, uint32_t n, float *c)
{
    const struct engine *g = j->g;
    size_t stride = g->shape->kv_lora + g->shape->rope;
    for (uint32_t i = 0; i < n; i += KV_PAGE) {
        g->ops.kv_load[g->kv.layout.type](&(struct kv_load_args){
            .layout = g->kv.layout, .rows = kv_table_row(&j->b->rows[j->first].session->kv, j->layer, t0 + i),
            .y = c + i * stride, .y_stride = stride, .n = min_u32(KV_PAGE, n - i),
        });
    }
}

/* Rows that see position t0 or later, for positions [t0, t0 + n): the first of them sees all before its own. */
static void attend_tile(const struct bulk_job *j, const float *q, size_t q_stride, uint32_t t0, uint32_t n, const struct bulk_scratch *t)
{
    const struct engine *g = j->g;
    const struct shape *s = g->shape;
    uint32_t i0 = t0 > j->p0 ? t0 - j->p0 : 0, rows = j->rows - i0;
    uint32_t latent = s->kv_lora, cs = latent + s->rope, width = j->absorbed ? latent : s->v_head;
    bool fused = j->l->matrix[ROLE_KV_B].rows != 0;
    float scale = (float)s->attn_scale, *acc = t->acc + (size_t)i0 * width;
    q += i0 * q_stride;
    load_tile(j, t0, n, t->c);
    if (j->absorbed) {
        gemm(g, t->q_latent + (size_t)i0 * latent, latent, t->c, cs, true, t->scores, BULK_T, rows, n, latent, scale, 0.0f);
    } else {
        gemm(g, t->c, cs, t->uk, fused ? latent : s->nope, fused, t->k, s->nope, n, s->nope, latent, 1.0f, 0.0f);
        gemm(g, t->c, cs, t->uv, latent, true, t->v, s->v_head, n, s->v_head, latent, 1.0f, 0.0f);
        gemm(g, q, q_stride, t->k, s->nope, true, t->scores, BULK_T, rows, n, s->nope, scale, 0.0f);
    }
    gemm(g, q + s->nope, q_stride, t->c + latent, cs, true, t->scores, BULK_T, rows, n, s->rope, scale, 1.0f);
    g->ops.attn_softmax(&(struct attn_softmax_args){
        .s = t->scores, .s_stride = BULK_T, .acc = acc, .m = t->m + i0, .z = t->z + i0,
        .rows = rows, .n = n, .seen = min_u32(n, j->p0 + i0 + 1 - t0), .width = width,
    });
    gemm(g, t->scores, BULK_T, j->absorbed ? t->c : t->v, j->absorbed ? cs : s->v_head, false, acc, width, rows, width, n, 1.0f, 1.0f);
}

static void head_task(void *ctx, uint32_t head, uint32_t worker)
{
    const struct bulk_job *j = ctx;
    const struct engine *g = j->g;
    const struct shape *s = g->shape;
    struct bulk_scratch t = scratch_of(j, &g->work.worker[worker]);
    size_t q_stride = row_stride(s->heads * shape_q_head(s)), y_stride = row_stride(s->heads * s->v_head);
    const float *q = g->work.q + j->first * q_stride + (size_t)head * shape_q_head(s);
    float *y = g->work.heads + j->first * y_stride + (size_t)head * s->v_head;
    uint32_t width = j->absorbed ? s->kv_lora : s->v_head;
    bool fused = j->l->matrix[ROLE_KV_B].rows != 0;
    load_head(j, head, &t);
    if (j->absorbed) {
        gemm(g, q, q_stride, t.uk, fused ? s->kv_lora : s->nope, !fused, t.q_latent, s->kv_lora, j->rows, s->kv_lora, s->nope, 1.0f, 0.0f);
    }
    memset(t.acc, 0, (size_t)j->rows * width * sizeof(float));
    for (uint32_t i = 0; i < j->rows; i++) {
        t.m[i] = -INFINITY;
        t.z[i] = 0.0f;
    }
    for (uint32_t t0 = 0; t0 < j->total && !engine_cancelled(g); t0 += BULK_T) {
        attend_tile(j, q, q_stride, t0, min_u32(BULK_T, j->total - t0), &t);
    }
    for (uint32_t i = 0; i < j->rows; i++) {
        float *out = j->absorbed ? t.acc + (size_t)i * width : y + i * y_stride;
        for (uint32_t d = 0; d < width; d++) {
            out[d] = t.acc[(size_t)i * width + d] / t.z[i];
        }
    }
    if (j->absorbed) {
        gemm(g, t.acc, width, t.uv, s->kv_lora, true, y, y_stride, j->rows, s->v_head, s->kv_lora, 1.0f, 0.0f);
    }
}

/* Multiplies per head: keys and values expanded once per cached position, or every pair on latents. */
static bool absorbed_is_cheaper(const struct shape *s, uint64_t rows, uint64_t total)
{
    uint64_t expand = total * (s->nope + s->v_head) * s->kv_lora + rows * total * (s->nope + s->rope + s->v_head);
    uint64_t absorb = rows * (s->nope + s->v_head) * s->kv_lora + rows * total * (2 * (uint64_t)s->kv_lora + s->rope);
    return absorb < expand;
}

int mla_bulk(struct engine *g, const struct batch *b, const struct span *chunk, uint32_t layer, struct error *e)
{
    struct bulk_job job = {
        .g = g, .b = b, .l = &g->resident->layers[layer], .layer = layer,
        .first = chunk->begin, .rows = chunk->end - chunk->begin, .p0 = b->rows[chunk->begin].position,
    };
    job.total = job.p0 + job.rows;
    job.absorbed = absorbed_is_cheaper(g->shape, job.rows, job.total);
    return engine_parallel(g, g->shape->heads, head_task, &job, e);
}
