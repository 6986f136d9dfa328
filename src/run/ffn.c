/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: ffn.h. Stage 0 of the job are tiles of gate and up, stage 1 tiles of down. Who finishes the last tile of a unit's stage 0
 * makes the int8 forms of its middle rows and opens its stage 1. */
#include "src/run/ffn.h"

#include <assert.h>
#include <string.h>

struct ffn_job {
    struct engine *g;
    const struct activation *in;
    struct ffn_unit *units;
    struct tiles gate_up, down;
    uint32_t gate_up_tasks;
};

static uint32_t input_row(const struct ffn_unit *u, uint32_t i) { return u->row != NULL ? u->row[i] : u->first_row + i; }

static uint32_t output_row(const struct ffn_unit *u, uint32_t i) { return u->to != NULL ? u->to[i] : input_row(u, i); }

static struct activation mid_of(const struct ffn_unit *u)
{
    return (struct activation){.x = u->mid.x, .stride = row_stride(u->gate->rows), .n = u->mid_row + u->n, .cols = u->gate->rows, .form = u->mid.form};
}

/* n rows of the input from the unit's i-th on, in the form that `format` reads: in place if they lie together, else gathered. */
static struct act_rows gather(const struct ffn_job *j, const struct ffn_unit *u, uint32_t i, uint32_t n, enum weight_format format, struct worker_scratch *ws)
{
    const struct activation *x = j->in;
    struct act_rows src = activation_rows(j->g, x, format, u->bulk, input_row(u, i));
    if (n == 1 || u->row == NULL) {
        return src;
    }
    struct act_rows act = {.x = ws->gather, .stride = x->stride};
    uint32_t block = product_act_block(j->g, format, u->bulk);
    if (block != 0) {
        act.q = ws->form.q;
        act.scale = ws->form.scale;
        act.bsum16 = ws->form.bsum16;
    }
    for (uint32_t k = 0; k < n; k++) {
        src = activation_rows(j->g, x, format, u->bulk, input_row(u, i + k));
        if (block == 0) {
            memcpy(ws->gather + k * x->stride, src.x, x->cols * sizeof(float));
            continue;
        }
        memcpy(ws->form.q + k * x->stride, src.q, x->cols);
        memcpy(ws->form.scale + k * (x->stride / block), src.scale, x->cols / block * sizeof(float));
        memcpy(ws->form.bsum16 + k * (x->stride / 16), src.bsum16, x->cols / 16 * sizeof(int16_t));
    }
    return act;
}

static uint32_t rows_at_once(const struct ffn_unit *u) { return u->bulk ? MOE_ROW_BLOCK : OPS_MAX_ROWS; }

/* gate, up and SwiGLU of rows [r0, r1) of the width, for all rows of the unit. */
static void gate_up_tile(const struct ffn_job *j, const struct ffn_unit *u, uint32_t r0, uint32_t r1, struct worker_scratch *ws)
{
    const struct engine *g = j->g;
    struct matrix_view gate = weight_rows(u->gate, r0, r1 - r0), up = weight_rows(u->up, r0, r1 - r0);
    size_t mid_stride = row_stride(u->gate->rows);
    for (uint32_t i = 0, n; i < u->n; i += n) {
        n = min_u32(rows_at_once(u), u->n - i);
        struct act_rows act = gather(j, u, i, n, gate.format, ws);
        product_tile(g, &gate, act, n, u->bulk, ws->tile, 2 * WEIGHT_TILE_ROWS, ws);
        if (up.format != gate.format) {
            act = gather(j, u, i, n, up.format, ws);
        }
        product_tile(g, &up, act, n, u->bulk, ws->tile + WEIGHT_TILE_ROWS, 2 * WEIGHT_TILE_ROWS, ws);
        for (uint32_t k = 0; k < n; k++) {
            const float *y = ws->tile + (size_t)k * 2 * WEIGHT_TILE_ROWS;
            g->ops.swiglu(&(struct swiglu_args){.gate = y, .up = y + WEIGHT_TILE_ROWS, .y = u->mid.x + (u->mid_row + i + k) * mid_stride + r0, .n = r1 - r0});
        }
    }
}

/* Rows [r0, r1) of down, for all rows of the unit. */
static void down_tile(const struct ffn_job *j, const struct ffn_unit *u, uint32_t r0, uint32_t r1, struct worker_scratch *ws)
{
    const struct engine *g = j->g;
    struct matrix_view down = weight_rows(u->down, r0, r1 - r0);
    struct activation mid = mid_of(u);
    size_t stride = row_stride(u->down->rows);
    for (uint32_t i = 0, n; i < u->n; i += n) {
        n = min_u32(rows_at_once(u), u->n - i);
        product_tile(g, &down, activation_rows(g, &mid, down.format, u->bulk, u->mid_row + i), n, u->bulk, ws->tile, WEIGHT_TILE_ROWS, ws);
        for (uint32_t k = 0; k < n; k++) {
            memcpy(u->out + output_row(u, i + k) * stride + r0, ws->tile + (size_t)k * WEIGHT_TILE_ROWS, (r1 - r0) * sizeof(float));
        }
    }
}

/* Counts on even when cancelled: others wait for it. */
static void ffn_task(void *ctx, uint32_t task, uint32_t worker)
{
    struct ffn_job *j = ctx;
    struct worker_scratch *ws = &j->g->work.worker[worker];
    bool first = task < j->gate_up_tasks, cancelled = engine_cancelled(j->g);
    struct tile t = tiles_at(first ? &j->gate_up : &j->down, first ? task : task - j->gate_up_tasks);
    struct ffn_unit *u = &j->units[t.source];
    if (!first) {
        pool_wait_count(&u->mid_ready, 1);
        if (!cancelled) {
            down_tile(j, u, t.r0, t.r1, ws);
        }
        return;
    }
    if (!cancelled) {
        gate_up_tile(j, u, t.r0, t.r1, ws);
    }
    uint32_t tiles = j->gate_up.source[t.source].tiles;
    if (atomic_fetch_add_explicit(&u->tiles_done, 1, memory_order_acq_rel) + 1 == tiles) {
        struct activation mid = mid_of(u);
        activation_quantise(j->g, &mid, u->down->format, u->bulk, u->mid_row, u->mid_row + u->n);
        atomic_store_explicit(&u->mid_ready, 1, memory_order_release);
    }
}

/* The int8 forms of the input that the units read. */
static int prepare(struct engine *g, struct activation *in, const struct ffn_unit *u, struct error *e)
{
    uint32_t begin = input_row(u, 0), end = begin + 1;
    for (uint32_t i = 0; i < u->n; i++) {
        begin = min_u32(begin, input_row(u, i));
        end = max_u32(end, input_row(u, i) + 1);
    }
    int r = activation_prepare(g, in, u->gate->format, u->bulk, begin, end, e);
    return r < 0 ? r : activation_prepare(g, in, u->up->format, u->bulk, begin, end, e);
}

int ffn_run(struct engine *g, struct activation *in, struct ffn_unit *units, uint32_t n, struct error *e)
{
    struct ffn_job job = {.g = g, .in = in, .units = units};
    assert(n > 0 && n <= FFN_UNITS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        struct ffn_unit *u = &units[i];
        int r = prepare(g, in, u, e);
        if (r < 0) {
            return r;
        }
        tiles_add(&job.gate_up, u->gate, u->bulk);
        tiles_add(&job.down, u->down, u->bulk);
        counter_add(g->weight_bytes, weight_rows_bytes(u->gate, u->gate->rows) + weight_rows_bytes(u->up, u->up->rows) + weight_rows_bytes(u->down, u->down->rows));
    }
    uint32_t count[2 * WEIGHT_NODES_MAX], nodes = job.gate_up.nodes;
    for (uint32_t k = 0; k < nodes; k++) {
        count[k] = job.gate_up.count[k];
        count[nodes + k] = job.down.count[k];
        job.gate_up_tasks += count[k];
    }
    pool_run_job(g->pool, &(struct pool_job){.fn = ffn_task, .ctx = &job, .stages = 2, .nodes = nodes, .count = count});
    return engine_interrupted(g, e);
}

struct ffn_unit ffn_span_unit(struct engine *g, const struct span *span, const struct weight_view *gate, const struct weight_view *up, const struct weight_view *down)
{
    return (struct ffn_unit){
        .gate = gate, .up = up, .down = down,
        .first_row = span->begin, .n = span->end - span->begin, .bulk = span->bulk,
        .mid = {g->work.ffn_mid, g->work.ffn_form}, .mid_row = span->begin,
        .out = g->work.out,
    };
}

int ffn_dense(struct engine *g, const struct batch *b, const struct resident_layer *l, struct activation *in, struct error *e)
{
    struct ffn_unit units[FFN_UNITS_MAX];
    int r = 0;
    for (uint32_t i = 0; i < b->n_spans && r == 0;) {
        uint32_t n = 0;
        for (; n < FFN_UNITS_MAX && i < b->n_spans; n++, i++) {
            units[n] = ffn_span_unit(g, &b->spans[i], &l->matrix[ROLE_GATE], &l->matrix[ROLE_UP], &l->matrix[ROLE_DOWN]);
        }
        r = ffn_run(g, in, units, n, e);
    }
    return r;
}
