/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of counters.h. */
#include "tests/unit/base/fail.h"

#include <stdio.h>
#include <string.h>

#include "src/base/counters.h"

static struct counters c;

static void registers_once(void **state)
{
    (void)state;
    struct counter *a = counters_register(&c, "read.bytes", "bytes read");
    assert_ptr_equal(a, counters_register(&c, "read.bytes", "bytes read"));
    assert_int_equal(c.n, 1);
    counter_add(a, 5);
    counter_add(a, 7);
    assert_int_equal(counter_get(counters_find(&c, "read.bytes")), 12);
    assert_null(counters_find(&c, "read.byte"));
}

static void is_full_at_the_limit(void **state)
{
    (void)state;
    static char names[COUNTERS_MAX][8];
    for (int i = 1; i < COUNTERS_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "n%d", i);
        assert_non_null(counters_register(&c, names[i], ""));
    }
    assert_null(counters_register(&c, "one more", ""));
    assert_non_null(counters_register(&c, "n5", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(registers_once), cmocka_unit_test(is_full_at_the_limit) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
