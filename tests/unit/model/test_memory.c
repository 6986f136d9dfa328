/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: opening a checkpoint while any one allocation fails: an error that says so, nothing lost, nothing kept. */
#include "tests/unit/base/fail.h"
#include "tests/unit/model/model_test.h"

static void open_with_failures(const char *path, const char *mtp_from)
{
    for (int n = 1;; n++) {
        struct weights *w = NULL;
        struct error e;
        fail_allocation(n);
        int r = open_weights(path, mtp_from, true, &w, &e);
        int happened = fail_happened();
        fail_allocation(0);
        if (r == 0) {
            weights_close(w);
        } else {
            assert_contains(e.text, "memory");
            assert_null(w);
        }
        if (!happened) {
            assert_int_equal(r, 0);
            assert_true(n > 10);
            return;
        }
    }
}

static void test_any_allocation_may_fail(void **state)
{
    (void)state;
    open_with_failures(golden("v3"), golden("v3"));
    open_with_failures(golden("gguf-q8_0-split"), NULL);
    open_with_failures(golden("kq-q2"), NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_any_allocation_may_fail) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
