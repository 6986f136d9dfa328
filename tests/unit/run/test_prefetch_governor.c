/* SPDX-License-Identifier: Apache-2.0 */
/* The choice between reading ahead and not, with times that are given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "src/run/prefetch.h"

/* Tokens of n that went with hints, when a token costs so many seconds for each of its 10 experts. */
static unsigned run(struct prefetch_governor *g, unsigned n, double without, double with)
{
    unsigned hinted = 0;
    for (unsigned i = 0; i < n; i++) {
        bool on = prefetch_governor_choose(g);
        prefetch_governor_token(g, on, 10 * (on ? with : without), 10);
        hinted += on;
    }
    return hinted;
}

static void test_the_cheaper_way_is_taken(void **state)
{
    (void)state;
    struct prefetch_governor pays = {0}, costs = {0};
    assert_in_range(run(&pays, 640, 1.0, 0.8), 610, 632);
    assert_in_range(run(&costs, 640, 0.8, 1.0), 8, 24); /* the first eight, and one of 64 */
}

static void test_it_changes_its_mind(void **state)
{
    (void)state;
    struct prefetch_governor g = {0};
    run(&g, 640, 1.0, 0.8);
    run(&g, 2000, 1.0, 1.5); /* as when the drive becomes the bound */
    assert_in_range(run(&g, 640, 1.0, 1.5), 0, 12);
    run(&g, 4000, 1.0, 0.5);
    assert_in_range(run(&g, 640, 1.0, 0.5), 620, 640);
}

static void test_tokens_without_reads_say_nothing(void **state)
{
    (void)state;
    struct prefetch_governor g = {0};
    for (int i = 0; i < 100; i++) {
        prefetch_governor_token(&g, i % 2 == 0, 1.0, 0);
    }
    assert_true(g.seen[0] == 0 && g.seen[1] == 0 && g.tokens == 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_cheaper_way_is_taken),
        cmocka_unit_test(test_it_changes_its_mind),
        cmocka_unit_test(test_tokens_without_reads_say_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
