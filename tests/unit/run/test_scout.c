/* SPDX-License-Identifier: Apache-2.0 */
/* When a scout rides, with times and counts that are given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "src/run/scout.h"

enum { EXPERTS = 100 };

/* A machine and a text: seconds of a token, of an expert that is not in RAM, of a scout; experts of EXPERTS that one in RIDES spares. */
struct world {
    double computes, read, price;
    unsigned spares;
};

/* Tokens of n that a scout rode with; what they took, of what they would have without any, in *ret_share. */
static unsigned run(struct scout *s, const struct world *w, unsigned n, double *ret_share)
{
    unsigned rode = 0;
    double took = 0, plain = 0;
    for (unsigned i = 0; i < n; i++) {
        bool rides = scout_choose(s);
        unsigned would = EXPERTS - 20 + i * 7 % 41, spared = s->rides && s->ridden > 0 ? w->spares : 0;
        double seconds = w->computes + w->read * (would - spared) + (rides ? w->price : 0) + 0.01 * (i * 5 % 3);
        scout_token(s, &(struct scout_token){rides, seconds, would - spared, spared});
        rode += rides;
        took += seconds;
        plain += w->computes + w->read * would + 0.01 * (i * 5 % 3);
    }
    *ret_share = took / plain;
    return rode;
}

static void test_it_rides_where_it_pays(void **state)
{
    (void)state;
    struct scout s;
    double share;
    scout_init(&s, 0.03, 0.02);
    assert_in_range(run(&s, &(struct world){1, 0.1, 0.1, 9}, 1000, &share), 930, 980); /* a drive that brings 10 experts in the time that a token computes */
    assert_true(share < 0.94);
}

static void test_it_is_not_tried_where_it_cannot_pay(void **state)
{
    (void)state;
    struct scout s;
    double share;
    scout_init(&s, 0.2, 0.02);
    assert_int_equal(run(&s, &(struct world){10, 0.01, 1, 9}, 1000, &share), 0); /* reading is a tenth of a token */
    scout_init(&s, 0.2, 0.25); /* of four layers with experts, the MTP layer would be the fifth */
    assert_int_equal(run(&s, &(struct world){1, 0.1, 1, 9}, 1000, &share), 0);
}

/* Most that a scout could spare would pay, what it spares does not: tried now and then, ever more rarely. */
static void test_a_ride_that_does_not_pay_ends(void **state)
{
    (void)state;
    struct scout s;
    double share;
    scout_init(&s, 0.03, 0.02);
    const struct world w = {1, 0.1, 0.3, 1};
    assert_in_range(run(&s, &w, 500, &share), 30, 48);
    assert_true(share < 1.01);
    assert_in_range(run(&s, &w, 4000, &share), 48, 4 * 48);
    assert_true(share < 1.002);
}

/* Dearer than it was taken to be: what was measured decides. */
static void test_the_price_is_what_was_measured(void **state)
{
    (void)state;
    struct scout s;
    double share;
    scout_init(&s, 0.03, 0.02);
    assert_in_range(run(&s, &(struct world){1, 0.1, 2, 9}, 500, &share), 30, 48);
}

static void test_it_changes_its_mind(void **state)
{
    (void)state;
    struct scout s;
    double share;
    scout_init(&s, 0.03, 0.02);
    run(&s, &(struct world){1, 0.1, 0.1, 9}, 1000, &share);
    assert_in_range(run(&s, &(struct world){1, 0.1, 0.3, 0}, 2000, &share), 0, 300); /* a text that drafts miss */
    assert_true(run(&s, &(struct world){1, 0.1, 0.1, 9}, 6000, &share) > 4000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_rides_where_it_pays),
        cmocka_unit_test(test_it_is_not_tried_where_it_cannot_pay),
        cmocka_unit_test(test_a_ride_that_does_not_pay_ends),
        cmocka_unit_test(test_the_price_is_what_was_measured),
        cmocka_unit_test(test_it_changes_its_mind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
