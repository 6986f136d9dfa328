/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of numa.h on whatever machine runs them. */
#include "tests/unit/base/fail.h"

#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/numa.h"

static struct topology t;

static void describes_this_machine(void **state)
{
    (void)state;
    struct error e = { 0 };
    assert_int_equal(topology_read(&t, &e), 0);
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    assert_in_range(t.cores, 1, (unsigned)CPU_COUNT(&set));
    assert_in_range(t.nodes, 1, TOPOLOGY_MAX_NODES);
    assert_int_equal(t.processors, CPU_COUNT(&set));
    assert_true(t.here < t.nodes && t.nodes <= t.nodes_there);
    for (uint32_t c = 0; c < t.cores; c++) {
        assert_true(CPU_ISSET((unsigned)t.core_cpu[c], &set));
        assert_true(t.core_node[c] < t.nodes);
        for (uint32_t d = 0; d < c; d++) {
            assert_int_not_equal(t.core_cpu[c], t.core_cpu[d]);
        }
    }
    for (uint32_t n = 0; n < t.nodes; n++) {
        assert_true(t.node_total[n] > 0);
        assert_true(t.node_free[n] <= t.node_total[n]);
    }
}

static void respects_affinity(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&one);
    int last = t.core_cpu[t.cores - 1];
    CPU_SET((unsigned)last, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    int rc = topology_read(&t, NULL);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(rc, 0);
    assert_int_equal(t.cores, 1);
    assert_int_equal(t.core_cpu[0], last);
}

/* hwloc's own description of another machine: processors 0 and 1 are hyperthreads of one core, or two cores. */
static void counts_cores_not_hyperthreads(void **state)
{
    (void)state;
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    bool both = CPU_ISSET(0, &set) && CPU_ISSET(1, &set);
    setenv("HWLOC_SYNTHETIC", "package:1 core:4 pu:2", 1);
    int rc = topology_read(&t, NULL);
    setenv("HWLOC_SYNTHETIC", "package:2 core:4 pu:1", 1);
    static struct topology cores;
    int rc_cores = topology_read(&cores, NULL);
    unsetenv("HWLOC_SYNTHETIC");
    assert_int_equal(rc, 0);
    assert_int_equal(rc_cores, 0);
    if (both && CPU_COUNT(&set) == 2) {
        assert_int_equal(t.cores, 1);
        assert_int_equal(t.processors, 2);
        assert_int_equal(cores.cores, 2);
        assert_int_equal(cores.processors, 2);
    }
    assert_in_range(t.cores, 1, t.processors);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(describes_this_machine), cmocka_unit_test(respects_affinity),
                                         cmocka_unit_test(counts_cores_not_hyperthreads) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
