/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: product.h. */
#include "tests/kernel/product.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/intmath.h"
#include "tests/kernel/weights.h"

void product_quantise(struct check *c, struct product *p)
{
    struct act_rows *act = &p->args.act;
    size_t n = p->args.n * act->stride;
    int8_t *q = check_bytes(c, n);
    float *scale = check_output(c, n / p->block);
    int16_t *bsum16 = check_bytes(c, n / 16 * sizeof(*bsum16));
    memset(q, 0x55, n);
    memset(bsum16, 0x55, n / 16 * sizeof(*bsum16));
    c->ref->quantise(&(struct quantise_args){act->x, q, scale, bsum16, act->stride, p->args.n, p->args.w.cols, p->block});
    act->q = q;
    act->scale = scale;
    act->bsum16 = bsum16;
}

struct product product_random(struct check *c, enum weight_format format, uint32_t rows, uint32_t cols, uint32_t n, bool quantised)
{
    bool wild = check_one_in(c, 6);
    struct product p = {.ordinary = !wild, .block = quantised ? weight_format_info(format)->act_block : 0};
    struct matvec_args *a = &p.args;
    a->w = weights_random(c, format, rows, cols, wild);
    a->n = n;
    a->row_begin = check_one_in(c, 2) ? 0 : check_below(c, rows + 1);
    a->row_end = a->row_begin + (check_one_in(c, 2) ? rows - a->row_begin : check_below(c, rows - a->row_begin + 1));
    a->y_stride = rows + check_below(c, 5);
    a->act.stride = p.block != 0 ? align_up_u64(cols, 256) + 256 * check_below(c, 2) : cols + check_below(c, 3);
    float *x = check_floats(c, n * a->act.stride);
    a->act.x = x;
    for (uint32_t i = 0; i < n; i++) {
        p.ordinary = check_fill_activations(c, x + i * a->act.stride, cols) && p.ordinary;
    }
    if (p.block != 0) {
        product_quantise(c, &p);
    }
    snprintf(c->shape, sizeof(c->shape), "%u x %u (row_bytes %zu, row0 %u), n %u, rows %u..%u, stride %zu%s", rows, cols,
             a->w.row_bytes, a->w.row0, n, a->row_begin, a->row_end, a->act.stride, wild ? ", wild" : "");
    return p;
}

/* The activation that meets weight `col` of row i. */
static double activation(const struct product *p, uint32_t i, uint32_t col)
{
    const struct act_rows *act = &p->args.act;
    size_t at = i * act->stride + col;
    return p->block != 0 ? (double)act->q[at] * (double)act->scale[at / p->block] : (double)act->x[at];
}

bool product_near_doubles(struct check *c, const struct product *p, const float *y, double relative, double absolute)
{
    const struct matvec_args *a = &p->args;
    float *w = check_output(c, a->w.cols);
    for (uint32_t r = a->row_begin; r < a->row_end; r++) {
        c->ref->dequantise[a->w.format](&(struct dequantise_args){a->w, w, r, r + 1});
        for (uint32_t i = 0; i < a->n; i++) {
            double sum = 0, size = 0;
            for (uint32_t col = 0; col < a->w.cols; col++) {
                double product = (double)w[col] * activation(p, i, col);
                sum += product;
                size += fabs(product);
            }
            if (!check_near(c, "against doubles", sum, (double)y[i * a->y_stride + r], relative * size + absolute)) {
                return false;
            }
        }
    }
    return true;
}
