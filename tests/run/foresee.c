/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: that watching changes nothing: logits and timelines are the same bits with and without foresight and shadow rows; what
 * shadow rows refuse; that a shadow row of the right token is its row up to the first router, and reads no
 * expert. usage: foresee MODEL (with an MTP layer) */
#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/run/foresee.h"
#include "src/run/step.h"

enum { TOKENS = 70 }; /* more than a page of KV */

struct seen {
    float *logits; /* [TOKENS, vocab] */
    uint32_t vocab;
    uint32_t scores[FORESIGHTS], mtp;
    uint32_t experts;
    float *shadow, *router; /* [experts] of the first layer with experts, position 1 */
    uint32_t layer;
};

static void keep_logits(void *ctx, uint32_t position, const float *logits)
{
    struct seen *s = ctx;
    memcpy(s->logits + (size_t)position * s->vocab, logits, s->vocab * sizeof(*logits));
}

static void count_scores(void *ctx, const struct session *session, enum foresight source, uint32_t layer, uint32_t position, const float *scores)
{
    struct seen *s = ctx;
    assert(session->engine->shape->layers > layer);
    s->scores[source]++;
    if (layer == s->layer && position == 1 && (source == FORESEE_SHADOW || source == FORESEE_ROUTER)) {
        memcpy(source == FORESEE_SHADOW ? s->shadow : s->router, scores, s->experts * sizeof(*scores));
    }
}

static void count_mtp(void *ctx, const struct session *session, uint32_t row, const float *state)
{
    struct seen *s = ctx;
    (void)state;
    assert(session->mtp && row < TOKENS);
    s->mtp++;
}

static void ok(int r, const struct error *e)
{
    if (r < 0) {
        fprintf(stderr, "%s\n", e->text);
        abort();
    }
}

static struct seen seen_of(const struct engine *g)
{
    struct seen s = {.vocab = g->shape->vocab, .experts = g->shape->experts};
    s.logits = calloc((size_t)TOKENS * s.vocab, sizeof(*s.logits));
    s.shadow = calloc(s.experts, sizeof(float));
    s.router = calloc(s.experts, sizeof(float));
    assert(s.logits && s.shadow && s.router);
    while (!shape_layer_is_moe(g->shape, s.layer)) {
        s.layer++;
    }
    return s;
}

static void forget(struct seen *s)
{
    free(s->logits);
    free(s->shadow);
    free(s->router);
}

/* Prompt of 20 as a bulk chunk, the rest token by token, with a guess at the next one if asked. */
static void play(struct engine *g, const int32_t *tokens, const int32_t *guesses, struct seen *s)
{
    struct session *t = NULL;
    struct error e = {0};
    ok(session_create(g, &(struct session_hooks){.on_logits = keep_logits, .ctx = s}, SESSION_MTP_ALL, &t, &e), &e);
    for (uint32_t p = 0, n; p < TOKENS; p += n) {
        n = p == 20 ? 20 : 1;
        const struct step_feed f = {.session = t, .tokens = tokens + p, .n = n, .bulk = n > 8, .shadow = guesses && n == 1 && p + 1 < TOKENS ? &guesses[p + 1] : NULL};
        ok(step_once(g, &f, 1, &e), &e);
    }
    assert(t->length == TOKENS && memcmp(t->tokens, tokens, TOKENS * sizeof(*tokens)) == 0);
    session_destroy(t);
}

static void watching_changes_nothing(struct engine *g, const int32_t *tokens)
{
    struct seen plain = seen_of(g), watched = seen_of(g);
    struct foresee *f = NULL;
    struct error e = {0};
    int32_t guesses[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++) {
        guesses[i] = i % 3 == 0 ? tokens[i] : (tokens[i] + 17) % (int32_t)g->shape->vocab;
    }
    guesses[1] = tokens[1];
    play(g, tokens, NULL, &plain);
    const struct foresee_options o = {.wanted = (1u << FORESIGHTS) - 1, .on_scores = count_scores, .on_mtp = count_mtp, .ctx = &watched};
    ok(foresee_create(g, &o, &f, &e), &e);
    play(g, tokens, guesses, &watched);
    foresee_destroy(f);
    assert(g->foresee == NULL);
    assert(memcmp(plain.logits, watched.logits, (size_t)TOKENS * plain.vocab * sizeof(float)) == 0);
    uint32_t moe = 0;
    for (uint32_t l = 0; l < g->shape->layers; l++) {
        moe += shape_layer_is_moe(g->shape, l);
    }
    assert(watched.scores[FORESEE_ROUTER] == TOKENS * moe);
    assert(watched.scores[FORESEE_SHADOW] == (TOKENS - 20 - 1) * moe);
    assert(watched.scores[FORESEE_GATE] == TOKENS * (moe - 1) && watched.scores[FORESEE_GATE_SHARED] == TOKENS * (moe - 1));
    assert(watched.scores[FORESEE_GATE_FULL] == TOKENS * (moe - 1) && watched.scores[FORESEE_GATE_TWO] == TOKENS * (moe - 2));
    assert(watched.scores[FORESEE_PROBE] == 0); /* nothing was learned */
    assert(watched.mtp == TOKENS - 1);
    /* Up to the first router a shadow row of the right token is that token's row. */
    assert(memcmp(watched.shadow, watched.router, watched.experts * sizeof(float)) == 0);
    forget(&plain);
    forget(&watched);
}

/* Two timelines in one step, each with a shadow row behind its own. */
static void timelines_together(struct engine *g, const int32_t *tokens)
{
    enum { N = 20 };
    struct seen apart[2], joined[2];
    struct session *t[2];
    struct error e = {0};
    for (uint32_t i = 0; i < 2; i++) {
        struct session *one = NULL;
        apart[i] = seen_of(g);
        joined[i] = seen_of(g);
        ok(session_create(g, &(struct session_hooks){.on_logits = keep_logits, .ctx = &apart[i]}, SESSION_MTP_NONE, &one, &e), &e);
        for (uint32_t p = 0; p < N; p++) {
            ok(session_feed(one, tokens + 50 * i + p, 1, &e), &e);
        }
        session_destroy(one);
        ok(session_create(g, &(struct session_hooks){.on_logits = keep_logits, .ctx = &joined[i]}, SESSION_MTP_NONE, &t[i], &e), &e);
    }
    for (uint32_t p = 0; p < N; p++) {
        const struct step_feed f[2] = {{.session = t[0], .tokens = tokens + p, .n = 1, .shadow = tokens + p + 7},
                                       {.session = t[1], .tokens = tokens + 50 + p, .n = 1, .shadow = tokens + p + 9}};
        ok(step_once(g, f, 2, &e), &e);
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert(memcmp(apart[i].logits, joined[i].logits, (size_t)N * apart[i].vocab * sizeof(float)) == 0);
        forget(&apart[i]);
        forget(&joined[i]);
        session_destroy(t[i]);
    }
}

static uint64_t count_of(const struct engine *g, const char *name)
{
    const struct counter *c = counters_find(&g->counters, name);
    assert(c != NULL);
    return counter_get(c);
}

/* A shadow row reads no expert: hits and misses are those without it. The model is opened anew, so that both begin alike. */
static void shadow_rows_read_nothing(const struct settings *s, const int32_t *tokens)
{
    uint64_t hits[2], misses[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct engine *g = NULL;
        struct error e = {0};
        ok(engine_open(s, &(struct engine_hooks){.log = {.level = LOG_ERROR}}, &g, &e), &e);
        struct seen seen = seen_of(g);
        play(g, tokens, i == 0 ? NULL : tokens + 100, &seen);
        hits[i] = count_of(g, "expert.ram.hits");
        misses[i] = count_of(g, "expert.ram.misses");
        forget(&seen);
        engine_close(g);
    }
    assert(misses[0] > 0 && hits[0] == hits[1] && misses[0] == misses[1]);
}

static void refused(struct engine *g, const struct step_feed *f, const char *text)
{
    struct step *s;
    struct error e = {0};
    assert(step_open(g, f, 1, &s, &e) < 0 && strstr(e.text, text));
}

static void refusals(struct engine *g, const int32_t *tokens)
{
    struct session *t = NULL;
    struct error e = {0};
    const int32_t bad = (int32_t)g->shape->vocab;
    ok(session_create(g, NULL, SESSION_MTP_NONE, &t, &e), &e);
    refused(g, &(struct step_feed){.session = t, .tokens = tokens, .n = 20, .bulk = true, .shadow = tokens}, "a shadow row goes with exact rows");
    refused(g, &(struct step_feed){.session = t, .tokens = tokens, .n = g->context, .shadow = tokens}, "a shadow row goes with");
    refused(g, &(struct step_feed){.session = t, .tokens = tokens, .n = 2, .shadow = &bad}, "at index 2 is not an id");
    ok(session_feed(t, tokens, 3, &e), &e);
    refused(g, &(struct step_feed){.session = t, .n = 1, .refresh = true, .shadow = tokens}, "refreshed");
    assert(t->length == 3);
    session_destroy(t);
}

int main(int argc, char **argv)
{
    struct settings s;
    struct engine *g = NULL;
    struct error e = {0};
    int32_t tokens[256];
    assert(argc == 2);
    ok(settings_init(&s, &e), &e);
    ok(settings_set(&s, "model", argv[1], SOURCE_API, &e), &e);
    ok(settings_set(&s, "ctx", "128", SOURCE_API, &e), &e);
    ok(settings_set(&s, "ubatch", "64", SOURCE_API, &e), &e);
    ok(settings_set(&s, "threads", "2", SOURCE_API, &e), &e);
    ok(settings_set(&s, "bulk", "own", SOURCE_API, &e), &e);
    ok(engine_open(&s, &(struct engine_hooks){.log = {.level = LOG_ERROR}}, &g, &e), &e);
    for (uint32_t i = 0; i < 256; i++) {
        tokens[i] = (int32_t)((i * 2654435761u >> 7) % g->shape->vocab);
    }
    watching_changes_nothing(g, tokens);
    refusals(g, tokens);
    timelines_together(g, tokens);
    engine_close(g);
    ok(settings_set(&s, "expert-ram", "20%", SOURCE_API, &e), &e);
    ok(settings_set(&s, "prefetch", "off", SOURCE_API, &e), &e);
    shadow_rows_read_nothing(&s, tokens);
    settings_deinit(&s);
    return 0;
}
