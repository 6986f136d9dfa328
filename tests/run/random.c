/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: random operations on several timelines - feeds, steps committed and aborted, forks, rollbacks, refreshes, saves and
 * restores, with and without the MTP layer and drafts, in a pool that runs full - against a naive model: the list of tokens alone.
 * Whatever led to a list, its logits are the bits of a fresh exact pass over it, and every page comes back.
 * usage: random MODEL [OPERATIONS [SEED]] */
#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/run/api.h"
#include "src/run/draft.h"
#include "tests/run/harness.h"

enum { TIMELINES = 6, CONTEXT = 192, TOKENS_BELOW = 300, STEPS = 2, MEMBERS = 3, STEP_ROWS = 10 };

/* The last MTP row a hook saw. */
struct mtp_seen {
    float *logits; /* [vocab] */
    uint32_t vocab, row, calls;
};

struct timeline {
    struct sluice_session *session; /* NULL: none */
    int32_t tokens[CONTEXT];
    uint32_t length;
    bool mtp, draft, in_step;
    struct mtp_seen seen;
};

struct open_step {
    struct sluice_step *step; /* NULL: none */
    uint32_t members;
    struct {
        struct timeline *t;
        uint32_t n;
        int32_t tokens[STEP_ROWS];
    } member[MEMBERS];
};

struct world {
    struct sluice_engine *engine, *fresh;
    struct timeline t[TIMELINES];
    struct open_step steps[STEPS];
    struct mtp_seen expected;
    uint64_t x;
    uint32_t done, refused;
    char path[64];
};

static uint32_t draw(struct world *w, uint32_t below)
{
    w->x = w->x * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->x >> 33) % below;
}

static void keep_mtp(void *ctx, uint32_t row, const float *logits)
{
    struct mtp_seen *seen = ctx;
    memcpy(seen->logits, logits, seen->vocab * sizeof(*logits));
    seen->row = row;
    seen->calls++;
}

static void seen_init(struct mtp_seen *seen, uint32_t vocab)
{
    *seen = (struct mtp_seen){.logits = malloc(vocab * sizeof(float)), .vocab = vocab};
    assert(seen->logits);
}

static struct sluice_session_options options(struct mtp_seen *seen, bool mtp, bool draft)
{
    return (struct sluice_session_options){.hooks = {.on_mtp = keep_mtp, .ctx = seen}, .mtp = mtp, .draft = draft};
}

/* The pool is full (nothing else may fail); what could not be done left no trace. */
static bool refused_by_pool(struct world *w, int status, const struct sluice_error *e)
{
    if (status != 0 && status != SLUICE_DOES_NOT_FIT) {
        fprintf(stderr, "operation %u: %s\n", w->done, e->text);
        abort();
    }
    w->refused += status != 0;
    return status != 0;
}

static void same_floats(const struct world *w, const float *got, const float *want, uint32_t n, const char *what)
{
    if (memcmp(got, want, n * sizeof(*got)) != 0) {
        fprintf(stderr, "operation %u: %s differ from those of a fresh pass\n", w->done, what);
        abort();
    }
}

/* mtp_ran: the last operation gave rows to the MTP layer. */
static void check(struct world *w, struct timeline *t, bool mtp_ran)
{
    struct sluice_session *s;
    struct sluice_error e;
    const float *logits = sluice_session_logits(t->session);
    assert(sluice_session_length(t->session) == t->length);
    assert(memcmp(sluice_session_tokens(t->session), t->tokens, t->length * sizeof(*t->tokens)) == 0);
    if (logits == NULL || (t->length > 32 && draw(w, 4) != 0)) { /* long ones cost most of the time */
        return;
    }
    struct sluice_session_options o = options(&w->expected, t->mtp, false);
    assert(sluice_session_create(w->fresh, &o, &s, &e) == 0);
    harness_feed(s, t->tokens, t->length);
    same_floats(w, logits, sluice_session_logits(s), t->seen.vocab, "logits");
    if (mtp_ran) {
        assert(t->seen.calls > 0 && t->seen.row == t->length - 2 && w->expected.row == t->seen.row);
        same_floats(w, t->seen.logits, w->expected.logits, t->seen.vocab, "MTP logits");
    }
    sluice_session_destroy(s);
}

static void remember(struct timeline *t, const int32_t *tokens, uint32_t n)
{
    memcpy(t->tokens + t->length, tokens, n * sizeof(*tokens));
    t->length += n;
}

static void draw_tokens(struct world *w, int32_t *ret, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ret[i] = (int32_t)draw(w, TOKENS_BELOW);
    }
}

/* ---- operations ---- */

static void feed(struct world *w, struct timeline *t)
{
    int32_t tokens[24];
    struct sluice_error e;
    uint32_t n = t->draft && draw(w, 2) == 0 ? 1 : 1 + draw(w, draw(w, 4) == 0 ? 24 : 6), before = t->length;
    draw_tokens(w, tokens, n);
    const struct session *s = t->session->session;
    if (s->draft && s->draft->ahead > 0 && draw(w, 4) != 0) { /* random tokens are hardly ever drafted */
        tokens[0] = s->tokens[s->length];
        n = draw(w, 4) != 0 ? 1 : n;
    }
    int r = sluice_session_feed(t->session, tokens, n, &e);
    if (n > CONTEXT - before) {
        assert(r == SLUICE_FAILED && sluice_session_length(t->session) == before);
        return;
    }
    bool refused = refused_by_pool(w, r, &e);
    uint32_t fed = sluice_session_length(t->session) - before;
    assert(refused ? fed < n : fed == n);
    remember(t, tokens, fed);
    assert(fed == 0 || sluice_session_logits(t->session) != NULL);
    check(w, t, fed > 0 && t->mtp && t->length > 1);
}

static void rollback(struct world *w, struct timeline *t)
{
    struct sluice_error e;
    t->length = draw(w, 8) == 0 ? draw(w, t->length + 1) : t->length - draw(w, t->length < 8 ? t->length + 1 : 8);
    assert(sluice_session_rollback(t->session, t->length, &e) == 0);
    check(w, t, false);
}

static void refresh(struct world *w, struct timeline *t)
{
    struct sluice_error e;
    int r = sluice_session_refresh(t->session, &e);
    assert(r == (t->length == 0 ? SLUICE_FAILED : SLUICE_OK));
    check(w, t, false);
}

static void end(struct timeline *t)
{
    sluice_session_destroy(t->session);
    t->session = NULL;
    t->length = 0;
}

static void begin(struct world *w, struct timeline *t)
{
    struct sluice_error e;
    t->mtp = draw(w, 3) == 0;
    t->draft = !t->mtp && draw(w, 2) == 0;
    struct sluice_session_options o = options(&t->seen, t->mtp, t->draft);
    assert(sluice_session_create(w->engine, &o, &t->session, &e) == 0);
}

static void take_copy(struct timeline *t, const struct timeline *from, struct sluice_session *session, bool mtp, bool draft)
{
    t->session = session;
    memcpy(t->tokens, from->tokens, sizeof(t->tokens));
    t->length = from->length;
    t->mtp = mtp;
    t->draft = draft;
}

/* `t` becomes a second timeline with the past of `from`. */
static void fork_into(struct world *w, struct timeline *t, const struct timeline *from)
{
    struct sluice_error e;
    bool mtp = from->mtp && draw(w, 4) != 0, draft = !mtp && draw(w, 2) == 0; /* from any other: it drafts if it can */
    struct sluice_session_options o = options(&t->seen, mtp, draft);
    struct sluice_session *s;
    end(t);
    assert(sluice_session_fork(from->session, &o, &s, &e) == 0);
    take_copy(t, from, s, mtp, draft);
    check(w, t, false);
}

/* The same by way of a file; the session may be part of an open step, the rows of which are not in the file. */
static void restore_into(struct world *w, struct timeline *t, const struct timeline *from)
{
    struct sluice_error e;
    struct sluice_session_options o = options(&t->seen, from->mtp, from->draft);
    struct sluice_session *s;
    end(t);
    assert(sluice_session_save(from->session, w->path, &e) == 0);
    if (!refused_by_pool(w, sluice_session_restore(w->engine, w->path, &o, &s, &e), &e)) {
        take_copy(t, from, s, from->mtp, from->draft);
        check(w, t, false);
    }
}

static void open_step(struct world *w, struct open_step *p)
{
    struct sluice_feed feeds[MEMBERS];
    struct sluice_error e;
    p->members = 0;
    for (uint32_t i = 0, want = 1 + draw(w, MEMBERS); i < TIMELINES && p->members < want; i++) {
        struct timeline *t = &w->t[i];
        uint32_t n = 1 + draw(w, draw(w, 2) == 0 ? 1 : STEP_ROWS), k = p->members;
        if (!t->session || t->in_step || t->length + n > CONTEXT || draw(w, 2) == 0) {
            continue;
        }
        p->member[k].t = t;
        p->member[k].n = n;
        draw_tokens(w, p->member[k].tokens, n);
        feeds[k] = (struct sluice_feed){.session = t->session, .tokens = p->member[k].tokens, .n = n};
        if (t->mtp && t->length > 0 && !sluice_session_logits(t->session)) {
            assert(sluice_step_open(w->engine, &feeds[k], 1, &p->step, &e) == SLUICE_FAILED && strstr(e.text, "refresh"));
            assert(sluice_session_refresh(t->session, &e) == 0);
        } else if (t->draft && t->length > 0 && !sluice_session_logits(t->session)) {
            assert(sluice_session_refresh(t->session, &e) == 0);
        }
        p->members++;
    }
    p->step = NULL;
    if (p->members == 0 || refused_by_pool(w, sluice_step_open(w->engine, feeds, p->members, &p->step, &e), &e)) {
        return;
    }
    for (uint32_t k = 0; k < p->members; k++) {
        struct timeline *t = p->member[k].t;
        t->in_step = true;
        assert(sluice_session_feed(t->session, t->tokens, 1, &e) == SLUICE_FAILED && sluice_session_rollback(t->session, 0, &e) == SLUICE_FAILED);
    }
}

static void go_on(struct world *w, struct open_step *p)
{
    struct sluice_error e;
    uint32_t what = draw(w, 4);
    if (what < 2 && sluice_step_layers_left(p->step) > 0) {
        assert(sluice_step_run(p->step, 1 + draw(w, 2), &e) == 0);
        return;
    }
    bool commit = what < 3;
    if (commit) {
        assert(sluice_step_run(p->step, UINT32_MAX, &e) == 0 && sluice_step_commit(p->step, &e) == 0);
    } else {
        sluice_step_abort(p->step);
    }
    p->step = NULL;
    for (uint32_t k = 0; k < p->members; k++) {
        struct timeline *t = p->member[k].t;
        t->in_step = false;
        if (commit) {
            remember(t, p->member[k].tokens, p->member[k].n);
        }
        check(w, t, commit && t->mtp && t->length > 1);
    }
}

/* A feed or refresh is a step of its own. */
static bool all_steps_open(const struct world *w)
{
    return w->steps[0].step && w->steps[1].step;
}

static void operate(struct world *w)
{
    struct timeline *t = &w->t[draw(w, TIMELINES)], *other = &w->t[draw(w, TIMELINES)];
    uint32_t what = draw(w, 20);
    if (what < 4) {
        struct open_step *p = &w->steps[draw(w, STEPS)];
        p->step ? go_on(w, p) : open_step(w, p);
    } else if (what == 4 && t != other && t->session && !other->in_step) {
        restore_into(w, other, t);
    } else if (t->in_step) {
        return;
    } else if (!t->session) {
        begin(w, t);
    } else if (what < 12 && !all_steps_open(w)) {
        feed(w, t);
    } else if (what >= 12 && what < 15) {
        rollback(w, t);
    } else if (what == 15 && !all_steps_open(w)) {
        refresh(w, t);
    } else if (what > 15 && what < 19 && t != other && !other->in_step) {
        fork_into(w, other, t);
    } else if (what == 19) {
        end(t);
    }
}

int main(int argc, char **argv)
{
    struct world w = {.path = "/tmp/sluice-random-XXXXXX"};
    struct sluice_model_info info;
    assert(argc >= 2);
    uint32_t operations = argc > 2 ? (uint32_t)atoi(argv[2]) : 2000;
    w.x = argc > 3 ? (uint64_t)atoi(argv[3]) : 1;
    int fd = mkstemp(w.path);
    assert(fd >= 0);
    close(fd);
    w.engine = harness_open(argv[1], "ubatch", "8", "ctx", "192", "parallel", "2", "threads", "2", "mtp", "2", NULL);
    w.fresh = harness_open(argv[1], "ubatch", "8", "ctx", "192", "threads", "1", NULL);
    sluice_engine_info(w.engine, &info);
    seen_init(&w.expected, info.vocab);
    for (uint32_t i = 0; i < TIMELINES; i++) {
        seen_init(&w.t[i].seen, info.vocab);
    }
    const struct kv_pool *pool = &w.engine->engine->kv;
    uint32_t pages = pool->free_pages;
    for (w.done = 0; w.done < operations; w.done++) {
        operate(&w);
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        if (w.steps[i].step) {
            sluice_step_abort(w.steps[i].step);
        }
    }
    for (uint32_t i = 0; i < TIMELINES; i++) {
        end(&w.t[i]);
        free(w.t[i].seen.logits);
    }
    assert(pool->free_pages == pages);
    uint64_t accepted = sluice_engine_counter(w.engine, "draft.accepted");
    assert(operations < 500 || accepted > 0);
    printf("%u operations, %u refused by the full pool, %u rows ahead taken over\n", operations, w.refused, (unsigned)accepted);
    free(w.expected.logits);
    unlink(w.path);
    sluice_engine_close(w.fresh);
    sluice_engine_close(w.engine);
    return 0;
}
