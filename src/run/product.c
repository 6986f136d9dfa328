/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: matrix products in tiles (product.h). Must not know: what the matrices are. */
#include "src/run/product.h"

#include <assert.h>
#include <string.h>

enum { PRODUCTS_MAX = 4, QUANTISE_ROWS = 16 };

uint32_t product_act_block(const struct engine *g, enum weight_format f)
{
    return g->act_f32 ? 0 : weight_format_info(f)->act_block;
}

static uint32_t form_of_block(uint32_t block)
{
    return block == 32 ? FORM_32 : FORM_256;
}

struct quantise_job {
    const struct engine *g;
    const struct activation *a;
    struct act_form form;
    uint32_t block, begin, end;
};

static void quantise_task(void *ctx, uint32_t task, uint32_t worker)
{
    const struct quantise_job *j = ctx;
    uint32_t i = j->begin + task * QUANTISE_ROWS, n = min_u32(QUANTISE_ROWS, j->end - i);
    (void)worker;
    j->g->ops.quantise(&(struct quantise_args){
        .x = j->a->x + i * j->a->stride,
        .q = j->form.q + i * j->a->stride,
        .scale = j->form.scale + i * (j->a->stride / j->block),
        .bsum16 = j->form.bsum16 + i * (j->a->stride / 16),
        .stride = j->a->stride,
        .n = n,
        .cols = j->a->cols,
        .block = j->block,
    });
}

int activation_prepare(struct engine *g, struct activation *a, enum weight_format format, uint32_t begin, uint32_t end, struct error *e)
{
    uint32_t block = product_act_block(g, format);
    if (block == 0 || begin == end) {
        return 0;
    }
    uint32_t f = form_of_block(block);
    if (a->done[f].begin <= begin && end <= a->done[f].end) {
        return 0;
    }
    struct quantise_job job = {g, a, a->form[f], block, begin, end};
    int r = engine_parallel(g, (uint32_t)ceil_div_u64(end - begin, QUANTISE_ROWS), quantise_task, &job, e);
    a->done[f].begin = begin;
    a->done[f].end = end;
    return r;
}

struct act_rows activation_rows(const struct engine *g, const struct activation *a, enum weight_format format, uint32_t row)
{
    struct act_rows rows = {.x = a->x + row * a->stride, .stride = a->stride};
    uint32_t block = product_act_block(g, format);
    if (block != 0) {
        const struct act_form *f = &a->form[form_of_block(block)];
        rows.q = f->q + row * a->stride;
        rows.scale = f->scale + row * (a->stride / block);
        rows.bsum16 = f->bsum16 + row * (a->stride / 16);
    }
    return rows;
}

static void tile_bulk(const struct engine *g, const struct matrix_view *w, struct act_rows act, uint32_t n, uint32_t r0, uint32_t r1, float *y, size_t y_stride, struct worker_scratch *ws)
{
    g->ops.dequantise[w->format](&(struct dequantise_args){.w = *w, .y = ws->panel, .row_begin = r0, .row_end = r1});
    g->ops.gemm(&(struct gemm_args){
        .x = act.x, .x_stride = act.stride,
        .b = ws->panel, .b_stride = w->cols, .b_rows_are_outputs = true,
        .y = y, .y_stride = y_stride,
        .m = n, .n = r1 - r0, .k = w->cols,
        .alpha = 1.0f, .beta = 0.0f,
    });
}

static struct act_rows act_skip(struct act_rows act, uint32_t rows, uint32_t block)
{
    act.x += rows * act.stride;
    if (block != 0) {
        act.q += rows * act.stride;
        act.scale += rows * (act.stride / block);
        act.bsum16 += rows * (act.stride / 16);
    }
    return act;
}

void product_tile(const struct engine *g, const struct matrix_view *w, struct act_rows act, uint32_t n, bool bulk, uint32_t r0, uint32_t r1, float *y, size_t y_stride, struct worker_scratch *ws)
{
    if (bulk) {
        tile_bulk(g, w, act, n, r0, r1, y, y_stride, ws);
        return;
    }
    void (*matvec)(const struct matvec_args *) = g->act_f32 ? g->ops.matvec_f32[w->format] : g->ops.matvec[w->format];
    uint32_t block = product_act_block(g, w->format);
    struct matrix_view tile = matrix_view_rows(*w, r0, r1 - r0);
    for (uint32_t i = 0; i < n; i += OPS_MAX_ROWS) {
        matvec(&(struct matvec_args){
            .w = tile,
            .act = act_skip(act, i, block),
            .y = y + i * y_stride, .y_stride = y_stride,
            .n = min_u32(OPS_MAX_ROWS, n - i),
            .row_begin = 0, .row_end = r1 - r0,
        });
    }
}

/* Task numbers run over products, then spans, then tiles. */
struct product_job {
    const struct engine *g;
    const struct product *products;
    const struct activation *a;
    const struct span *spans;
    uint32_t n_spans;
    bool all_exact;
};

static uint32_t product_tiles(const struct product *p)
{
    return (uint32_t)ceil_div_u64(p->w->rows, scratch_tile_rows(p->w->cols));
}

static void product_task(void *ctx, uint32_t task, uint32_t worker)
{
    const struct product_job *j = ctx;
    const struct product *p = j->products;
    uint32_t tiles = product_tiles(p);
    while (task >= tiles * j->n_spans) {
        task -= tiles * j->n_spans;
        tiles = product_tiles(++p);
    }
    const struct span *s = &j->spans[task / tiles];
    uint32_t rows = scratch_tile_rows(p->w->cols), r0 = task % tiles * rows, r1 = min_u32(r0 + rows, p->w->rows);
    product_tile(j->g, p->w, activation_rows(j->g, j->a, p->w->format, s->begin), s->end - s->begin, s->bulk && !j->all_exact, r0, r1,
                 p->y + s->begin * p->y_stride + r0, p->y_stride, &j->g->work.worker[worker]);
}

int products_run(struct engine *g, const struct product *p, uint32_t n, struct activation *a, const struct span *spans, uint32_t n_spans, bool all_exact, struct error *e)
{
    uint32_t tasks = 0;
    assert(n <= PRODUCTS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        tasks += product_tiles(&p[i]) * n_spans;
        counter_add(g->weight_bytes, (uint64_t)p[i].w->rows * p[i].w->row_bytes);
        for (uint32_t s = 0; s < n_spans; s++) {
            int r = spans[s].bulk && !all_exact ? 0 : activation_prepare(g, a, p[i].w->format, spans[s].begin, spans[s].end, e);
            if (r < 0) {
                return r;
            }
        }
    }
    struct product_job job = {g, p, a, spans, n_spans, all_exact};
    return engine_parallel(g, tasks, product_task, &job, e);
}
