/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a scout - the shadow row of a draft that is not computed for its own sake - changes what stays in RAM, and no bit: logits are
 * those of a session that has none, with drafts, prompts, rollbacks and forks between. And what it shows is worth something: of a text
 * that the model wrote, experts stay that would not without. usage: scouts MODEL (with an MTP layer; trained) */
#undef NDEBUG
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/run/api.h"
#include "src/run/draft.h"
#include "src/run/prefetch.h"
#include "tests/run/harness.h"

enum { TOKENS = 300, PROMPT = 24 };

/* One of the likelier tokens. */
static int32_t draw(const float *logits, uint32_t vocab, uint64_t *dice)
{
    double sum = 0;
    float most = logits[0];
    for (uint32_t v = 1; v < vocab; v++) {
        most = logits[v] > most ? logits[v] : most;
    }
    for (uint32_t v = 0; v < vocab; v++) {
        sum += exp((double)(logits[v] - most) / 0.8);
    }
    *dice = *dice * 6364136223846793005u + 1442695040888963407u;
    double left = sum * (double)(*dice >> 33) / (double)(1u << 31);
    for (uint32_t v = 0; v < vocab; v++) {
        left -= exp((double)(logits[v] - most) / 0.8);
        if (left < 0) {
            return (int32_t)v;
        }
    }
    return 0;
}

/* What the model goes on with. */
static void write_text(const char *model, int32_t *tokens)
{
    struct recording r = {0};
    uint64_t dice = 1;
    struct sluice_engine *g = harness_open(model, "threads", "2", "ctx", "512", "mtp", "off", NULL);
    struct sluice_session *s = harness_session(g, &r);
    struct sluice_model_info info;
    sluice_engine_info(g, &info);
    harness_tokens(5, info.vocab, tokens, 8);
    harness_feed(s, tokens, 8);
    for (uint32_t i = 8; i < TOKENS; i++) {
        tokens[i] = draw(r.logits + (size_t)(i - 1) * r.vocab, r.vocab, &dice);
        harness_feed(s, &tokens[i], 1);
    }
    sluice_session_destroy(s);
    sluice_engine_close(g);
    recording_deinit(&r);
}

static void feed_line(struct sluice_session *s, const int32_t *tokens, uint32_t begin, uint32_t end, uint32_t drafts)
{
    if (s->session->draft != NULL) {
        s->session->draft->governor.most = drafts;
    }
    for (uint32_t i = begin; i < end; i++) {
        harness_feed(s, &tokens[i], 1);
    }
}

/* A prompt, tokens without and with drafts, a rollback, and a fork that goes on; returns the fork. */
static struct sluice_session *walk(struct sluice_session *s, struct recording *r, const int32_t *tokens)
{
    struct sluice_error e;
    harness_feed(s, tokens, PROMPT);
    feed_line(s, tokens, PROMPT, 100, 0);
    feed_line(s, tokens, 100, 120, 2);
    feed_line(s, tokens, 120, 140, 0);
    harness_feed(s, tokens + 140, 20); /* as a prompt */
    feed_line(s, tokens, 160, 180, 0);
    assert(sluice_session_rollback(s, 170, &e) == 0);
    feed_line(s, tokens, 170, 175, 0);
    struct sluice_session *fork = harness_fork(s, r);
    feed_line(fork, tokens, 175, TOKENS, 0);
    return fork;
}

static long spared(const struct sluice_engine *g)
{
    struct str json = {0};
    prefetch_json(g->engine->prefetch, &json);
    const char *at = strstr(json.data, "\"spared\": ");
    assert(at != NULL);
    long n = strtol(at + strlen("\"spared\": "), NULL, 10);
    str_deinit(&json);
    return n;
}

int main(int argc, char **argv)
{
    assert(argc == 2);
    int32_t tokens[TOKENS];
    struct recording plain = {0}, scouting = {0};
    write_text(argv[1], tokens);
    struct sluice_engine *a = harness_open(argv[1], "threads", "2", "ctx", "512", "mtp", "auto", "prefetch", "off", "parallel", "2", NULL);
    struct sluice_engine *b = harness_open(argv[1], "threads", "2", "ctx", "512", "mtp", "auto", "prefetch", "on", "parallel", "2", "expert-ram", "10%", NULL);
    struct sluice_session *s = harness_drafting_session(a, &plain), *t = harness_drafting_session(b, &scouting);
    struct sluice_session *s2 = walk(s, &plain, tokens), *t2 = walk(t, &scouting, tokens);
    recording_equal(&plain, &scouting, 0, TOKENS, "with scouts");
    assert(sluice_engine_counter(a, "prefetch.scouts") == 0);
    uint64_t rode = sluice_engine_counter(b, "prefetch.scouts"), alone = 76 + 20 + 20 + 5 + TOKENS - 175;
    if (rode < alone || rode > alone + 20) { /* tokens that may have drafts begin without */
        fprintf(stderr, "%" PRIu64 " scouts, expected one for each of %" PRIu64 " tokens without drafts\n", rode, alone);
        abort();
    }
    if (spared(b) < 300) { /* of about 7500 uses */
        fprintf(stderr, "%ld experts spared\n", spared(b));
        abort();
    }
    sluice_session_destroy(s);
    sluice_session_destroy(s2);
    sluice_session_destroy(t);
    sluice_session_destroy(t2);
    sluice_engine_close(a);
    sluice_engine_close(b);
    recording_deinit(&plain);
    recording_deinit(&scouting);
    return 0;
}
