/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: steps (step.h): drafts of timelines that have them (one pass of the MTP layer for each row ahead), rows of the main
 * layers, then rows of the MTP layer that sessions want: MTP row p - 1 pairs the state at p - 1 with token p and runs with
 * the main row of token p. Must not know: kernels. */
#include "src/run/step.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/run/block.h"
#include "src/run/draft.h"
#include "src/run/head.h"
#include "src/run/mtp.h"
#include "src/run/prefetch.h"

/* Rows [row, row + n) of the step belong to a feed, the last `drafts` of them ahead of its timeline; exact feeds come first. */
struct feed {
    struct session *session;
    uint32_t row, n, drafts, mtp_row, mtp_n;
    uint32_t shadow; /* rows after those n: 0 or 1 */
    uint32_t passes; /* of the MTP layer, which name the tokens of drafts, or of the shadow row */
    bool bulk, refresh;
};

struct step {
    struct engine *engine;
    bool open;
    int failed;                /* not 0: why a layer stopped half way; what the rows hold is not a state to go on from */
    uint32_t cursor;           /* layers done; a pass of drafts counts as one, the MTP layer as one more */
    uint32_t passes;           /* of drafts, before the first layer */
    uint64_t start;            /* clock */
    uint64_t weights;          /* bytes of them that kernels had read before */
    struct feed feeds[STEP_FEEDS_MAX];
    uint32_t n_feeds;
    struct batch main, mtp, keys; /* keys: MTP rows of which only the cache is wanted, stored behind those of mtp */
    struct span spans[STEP_FEEDS_MAX + 1], mtp_spans[STEP_FEEDS_MAX + 1], key_spans[STEP_FEEDS_MAX + 1];
    struct batch_row draft_rows[STEP_FEEDS_MAX]; /* of a pass */
    struct mtp_row draft_in[STEP_FEEDS_MAX];
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
        return f->n == 1 && s->length > 0 && !f->shadow ? 0 : error_set(e, -EINVAL, "only the last position of a timeline can be refreshed");
    }
    if (f->n == 0 || (f->bulk && (f->n > g->ubatch || s->length % g->ubatch + f->n > g->ubatch))) {
        return error_set(e, -EINVAL, "a feed of %u rows at position %u: a bulk chunk ends at the next multiple of %u (-ub) at the latest", f->n, s->length, g->ubatch);
    }
    if ((s->mtp || draft_active(s)) && s->length > 0 && !s->state_valid) {
        return error_set(e, -EINVAL, "the next MTP row needs the state of position %u, which is gone after a rollback; refresh the session first", s->length - 1);
    }
    if (f->shadow && (f->bulk || f->n == g->context - s->length)) {
        return error_set(e, -EINVAL, "a shadow row goes with exact rows, with a position of the timeline left for it");
    }
    if (f->n > g->context - s->length) {
        return error_set(e, ERROR_FORMAT, "%u tokens do not fit: the timeline holds %u of %u positions; shorten the prompt or start with a larger -c", f->n, s->length, g->context);
    }
    for (uint32_t i = 0; i < f->n + (f->shadow != NULL); i++) {
        int32_t token = i < f->n ? f->tokens[i] : *f->shadow;
        if (token < 0 || (uint32_t)token >= g->shape->vocab) {
            return error_set(e, ERROR_FORMAT, "token %d at index %u is not an id of this model (0..%u)", (int)token, i, g->shape->vocab - 1);
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
        rows += feeds[i].n + (feeds[i].shadow != NULL);
    }
    if (n == 0 || n > STEP_FEEDS_MAX || rows > g->step_rows) {
        return error_set(e, -EINVAL, "a step of %u feeds and %llu rows; at most %u feeds and %u rows", n, (unsigned long long)rows, STEP_FEEDS_MAX, g->step_rows);
    }
    return 0;
}

/* Whether MTP rows of the feed's timeline are to be made up first. */
static bool is_behind(const struct feed *f) { return !f->refresh && draft_is_behind(f->session, f->n - f->drafts + f->passes); }

/* Rows of one feed; a single token without a shadow row is followed by drafts, or by a scout. Their tokens are not known yet. */
static void add_feed(struct step *s, const struct step_feed *in, bool only, uint32_t *room)
{
    struct session *t = in->session;
    struct feed *f = &s->feeds[s->n_feeds++];
    uint32_t p0 = in->refresh ? t->length - 1 : t->length;
    draft_settle(t, in->refresh ? NULL : in->tokens);
    *f = (struct feed){.session = t, .row = s->main.n, .n = in->n, .bulk = in->bulk, .refresh = in->refresh};
    bool guesses = in->n == 1 && !in->bulk && !in->refresh && !in->shadow;
    f->drafts = guesses ? draft_choose(t, *room) : 0;
    bool scouts = guesses && only && f->drafts == 0 && draft_scouts(t, *room);
    f->passes = f->drafts + scouts;
    for (uint32_t i = 0; i < in->n + f->drafts; i++) {
        s->tokens[s->main.n] = in->refresh ? t->tokens[p0] : i < in->n ? in->tokens[i] : 0;
        s->rows[s->main.n++] = (struct batch_row){.session = t, .position = p0 + i, .keep_kv = in->refresh};
    }
    f->n += f->drafts;
    if (in->shadow || scouts) {
        f->shadow = 1;
        s->tokens[s->main.n] = in->shadow ? *in->shadow : 0;
        s->rows[s->main.n++] = (struct batch_row){.session = t, .position = p0 + in->n, .shadow = true};
    }
    batch_span(&s->main, f->n + f->shadow, f->bulk);
    *room -= f->passes;
    s->passes = max_u32(s->passes, f->passes);
    if (is_behind(f)) {
        s->passes = max_u32(s->passes, 1);
    }
}

/* MTP rows of a feed into b, whose inputs are `in`. A timeline that drafts has its single tokens' rows made up later. */
static void add_mtp(struct step *s, struct feed *f, struct batch *b, struct mtp_row *in)
{
    struct session *t = f->session;
    f->mtp_row = b->n;
    for (uint32_t i = 0; i < f->n; i++) {
        if (t->length + i > 0) {
            in[b->n] = (struct mtp_row){i > 0 ? s->state + (f->row + i - 1) * row_stride(s->engine->shape->hidden) : t->state, s->tokens[f->row + i]};
            b->rows[b->n++] = (struct batch_row){.session = t, .position = t->length + i - 1};
        }
    }
    f->mtp_n = b->n - f->mtp_row;
    batch_span(b, f->mtp_n, f->bulk);
}

static void add_feeds(struct step *s, const struct step_feed *feeds, uint32_t n)
{
    uint32_t room = s->engine->step_rows;
    for (uint32_t i = 0; i < n; i++) {
        room -= feeds[i].n + (feeds[i].shadow != NULL);
    }
    for (uint32_t bulk = 0; bulk < 2; bulk++) {
        for (uint32_t i = 0; i < n; i++) {
            if (feeds[i].bulk == (bulk != 0)) {
                add_feed(s, &feeds[i], n == 1, &room);
                feeds[i].session->in_step = true;
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        if (s->feeds[i].session->mtp && !s->feeds[i].refresh) {
            add_mtp(s, &s->feeds[i], &s->mtp, s->mtp_in);
        }
    }
    s->keys = (struct batch){.rows = s->mtp_rows + s->mtp.n, .spans = s->key_spans, .x = s->mtp_x};
    s->keys.x = s->mtp.n > 0 ? s->mtp_x + s->mtp.n * row_stride(s->engine->shape->hidden) : s->mtp_x;
    for (uint32_t i = 0; i < n; i++) {
        const struct feed *f = &s->feeds[i];
        if (draft_active(f->session) && f->n - f->drafts > 1) {
            add_mtp(s, &s->feeds[i], &s->keys, s->mtp_in + s->mtp.n);
        }
    }
}

/* Pages for the rows of all feeds, rows before included when the MTP layer writes them. */
static int prepare_pages(struct step *s, struct error *e)
{
    for (uint32_t i = 0; i < s->n_feeds; i++) {
        const struct feed *f = &s->feeds[i];
        struct session *t = f->session;
        bool writes = t->length > 0 && (t->mtp || is_behind(f) || (draft_active(t) && f->n > 1) || f->passes > 0);
        uint32_t before = writes ? t->length - t->mtp_rows : 0;
        int r = f->refresh ? 0 : kv_table_prepare(&t->kv, t->length - before, f->n + before + f->shadow, e);
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

/* r: how it went. What has failed is tried without the MTP layer next. */
static void step_end(struct step *s, int r)
{
    for (uint32_t i = 0; i < s->n_feeds; i++) {
        struct session *t = s->feeds[i].session;
        t->in_step = false;
        kv_table_truncate(&t->kv, t->length + (t->draft ? t->draft->ahead : 0));
        if (t->draft && !s->feeds[i].refresh && r != ERROR_INTERRUPTED) {
            t->draft->rest = r < 0 && draft_active(t);
        }
    }
    s->n_feeds = 0;
    s->open = false;
    if (s->engine->expert_reader != NULL) {
        drives_watch(s->engine, s->engine->expert_reader);
    }
}

int step_open(struct engine *g, const struct step_feed *feeds, uint32_t n, struct step **ret, struct error *e)
{
    struct step *s = !g->steps[0]->open ? g->steps[0] : g->steps[1];
    int r = s->open ? error_set(e, -EBUSY, "%d steps are open already; commit or abort one first", STEPS_OPEN_MAX) : check_feeds(g, feeds, n, e);
    if (r < 0) {
        return r;
    }
    s->open = true;
    s->failed = 0;
    s->cursor = s->passes = s->n_feeds = 0;
    s->start = clock_now_ns(&g->clock);
    s->weights = counter_get(g->weight_bytes);
    s->main = (struct batch){.rows = s->rows, .spans = s->spans, .x = s->x};
    s->mtp = (struct batch){.rows = s->mtp_rows, .spans = s->mtp_spans, .x = s->mtp_x};
    add_feeds(s, feeds, n);
    r = prepare_pages(s, e);
    if (r < 0) {
        step_end(s, r);
        return r;
    }
    *ret = s;
    return 0;
}

/* ---- layers ---- */

static uint32_t layers_total(const struct step *s)
{
    return s->engine->script ? 1 : s->passes + s->engine->shape->layers + (s->mtp.n + s->keys.n > 0 ? 1 : 0);
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

/* Row `cursor` of every feed that has so many passes gets its successor; before the first pass, MTP rows that are missing. */
static int draft_pass(struct step *s, struct error *e)
{
    struct engine *g = s->engine;
    struct span span;
    struct batch b = {.rows = s->draft_rows, .spans = &span, .x = s->mtp_x};
    int32_t tokens[STEP_FEEDS_MAX];
    int r = 0;
    for (uint32_t i = 0; i < s->n_feeds && s->cursor == 0 && r == 0; i++) {
        const struct feed *f = &s->feeds[i];
        r = is_behind(f) ? draft_catch_up(f->session, s->mtp_x, e) : 0;
    }
    for (uint32_t i = 0; i < s->n_feeds && r == 0; i++) {
        struct feed *f = &s->feeds[i];
        if (f->passes > s->cursor) {
            const float *state = s->cursor > 0 ? s->mtp_x + f->mtp_row * row_stride(g->shape->hidden) : f->session->state;
            s->draft_in[b.n] = (struct mtp_row){state, s->tokens[f->row + s->cursor]};
            f->mtp_row = b.n;
            s->draft_rows[b.n++] = (struct batch_row){.session = f->session, .position = f->session->length - 1 + s->cursor};
        }
    }
    r = r < 0 || b.n == 0 ? r : draft_guess(g, &b, s->draft_in, tokens, e);
    for (uint32_t i = 0; i < s->n_feeds && r == 0; i++) {
        const struct feed *f = &s->feeds[i];
        if (f->passes > s->cursor) {
            s->tokens[f->row + s->cursor + 1] = tokens[f->mtp_row];
        }
    }
    return r;
}

static int mtp_layer(struct step *s, struct error *e)
{
    int r = s->mtp.n > 0 ? mtp_run(s->engine, &s->mtp, s->mtp_in, e) : 0;
    return r < 0 || s->keys.n == 0 ? r : mtp_append(s->engine, &s->keys, s->mtp_in + s->mtp.n, e);
}

static int next_layer(struct step *s, struct error *e)
{
    struct engine *g = s->engine;
    if (g->script) {
        return script_layer(s, e);
    }
    if (s->cursor < s->passes) {
        return draft_pass(s, e);
    }
    uint32_t layer = s->cursor - s->passes;
    if (layer >= g->shape->layers) {
        return mtp_layer(s, e);
    }
    int r = 0;
    if (layer == 0) {
        r = engine_parallel(g, s->main.n, embed_task, s, e);
        counter_add(g->weight_bytes, s->main.n * weight_rows_bytes(&g->resident->embed, 1));
        prefetch_step(g->prefetch, &s->main, s->tokens, s->start);
    }
    r = r < 0 ? r : block_run(g, &s->main, layer, e);
    if (r == 0 && layer + 1 == g->shape->layers) {
        head_normalise(g, s->x, s->main.n, g->resident->final_norm, s->state);
        prefetch_done(g->prefetch, &s->main);
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
            s->failed = r;
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

/* Of row `i` of the feed. Rows ahead are shown when the timeline reaches them. */
static void main_logits(const struct feed *f, uint32_t i, uint32_t position, const float *logits, uint32_t vocab)
{
    struct session *t = f->session;
    uint32_t last = f->n - f->drafts - 1;
    if (i > last) {
        memcpy(t->draft->logits + (size_t)(i - last - 1) * vocab, logits, vocab * sizeof(float));
        return;
    }
    if (t->hooks.on_logits && !f->refresh) {
        t->hooks.on_logits(t->hooks.ctx, position, logits);
    }
    if (i == last) {
        memcpy(t->logits, logits, vocab * sizeof(float));
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
        if (w->item[k].mtp) {
            f->session->hooks.on_mtp(f->session->hooks.ctx, rows[k].position, logits);
        } else {
            main_logits(f, w->item[k].row - f->row, rows[k].position, logits, g->shape->vocab);
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

/* Logits of the rows that sessions ask for: of main rows all with on_logits, always the last one and those ahead; then MTP
 * rows with on_mtp. */
static int all_logits(struct step *s, struct error *e)
{
    struct wanted w = {.n = 0};
    size_t width = row_stride(s->engine->shape->hidden);
    int r = 0;
    for (uint32_t k = 0; k < s->n_feeds && r == 0; k++) {
        const struct feed *f = &s->feeds[k];
        const struct session_hooks *h = &f->session->hooks;
        for (uint32_t i = 0; i < f->n - f->drafts && h->on_state && !f->refresh; i++) {
            h->on_state(h->ctx, s->rows[f->row + i].position, s->state + (f->row + i) * width);
        }
        uint32_t end = f->row + f->n;
        r = want(s, &w, f, false, h->on_logits && !f->refresh ? f->row : end - 1 - f->drafts, end, e);
    }
    for (uint32_t k = 0; k < s->n_feeds && r == 0; k++) {
        const struct feed *f = &s->feeds[k];
        r = f->session->mtp && f->session->hooks.on_mtp ? want(s, &w, f, true, f->mtp_row, f->mtp_row + f->mtp_n, e) : 0;
    }
    return r < 0 ? r : wanted_logits(s, &w, e);
}

/* The timeline moves on. */
static void feed_commit(struct step *s, const struct feed *f)
{
    struct engine *g = s->engine;
    struct session *t = f->session;
    uint32_t n = f->n - f->drafts, first = s->rows[f->row].position;
    if (!f->refresh) {
        for (uint32_t i = 0; i < n; i++) {
            t->tokens[t->length + i] = s->tokens[f->row + i];
            if (t->hooks.on_token) {
                t->hooks.on_token(t->hooks.ctx, t->length + i, s->tokens[f->row + i]);
            }
        }
        t->length += n;
        t->mtp_rows = f->mtp_n || f->passes ? t->length - 1 : t->mtp_rows;
        counter_add(n == 1 ? g->tokens_decode : g->tokens_prefill, n);
    }
    if (!g->script) {
        const float *rows = s->state + f->row * row_stride(g->shape->hidden);
        memcpy(t->state, rows + (n - 1) * row_stride(g->shape->hidden), g->shape->hidden * sizeof(float));
        draft_keep(t, first, rows, row_stride(g->shape->hidden), f->n);
    }
    t->state_valid = t->logits_valid = true;
}

/* The rows behind the timeline, and what the step has cost. */
static void drafts_commit(struct step *s, const struct feed *f)
{
    struct session *t = f->session;
    if (!t->draft || f->refresh) {
        return;
    }
    memcpy(t->tokens + t->length, s->tokens + f->row + f->n - f->drafts, f->drafts * sizeof(*t->tokens));
    t->draft->ahead = f->drafts;
    t->draft->taken = 0;
    counter_add(s->engine->drafts_made, f->drafts);
    if (f->n - f->drafts == 1) {
        governor_step(&t->draft->governor, f->drafts, clock_seconds_since(&s->engine->clock, s->start), (double)(counter_get(s->engine->weight_bytes) - s->weights));
    }
    draft_check(t);
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
        drafts_commit(s, &s->feeds[i]);
    }
    step_end(s, r);
    return r;
}

void step_abort(struct step *s)
{
    step_end(s, s->failed ? s->failed : ERROR_INTERRUPTED);
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
