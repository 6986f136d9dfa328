/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: bulk_choice.h. Must not know: kernels. */
#include "src/run/bulk_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/run/product.h"

/* A product of [PROBE_WEIGHT_ROWS, PROBE_COLS] weights with PROBE_ROWS activation rows. OpenBLAS has to be twice as
 * fast: bits depend on the choice, so two starts on one machine should choose alike, whatever else runs there. */
enum { PROBE_WEIGHT_ROWS = 64, PROBE_COLS = 1024, PROBE_ROWS = 32, PROBE_SAMPLES = 5, BLAS_GAIN = 2 };

struct probe {
    float x[PROBE_ROWS][PROBE_COLS];
    int8_t q[PROBE_ROWS][PROBE_COLS];
    float act_scale[PROBE_ROWS][PROBE_COLS / 32];
    int16_t bsum16[PROBE_ROWS][PROBE_COLS / 16];
    float weights[PROBE_WEIGHT_ROWS][PROBE_COLS]; /* zeros in any format */
    float panel[PROBE_WEIGHT_ROWS][PROBE_COLS];
    float weight_scale[PROBE_COLS / FORMAT_SCALE_BLOCK];
    float y[PROBE_ROWS][PROBE_WEIGHT_ROWS];
};

static double seconds_of(struct engine *g, struct probe *p, enum weight_format format, bool own)
{
    uint64_t row_bytes = 0, best = UINT64_MAX;
    struct worker_scratch ws = {.panel = p->panel[0]};
    struct act_rows act = {.x = p->x[0], .q = p->q[0], .scale = p->act_scale[0], .bsum16 = p->bsum16[0], .stride = PROBE_COLS};
    (void)weight_row_bytes(format, PROBE_COLS, &row_bytes);
    struct matrix_view w = {
        .data = p->weights, .row_bytes = row_bytes, .scale = p->weight_scale, .scale_cols = PROBE_COLS / FORMAT_SCALE_BLOCK,
        .rows = PROBE_WEIGHT_ROWS, .cols = PROBE_COLS, .format = format,
    };
    g->bulk_own[format] = own;
    for (int i = 0; i < PROBE_SAMPLES; i++) {
        uint64_t start = clock_now_ns(&g->clock);
        product_tile(g, &w, act, PROBE_ROWS, true, p->y[0], PROBE_WEIGHT_ROWS, &ws);
        uint64_t end = clock_now_ns(&g->clock);
        best = min_u64(best, end - start);
    }
    return 1e-9 * (double)best;
}

static void mark(bool used[FORMAT_COUNT], const struct weight_ref *w)
{
    if (w->rows > 1 && w->format < FORMAT_COUNT) {
        used[w->format] = true;
    }
}

/* Formats of matrices that bulk rows meet. */
static void formats_used(const struct weights *w, bool used[FORMAT_COUNT])
{
    for (uint32_t l = 0; l < shape_all_layers(&w->shape); l++) {
        for (uint32_t role = 0; role < ROLE_COUNT; role++) {
            mark(used, &w->layers[l].role[role]);
        }
        for (uint32_t x = 0; w->layers[l].experts && x < w->shape.experts; x++) {
            mark(used, &w->layers[l].experts[x].gate);
            mark(used, &w->layers[l].experts[x].up);
            mark(used, &w->layers[l].experts[x].down);
        }
    }
}

static int choose_by_time(struct engine *g, struct error *e)
{
    bool used[FORMAT_COUNT] = {false};
    struct probe *p = calloc(1, sizeof(*p));
    char text[160] = "";
    if (!p) {
        return error_nomem(e, "probe of bulk products", sizeof(*p));
    }
    formats_used(g->weights, used);
    for (uint32_t f = 0; f < FORMAT_COUNT; f++) {
        if (!used[f]) {
            continue;
        }
        double own = seconds_of(g, p, (enum weight_format)f, true), blas = seconds_of(g, p, (enum weight_format)f, false);
        size_t n = strlen(text);
        g->bulk_own[f] = BLAS_GAIN * blas >= own;
        snprintf(text + n, sizeof(text) - n, "%s%s %s (%.1fx)", n ? ", " : "", weight_format_info((enum weight_format)f)->name,
                 !g->bulk_own[f] ? "OpenBLAS" : g->ops.bulk_bf16[f] && !g->act_f32 ? g->ops.bf16_units : "own", own > 0 ? blas / own : 1.0);
    }
    free(p);
    engine_step_down(g, "bulk", "%s; in brackets the time of OpenBLAS over that of our kernels", text);
    return 0;
}

int bulk_choose(struct engine *g, struct error *e)
{
    bool own = strcmp(g->settings.bulk, "blas") != 0;
    for (uint32_t f = 0; f < FORMAT_COUNT; f++) {
        g->bulk_own[f] = own;
    }
    bool probe = strcmp(g->settings.bulk, "auto") == 0 && g->weights && g->settings.ubatch > OPS_MAX_ROWS;
    return probe ? choose_by_time(g, e) : 0;
}
