/* SPDX-License-Identifier: Apache-2.0 */
/* The probe on recorded /proc and /sys trees: which limit binds, control groups of both versions, quotas, nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "src/run/probe.h"

static const uint64_t gib = UINT64_C(1) << 30;

/* A tree under a temporary folder. */
struct tree {
    char root[64];
};

static void put(const struct tree *t, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "%s%s", t->root, path);
    for (char *slash = full + strlen(t->root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(full, 0755);
        *slash = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

static void put_number(const struct tree *t, const char *path, uint64_t n)
{
    char text[32];
    snprintf(text, sizeof(text), "%llu\n", (unsigned long long)n);
    put(t, path, text);
}

static int setup(void **state)
{
    struct tree *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    strcpy(t->root, "/tmp/sluice-probe-XXXXXX");
    assert_non_null(mkdtemp(t->root));
    put(t, "/proc/meminfo", "MemTotal:       33554432 kB\nMemFree:  1024 kB\nMemAvailable:   16777216 kB\n");
    put(t, "/proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU 9000\n");
    put(t, "/proc/self/status", "Name:\tx\nVmPeak:\t 99 kB\nVmSize:\t 1048576 kB\n");
    put(t, "/proc/self/limits", "Limit  Soft Limit  Hard Limit  Units\nMax address space         unlimited            unlimited            bytes\n");
    put(t, "/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 16777216 kB\n");
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct tree *t = *state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", t->root);
    int r = system(command);
    free(t);
    return r;
}

static struct machine probe(const struct tree *t, uint32_t cores, uint32_t nodes)
{
    struct topology topology = {.cores = cores, .nodes = nodes};
    struct probe_options o = {.root = t->root, .topology = &topology};
    struct machine m;
    struct error e = {0};
    assert_int_equal(probe_machine(&o, &m, &e), 0);
    return m;
}

static void assert_binds(const struct machine *m, enum memory_limit which, uint64_t bytes)
{
    enum memory_limit found;
    assert_int_equal(machine_memory(m, &found), bytes);
    assert_int_equal(found, which);
}

static void test_available(void **state)
{
    struct machine m = probe(*state, 8, 1);
    assert_binds(&m, LIMIT_AVAILABLE, 16 * gib);
    assert_int_equal(m.memory_total, 32 * gib);
    assert_string_equal(m.cpu, "Some CPU 9000");
    char why[100];
    assert_int_equal(probe_threads(&m, why, sizeof(why)), 8);
    assert_string_equal(why, "8 physical cores allowed");
    put(*state, "/proc/meminfo", "MemTotal:       33554432 kB\nMemAvailable:   0 kB\n");
    m = probe(*state, 8, 1);
    assert_binds(&m, LIMIT_AVAILABLE, 1);
}

static void test_address_space(void **state)
{
    put(*state, "/proc/self/limits", "Max address space         4294967296           unlimited            bytes\n");
    struct machine m = probe(*state, 8, 1);
    assert_binds(&m, LIMIT_ADDRESS_SPACE, 3 * gib);
}

static void test_cgroup1(void **state)
{
    const struct tree *t = *state;
    put(t, "/proc/self/cgroup", "4:memory:/box/inner\n2:cpu,cpuacct:/box\n0::/\n");
    put(t, "/proc/self/mountinfo", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpuacct,cpu\n"
                                    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n");
    put(t, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put_number(t, "/sys/fs/cgroup/memory/box/inner/memory.limit_in_bytes", 8 * gib);
    put_number(t, "/sys/fs/cgroup/memory/box/inner/memory.usage_in_bytes", 3 * gib);
    put(t, "/sys/fs/cgroup/memory/box/inner/memory.stat", "cache 5\ninactive_file 77\ntotal_inactive_file 1073741824\ntotal_active_file 536870912\n");
    struct machine m = probe(t, 8, 1);
    assert_binds(&m, LIMIT_CGROUP, 6 * gib + gib / 2);
    assert_true(m.cgroup_cpus == 0);
    /* an ancestor is tighter */
    put_number(t, "/sys/fs/cgroup/memory/box/memory.limit_in_bytes", 4 * gib);
    put_number(t, "/sys/fs/cgroup/memory/box/memory.usage_in_bytes", gib);
    put(t, "/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "100000\n");
    put(t, "/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
    m = probe(t, 2, 1);
    assert_binds(&m, LIMIT_CGROUP, 3 * gib);
    char why[100];
    assert_int_equal(probe_threads(&m, why, sizeof(why)), 1);
    assert_non_null(strstr(why, "cgroup CPU quota of 1.00"));
    put(t, "/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1\n");
    m = probe(t, 2, 1);
    assert_true(m.cgroup_cpus == 0);
}

static void test_cgroup2(void **state)
{
    const struct tree *t = *state;
    put(t, "/proc/self/cgroup", "0::/user.slice/app\n");
    put(t, "/proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
    put(t, "/sys/fs/cgroup/user.slice/app/memory.max", "max\n");
    put_number(t, "/sys/fs/cgroup/user.slice/memory.max", 2 * gib);
    put_number(t, "/sys/fs/cgroup/user.slice/memory.current", 2 * gib);
    put(t, "/sys/fs/cgroup/user.slice/memory.stat", "anon 1\nfile 1\ninactive_file 536870912\nactive_file 0\nslab_reclaimable 0\n");
    put(t, "/sys/fs/cgroup/user.slice/app/cpu.max", "350000 100000\n");
    put(t, "/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
    struct machine m = probe(t, 8, 1);
    assert_binds(&m, LIMIT_CGROUP, gib / 2);
    char why[100];
    assert_int_equal(probe_threads(&m, why, sizeof(why)), 3);
    put(t, "/sys/fs/cgroup/user.slice/app/cpu.max", "50000 100000\n");
    m = probe(t, 8, 1);
    assert_int_equal(probe_threads(&m, why, sizeof(why)), 1);
}

/* In a container without a namespace of its own the group is named as the host sees it, the mount shows a part. */
static void test_cgroup_of_a_container(void **state)
{
    const struct tree *t = *state;
    put(t, "/proc/self/cgroup", "4:memory:/docker/abc/job\n");
    put(t, "/proc/self/mountinfo", "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    put_number(t, "/sys/fs/cgroup/memory/job/memory.limit_in_bytes", 5 * gib);
    struct machine m = probe(t, 8, 1);
    assert_binds(&m, LIMIT_CGROUP, 5 * gib);
    put(t, "/proc/self/cgroup", "4:memory:/../other\n");
    put_number(t, "/sys/fs/cgroup/memory/memory.limit_in_bytes", 7 * gib);
    m = probe(t, 8, 1);
    assert_binds(&m, LIMIT_CGROUP, 7 * gib);
}

static void test_nodes(void **state)
{
    const struct tree *t = *state;
    put(t, "/sys/devices/system/node/node0/meminfo",
        "Node 0 MemTotal: 16777216 kB\nNode 0 MemFree: 1048576 kB\nNode 0 Active(file): 2097152 kB\nNode 0 Inactive(file): 1048576 kB\n");
    put(t, "/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 16777216 kB\nNode 1 MemFree: 9437184 kB\n");
    put(t, "/sys/devices/system/node/node2/meminfo", "Node 2 MemTotal: 0 kB\n");
    struct topology topology = {.cores = 8, .nodes = 2, .node_os = {0, 1}};
    struct probe_options o = {.root = t->root, .topology = &topology};
    struct machine m;
    struct error e = {0};
    assert_int_equal(probe_machine(&o, &m, &e), 0);
    assert_int_equal(m.node_available[0], 4 * gib);
    assert_int_equal(m.node_available[1], 9 * gib);
    assert_int_equal(m.node_number[1], 1);
    assert_int_equal(m.limit[LIMIT_NUMA], 0); /* all nodes with memory are allowed */
    m = probe(t, 8, 1);
    assert_binds(&m, LIMIT_NUMA, 4 * gib);
    put(t, "/proc/zoneinfo", "Node 0, zone      DMA\n  pages free     2816\n        min      68\n        low      100\n        high     102\n"
                             "Node 0, zone   Normal\n  pages free     99\n        low      156\nNode 1, zone   Normal\n        low      512\n");
    assert_int_equal(probe_machine(&o, &m, &e), 0);
    assert_int_equal(m.node_available[0], 4 * gib - 256 * (uint64_t)sysconf(_SC_PAGESIZE));
    assert_int_equal(m.node_available[1], 9 * gib - 512 * (uint64_t)sysconf(_SC_PAGESIZE));
}

static void test_nothing_readable(void **state)
{
    const struct tree *t = *state;
    struct topology topology = {.cores = 1, .nodes = 1};
    struct probe_options o = {.root = "/nonexistent", .topology = &topology};
    struct machine m;
    struct error e = {0};
    assert_true(probe_machine(&o, &m, &e) < 0);
    assert_non_null(strstr(e.text, "/proc/meminfo"));
    put(t, "/proc/self/cgroup", "::\n:\nnonsense\n4:memory\n9:memory:/x\n");
    put(t, "/proc/self/mountinfo", "\n - \n1 2 - cgroup\n1 2 3 4 5 - cgroup2\n");
    m = probe(t, 1, 1);
    assert_binds(&m, LIMIT_AVAILABLE, 16 * gib);
}

static void test_this_machine(void **state)
{
    (void)state;
    struct machine m;
    struct error e = {0};
    assert_int_equal(probe_machine(NULL, &m, &e), 0);
    assert_true(machine_memory(&m, NULL) > 0);
    assert_true(m.limit[LIMIT_AVAILABLE] <= m.memory_total && m.cores >= 1 && m.nodes >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_available, setup, teardown),
        cmocka_unit_test_setup_teardown(test_address_space, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cgroup1, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cgroup2, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cgroup_of_a_container, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nodes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_readable, setup, teardown),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
