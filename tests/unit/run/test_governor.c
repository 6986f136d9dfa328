/* SPDX-License-Identifier: Apache-2.0 */
/* The draft length in worlds where steps cost this and drafts are right that often: what it gains, what it loses at most. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "src/run/governor.h"

/* Steps take base + row * drafts, cold ones longer. */
struct world {
    struct governor g;
    double base, row, right;     /* right: of a draft behind right ones */
    double weights;              /* of what a row costs, the part that is weights */
    double cold;                 /* factor of the first steps of a length */
    uint32_t cold_steps;
    double busy;                 /* others use the machine: slower in every second stretch of so long, and now and then a long step; 0: no */
    uint64_t seed;
    uint32_t steps[GOVERNOR_MOST + 1];
    double time, tokens;
};

static double draw(struct world *w)
{
    w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(w->seed >> 40) * 0x1p-24;
}

static void step(struct world *w)
{
    uint32_t k = governor_choose(&w->g);
    double seconds = (w->base + w->row * k) * (w->steps[k]++ < w->cold_steps ? w->cold : 1);
    double slow = w->busy > 0 ? ((int)(w->time / w->busy) % 2 ? 3 : 1) * (1 + 0.3 * draw(w)) * (draw(w) < 0.1 ? 4 : 1) : 1;
    governor_step(&w->g, k, seconds * slow, 1e9 * (1 + w->weights * w->row / w->base * k));
    w->time += seconds;
    w->tokens += 1;
    bool right = true;
    for (uint32_t i = 1; i <= k && right; i++) {
        right = draw(w) < w->right;
        governor_result(&w->g, i, right);
        w->tokens += right;
    }
}

static void run(struct world *w, double tokens)
{
    w->time = w->tokens = 0;
    while (w->tokens < tokens) {
        step(w);
    }
}

static struct world world(uint32_t most, double row, double right)
{
    struct world w = {.base = 0.1, .row = 0.1 * row, .right = right, .weights = 0.7, .seed = 7};
    governor_init(&w.g, most);
    return w;
}

/* Tokens per second, in those of a step without drafts. */
static double gain(const struct world *w) { return w->tokens / w->time * w->base; }

/* Of the best fixed length. */
static double best_gain(const struct world *w, uint32_t most)
{
    double best = 0;
    for (uint32_t k = 0; k <= most; k++) {
        double tokens = 1, all = 1;
        for (uint32_t i = 0; i < k; i++) {
            all *= w->right;
            tokens += all;
        }
        double g = tokens / (w->base + w->row * k) * w->base;
        best = g > best ? g : best;
    }
    return best;
}

static void test_off(void **state)
{
    (void)state;
    struct world w = world(0, 0.1, 1);
    run(&w, 50);
    assert_true(w.steps[0] == 50);
}

static void test_gains(void **state)
{
    (void)state;
    static const double rows[] = {0.05, 0.2, 0.4, 0.6}, rights[] = {0.5, 0.7, 0.85, 0.95};
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 4; k++) {
            struct world w = world(3, rows[i], rights[k]);
            run(&w, 5000);
            double least = 0.97 * best_gain(&w, 3);
            if (gain(&w) < least) {
                fail_msg("row %g, right %g: gain %g, expected at least %g", rows[i], rights[k], gain(&w), least);
            }
        }
    }
}

/* Never right, or too seldom: after a start that costs a few steps, one per cent. */
static void test_loses(void **state)
{
    (void)state;
    static const double rows[] = {0.3, 0.65, 1, 2}, rights[] = {0, 0, 0.5, 0.8};
    for (int i = 0; i < 4; i++) {
        struct world w = world(3, rows[i], rights[i]);
        run(&w, 100);
        assert_true(gain(&w) >= 0.93);
        run(&w, 10000);
        if (gain(&w) < 0.99) {
            fail_msg("row %g, right %g: gain %g", rows[i], rights[i], gain(&w));
        }
        assert_true(w.steps[1] > 10); /* still tried */
    }
}

static void test_change(void **state)
{
    (void)state;
    struct world w = world(3, 0.3, 0);
    run(&w, 3000);
    w.right = 0.9;
    run(&w, 3000); /* notices */
    run(&w, 3000);
    assert_true(gain(&w) >= 0.97 * best_gain(&w, 3));
    w.right = 0;
    run(&w, 300);
    run(&w, 3000);
    assert_true(gain(&w) >= 0.99);
    w.row = 0.01;
    w.right = 0.6;
    run(&w, 3000);
    run(&w, 3000);
    assert_true(gain(&w) >= 0.95 * best_gain(&w, 3));
}

/* The first steps of each length read what later ones find in memory. */
static void test_cold(void **state)
{
    (void)state;
    struct world w = world(2, 0.3, 0.9);
    w.cold = 20;
    w.cold_steps = 2;
    run(&w, 20000);
    run(&w, 3000);
    assert_true(gain(&w) >= 0.97 * best_gain(&w, 2));
    w = world(2, 0.7, 0.2);
    w.cold = 20;
    w.cold_steps = 2;
    run(&w, 3000);
    run(&w, 3000);
    assert_true(gain(&w) >= 0.99);
}

/* What the choices are worth, not what the others take. */
static void test_busy(void **state)
{
    (void)state;
    static const double rows[] = {0.6, 0.8, 1.2, 0.3, 0.1}, rights[] = {0, 0.5, 0.6, 0.8, 0.5}, stretches[] = {2, 3, 5, 10, 30};
    for (int i = 0; i < 25; i++) {
        struct world w = world(3, rows[i % 5], rights[i % 5]);
        w.busy = stretches[i / 5];
        run(&w, 20000);
        double least = 0.95 * best_gain(&w, 3);
        if (gain(&w) < least) {
            fail_msg("row %g, right %g, stretches of %g: gain %g, expected at least %g", rows[i % 5], rights[i % 5], w.busy, gain(&w), least);
        }
    }
}

/* Speed of answers of 256 tokens, each by a new timeline, where steps take up to 30 % longer and one in ten four times as
 * long; in that of steps without drafts. */
static double answers(double row, double right, double weights)
{
    double tokens = 0, time = 0;
    for (uint64_t i = 0; i < 100; i++) {
        struct world w = world(3, row, right);
        w.weights = weights;
        w.busy = 1e9;
        w.seed = 1000 + i;
        run(&w, 256);
        tokens += w.tokens;
        time += w.time;
    }
    return tokens / time * 0.1;
}

/* Drafts lose 10, 30, 100 % of a step each: an answer takes at most 1 % longer. */
static void test_answers_lose(void **state)
{
    (void)state;
    static const double losses[] = {0.1, 0.3, 1}, rights[] = {0, 0.35, 0.7, 0.9}, weights[] = {0.6, 0.8, 1};
    for (int i = 0; i < 36; i++) {
        double right = rights[i % 4], row = right + losses[i / 4 % 3], part = weights[i / 12], gain = answers(row, right, part);
        if (gain < 1 / 1.01) {
            fail_msg("row %g, right %g, weights %g: gain %g", row, right, part, gain);
        }
    }
}

/* They win: an answer has nine tenths of the best fixed length's speed, first tries included. */
static void test_answers_win(void **state)
{
    (void)state;
    static const double rows[] = {0.1, 0.3, 0.5}, rights[] = {0.6, 0.75, 0.9}, weights[] = {0.6, 0.8, 1};
    for (int i = 0; i < 27; i++) {
        double row = rows[i % 3], right = rights[i / 3 % 3], part = weights[i / 9], gain = answers(row, right, part);
        struct world w = world(3, row, right);
        if (gain < 0.9 * best_gain(&w, 3)) {
            fail_msg("row %g, right %g, weights %g: gain %g of %g", row, right, part, gain, best_gain(&w, 3));
        }
    }
}

/* A step that by chance took no longer than one without drafts is not believed: it read twice the weights. */
static void test_weights_are_the_least(void **state)
{
    (void)state;
    struct governor g;
    governor_init(&g, 3);
    uint32_t drafted = 0;
    for (int i = 0; i < 40; i++) {
        uint32_t k = governor_choose(&g);
        governor_step(&g, k, 1, 1 + k);
        for (uint32_t d = 1; d <= k; d++) {
            governor_result(&g, d, true);
        }
        drafted += k;
    }
    assert_true(drafted > 0 && drafted <= 3);
}

static void test_acceptance(void **state)
{
    (void)state;
    struct governor g;
    governor_init(&g, 99);
    assert_int_equal(g.most, GOVERNOR_MOST);
    for (int i = 0; i < 1000; i++) {
        governor_result(&g, 1, i % 4 != 0);
        governor_result(&g, 2, false);
    }
    governor_result(&g, 0, true);
    governor_result(&g, GOVERNOR_MOST + 1, true);
    assert_true(governor_acceptance(&g, 1) > 0.7 && governor_acceptance(&g, 1) < 0.8);
    assert_true(governor_acceptance(&g, 2) < 0.05);
    governor_step(&g, 0, 0, 1);
    governor_step(&g, GOVERNOR_MOST + 1, 1, 1);
    assert_int_equal(governor_choose(&g), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off), cmocka_unit_test(test_gains), cmocka_unit_test(test_loses),
        cmocka_unit_test(test_change), cmocka_unit_test(test_cold), cmocka_unit_test(test_busy), cmocka_unit_test(test_answers_lose),
        cmocka_unit_test(test_answers_win), cmocka_unit_test(test_weights_are_the_least), cmocka_unit_test(test_acceptance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
