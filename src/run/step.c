/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: steps (step.h): rows of the main layers, then, if a session wants it, rows of the MTP layer: MTP row p - 1 pairs
 * the state at p - 1 with token p and runs with the main row of token p. Must not know: kernels. */
#include "src/run/step.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/run/block.h"
#include "src/run/head.h"
#include "src/run/mtp.h"

/* Rows [row, row + n) of the step belong to a feed; exact feeds come first. */
struct feed {
    struct session *session;
    uint32_t row, n, mtp_row, mtp_n;
    bool bulk, refresh;
};

struct step {
    struct engine *engine;
    bool open;
    bool failed;               /* a layer stopped half way: what the rows hold is not a state to go on from */
    uint32_t cursor;           /* layers done; the MTP layer counts as one more */
    struct feed feeds[STEP_FEEDS_MAX];
    uint32_t n_feeds;
    struct batch main, mtp;
    struct span spans[STEP_FEEDS_MAX + 1], mtp_spans[STEP_FEEDS_MAX + 1];
    struct batch_row *rows, *mtp_rows; /* [step_rows] */
    struct mtp_row *mtp_in;    /* [step_rows] */
    int32_t *tokens;           /* [step_rows] */
    float *x;                  /* [step_rows, stride(hidden)] residual of main rows */
    float *state;              /* [step_rows, stride(hidden)] after the final norm */
    float *mtp_x;              /* [step_rows, stride(hidden)] of MTP rows, in the end after their norm; NULL without MTP layer */
    struct buffer memory;
};

/* ---- storage ---- */

static int step_storage(struct engine *g, struct step **ret, struct error *e)
{
    uint32_t n = g->step_rows;
    size_t width = row_stride(g->shape->hidden) * sizeof(float), planes = g->shape->mtp_layers ? 3 : 2;
    struct step *s = calloc(1, sizeof(*s));
    if (!s) {
        return error_nomem(e, "step", sizeof(*s));
    }
    *ret = s;
    s->engine = g;
    s->rows = calloc(n, sizeof(*s->rows));
    s->mtp_rows = calloc(n, sizeof(*s->mtp_rows));
    s->mtp_in = calloc(n, sizeof(*s->mtp_in));
    s->tokens = calloc(n, sizeof(*s->tokens));
    if (!s->rows || !s->mtp_rows || !s->mtp_in || !s->tokens) {
        return error_nomem(e, "step rows", n * 64ull);
    }
    int r = buffer_init(&s->memory, &g->account, PURPOSE_WORK, planes * n * width, e);
    if (r < 0) {
        return r;
    }
    s->x = s->memory.data;
    s->state = s->x + n * (width / sizeof(float));
    s->mtp_x = planes == 3 ? s->state + n * (width / sizeof(float)) : NULL;
    return 0;
}

int steps_init(struct engine *g, struct error *e)
{
    int r = 0;
    for (uint32_t i = 0; i < STEPS_OPEN_MAX && r == 0; i++) {
        r = step_storage(g, &g->steps[i], e);
    }
    return r;
}

void steps_deinit(struct engine *g)
{
    for (uint32_t i = 0; i < STEPS_OPEN_MAX; i++) {
        struct step *s = g->steps[i];
        if (!s) {
            continue;
        }
        buffer_deinit(&s->memory);
        free(s->rows);
        free(s->mtp_rows);
        free(s->mtp_in);
        free(s->tokens);
        free(s);
        g->steps[i] = NULL;
    }
}

/* ---- open ---- */

static int check_feed(const struct engine *g, const struct step_feed *f, struct error *e)
{
    const struct session *s = f->session;
    if (s->engine != g || s->in_step) {
        return error_set(e, -EBUSY, s->in_step ? "the session is part of an open step; commit or abort that one first" : "the session belongs to another engine");
    }
    if (f->refresh) {
        return f->n == 1 && s->length > 0 ? 0 : error_set(e, -EINVAL, "only the last position of a timeline can be refreshed");
    }
    if (f->n == 0 || (f->bulk && (f->n > g->ubatch || s->length % g->ubatch + f->n > g->ubatch))) {
        return error_set(e, -EINVAL, "a feed of %u rows at position %u: a bulk chunk ends at the next multiple of %u (-ub) at the latest", f->n, s->length, g->ubatch);
    }
    if (s->mtp && s->length > 0 && !s->state_valid) {
        return error_set(e, -EINVAL, "the next MTP row needs the state of position %u, which is gone after a rollback; refresh the session first", s->length - 1);
    }
    if (f->n > g->context - s->length) {
        return error_set(e, ERROR_FORMAT, "%u tokens do not fit: the timeline holds %u of %u positions; shorten the prompt or start with a larger -c", f->n, s->length, g->context);
    }
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->tokens[i] < 0 || (uint32_t)f->tokens[i] >= g->shape->vocab) {
            return error_set(e, ERROR_FORMAT, "token %d at index %u is not an id of this model (0..%u)", (int)f->tokens[i], i, g->shape->vocab - 1);
        }
    }
    return 0;
}

static int check_feeds(const struct engine *g, const struct step_feed *feeds, uint32_t n, struct error *e)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        int r = check_feed(g, &feeds[i], e);
        if (r < 0) {
            return r;
        }
        for (uint32_t k = 0; k < i; k++) {
            if (feeds[k].session == feeds[i].session) {
                return error_set(e, -EINVAL, "a session may be fed once per step");
            }
        }
        rows += feeds[i].n;
    }
    if (n == 0 || n > STEP_FEEDS_MAX || rows > g->step_rows) {
        return error_set(e, -EINVAL, "a step of %u feeds and %llu rows; at most %u feeds and %u rows", n, (unsigned long long)rows, STEP_FEEDS_MAX, g->step_rows);
    }
    return 0;
}

/* Rows of one feed, main and MTP. */
static void add_feed(struct step *s, const struct step_feed *in)
{
    struct session *t = in->session;
    struct feed *f = &s->feeds[s->n_feeds++];
    bool mtp = t->mtp && !in->refresh;
    uint32_t p0 = in->refresh ? t->length - 1 : t->length;
    *f = (struct feed){.session = t, .row = s->main.n, .n = in->n, .mtp_row = s->mtp.n, .bulk = in->bulk, .refresh = in->refresh};
    for (uint32_t i = 0; i < in->n; i++) {
        int32_t token = in->refresh ? t->tokens[p0] : in->tokens[i];
        s->tokens[s->main.n] = token;
        s->rows[s->main.n++] = (struct batch_row){t, p0 + i, in->refresh};
        if (mtp && p0 + i > 0) {
            s->mtp_in[s->mtp.n] = (struct mtp_row){i > 0 ? s->state + (f->row + i - 1) * row_stride(s->engine->shape->hidden) : t->state, token};
            s->mtp_rows[s->mtp.n++] = (struct batch_row){t, p0 + i - 1, false};
        }
    }
    f->mtp_n = s->mtp.n - f->mtp_row;
}

/* One span of all exact rows, one for every bulk chunk. */
static void spans_of(struct step *s)
{
    struct batch *b[2] = {&s->main, &s->mtp};
    for (uint32_t k = 0; k < 2; k++) {
        b[k]->n_spans = 0;
        for (uint32_t i = 0; i < s->n_feeds; i++) {
            const struct feed *f = &s->feeds[i];
            uint32_t row = k ? f->mtp_row : f->row, n = k ? f->mtp_n : f->n;
            struct span *last = b[k]->n_spans ? &b[k]->spans[b[k]->n_spans - 1] : NULL;
            if (n > 0 && !f->bulk && last && !last->bulk) {
                last->end = row + n;
            } else if (n > 0) {
                b[k]->spans[b[k]->n_spans++] = (struct span){row, row + n, f->bulk};
            }
        }
    }
}

/* Pages for the rows of all feeds, the row before included when the MTP layer writes it. */
static int prepare_pages(struct step *s, struct error *e)
{
    for (uint32_t i = 0; i < s->n_feeds; i++) {
        const struct feed *f = &s->feeds[i];
        uint32_t before = f->session->mtp && f->session->length > 0 ? 1 : 0;
        int r = f->refresh ? 0 : kv_table_prepare(&f->session->kv, f->session->length - before, f->n + before, e);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static void embed_task(void *ctx, uint32_t row, uint32_t worker)
{
    const struct step *s = ctx;
    struct matrix_view w = weight_rows(&s->engine->resident->embed, (uint32_t)s->tokens[row], 1);
    (void)worker;
    s->engine->ops.dequantise[w.format](&(struct dequantise_args){.w = w, .y = s->x + row * row_stride(s->engine->shape->hidden), .row_begin = 0, .row_end = 1});
}

static void step_end(struct step *s)
{
    for (uint32_t i = 0; i < s->n_feeds; i++) {
        s->feeds[i].session->in_step = false;
        kv_table_truncate(&s->feeds[i].session->kv, s->feeds[i].session->length);
    }
    s->n_feeds = 0;
    s->open = false;
}

int step_open(struct engine *g, const struct step_feed *feeds, uint32_t n, struct step **ret, struct error *e)
{
    struct step *s = !g->steps[0]->open ? g->steps[0] : g->steps[1];
    int r = s->open ? error_set(e, -EBUSY, "%d steps are open already; commit or abort one first", STEPS_OPEN_MAX) : check_feeds(g, feeds, n, e);
    if (r < 0) {
        return r;
    }
    s->open = true;
    s->failed = false;
    s->cursor = s->n_feeds = 0;
    s->main = (struct batch){.rows = s->rows, .spans = s->spans, .x = s->x};
    s->mtp = (struct batch){.rows = s->mtp_rows, .spans = s->mtp_spans, .x = s->mtp_x};
    for (uint32_t bulk = 0; bulk < 2; bulk++) {
        for (uint32_t i = 0; i < n; i++) {
            if (feeds[i].bulk == (bulk != 0)) {
                add_feed(s, &feeds[i]);
                feeds[i].session->in_step = true;
            }
        }
    }
    spans_of(s);
    r = prepare_pages(s, e);
    if (r == 0 && !g->script) {
        r = engine_parallel(g, s->main.n, embed_task, s, e);
        counter_add(g->weight_bytes, s->main.n * weight_rows_bytes(&g->resident->embed, 1));
    }
    if (r < 0) {
        step_end(s);
        return r;
    }
    *ret = s;
    return 0;
}

/* ---- layers ---- */

static uint32_t layers_total(const struct step *s)
{
    return s->engine->script ? 1 : s->engine->shape->layers + (s->mtp.n ? 1 : 0);
}

uint32_t step_layers_left(const struct step *s)
{
    return layers_total(s) - s->cursor;
}

static int script_layer(const struct step *s, struct error *e)
{
    uint64_t left = (uint64_t)s->engine->script->delay_ms * s->main.n;
    for (; left > 0 && !engine_cancelled(s->engine); left--) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return engine_cancelled(s->engine) ? error_set(e, ERROR_INTERRUPTED, "interrupted") : 0;
}

static int mtp_layer(struct step *s, struct error *e)
{
    uint32_t layer = s->engine->shape->layers;
    int r = mtp_embed(s->engine, &s->mtp, s->mtp_in, layer, e);
    r = r < 0 ? r : block_run(s->engine, &s->mtp, layer, e);
    if (r == 0) {
        head_normalise(s->engine, s->mtp_x, s->mtp.n, s->engine->resident->layers[layer].vector[ROLE_MTP_NORM], s->mtp_x);
    }
    return r;
}

static int next_layer(struct step *s, struct error *e)
{
    struct engine *g = s->engine;
    if (g->script) {
        return script_layer(s, e);
    }
    if (s->cursor >= g->shape->layers) {
        return mtp_layer(s, e);
    }
    int r = block_run(g, &s->main, s->cursor, e);
    if (r == 0 && s->cursor + 1 == g->shape->layers) {
        head_normalise(g, s->x, s->main.n, g->resident->final_norm, s->state);
    }
    return r;
}

int step_run(struct step *s, uint32_t layers, struct error *e)
{
    if (s->failed) {
        return error_set(e, -EINVAL, "a layer of this step has failed; abort the step and open it again");
    }
    for (uint32_t i = 0; i < layers && step_layers_left(s) > 0; i++) {
        if (engine_cancelled(s->engine)) {
            return error_set(e, ERROR_INTERRUPTED, "interrupted");
        }
        int r = next_layer(s, e);
        if (r < 0) {
            s->failed = true;
            return r;
        }
        s->cursor++;
    }
    return 0;
}

/* ---- commit ---- */

/* Rows whose logits are wanted, main and MTP ones of any feeds: the head is read once for all of them. */
struct wanted {
    struct {
        const struct feed *feed;
        uint32_t row; /* of the step's main or MTP rows */
        bool mtp;
    } item[OPS_MAX_ROWS]; /* [n] */
    uint32_t n;
};

static void show_logits(const struct feed *f, bool mtp, uint32_t position, const float *logits)
{
    const struct session_hooks *h = &f->session->hooks;
    if (mtp) {
        h->on_mtp(h->ctx, position, logits);
    } else if (h->on_logits && !f->refresh) {
        h->on_logits(h->ctx, position, logits);
    }
}

/* Their logits go to the sessions, in the order in which they were wanted. */
static int wanted_logits(struct step *s, struct wanted *w, struct error *e)
{
    struct engine *g = s->engine;
    size_t width = row_stride(g->shape->hidden), vocab = g->shape->vocab;
    struct batch_row rows[OPS_MAX_ROWS];
    for (uint32_t k = 0; k < w->n; k++) {
        bool mtp = w->item[k].mtp;
        const float *state = mtp ? s->mtp_x : s->state;
        memcpy(g->work.norm + k * width, state + w->item[k].row * width, g->shape->hidden * sizeof(float));
        rows[k] = mtp ? s->mtp_rows[w->item[k].row] : s->rows[w->item[k].row];
        if (!mtp) {
            rows[k].session->logits_valid = false; /* its buffer is written next */
        }
    }
    int r = w->n > 0 ? head_logits(g, g->work.norm, w->n, rows, e) : 0;
    for (uint32_t k = 0; k < w->n && r == 0; k++) {
        const struct feed *f = w->item[k].feed;
        const float *logits = g->work.logits + k * vocab;
        show_logits(f, w->item[k].mtp, rows[k].position, logits);
        if (!w->item[k].mtp && w->item[k].row == f->row + f->n - 1) {
            memcpy(f->session->logits, logits, vocab * sizeof(float));
        }
    }
    w->n = 0;
    return r;
}

/* Wants rows [begin, end) of a feed. */
static int want(struct step *s, struct wanted *w, const struct feed *f, bool mtp, uint32_t begin, uint32_t end, struct error *e)
{
    int r = 0;
    for (uint32_t row = begin; row < end && r == 0; row++) {
        w->item[w->n].feed = f;
        w->item[w->n].row = row;
        w->item[w->n++].mtp = mtp;
        r = w->n == OPS_MAX_ROWS ? wanted_logits(s, w, e) : 0;
    }
    return r;
}

/* Logits of the rows that sessions ask for: of main rows all with on_logits, always the last one; then MTP rows with on_mtp. */
static int all_logits(struct step *s, struct error *e)
{
    struct wanted w = {.n = 0};
    size_t width = row_stride(s->engine->shape->hidden);
    int r = 0;
    for (uint32_t k = 0; k < s->n_feeds && r == 0; k++) {
        const struct feed *f = &s->feeds[k];
        const struct session_hooks *h = &f->session->hooks;
        for (uint32_t i = 0; i < f->n && h->on_state && !f->refresh; i++) {
            h->on_state(h->ctx, s->rows[f->row + i].position, s->state + (f->row + i) * width);
        }
        uint32_t end = f->row + f->n;
        r = want(s, &w, f, false, h->on_logits && !f->refresh ? f->row : end - 1, end, e);
    }
    for (uint32_t k = 0; k < s->n_feeds && r == 0; k++) {
        const struct feed *f = &s->feeds[k];
        r = f->session->hooks.on_mtp ? want(s, &w, f, true, f->mtp_row, f->mtp_row + f->mtp_n, e) : 0;
    }
    return r < 0 ? r : wanted_logits(s, &w, e);
}

/* The timeline moves on. */
static void feed_commit(struct step *s, const struct feed *f)
{
    struct engine *g = s->engine;
    struct session *t = f->session;
    if (!f->refresh) {
        for (uint32_t i = 0; i < f->n; i++) {
            t->tokens[t->length + i] = s->tokens[f->row + i];
            if (t->hooks.on_token) {
                t->hooks.on_token(t->hooks.ctx, t->length + i, s->tokens[f->row + i]);
            }
        }
        t->length += f->n;
        t->mtp_rows = f->mtp_n ? t->length - 1 : t->mtp_rows;
        counter_add(f->n == 1 ? g->tokens_decode : g->tokens_prefill, f->n);
    }
    if (!g->script) {
        memcpy(t->state, s->state + (f->row + f->n - 1) * row_stride(g->shape->hidden), g->shape->hidden * sizeof(float));
    }
    t->state_valid = t->logits_valid = true;
}

static void script_finish(const struct step *s, const struct feed *f)
{
    struct session *t = f->session;
    for (uint32_t i = t->hooks.on_logits ? 0 : f->n - 1; i < f->n; i++) {
        uint32_t position = s->rows[f->row + i].position;
        script_logits(s->engine->script, position, t->logits);
        if (t->hooks.on_logits) {
            t->hooks.on_logits(t->hooks.ctx, position, t->logits);
        }
    }
}

static int finish(struct step *s, struct error *e)
{
    if (!s->engine->script) {
        return all_logits(s, e);
    }
    for (uint32_t i = 0; i < s->n_feeds; i++) {
        script_finish(s, &s->feeds[i]);
    }
    return 0;
}

int step_commit(struct step *s, struct error *e)
{
    int r = step_layers_left(s) == 0 ? finish(s, e) : error_set(e, -EINVAL, "%u layers of the step are still to be run", step_layers_left(s));
    for (uint32_t i = 0; i < s->n_feeds && r == 0; i++) {
        feed_commit(s, &s->feeds[i]);
    }
    step_end(s);
    return r;
}

void step_abort(struct step *s)
{
    step_end(s);
}

int step_once(struct engine *g, const struct step_feed *feeds, uint32_t n, struct error *e)
{
    struct step *s;
    int r = step_open(g, feeds, n, &s, e);
    if (r < 0) {
        return r;
    }
    r = step_run(s, step_layers_left(s), e);
    if (r < 0) {
        step_abort(s);
        return r;
    }
    return step_commit(s, e);
}
