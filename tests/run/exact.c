/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: invariant 1 of the design, through the public API: the bits of every logit do not depend on threads, on other rows
 * of a step, on chunk sizes of exact rows, on forks, rollbacks, restores or where pages lie. usage: exact MODEL */
#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/run/harness.h"

enum { LENGTH = 100, OTHERS = 15, TOKENS_BELOW = 300 };

static int32_t text[LENGTH];

static struct recording plain(const char *model, const char *threads, const char *ubatch, const char *isa)
{
    struct recording r = {0};
    struct sluice_engine *g = harness_open(model, "threads", threads, "ubatch", ubatch, "isa", isa, "bulk", "own", "ctx", "256", NULL);
    struct sluice_session *s = harness_session(g, &r);
    harness_feed(s, text, LENGTH);
    sluice_session_destroy(s);
    sluice_engine_close(g);
    return r;
}

static void check(struct recording *want, struct recording got, const char *what)
{
    recording_equal(want, &got, 0, LENGTH, what);
    recording_deinit(&got);
    printf("ok %s\n", what);
}

static void threads_and_chunks(const char *model, struct recording *exact, struct recording *bulk)
{
    check(exact, plain(model, "2", "8", "auto"), "2 threads, exact rows");
    check(exact, plain(model, "4", "8", "auto"), "4 threads, exact rows");
    check(exact, plain(model, "1", "1", "auto"), "-ub 1");
    check(exact, plain(model, "2", "3", "auto"), "-ub 3");
    check(exact, plain(model, "2", "8", "scalar"), "scalar kernels");
    check(bulk, plain(model, "2", "64", "auto"), "2 threads, bulk chunks");
    for (int i = 0; i < 8; i++) { /* a race in a library shows in some runs only */
        check(bulk, plain(model, "4", "64", "auto"), "4 threads, bulk chunks");
    }
}

/* One step over feeds; fails the test on any error. */
static void step(struct sluice_engine *g, const struct sluice_feed *feeds, uint32_t n)
{
    struct sluice_error e = {0};
    struct sluice_step *st;
    if (sluice_step_open(g, feeds, n, &st, &e) != 0 || sluice_step_run(st, sluice_step_layers_left(st), &e) != 0 || sluice_step_commit(st, &e) != 0) {
        fprintf(stderr, "step: %s\n", e.text);
        abort();
    }
}

/* The text token by token as row `slot` among 15 others that run texts of their own, at other positions. */
static struct recording among_others(struct sluice_engine *g, uint32_t slot)
{
    struct recording r = {0}, ignored[OTHERS] = {{0}};
    struct sluice_session *s = harness_session(g, &r), *other[OTHERS];
    int32_t noise[OTHERS][LENGTH + OTHERS];
    for (uint32_t i = 0; i < OTHERS; i++) {
        other[i] = harness_session(g, &ignored[i]);
        harness_tokens(100 + i, TOKENS_BELOW, noise[i], LENGTH + OTHERS);
        harness_feed(other[i], noise[i], i + 1);
    }
    for (uint32_t p = 0; p < LENGTH; p++) {
        struct sluice_feed feeds[OTHERS + 1];
        for (uint32_t i = 0, k = 0; i <= OTHERS; i++) {
            if (i == slot) {
                feeds[i] = (struct sluice_feed){s, &text[p], 1, false};
            } else {
                feeds[i] = (struct sluice_feed){other[k], &noise[k][k + 1 + p], 1, false};
                k++;
            }
        }
        step(g, feeds, OTHERS + 1);
    }
    for (uint32_t i = 0; i < OTHERS; i++) {
        sluice_session_destroy(other[i]);
        recording_deinit(&ignored[i]);
    }
    sluice_session_destroy(s);
    return r;
}

/* Bulk chunks of the text while another session decodes in the same steps and a third is prefilled between them. */
static struct recording bulk_beside(struct sluice_engine *g, uint32_t ubatch)
{
    struct recording r = {0}, a = {0}, b = {0};
    struct sluice_session *s = harness_session(g, &r), *decode = harness_session(g, &a), *prefill = harness_session(g, &b);
    int32_t noise[2 * LENGTH];
    harness_tokens(7, TOKENS_BELOW, noise, 2 * LENGTH);
    harness_feed(decode, noise, 5);
    for (uint32_t p = 0, d = 5; p < LENGTH; d++) {
        uint32_t n = LENGTH - p < ubatch ? LENGTH - p : ubatch;
        struct sluice_feed feeds[2] = {{decode, &noise[d], 1, false}, {s, &text[p], n, n > 8}};
        step(g, feeds, 2);
        harness_feed(prefill, &noise[d * 3], 20);
        p += n;
    }
    sluice_session_destroy(prefill);
    sluice_session_destroy(decode);
    sluice_session_destroy(s);
    recording_deinit(&a);
    recording_deinit(&b);
    return r;
}

/* Two open steps, layer by layer in turn. */
static struct recording two_steps(struct sluice_engine *g)
{
    struct recording r = {0}, a = {0};
    struct sluice_session *s = harness_session(g, &r), *other = harness_session(g, &a);
    int32_t noise[LENGTH];
    struct sluice_error e;
    harness_tokens(9, TOKENS_BELOW, noise, LENGTH);
    for (uint32_t p = 0; p < LENGTH; p++) {
        struct sluice_step *x, *y;
        assert(sluice_step_open(g, &(struct sluice_feed){s, &text[p], 1, false}, 1, &x, &e) == 0);
        assert(sluice_step_open(g, &(struct sluice_feed){other, &noise[p], 1, false}, 1, &y, &e) == 0);
        struct sluice_step *third;
        assert(sluice_step_open(g, &(struct sluice_feed){other, &noise[p], 1, false}, 1, &third, &e) == SLUICE_FAILED);
        while (sluice_step_layers_left(x) > 0) {
            assert(sluice_step_run(x, 1, &e) == 0 && sluice_step_run(y, 1, &e) == 0);
        }
        if (p % 3 == 0) {
            assert(sluice_step_commit(y, &e) == 0);
        } else {
            sluice_step_abort(y);
        }
        assert(sluice_step_commit(x, &e) == 0);
    }
    assert(sluice_session_length(other) == (LENGTH + 2) / 3);
    sluice_session_destroy(other);
    sluice_session_destroy(s);
    recording_deinit(&a);
    return r;
}

/* Half of the text, a fork that runs astray, then on; rolled back and repeated; pages of both lie between each other. */
static void fork_and_rollback(struct sluice_engine *g, const struct recording *want)
{
    struct recording r = {0};
    struct sluice_session *s = harness_session(g, &r), *fork;
    struct sluice_error e;
    int32_t noise[LENGTH];
    harness_tokens(11, TOKENS_BELOW, noise, LENGTH);
    harness_feed(s, text, 50);
    assert(sluice_session_fork(s, NULL, &fork, &e) == 0);
    for (uint32_t p = 50; p < LENGTH; p++) {
        harness_feed(fork, &noise[p], 1);
        harness_feed(s, &text[p], 1);
    }
    recording_equal(want, &r, 0, LENGTH, "timeline that was forked");
    assert(sluice_session_rollback(fork, 50, &e) == 0 && sluice_session_logits(fork) == NULL);
    assert(sluice_session_refresh(fork, &e) == 0);
    assert(memcmp(sluice_session_logits(fork), want->logits + 49 * (size_t)r.vocab, r.vocab * sizeof(float)) == 0);
    harness_feed(fork, text + 50, LENGTH - 50);
    assert(memcmp(sluice_session_logits(fork), want->logits + (LENGTH - 1) * (size_t)r.vocab, r.vocab * sizeof(float)) == 0);
    assert(sluice_session_rollback(s, 17, &e) == 0);
    harness_feed(s, text + 17, LENGTH - 17);
    recording_equal(want, &r, 0, LENGTH, "rolled back and fed again");
    sluice_session_destroy(fork);
    sluice_session_destroy(s);
    recording_deinit(&r);
    printf("ok fork, rollback, refresh, scattered pages\n");
}

static void save_and_restore(struct sluice_engine *g, const struct recording *want)
{
    struct recording r = {0};
    struct sluice_session *s = harness_session(g, &r), *back;
    struct sluice_error e;
    char path[] = "/tmp/sluice-exact-XXXXXX";
    int fd = mkstemp(path);
    assert(fd >= 0);
    close(fd);
    harness_feed(s, text, 70);
    assert(sluice_session_save(s, path, &e) == 0);
    sluice_session_destroy(s);
    assert(sluice_session_restore(g, path, NULL, &back, &e) == 0);
    assert(sluice_session_length(back) == 70 && memcmp(sluice_session_tokens(back), text, 70 * sizeof(*text)) == 0);
    assert(memcmp(sluice_session_logits(back), want->logits + 69 * (size_t)r.vocab, r.vocab * sizeof(float)) == 0);
    harness_feed(back, text + 70, LENGTH - 70);
    assert(memcmp(sluice_session_logits(back), want->logits + (LENGTH - 1) * (size_t)r.vocab, r.vocab * sizeof(float)) == 0);
    sluice_session_destroy(back);
    recording_deinit(&r);
    unlink(path);
    printf("ok save and restore\n");
}

int main(int argc, char **argv)
{
    assert(argc == 2);
    const char *model = argv[1];
    harness_tokens(1, TOKENS_BELOW, text, LENGTH);
    struct recording exact = plain(model, "1", "8", "auto"), bulk = plain(model, "1", "64", "auto");
    threads_and_chunks(model, &exact, &bulk);
    struct sluice_engine *g = harness_open(model, "threads", "2", "ubatch", "8", "ctx", "256", "parallel", "20", NULL);
    check(&exact, among_others(g, 0), "first of 16 rows");
    check(&exact, among_others(g, 9), "tenth of 16 rows");
    check(&exact, two_steps(g), "two open steps in turn");
    fork_and_rollback(g, &exact);
    save_and_restore(g, &exact);
    sluice_engine_close(g);
    g = harness_open(model, "threads", "2", "ubatch", "64", "bulk", "own", "ctx", "256", "parallel", "20", NULL);
    check(&bulk, bulk_beside(g, 64), "bulk chunks beside other sessions");
    sluice_engine_close(g);
    recording_deinit(&exact);
    recording_deinit(&bulk);
    return 0;
}
