/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: foresee.h. Rows go eight at a time, so that buffers stay small. Must not know: what is predicted from the scores. */
#include "src/run/foresee.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/exact.h"
#include "src/run/product.h"

struct foresee {
    struct engine *engine;
    struct foresee_options o;
    float *in;     /* [OPS_MAX_ROWS, stride(hidden)] states, then normalised */
    float *logits; /* [OPS_MAX_ROWS, experts] */
    float *scores; /* [experts] */
    float *mtp;    /* [step_rows, stride(2 * hidden)] input and output of MTP rows; NULL without MTP layer */
    struct buffer mtp_memory;
    float *probed; /* [OPS_MAX_ROWS, LEARNED_PROBES * probe rows]; NULL without probes */
    struct weight_view probes; /* [LEARNED_PROBES * probe rows, 2 * hidden] */
};

static const uint32_t PROBES = 1u << FORESEE_PROBE | 1u << FORESEE_PROBE_DRAFT;

static bool wants(const struct foresee *f, enum foresight source) { return f->o.wanted >> source & 1; }

struct learned_shape foresee_learned_shape(const struct engine *g)
{
    const struct shape *s = g->shape;
    struct learned_shape l = {.vocab = s->vocab, .layers = s->layers, .experts = s->experts, .inputs = s->mtp_layers ? 2 * s->hidden : 0};
    uint64_t hash = 0;
    while (l.first_layer < s->layers && !shape_layer_is_moe(s, l.first_layer)) {
        l.first_layer++;
    }
    for (uint32_t i = l.first_layer; i < s->layers; i++) {
        const float *const *v = g->resident->layers[i].vector;
        hash = XXH3_64bits_withSeed(v[ROLE_FFN_NORM], s->hidden * sizeof(float), hash);
        hash = v[ROLE_ROUTER_BIAS] != NULL ? XXH3_64bits_withSeed(v[ROLE_ROUTER_BIAS], s->experts * sizeof(float), hash) : hash;
    }
    snprintf(l.fingerprint, sizeof(l.fingerprint), "%016llx", (unsigned long long)hash);
    return l;
}

static int open_probes(struct foresee *f, struct error *e)
{
    const struct learned *l = f->o.learned;
    if (l == NULL || l->probe_weight == NULL) {
        f->o.wanted &= ~PROBES;
        return 0;
    }
    uint32_t rows = LEARNED_PROBES * learned_probe_rows(&l->shape);
    f->probes = (struct weight_view){.data = {l->probe_weight}, .end = {rows}, .parts = 1, .rows = rows, .cols = l->shape.inputs,
                                     .row_bytes = l->shape.inputs * sizeof(*l->probe_weight), .format = FORMAT_F16};
    f->probed = malloc((size_t)OPS_MAX_ROWS * rows * sizeof(*f->probed));
    return f->probed != NULL ? 0 : error_nomem(e, "products of probes", (uint64_t)OPS_MAX_ROWS * rows * sizeof(*f->probed));
}

int foresee_create(struct engine *g, const struct foresee_options *o, struct foresee **ret, struct error *e)
{
    const struct shape *s = g->shape;
    size_t mtp = s->mtp_layers ? (size_t)g->step_rows * row_stride(2 * s->hidden) : 0;
    struct foresee *f = calloc(1, sizeof(*f));
    if (f == NULL) {
        return error_nomem(e, "foresight", sizeof(*f));
    }
    f->engine = g;
    f->o = *o;
    f->in = calloc((size_t)OPS_MAX_ROWS * row_stride(s->hidden), sizeof(*f->in));
    f->logits = malloc((size_t)OPS_MAX_ROWS * s->experts * sizeof(*f->logits));
    f->scores = malloc(s->experts * sizeof(*f->scores));
    bool ok = f->in && f->logits && f->scores;
    int r = ok ? 0 : error_nomem(e, "foresight", OPS_MAX_ROWS * row_stride(s->hidden) * sizeof(float));
    r = r < 0 ? r : buffer_init(&f->mtp_memory, &g->account, PURPOSE_TABLES, mtp * sizeof(*f->mtp), e);
    f->mtp = f->mtp_memory.data;
    r = r < 0 || !(o->wanted & PROBES) ? r : open_probes(f, e);
    if (r < 0) {
        foresee_destroy(f);
        return r;
    }
    if (!o->apart) {
        g->foresee = f;
    }
    *ret = f;
    return 0;
}

void foresee_destroy(struct foresee *f)
{
    if (f == NULL) {
        return;
    }
    if (f->engine->foresee == f) {
        f->engine->foresee = NULL;
    }
    free(f->in);
    free(f->logits);
    free(f->scores);
    buffer_deinit(&f->mtp_memory);
    free(f->probed);
    free(f);
}

/* ---- scores of routers ---- */

static void softmax(float *z, uint32_t n)
{
    float most = z[0], sum = 0;
    for (uint32_t x = 1; x < n; x++) {
        most = z[x] > most ? z[x] : most;
    }
    for (uint32_t x = 0; x < n; x++) {
        z[x] = exp_exact(z[x] - most);
        sum += z[x];
    }
    for (uint32_t x = 0; x < n; x++) {
        z[x] /= sum;
    }
}

const float *foresee_scores(struct foresee *f, uint32_t layer, const float *logits)
{
    const struct shape *s = f->engine->shape;
    const float *bias = f->engine->resident->layers[layer].vector[ROLE_ROUTER_BIAS];
    memcpy(f->scores, logits, s->experts * sizeof(*logits));
    if (s->score == ROUTER_SOFTMAX) {
        softmax(f->scores, s->experts);
    }
    for (uint32_t x = 0; x < s->experts; x++) {
        f->scores[x] = (s->score == ROUTER_SIGMOID ? sigmoid_exact(f->scores[x]) : f->scores[x]) + (bias != NULL ? bias[x] : 0);
    }
    return f->scores;
}

static void show_router(struct foresee *f, const struct batch_row *row, enum foresight source, uint32_t layer, const float *logits)
{
    f->o.on_scores(f->o.ctx, row->session, source, layer, row->position, foresee_scores(f, layer, logits));
}

void foresee_routed(struct engine *g, const struct batch *b, uint32_t layer)
{
    struct foresee *f = g->foresee;
    for (uint32_t i = 0; f != NULL && layer < g->shape->layers && i < b->n; i++) {
        enum foresight source = b->rows[i].shadow ? FORESEE_SHADOW : FORESEE_ROUTER;
        if (wants(f, source)) {
            show_router(f, &b->rows[i], source, layer, g->work.router_logits + (size_t)i * g->shape->experts);
        }
    }
}

int foresee_ask(struct foresee *f, const struct batch *b, uint32_t first, uint32_t n, uint32_t layer, const float *extra, const float **ret_logits, struct error *e)
{
    struct engine *g = f->engine;
    const struct shape *s = g->shape;
    const struct resident_layer *l = &g->resident->layers[layer];
    size_t stride = row_stride(s->hidden);
    memcpy(f->in, b->x + first * stride, n * stride * sizeof(float));
    if (extra != NULL) {
        g->ops.add(&(struct add_args){.x = extra + first * stride, .y = f->in, .n = n * stride});
    }
    g->ops.rmsnorm(&(struct rmsnorm_args){.x = f->in, .x_stride = stride, .w = l->vector[ROLE_FFN_NORM], .y = f->in, .y_stride = stride, .n = n, .cols = s->hidden, .eps = s->rms_eps});
    struct activation a = {.x = f->in, .stride = stride, .n = n, .cols = s->hidden, .form = g->work.form};
    *ret_logits = f->logits;
    return products_run(g, &(struct product){&l->matrix[ROLE_ROUTER], f->logits, s->experts}, 1, &a, &(struct span){0, n, false}, 1, true, e);
}

/* The router of layer `to` on the rows' states, `extra` [n, stride(hidden)] added (NULL: as they are). */
static int gate(struct foresee *f, const struct batch *b, enum foresight source, uint32_t to, const float *extra, struct error *e)
{
    struct engine *g = f->engine;
    const struct shape *s = g->shape;
    if (!wants(f, source) || to >= s->layers || !shape_layer_is_moe(s, to)) {
        return 0;
    }
    int r = 0;
    for (uint32_t first = 0, n; first < b->n && r == 0; first += n) {
        const float *logits;
        n = min_u32(OPS_MAX_ROWS, b->n - first);
        r = foresee_ask(f, b, first, n, to, extra, &logits, e);
        for (uint32_t i = 0; i < n && r == 0; i++) {
            if (!b->rows[first + i].shadow) {
                show_router(f, &b->rows[first + i], source, to, logits + (size_t)i * s->experts);
            }
        }
    }
    return r;
}

int foresee_after_experts(struct engine *g, const struct batch *b, uint32_t layer, struct error *e)
{
    struct foresee *f = g->foresee;
    if (f == NULL || layer >= g->shape->layers) {
        return 0;
    }
    const float *shared = g->resident->layers[layer].matrix[ROLE_SHARED_GATE].rows != 0 ? g->work.out : NULL;
    int r = gate(f, b, FORESEE_GATE, layer + 1, NULL, e);
    r = r < 0 ? r : gate(f, b, FORESEE_GATE_SHARED, layer + 1, shared, e);
    return r < 0 ? r : gate(f, b, FORESEE_GATE_TWO, layer + 2, shared, e);
}

int foresee_after_layer(struct engine *g, const struct batch *b, uint32_t layer, struct error *e)
{
    struct foresee *f = g->foresee;
    bool from = f != NULL && layer < g->shape->layers && shape_layer_is_moe(g->shape, layer);
    return from ? gate(f, b, FORESEE_GATE_FULL, layer + 1, NULL, e) : 0;
}

/* ---- the MTP layer ---- */

static void keep(struct foresee *f, const struct batch *b, size_t at)
{
    const struct shape *s = f->engine->shape;
    for (uint32_t i = 0; i < b->n; i++) {
        memcpy(f->mtp + i * row_stride(2 * s->hidden) + at, b->x + i * row_stride(s->hidden), s->hidden * sizeof(float));
    }
}

void foresee_after_eh(struct engine *g, const struct batch *b)
{
    if (g->foresee != NULL) {
        keep(g->foresee, b, 0);
    }
}

/* Row i of the MTP layer has read the token of position i + 1 and drafts that of i + 2. */
static void show_probes(struct foresee *f, const struct batch_row *row, const float *products)
{
    const struct learned_shape *s = &f->o.learned->shape;
    uint32_t rows = learned_probe_rows(s);
    for (uint32_t k = 0; k < LEARNED_PROBES; k++) {
        enum foresight source = k == 0 ? FORESEE_PROBE : FORESEE_PROBE_DRAFT;
        for (uint32_t layer = s->first_layer; wants(f, source) && layer < s->layers; layer++) {
            size_t at = (size_t)k * rows + (size_t)(layer - s->first_layer) * s->experts;
            for (uint32_t x = 0; x < s->experts; x++) {
                f->scores[x] = products[at + x] + f->o.learned->probe_bias[at + x];
            }
            if (shape_layer_is_moe(f->engine->shape, layer)) {
                f->o.on_scores(f->o.ctx, row->session, source, layer, row->position + 1 + k, f->scores);
            }
        }
    }
}

int foresee_after_mtp(struct engine *g, const struct batch *b, struct error *e)
{
    struct foresee *f = g->foresee;
    if (f == NULL) {
        return 0;
    }
    size_t stride = row_stride(2 * g->shape->hidden);
    int r = 0;
    keep(f, b, g->shape->hidden);
    for (uint32_t i = 0; f->o.on_mtp != NULL && i < b->n; i++) {
        f->o.on_mtp(f->o.ctx, b->rows[i].session, b->rows[i].position, f->mtp + i * stride);
    }
    for (uint32_t first = 0, n; (f->o.wanted & PROBES) && first < b->n && r == 0; first += n) {
        n = min_u32(OPS_MAX_ROWS, b->n - first);
        struct activation a = {.x = f->mtp + first * stride, .stride = stride, .n = n, .cols = 2 * g->shape->hidden, .form = g->work.form};
        r = products_run(g, &(struct product){&f->probes, f->probed, f->probes.rows}, 1, &a, &(struct span){0, n, false}, 1, true, e);
        for (uint32_t i = 0; i < n && r == 0; i++) {
            show_probes(f, &b->rows[first + i], f->probed + (size_t)i * f->probes.rows);
        }
    }
    return r;
}
