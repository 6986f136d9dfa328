/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: rows of the MTP layer (mtp.h). */
#include "src/run/mtp.h"

#include "src/run/block.h"
#include "src/run/foresee.h"
#include "src/run/head.h"

struct mtp_job {
    struct engine *g;
    const struct mtp_row *rows;
    const struct resident_layer *l;
};

static void mtp_task(void *ctx, uint32_t row, uint32_t worker)
{
    const struct mtp_job *j = ctx;
    const struct engine *g = j->g;
    const struct shape *s = g->shape;
    float *in = g->work.mtp_in + row * row_stride(2 * s->hidden);
    struct matrix_view embed = weight_rows(&g->resident->embed, (uint32_t)j->rows[row].next, 1);
    (void)worker;
    g->ops.dequantise[embed.format](&(struct dequantise_args){.w = embed, .y = in, .row_begin = 0, .row_end = 1});
    g->ops.rmsnorm(&(struct rmsnorm_args){.x = in, .w = j->l->vector[ROLE_MTP_ENORM], .y = in, .n = 1, .cols = s->hidden, .eps = s->rms_eps});
    g->ops.rmsnorm(&(struct rmsnorm_args){.x = j->rows[row].state, .w = j->l->vector[ROLE_MTP_HNORM], .y = in + s->hidden, .n = 1, .cols = s->hidden, .eps = s->rms_eps});
}

/* b->x = eh_proj [enorm(embed); hnorm(state)]: embedding first, state second. */
static int mtp_embed(struct engine *g, struct batch *b, const struct mtp_row *rows, struct error *e)
{
    const struct shape *s = g->shape;
    struct mtp_job job = {g, rows, &g->resident->layers[s->layers]};
    int r = engine_parallel(g, b->n, mtp_task, &job, e);
    if (r < 0) {
        return r;
    }
    counter_add(g->weight_bytes, b->n * weight_rows_bytes(&g->resident->embed, 1) + 2 * s->hidden * sizeof(float));
    struct activation in = {.x = g->work.mtp_in, .stride = row_stride(2 * s->hidden), .n = b->n, .cols = 2 * s->hidden, .form = g->work.form};
    struct product p = {&job.l->matrix[ROLE_MTP_EH], b->x, row_stride(s->hidden)};
    return products_run(g, &p, 1, &in, b->spans, b->n_spans, false, e);
}

int mtp_run(struct engine *g, struct batch *b, const struct mtp_row *rows, struct error *e)
{
    uint32_t layer = g->shape->layers;
    int r = mtp_embed(g, b, rows, e);
    if (r == 0) {
        foresee_after_eh(g, b);
        r = block_run(g, b, layer, e);
    }
    if (r == 0) {
        head_normalise(g, b->x, b->n, g->resident->layers[layer].vector[ROLE_MTP_NORM], b->x);
        r = foresee_after_mtp(g, b, e);
    }
    return r;
}

int mtp_append(struct engine *g, struct batch *b, const struct mtp_row *rows, struct error *e)
{
    int r = mtp_embed(g, b, rows, e);
    return r < 0 ? r : block_append(g, b, g->shape->layers, e);
}
