/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: final norm and head (head.h). */
#include "src/run/head.h"

#include "src/run/finite.h"
#include "src/run/product.h"

void head_normalise(struct engine *g, const float *x, uint32_t n, const float *w, float *y)
{
    size_t stride = row_stride(g->shape->hidden);
    counter_add(g->weight_bytes, g->shape->hidden * sizeof(*w));
    g->ops.rmsnorm(&(struct rmsnorm_args){.x = x, .x_stride = stride, .w = w, .y = y, .y_stride = stride, .n = n, .cols = g->shape->hidden, .eps = g->shape->rms_eps});
}

int head_logits(struct engine *g, const float *state, uint32_t n, const struct batch_row *rows, struct error *e)
{
    const struct shape *s = g->shape;
    struct activation a = {.x = state, .stride = row_stride(s->hidden), .n = n, .cols = s->hidden, .form = g->work.form};
    struct product p = {&g->resident->head, g->work.logits, s->vocab};
    int r = products_run(g, &p, 1, &a, &(struct span){0, n, false}, 1, true, e);
    for (uint32_t i = 0; i < n && r == 0; i++) {
        if (!all_finite(g->work.logits + (size_t)i * s->vocab, s->vocab)) {
            r = error_set(e, ERROR_FORMAT, "head, position %u: logits are not finite (NaN or Inf); run `sluice check` on the model file", rows[i].position);
        }
    }
    return r;
}
