/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: trace_ridge.h. Products of a text are float, sums over texts and the solution are double. Must not know: what is regressed. */
#include "src/commands/trace_ridge.h"

#include <math.h>
#include <stdlib.h>

int ridge_init(struct ridge *r, uint32_t inputs, uint32_t outputs, uint32_t workers, struct error *e)
{
    *r = (struct ridge){.inputs = inputs, .outputs = outputs};
    size_t width = ridge_width(r);
    r->sums = calloc((inputs + (size_t)1) * width, sizeof(*r->sums));
    r->tiles = malloc(workers * RIDGE_TILE * width * sizeof(*r->tiles));
    if (r->sums == NULL || r->tiles == NULL) {
        ridge_deinit(r);
        return error_nomem(e, "normal equations of the probes", (inputs + 1ull) * width * sizeof(double));
    }
    return 0;
}

void ridge_deinit(struct ridge *r)
{
    free(r->sums);
    free(r->tiles);
    *r = (struct ridge){0};
}

struct add_job {
    struct ridge *r;
    const struct ops *ops;
    const float *columns, *rows;
    uint32_t n;
};

static void add_task(void *ctx, uint32_t task, uint32_t worker)
{
    const struct add_job *j = ctx;
    uint32_t width = (uint32_t)ridge_width(j->r), first = task * RIDGE_TILE, m = min_u32(RIDGE_TILE, j->r->inputs + 1 - first);
    float *tile = j->r->tiles + (size_t)worker * RIDGE_TILE * width;
    j->ops->gemm(j->ops, &(struct gemm_args){.x = j->columns + (size_t)first * j->n, .x_stride = j->n, .b = j->rows, .b_stride = width,
                                             .y = tile, .y_stride = width, .m = m, .n = width, .k = j->n, .alpha = 1});
    for (size_t i = 0; i < (size_t)m * width; i++) {
        j->r->sums[(size_t)first * width + i] += (double)tile[i];
    }
}

int ridge_add(struct ridge *r, struct engine *g, const float *columns, const float *rows, uint32_t n, struct error *e)
{
    struct add_job job = {r, &g->ops, columns, rows, n};
    return n == 0 ? 0 : engine_parallel(g, (uint32_t)ceil_div_u64(r->inputs + 1, RIDGE_TILE), add_task, &job, e);
}

/* X'X + penalty = L L', L in the lower triangle. */
static int decompose(struct ridge *r, double penalty, struct error *e)
{
    size_t width = ridge_width(r);
    for (uint32_t i = 0; i <= r->inputs; i++) {
        double *row = r->sums + i * width;
        row[i] += penalty;
        for (uint32_t k = 0; k <= i; k++) {
            const double *other = r->sums + k * width;
            double rest = row[k];
            for (uint32_t x = 0; x < k; x++) {
                rest -= row[x] * other[x];
            }
            if (k < i) {
                row[k] = rest / other[k];
            } else if (rest > 0) {
                row[i] = sqrt(rest);
            } else {
                return error_set(e, ERROR_FORMAT, "the probes cannot be fitted: states of the MTP layer are not finite or far too large");
            }
        }
    }
    return 0;
}

int ridge_solve(struct ridge *r, double penalty, struct error *e)
{
    size_t width = ridge_width(r), at = (size_t)r->inputs + 1;
    int rc = decompose(r, penalty, e);
    if (rc < 0) {
        return rc;
    }
    for (uint32_t i = 0; i <= r->inputs; i++) { /* L z = X'Y */
        double *row = r->sums + i * width;
        for (uint32_t k = 0; k <= i; k++) {
            const double *other = r->sums + k * width;
            for (uint32_t o = 0; o < r->outputs; o++) {
                row[at + o] = k < i ? row[at + o] - row[k] * other[at + o] : row[at + o] / row[i];
            }
        }
    }
    for (uint32_t i = r->inputs + 1; i-- > 0;) { /* L' w = z */
        double *row = r->sums + i * width;
        for (uint32_t o = 0; o < r->outputs; o++) {
            row[at + o] /= row[i];
        }
        for (uint32_t k = 0; k < i; k++) {
            double *other = r->sums + k * width;
            for (uint32_t o = 0; o < r->outputs; o++) {
                other[at + o] -= row[k] * row[at + o];
            }
        }
    }
    return 0;
}
