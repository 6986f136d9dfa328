/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: matrix products in tiles (product.h). Must not know: what the matrices are. */
#include "src/run/product.h"

#include <assert.h>
#include <string.h>

enum { PRODUCTS_MAX = 4, QUANTISE_ROWS = 16, EXACT_TILE_ROWS = 64 };

uint32_t product_act_block(const struct engine *g, enum weight_format f, bool bulk)
{
    bool as_floats = bulk && (!g->bulk_own[f] || g->ops.bulk_bf16[f]);
    return g->act_f32 || as_floats ? 0 : weight_format_info(f)->act_block;
}

static uint32_t form_of_block(uint32_t block)
{
    return block == 32 ? FORM_32 : FORM_256;
}

/* ---- activations ---- */

void activation_quantise(const struct engine *g, const struct activation *a, enum weight_format format, bool bulk, uint32_t begin, uint32_t end)
{
    uint32_t block = product_act_block(g, format, bulk);
    if (block == 0) {
        return;
    }
    const struct act_form *form = &a->form[form_of_block(block)];
    g->ops.quantise(&(struct quantise_args){
        .x = a->x + begin * a->stride,
        .q = form->q + begin * a->stride,
        .scale = form->scale + begin * (a->stride / block),
        .bsum16 = form->bsum16 + begin * (a->stride / 16),
        .stride = a->stride,
        .n = end - begin,
        .cols = a->cols,
        .block = block,
    });
}

struct quantise_job {
    const struct engine *g;
    const struct activation *a;
    enum weight_format format;
    bool bulk;
    uint32_t begin, end;
};

static void quantise_task(void *ctx, uint32_t task, uint32_t worker)
{
    const struct quantise_job *j = ctx;
    uint32_t i = j->begin + task * QUANTISE_ROWS;
    (void)worker;
    activation_quantise(j->g, j->a, j->format, j->bulk, i, min_u32(i + QUANTISE_ROWS, j->end));
}

int activation_prepare(struct engine *g, struct activation *a, enum weight_format format, bool bulk, uint32_t begin, uint32_t end, struct error *e)
{
    uint32_t block = product_act_block(g, format, bulk);
    if (block == 0 || begin == end) {
        return 0;
    }
    uint32_t f = form_of_block(block), done_begin = a->done[f].begin, done_end = a->done[f].end;
    if (done_begin <= begin && end <= done_end) {
        return 0;
    }
    if (begin <= done_end && done_begin <= end) { /* what is done stays done: experts ask for many overlapping ranges */
        begin = min_u32(begin, done_begin);
        end = max_u32(end, done_end);
    }
    struct quantise_job job = {g, a, format, bulk, begin, end};
    int r = engine_parallel(g, (uint32_t)ceil_div_u64(end - begin, QUANTISE_ROWS), quantise_task, &job, e);
    a->done[f].begin = begin;
    a->done[f].end = end;
    return r;
}

struct act_rows activation_rows(const struct engine *g, const struct activation *a, enum weight_format format, bool bulk, uint32_t row)
{
    struct act_rows rows = {.x = a->x + row * a->stride, .stride = a->stride};
    uint32_t block = product_act_block(g, format, bulk);
    if (block != 0) {
        const struct act_form *f = &a->form[form_of_block(block)];
        rows.q = f->q + row * a->stride;
        rows.scale = f->scale + row * (a->stride / block);
        rows.bsum16 = f->bsum16 + row * (a->stride / 16);
    }
    return rows;
}

/* ---- one tile ---- */

static void tile_own(const struct engine *g, const struct matrix_view *w, struct act_rows act, uint32_t n, float *y, size_t y_stride)
{
    struct matvec_args args = {.w = *w, .act = act, .y = y, .y_stride = y_stride, .n = n, .row_begin = 0, .row_end = w->rows};
    if (g->ops.bulk_bf16[w->format] && !g->act_f32) {
        g->ops.bulk_bf16[w->format](&args, g->ops.dequantise[w->format]);
    } else if (product_act_block(g, w->format, true) != 0) {
        g->ops.bulk[w->format](&args);
    } else {
        g->ops.bulk_f32(&args, g->ops.dequantise[w->format]);
    }
}

static void tile_blas(const struct engine *g, const struct matrix_view *w, struct act_rows act, uint32_t n, float *y, size_t y_stride, struct worker_scratch *ws)
{
    g->ops.dequantise[w->format](&(struct dequantise_args){.w = *w, .y = ws->panel, .row_begin = 0, .row_end = w->rows});
    g->ops.gemm(&g->ops, &(struct gemm_args){
        .x = act.x, .x_stride = act.stride,
        .b = ws->panel, .b_stride = w->cols, .b_rows_are_outputs = true,
        .y = y, .y_stride = y_stride,
        .m = n, .n = w->rows, .k = w->cols,
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

void product_tile(const struct engine *g, const struct matrix_view *w, struct act_rows act, uint32_t n, bool bulk, float *y, size_t y_stride, struct worker_scratch *ws)
{
    if (bulk) {
        if (g->bulk_own[w->format]) {
            tile_own(g, w, act, n, y, y_stride);
        } else {
            tile_blas(g, w, act, n, y, y_stride, ws);
        }
        return;
    }
    void (*matvec)(const struct matvec_args *) = g->act_f32 ? g->ops.matvec_f32[w->format] : g->ops.matvec[w->format];
    uint32_t block = product_act_block(g, w->format, false);
    for (uint32_t i = 0; i < n; i += OPS_MAX_ROWS) {
        matvec(&(struct matvec_args){
            .w = *w,
            .act = act_skip(act, i, block),
            .y = y + i * y_stride, .y_stride = y_stride,
            .n = min_u32(OPS_MAX_ROWS, n - i),
            .row_begin = 0, .row_end = w->rows,
        });
    }
}

/* ---- tiles of several matrices ---- */

void tiles_add(struct tiles *t, const struct weight_view *w, bool bulk)
{
    uint32_t rows = weight_tile_rows(w->rows, w->cols), s = t->n++;
    assert(s < TILES_SOURCES_MAX);
    t->source[s].w = w;
    t->source[s].tiles = 0;
    t->source[s].rows = bulk ? rows : min_u32(rows, EXACT_TILE_ROWS);
    t->nodes = w->parts;
    for (uint32_t k = 0, begin = 0; k < w->parts; begin = w->end[k++]) {
        uint32_t tiles = (uint32_t)ceil_div_u64(w->end[k] - begin, t->source[s].rows);
        t->source[s].tiles += tiles;
        t->count[k] += tiles;
        t->end[k][s] = t->count[k];
    }
}

struct tile tiles_at(const struct tiles *t, uint32_t task)
{
    uint32_t k = 0, low = 0, high = t->n - 1;
    while (task >= t->count[k]) {
        task -= t->count[k++];
    }
    while (low < high) { /* first source whose tiles end after this one */
        uint32_t middle = (low + high) / 2;
        if (task < t->end[k][middle]) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    const struct weight_view *w = t->source[low].w;
    uint32_t index = task - (low > 0 ? t->end[k][low - 1] : 0), rows = t->source[low].rows;
    uint32_t r0 = (k > 0 ? w->end[k - 1] : 0) + index * rows;
    return (struct tile){low, r0, min_u32(r0 + rows, w->end[k])};
}

/* ---- products of a batch ---- */

/* A source of the tiles is a product with a span: their tiles differ by row class. */
struct product_job {
    const struct engine *g;
    const struct product *products;
    const struct activation *a;
    const struct span *spans;
    uint32_t n_products;
    bool all_exact;
    struct tiles tiles;
};

static void product_task(void *ctx, uint32_t task, uint32_t worker)
{
    const struct product_job *j = ctx;
    struct tile t = tiles_at(&j->tiles, task);
    const struct product *p = &j->products[t.source % j->n_products];
    const struct span *s = &j->spans[t.source / j->n_products];
    struct matrix_view w = weight_rows(p->w, t.r0, t.r1 - t.r0);
    bool bulk = s->bulk && !j->all_exact;
    product_tile(j->g, &w, activation_rows(j->g, j->a, w.format, bulk, s->begin), s->end - s->begin, bulk,
                 p->y + s->begin * p->y_stride + t.r0, p->y_stride, &j->g->work.worker[worker]);
}

int products_run(struct engine *g, const struct product *p, uint32_t n, struct activation *a, const struct span *spans, uint32_t n_spans, bool all_exact, struct error *e)
{
    struct product_job job = {.g = g, .products = p, .a = a, .n_products = n, .all_exact = all_exact};
    assert(n <= PRODUCTS_MAX);
    for (uint32_t first = 0; first < n_spans; first += TILES_SOURCES_MAX / PRODUCTS_MAX) {
        uint32_t some = min_u32(n_spans - first, TILES_SOURCES_MAX / PRODUCTS_MAX);
        job.spans = spans + first;
        job.tiles.n = 0;
        memset(job.tiles.count, 0, sizeof(job.tiles.count));
        for (uint32_t s = 0; s < some; s++) {
            bool bulk = job.spans[s].bulk && !all_exact;
            for (uint32_t i = 0; i < n; i++) {
                int r = activation_prepare(g, a, p[i].w->format, bulk, job.spans[s].begin, job.spans[s].end, e);
                if (r < 0) {
                    return r;
                }
                tiles_add(&job.tiles, p[i].w, bulk);
            }
        }
        int r = engine_parallel_nodes(g, job.tiles.nodes, job.tiles.count, product_task, &job, e);
        if (r < 0) {
            return r;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        counter_add(g->weight_bytes, n_spans * weight_rows_bytes(p[i].w, p[i].w->rows));
    }
    return 0;
}
