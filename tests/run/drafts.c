/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: rows ahead of a timeline change nothing but speed: tokens and the bits of every logit are those of a session that
 * does not draft, for every draft length, sampled or greedy, with penalties and a mask, through forks, rollbacks, saved
 * files, cancelled steps, a full pool and the end of the context; on_token never shows a row that is dropped; and a first
 * draft is the MTP layer's choice as a scoring session sees it, so its cache is right after every rejection.
 * usage: drafts MODEL TOKENS [LEAST ACCEPTED % of first drafts, greedy] */
#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/run/harness.h"

enum { LENGTH_MAX = 1024, CASES = 4 };

static const char text[] = "It is a truth universally acknowledged, that a single man in possession of a good fortune";

/* What hooks saw of a timeline. */
struct line {
    struct recording logits;
    int32_t tokens[LENGTH_MAX];
    uint32_t n;                /* tokens that have entered it */
    uint32_t steps;            /* of generated tokens */
    bool ahead[LENGTH_MAX];    /* the row was there before its token was drawn */
    bool step[LENGTH_MAX];     /* a step began with this row */
    volatile int *cancel;      /* raised at the countdown's end */
    uint32_t countdown;
};

static void on_token(void *ctx, uint32_t position, int32_t token)
{
    struct line *l = ctx;
    assert(position <= l->n && position < LENGTH_MAX); /* in order; less after a rollback */
    l->tokens[position] = token;
    l->n = position + 1;
}

static void on_logits(void *ctx, uint32_t position, const float *logits)
{
    struct recording *r = &((struct line *)ctx)->logits;
    if (position >= r->capacity) {
        r->capacity = LENGTH_MAX;
        r->logits = realloc(r->logits, (size_t)r->capacity * r->vocab * sizeof(float));
        assert(r->logits);
    }
    memcpy(r->logits + (size_t)position * r->vocab, logits, r->vocab * sizeof(float));
    r->n = position + 1;
}

static void on_route(void *ctx, uint32_t layer, uint32_t position, const int32_t *ids, const float *weights)
{
    struct line *l = ctx;
    (void)layer, (void)position, (void)ids, (void)weights;
    if (l->countdown > 0 && --l->countdown == 0) {
        *l->cancel = 1;
    }
}

static struct sluice_session_options options(struct sluice_engine *g, struct line *l, bool draft)
{
    struct sluice_model_info info;
    sluice_engine_info(g, &info);
    l->logits.vocab = info.vocab;
    return (struct sluice_session_options){.hooks = {.on_token = on_token, .on_logits = on_logits, .on_route = on_route, .ctx = l}, .draft = draft};
}

static struct sluice_session *open_session(struct sluice_engine *g, struct line *l, bool draft)
{
    struct sluice_session_options o = options(g, l, draft);
    struct sluice_session *s = NULL;
    struct sluice_error e;
    assert(sluice_session_create(g, &o, &s, &e) == 0);
    return s;
}

static void only_even(void *ctx, const struct sluice_session *s, uint32_t *allowed)
{
    (void)ctx;
    allowed[sluice_session_length(s) % 4] &= 0x55555555u;
}

static struct sluice_sampler *sampler_of(struct sluice_engine *g, uint32_t c)
{
    static const struct sluice_bias bias[] = {{5, 1.5f}, {17, -2.0f}};
    struct sluice_sampling p;
    struct sluice_sampler *sampler;
    struct sluice_error e;
    sluice_sampling_init(&p);
    p.temperature = c == 0 || c == 2 ? 0.0f : 0.8f;
    p.seed = 11 + c;
    if (c >= 2) {
        p.repetition_penalty = 1.1f;
        p.presence_penalty = 0.2f;
        p.bias = bias;
        p.n_bias = 2;
        p.mask = only_even;
    }
    assert(sluice_sampler_create(g, &p, &sampler, &e) == 0);
    return sampler;
}

static uint32_t prompt_of(struct sluice_engine *g, int32_t *ret)
{
    const struct sluice_tokenizer *t = sluice_engine_tokenizer(g);
    struct sluice_error e;
    int32_t *ids;
    size_t n;
    if (t == NULL) {
        harness_tokens(1, 200, ret, 40);
        return 40;
    }
    assert(sluice_tokenize(t, text, sizeof(text) - 1, SLUICE_BOS, &ids, &n, &e) == 0 && n > 8 && n < LENGTH_MAX / 2);
    memcpy(ret, ids, n * sizeof(*ids));
    sluice_free(ids);
    return (uint32_t)n;
}

static int32_t draw(struct sluice_sampler *sampler, struct sluice_session *s)
{
    struct sluice_choice c;
    struct sluice_error e;
    assert(sluice_sample(sampler, s, &c, NULL, 0, &e) == 0);
    return c.token;
}

/* One token, and what became of it. */
static void go_on(struct line *l, struct sluice_session *s, int32_t token)
{
    uint32_t p = sluice_session_length(s);
    l->ahead[p] = sluice_session_advance(s, token);
    l->step[p] = !l->ahead[p];
    l->steps += l->step[p];
    if (!l->ahead[p]) {
        harness_feed(s, &token, 1);
    }
}

/* The prompt and `n` tokens, ends of text included. */
static void generate(struct sluice_engine *g, uint32_t c, uint32_t n, bool draft, struct line *l)
{
    int32_t prompt[LENGTH_MAX];
    uint32_t m = prompt_of(g, prompt);
    memset(l, 0, sizeof(*l));
    struct sluice_session *s = open_session(g, l, draft);
    struct sluice_sampler *sampler = sampler_of(g, c);
    harness_feed(s, prompt, m);
    for (uint32_t i = 0; i < n; i++) {
        go_on(l, s, draw(sampler, s));
    }
    assert(sluice_session_length(s) == m + n && l->n == m + n);
    sluice_sampler_destroy(sampler);
    sluice_session_destroy(s);
}

static void same(const struct line *want, const struct line *got, const char *what)
{
    for (uint32_t p = 0; p < want->n; p++) {
        if (want->tokens[p] != got->tokens[p]) {
            fprintf(stderr, "%s: token %d at position %u, without drafts %d\n", what, got->tokens[p], p, want->tokens[p]);
            abort();
        }
    }
    assert(got->n >= want->n);
    recording_equal(&want->logits, &got->logits, 0, want->n, what);
}

/* ---- what the MTP layer would draft ---- */

struct scored {
    int32_t *best; /* [LENGTH_MAX] by MTP row */
    uint32_t vocab;
};

static void on_mtp(void *ctx, uint32_t row, const float *logits)
{
    struct scored *s = ctx;
    int32_t best = 0;
    for (uint32_t i = 1; i < s->vocab; i++) {
        best = logits[i] > logits[best] ? (int32_t)i : best;
    }
    s->best[row] = best;
}

/* Row p - 1 of the MTP layer knows token p and guesses token p + 1. */
static double check_first_drafts(struct sluice_engine *g, const struct line *l, uint32_t prompt_n)
{
    int32_t best[LENGTH_MAX];
    struct scored scored = {best, l->logits.vocab};
    struct sluice_session_options o = {.mtp = true, .hooks = {.on_mtp = on_mtp, .ctx = &scored}};
    struct sluice_session *s;
    struct sluice_error e;
    uint32_t right = 0, n = 0;
    assert(sluice_session_create(g, &o, &s, &e) == 0);
    harness_feed(s, l->tokens, prompt_n);
    for (uint32_t p = prompt_n; p < l->n; p++) {
        harness_feed(s, &l->tokens[p], 1);
    }
    for (uint32_t p = prompt_n; p + 1 < l->n; p++) {
        right += best[p - 1] == l->tokens[p + 1];
        n++;
        if (l->step[p] && l->ahead[p + 1] != (best[p - 1] == l->tokens[p + 1])) {
            fprintf(stderr, "position %u: the MTP layer says %d, then comes %d, and the row was %sthere\n", p + 1, best[p - 1], l->tokens[p + 1], l->ahead[p + 1] ? "" : "not ");
            abort();
        }
    }
    sluice_session_destroy(s);
    return (double)right / n;
}

/* ---- through what happens to timelines ---- */

static struct sluice_engine *open_cancellable(const char *model, const char *mtp, volatile int *cancel)
{
    struct sluice_options *o = sluice_options_create();
    struct sluice_engine *g;
    struct sluice_error e;
    assert(o && sluice_options_set(o, "model", model, &e) == 0 && sluice_options_set(o, "bulk", "own", &e) == 0 && sluice_options_set(o, "mtp", mtp, &e) == 0);
    assert(sluice_options_set(o, "threads", "2", &e) == 0 && sluice_options_set(o, "ctx", "1024", &e) == 0 && sluice_options_set(o, "parallel", "3", &e) == 0);
    assert(sluice_engine_open(o, NULL, cancel, &g, &e) == 0);
    sluice_options_destroy(o);
    return g;
}

/* A second timeline goes on from here for a while. */
static void fork_here(struct sluice_engine *g, struct sluice_session *s, const struct line *want)
{
    struct line l = {0};
    struct sluice_session_options o = options(g, &l, true);
    struct sluice_session *f;
    struct sluice_error e;
    uint32_t at = sluice_session_length(s);
    assert(sluice_session_fork(s, &o, &f, &e) == 0);
    l.n = at;
    for (uint32_t p = at; p < at + 5 && p < want->n; p++) {
        go_on(&l, f, want->tokens[p]);
        recording_equal(&want->logits, &l.logits, p, 1, "fork of a timeline with rows ahead");
    }
    sluice_session_destroy(f);
    recording_deinit(&l.logits);
}

static struct sluice_session *through_a_file(struct sluice_engine *g, struct sluice_session *s, struct line *l, const char *path)
{
    struct sluice_session_options o = options(g, l, true);
    struct sluice_session *back;
    struct sluice_error e;
    assert(sluice_session_save(s, path, &e) == 0);
    sluice_session_destroy(s);
    if (sluice_session_restore(g, path, &o, &back, &e) != 0) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    return back;
}

static void storm(const char *model, const char *mtp, const struct line *want, uint32_t prompt_n, bool accepts)
{
    volatile int cancel = 0;
    struct sluice_engine *g = open_cancellable(model, mtp, &cancel);
    static struct line l;
    memset(&l, 0, sizeof(l));
    l.cancel = &cancel;
    struct sluice_session *s = open_session(g, &l, true);
    struct sluice_error e;
    char path[] = "/tmp/sluice-drafts-XXXXXX";
    int fd = mkstemp(path);
    assert(fd >= 0);
    close(fd);
    uint32_t cancelled = 0, x = 12345;
    harness_feed(s, want->tokens, prompt_n);
    while (sluice_session_length(s) < want->n) {
        uint32_t p = sluice_session_length(s);
        x = x * 1664525u + 1013904223u;
        uint32_t what = (x >> 16) % 40, much = 1 + (x >> 24) % 30;
        if (what == 0) {
            fork_here(g, s, want);
        } else if (what == 1) {
            s = through_a_file(g, s, &l, path);
        } else if (what == 2 && p > prompt_n + much) {
            assert(sluice_session_rollback(s, p - much, &e) == 0);
            continue;
        } else if (what == 3) {
            assert(sluice_session_refresh(s, &e) == 0);
        } else if (what == 4 && p + much < want->n) { /* several at once: exact or bulk as without drafts */
            uint32_t n = much < 8 ? much : 8;
            harness_feed(s, want->tokens + p, n);
            continue;
        } else if (what < 8) {
            l.countdown = 1 + much % 3;
        }
        int r = sluice_session_feed(s, &want->tokens[p], 1, &e);
        assert(r == 0 || r == SLUICE_INTERRUPTED);
        assert(sluice_session_length(s) == p + (r == 0));
        cancelled += r != 0;
        l.countdown = 0;
        cancel = 0;
    }
    same(want, &l, "through forks, files, rollbacks and interruptions");
    assert(cancelled > 3 && (!accepts || sluice_engine_counter(g, "draft.accepted") > 0));
    char *down = sluice_engine_steps_down_json(g);
    assert(strstr(down, "no more drafts") == NULL);
    sluice_free(down);
    unlink(path);
    sluice_session_destroy(s);
    sluice_engine_close(g);
    recording_deinit(&l.logits);
}

/* Drafts shorten before the last position, and a step that finds no page for them goes without. */
static void limits(const char *model, const struct line *want)
{
    struct sluice_engine *g = harness_open(model, "mtp", "8", "ctx", "128", "ubatch", "512", "threads", "1", NULL);
    static struct line l, other;
    struct sluice_session *s = open_session(g, &l, true), *o = open_session(g, &other, true);
    struct sluice_error e;
    harness_feed(o, want->tokens, 1); /* one of two pages */
    harness_feed(s, want->tokens, 20);
    for (uint32_t p = 20; p < 64; p++) {
        harness_feed(s, &want->tokens[p], 1);
    }
    assert(sluice_session_feed(s, &want->tokens[64], 1, &e) == SLUICE_DOES_NOT_FIT && sluice_session_length(s) == 64);
    sluice_session_destroy(o);
    for (uint32_t p = 64; p < 128; p++) {
        harness_feed(s, &want->tokens[p], 1);
    }
    assert(sluice_session_feed(s, &want->tokens[0], 1, &e) == SLUICE_FAILED && strstr(e.text, "128 of 128"));
    assert(l.n == 128 && memcmp(l.tokens, want->tokens, sizeof(*l.tokens) * 128) == 0);
    sluice_session_destroy(s);
    sluice_engine_close(g);
    recording_deinit(&l.logits);
    recording_deinit(&other.logits);
}

/* Sessions that share steps: one is ahead, another is not. */
static void together(const char *model, const struct line *want, uint32_t prompt_n)
{
    struct sluice_engine *g = harness_open(model, "mtp", "2", "ctx", "1024", "parallel", "3", "threads", "2", NULL);
    static struct line l[3];
    struct sluice_session *s[3];
    struct sluice_error e;
    memset(l, 0, sizeof(l));
    for (uint32_t i = 0; i < 3; i++) {
        s[i] = open_session(g, &l[i], i < 2);
        harness_feed(s[i], want->tokens, prompt_n + 3 * i);
    }
    for (bool more = true; more;) {
        struct sluice_feed feeds[3];
        struct sluice_step *step;
        uint32_t n = 0;
        more = false;
        for (uint32_t i = 0; i < 3; i++) {
            while (sluice_session_length(s[i]) < want->n && sluice_session_advance(s[i], want->tokens[sluice_session_length(s[i])])) {
            }
            if (sluice_session_length(s[i]) < want->n) {
                feeds[n++] = (struct sluice_feed){s[i], &want->tokens[sluice_session_length(s[i])], 1, false};
                more = true;
            }
        }
        if (n > 0) {
            assert(sluice_step_open(g, feeds, n, &step, &e) == 0 && sluice_step_run(step, UINT32_MAX, &e) == 0 && sluice_step_commit(step, &e) == 0);
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        /* rows of the prompt may be of another class: compared from where all are exact */
        recording_equal(&want->logits, &l[i].logits, i == 0 ? 0 : want->n, i == 0 ? want->n : 0, "among others");
        assert(l[i].n == want->n);
        sluice_session_destroy(s[i]);
        recording_deinit(&l[i].logits);
    }
    sluice_engine_close(g);
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {"1", "2", "3", "8", "auto", "on"};
    static struct line want[CASES], got;
    assert(argc >= 3);
    const char *model = argv[1];
    uint32_t n = (uint32_t)atoi(argv[2]), least = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;
    struct sluice_engine *g = harness_open(model, "mtp", "off", "threads", "1", "ctx", "1024", NULL);
    int32_t prompt[LENGTH_MAX];
    uint32_t prompt_n = prompt_of(g, prompt);
    for (uint32_t c = 0; c < CASES; c++) {
        generate(g, c, n, true, &want[c]); /* asks for drafts, and the engine has none */
        assert(want[c].steps == n);
    }
    sluice_engine_close(g);
    for (uint32_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
        g = harness_open(model, "mtp", modes[m], "threads", m % 2 == 0 ? "1" : "2", "ctx", "1024", NULL);
        for (uint32_t c = 0; c < CASES; c++) {
            uint64_t drafted = sluice_engine_counter(g, "draft.drafted"), accepted = sluice_engine_counter(g, "draft.accepted");
            generate(g, c, n, true, &got);
            same(&want[c], &got, modes[m]);
            drafted = sluice_engine_counter(g, "draft.drafted") - drafted;
            accepted = sluice_engine_counter(g, "draft.accepted") - accepted;
            assert(accepted == n - got.steps && (drafted > 0 || strcmp(modes[m], "auto") == 0));
            double right = m < 4 ? check_first_drafts(g, &got, prompt_n) : 0;
            printf("mtp %s, case %u: %u tokens in %u steps, %u of %u drafts accepted, first drafts right %.3f\n", modes[m], c, n, got.steps, (unsigned)accepted, (unsigned)drafted, right);
            assert(m != 0 || c != 0 || right * 100 >= least);
            recording_deinit(&got.logits);
        }
        sluice_engine_close(g);
    }
    storm(model, "2", &want[0], prompt_n, least > 0);
    storm(model, "auto", &want[1], prompt_n, false);
    limits(model, &want[0]);
    together(model, &want[0], prompt_n);
    for (uint32_t c = 0; c < CASES; c++) {
        recording_deinit(&want[c].logits);
    }
    return 0;
}
