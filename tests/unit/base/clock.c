/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of clock.h. */
#include "tests/unit/base/fail.h"

#include "src/base/clock.h"

static void system_moves_forward(void **state)
{
    (void)state;
    struct clock c = clock_system();
    uint64_t a = clock_now_ns(&c);
    assert_true(a > 0);
    assert_true(clock_now_ns(&c) >= a);
    assert_true(clock_seconds_since(&c, a) >= 0);
}

static void manual_moves_when_told(void **state)
{
    (void)state;
    struct clock_manual m = { 100 };
    struct clock c = clock_manual_as_clock(&m);
    assert_int_equal(clock_now_ns(&c), 100);
    m.ns += 2500000000u;
    assert_true(clock_seconds_since(&c, 100) == 2.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(system_moves_forward), cmocka_unit_test(manual_moves_when_told) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
