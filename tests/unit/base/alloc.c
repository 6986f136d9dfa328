/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of alloc.h. */
#include "tests/unit/base/fail.h"

#include <errno.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/numa.h"

static void small_and_large(void **state)
{
    (void)state;
    struct account a = { 0 };
    struct buffer small, large;
    assert_int_equal(buffer_init(&small, &a, PURPOSE_WORK, 100, NULL), 0);
    assert_int_equal((uintptr_t)small.data % 64, 0);
    assert_int_equal(a.bytes[PURPOSE_WORK], 4096);
    size_t n = (5 << 20) + 1;
    assert_int_equal(buffer_init(&large, &a, PURPOSE_KV, n, NULL), 0);
    assert_int_equal((uintptr_t)large.data % (2 << 20), 0);
    assert_int_equal(large.bytes, n);
    assert_int_equal(account_total(&a), small.mapped + large.mapped);
    assert_true(a.huge_bytes == 0 || a.huge_bytes == large.mapped);
    unsigned char *p = large.data;
    assert_int_equal(p[0], 0);
    assert_int_equal(p[n - 1], 0);
    memset(p, 1, n);
    buffer_deinit(&large);
    buffer_deinit(&small);
    buffer_deinit(&small);
    assert_int_equal(account_total(&a), 0);
    assert_int_equal(a.huge_bytes, 0);
}

static void empty_and_without_account(void **state)
{
    (void)state;
    struct buffer b;
    assert_int_equal(buffer_init(&b, NULL, PURPOSE_WORK, 0, NULL), 0);
    assert_null(b.data);
    buffer_deinit(&b);
    assert_int_equal(buffer_init(&b, NULL, PURPOSE_WORK, 3 << 20, NULL), 0);
    assert_non_null(b.data);
    buffer_deinit(&b);
}

static void failures_leave_nothing(void **state)
{
    (void)state;
    struct account a = { 0 };
    struct buffer b;
    struct error e = { 0 };
    static const size_t sizes[] = { 10, 4 << 20 };
    for (int i = 0; i < 2; i++) {
        fail_allocation(1);
        assert_int_equal(buffer_init(&b, &a, PURPOSE_EXPERTS, sizes[i], &e), -ENOMEM);
        assert_null(b.data);
        assert_int_equal(account_total(&a), 0);
    }
    assert_string_equal(e.text, "out of memory: experts (4194304 bytes)");
    assert_int_equal(buffer_init(&b, &a, PURPOSE_EXPERTS, SIZE_MAX - 1, &e), -ENOMEM);
}

static void no_huge_pages_is_counted_as_such(void **state)
{
    (void)state;
    struct account a = { 0 };
    struct buffer b;
    fail_madvise(1);
    assert_int_equal(buffer_init(&b, &a, PURPOSE_EXPERTS, 4 << 20, NULL), 0);
    fail_madvise(0);
    assert_false(b.huge);
    assert_int_equal(a.huge_bytes, 0);
    assert_int_equal(a.huge_refused, 4 << 20);
    assert_int_equal(a.huge_errno, EINVAL);
    buffer_deinit(&b);
    assert_int_equal(account_total(&a), 0);
}

/* Node 0 is there unless this process may not use it; node 1000 is not. */
static void bound_to_a_node(void **state)
{
    (void)state;
    static struct topology t;
    struct account a = { 0 };
    struct buffer b;
    assert_int_equal(topology_read(&t, NULL), 0);
    assert_int_equal(buffer_init_node(&b, &a, PURPOSE_EXPERTS, 3 << 20, t.node_os[0], NULL), 0);
    if (b.bind_errno == ENOSYS) {
        print_message("this kernel has no mbind\n");
        buffer_deinit(&b);
        return;
    }
    assert_int_equal(b.bind_errno, 0);
    assert_int_equal(b.node, t.node_os[0]);
    assert_int_equal(a.bind_refused, 0);
    memset(b.data, 1, 1 << 20);
    int node[768]; /* every page */
    assert_int_equal(numa_pages_where(b.data, b.bytes, node, 768), 0);
    for (int i = 0; i < 768; i++) { /* a huge page reaches beyond what was touched */
        assert_true(node[i] == t.node_os[0] || (i >= 256 && node[i] < 0));
    }
    buffer_deinit(&b);
    assert_int_equal(buffer_init(&b, &a, PURPOSE_KV, 3 << 20, NULL), 0);
    buffer_interleave(&b, t.node_os, t.nodes);
    assert_int_equal(b.bind_errno, 0);
    assert_int_equal(a.bind_refused, 0);
    buffer_interleave(&b, (const int[]){ 1000 }, 1);
    assert_int_equal(b.bind_errno, EINVAL);
    assert_int_equal(a.bind_refused, 3 << 20);
    buffer_deinit(&b);
    buffer_interleave(&b, t.node_os, t.nodes); /* nothing is there */
    a = (struct account){ 0 };
    assert_int_equal(buffer_init_node(&b, &a, PURPOSE_EXPERTS, 3 << 20, 1000, NULL), 0);
    assert_int_equal(b.bind_errno, EINVAL);
    assert_int_equal(a.bind_refused, 3 << 20);
    assert_int_equal(a.bind_errno, EINVAL);
    memset(b.data, 1, b.bytes);
    buffer_deinit(&b);
}

static void purposes_have_names(void **state)
{
    (void)state;
    for (unsigned p = 0; p < PURPOSE_COUNT; p++) {
        assert_non_null(purpose_name((enum purpose)p));
    }
    assert_string_equal(purpose_name(PURPOSE_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_and_large), cmocka_unit_test(empty_and_without_account),
        cmocka_unit_test(failures_leave_nothing), cmocka_unit_test(no_huge_pages_is_counted_as_such),
        cmocka_unit_test(bound_to_a_node), cmocka_unit_test(purposes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
