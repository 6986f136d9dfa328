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
    struct prefetch_governor same = {0};
    assert_in_range(run(&same, 640, 1.0, 0.995), 8, 24); /* what gains next to nothing is not worth its work */
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

/* A token has a fixed part and one of its misses: what has more of these is not dearer for it, nor cheaper because the fixed part is
 * shared by more. */
static void test_ways_are_compared_at_the_same_misses(void **state)
{
    (void)state;
    struct prefetch_governor pays = {0}, costs = {0};
    unsigned hinted[2] = {0, 0};
    for (unsigned i = 0; i < 640; i++) {
        unsigned misses = 5 + i * 7 % 11 + (i % 2) * 10;
        bool on = prefetch_governor_choose(&pays);
        hinted[0] += on;
        prefetch_governor_token(&pays, on, on ? 9 + misses : 10 + misses, misses);
        on = prefetch_governor_choose(&costs);
        hinted[1] += on;
        prefetch_governor_token(&costs, on, on ? 11 + misses : 10 + misses, misses);
    }
    assert_in_range(hinted[0], 600, 640);
    assert_in_range(hinted[1], 0, 40);
}

static void test_asking_alone_costs(void **state)
{
    (void)state;
    struct prefetch_governor g = {0};
    for (unsigned i = 0; i < 640; i++) {
        bool on = prefetch_governor_choose(&g);
        prefetch_governor_token(&g, on, on ? 1.05 : 1.0, 0); /* all experts were there */
    }
    assert_in_range(g.ways.way[1].seen, 8, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_cheaper_way_is_taken),
        cmocka_unit_test(test_it_changes_its_mind),
        cmocka_unit_test(test_ways_are_compared_at_the_same_misses),
        cmocka_unit_test(test_asking_alone_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
