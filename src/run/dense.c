/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the dense FFN (dense.h). */
#include "src/run/dense.h"

struct swiglu_job {
    const struct engine *g;
    size_t stride;
    uint32_t width;
};

static void swiglu_task(void *ctx, uint32_t row, uint32_t worker)
{
    const struct swiglu_job *j = ctx;
    const struct work *w = &j->g->work;
    (void)worker;
    j->g->ops.swiglu(&(struct swiglu_args){
        .gate = w->gate + row * j->stride, .up = w->up + row * j->stride, .y = w->gate + row * j->stride, .n = j->width,
    });
}

int dense_run(struct engine *g, const struct batch *b, const struct matrix_view *gate, const struct matrix_view *up, const struct matrix_view *down, struct activation *norm, struct error *e)
{
    struct work *w = &g->work;
    size_t stride = row_stride(gate->rows);
    struct product in[2] = {{gate, w->gate, stride}, {up, w->up, stride}};
    int r = products_run(g, in, 2, norm, b->spans, b->n_spans, false, e);
    if (r < 0) {
        return r;
    }
    struct swiglu_job job = {g, stride, gate->rows};
    r = engine_parallel(g, b->n, swiglu_task, &job, e);
    if (r < 0) {
        return r;
    }
    struct activation mid = {.x = w->gate, .stride = stride, .n = b->n, .cols = gate->rows, .form = w->form};
    norm->done[FORM_32].end = norm->done[FORM_256].end = 0; /* the forms are overwritten */
    struct product out = {down, w->out, row_stride(down->rows)};
    return products_run(g, &out, 1, &mid, b->spans, b->n_spans, false, e);
}
