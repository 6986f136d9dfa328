/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the counter weights.bytes says of a step: every weight it reads, once, by sizes of tensors in the file and the experts
 * that hooks report. usage: reads MODEL */
#undef NDEBUG
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"
#include "src/model/bind.h"
#include "tests/run/harness.h"

enum { LAYERS_MAX = 32, EXPERTS_MAX = 64, SESSIONS = 3, CHUNK = 16 };

/* Experts that rows of a step have used. */
struct routed {
    bool seen[LAYERS_MAX][EXPERTS_MAX];
    uint32_t used;
};

struct model {
    struct sluice_engine *engine;
    struct weights *weights;
    struct routed routed;
};

static void on_route(void *ctx, uint32_t layer, uint32_t position, const int32_t *ids, const float *weights)
{
    struct routed *r = ctx;
    (void)position;
    (void)weights;
    for (uint32_t k = 0; k < r->used; k++) {
        assert(layer < LAYERS_MAX && ids[k] < EXPERTS_MAX);
        r->seen[layer][ids[k]] = true;
    }
}

static void on_mtp(void *ctx, uint32_t row, const float *logits)
{
    (void)ctx;
    (void)row;
    (void)logits;
}

/* As kernels read it: vectors and scales are float32. */
static uint64_t bytes_of(const struct weight_ref *w, enum role role)
{
    uint64_t scales = w->scale != NULL ? ceil_div_u64(w->rows, 128) * ceil_div_u64(w->cols, 128) : 0;
    return role_is_vector(role) ? w->cols * sizeof(float) : w->bytes + scales * sizeof(float);
}

static uint64_t layer_bytes(const struct model *m, uint32_t layer)
{
    const struct layer_refs *l = &m->weights->layers[layer];
    uint64_t sum = 0;
    for (int role = 0; role < ROLE_COUNT; role++) {
        if (l->role[role].rows > 0 && role != ROLE_MTP_EMBED && role != ROLE_MTP_HEAD) {
            sum += bytes_of(&l->role[role], (enum role)role);
        }
    }
    for (uint32_t x = 0; l->experts != NULL && x < m->weights->shape.experts; x++) {
        const struct expert_refs *e = &l->experts[x];
        if (m->routed.seen[layer][x]) {
            sum += bytes_of(&e->gate, ROLE_EXPERT_GATE) + bytes_of(&e->up, ROLE_EXPERT_UP) + bytes_of(&e->down, ROLE_EXPERT_DOWN);
        }
    }
    return sum;
}

/* Of a step of so many rows that take every layer once, and the head `heads` times. */
static uint64_t step_bytes(const struct model *m, uint32_t rows, uint32_t mtp_rows, uint32_t heads)
{
    const struct weights *w = m->weights;
    uint64_t sum = (rows + mtp_rows) * (w->embed.bytes / w->embed.rows) + bytes_of(&w->final_norm, ROLE_FINAL_NORM) + heads * bytes_of(&w->head, ROLE_HEAD);
    for (uint32_t i = 0; i < w->shape.layers + (mtp_rows > 0 ? 1 : 0); i++) {
        sum += layer_bytes(m, i);
    }
    return sum;
}

static struct sluice_session *session(struct model *m, bool mtp)
{
    struct sluice_session_options o = {.mtp = mtp, .hooks = {.on_route = on_route, .on_mtp = mtp ? on_mtp : NULL, .ctx = &m->routed}};
    struct sluice_session *s = NULL;
    struct sluice_error e;
    assert(sluice_session_create(m->engine, &o, &s, &e) == 0);
    return s;
}

/* Runs the step and compares what the counter says of it with step_bytes. */
static void expect(struct model *m, const struct sluice_feed *feeds, uint32_t n, uint32_t rows, uint32_t mtp_rows, uint32_t heads)
{
    struct sluice_step *step;
    struct sluice_error e;
    memset(m->routed.seen, 0, sizeof(m->routed.seen));
    uint64_t before = sluice_engine_counter(m->engine, "weights.bytes");
    assert(sluice_step_open(m->engine, feeds, n, &step, &e) == 0);
    assert(sluice_step_run(step, sluice_step_layers_left(step), &e) == 0 && sluice_step_commit(step, &e) == 0);
    uint64_t counted = sluice_engine_counter(m->engine, "weights.bytes") - before, wanted = step_bytes(m, rows, mtp_rows, heads);
    if (counted != wanted) {
        fprintf(stderr, "%u rows, %u MTP rows: %" PRIu64 " bytes counted, tensors have %" PRIu64 "\n", rows, mtp_rows, counted, wanted);
        abort();
    }
}

/* One step with a row of each of several sessions, and one with a bulk chunk. */
static void rows(struct model *m)
{
    struct sluice_session *s[SESSIONS];
    struct sluice_feed feeds[SESSIONS];
    int32_t text[CHUNK];
    harness_tokens(5, 200, text, CHUNK);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        s[i] = session(m, false);
        feeds[i] = (struct sluice_feed){s[i], &text[i], 1, false};
    }
    expect(m, feeds, 1, 1, 0, 1);
    feeds[0].tokens = &text[SESSIONS];
    expect(m, feeds, SESSIONS, SESSIONS, 0, 1);
    assert(sluice_session_rollback(s[0], 0, &(struct sluice_error){0}) == 0);
    expect(m, &(struct sluice_feed){s[0], text, CHUNK, true}, 1, CHUNK, 0, 1);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        sluice_session_destroy(s[i]);
    }
}

/* The head is read once for main and MTP rows of all sessions. */
static void mtp_rows(struct model *m)
{
    struct sluice_session *s[SESSIONS];
    struct sluice_feed feeds[SESSIONS];
    int32_t text[4];
    harness_tokens(6, 200, text, 4);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        s[i] = session(m, true);
        harness_feed(s[i], text, 2);
        feeds[i] = (struct sluice_feed){s[i], &text[2], i == 0 ? 2 : 1, false};
    }
    expect(m, feeds, SESSIONS, SESSIONS + 1, SESSIONS + 1, 1); /* last rows of 3 sessions and 4 MTP rows: at most 8 */
    for (uint32_t i = 0; i < SESSIONS; i++) {
        sluice_session_destroy(s[i]);
    }
}

int main(int argc, char **argv)
{
    assert(argc == 2);
    struct error e = {0};
    struct model m = {.engine = harness_open(argv[1], "threads", "2", "ubatch", "16", "ctx", "64", "parallel", "3", NULL)};
    assert(weights_open(&(struct bind_options){.path = argv[1], .mtp = true}, &m.weights, &e) == 0);
    m.routed.used = m.weights->shape.experts_used;
    assert(shape_all_layers(&m.weights->shape) <= LAYERS_MAX);
    rows(&m);
    if (m.weights->shape.mtp_layers > 0) {
        mtp_rows(&m);
    }
    weights_close(m.weights);
    sluice_engine_close(m.engine);
    return 0;
}
