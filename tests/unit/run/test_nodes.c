/* SPDX-License-Identifier: Apache-2.0 */
/* --numa on machines with other nodes than this one's: which nodes are used, where threads go. And where pages lie here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "src/run/nodes.h"
#include "src/run/placement.h"

static struct topology topology;
static struct nodes nodes;

/* Nodes with these numbers and so many cores each; processors are numbered over nodes. */
static const struct topology *machine(uint32_t n, const int *number, const uint32_t *cores)
{
    memset(&topology, 0, sizeof(topology));
    topology.nodes = topology.nodes_there = n;
    for (uint32_t i = 0; i < n; i++) {
        topology.node_os[i] = number[i];
        topology.node_total[i] = topology.node_free[i] = (uint64_t)(i + 1) << 30;
        for (uint32_t c = 0; c < cores[i]; c++) {
            topology.core_node[topology.cores] = i;
            topology.core_cpu[topology.cores] = (int)topology.cores;
            topology.cores++;
        }
    }
    topology.processors = topology.cores;
    return &topology;
}

#define MACHINE(numbers, cores) machine(sizeof(cores) / sizeof(uint32_t), numbers, cores)

static void choose(const struct topology *t, const char *setting)
{
    struct error e = {0};
    memset(&nodes, 0xa5, sizeof(nodes));
    assert_int_equal(nodes_choose(t, setting, &nodes, &e), 0);
}

static void refuse(const struct topology *t, const char *setting, const char *text)
{
    struct error e = {0};
    assert_int_equal(nodes_choose(t, setting, &nodes, &e), ERROR_USAGE);
    assert_non_null(strstr(e.text, text));
    assert_non_null(strstr(e.text, setting));
}

static void test_one_node(void **state)
{
    (void)state;
    const struct topology *t = MACHINE(((int[]){0}), ((uint32_t[]){4}));
    choose(t, "auto");
    assert_true(nodes.parts == 1 && !nodes.bind && nodes.pin && nodes.note[0] == '\0');
    choose(t, "off");
    assert_true(nodes.parts == 1 && !nodes.bind && !nodes.pin);
    choose(t, "on");
    assert_true(nodes.parts == 1 && nodes.bind && nodes.pin && !nodes.may_fall_back);
    choose(t, "0");
    assert_true(nodes.parts == 1 && nodes.bind);
    choose(t, "isolate");
    assert_true(nodes.parts == 1 && nodes.bind);
    refuse(t, "1", "node 1 is not there");
    refuse(t, "0,1", "allowed: 0");
    refuse(t, "N[,N]", "expected numbers");
    refuse(t, "0,", "expected numbers");
}

static void test_two_nodes(void **state)
{
    (void)state;
    const struct topology *t = MACHINE(((int[]){0, 1}), ((uint32_t[]){4, 4}));
    static const char *const all[] = {"auto", "on", "numactl", "distribute", "0,1", "1,0"};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        choose(t, all[i]);
        assert_true(nodes.parts == 2 && nodes.bind && nodes.pin && nodes.use.cores == 8 && nodes.use.nodes == 2);
        assert_int_equal(nodes.may_fall_back, strcmp(all[i], "auto") == 0 || strcmp(all[i], "numactl") == 0);
    }
    nodes_join(&nodes);
    assert_true(nodes.parts == 1 && !nodes.bind && nodes.pin && nodes.use.cores == 8);
    choose(t, "1");
    assert_true(nodes.parts == 1 && nodes.bind && nodes.use.nodes == 1 && nodes.use.node_os[0] == 1 && nodes.use.cores == 4);
    assert_true(nodes.use.node_total[0] == (uint64_t)2 << 30 && nodes.use.core_cpu[0] == 4 && nodes.use.core_node[0] == 0);
    choose(t, "off");
    assert_true(nodes.parts == 1 && !nodes.bind && !nodes.pin && nodes.use.nodes == 2 && nodes.use.cores == 8);
    refuse(t, "1,1", "named twice");
    refuse(t, "0,2", "allowed: 0,1");
    topology.here = 1;
    choose(t, "isolate");
    assert_true(nodes.use.nodes == 1 && nodes.use.node_os[0] == 1 && nodes.use.here == 0);
}

/* As after numactl or taskset: some cores, some nodes. */
static void test_parts_of_a_machine(void **state)
{
    (void)state;
    const struct topology *t = MACHINE(((int[]){0, 1}), ((uint32_t[]){4, 0})); /* taskset: cores of node 0 */
    choose(t, "auto");
    assert_true(nodes.parts == 1 && !nodes.bind && nodes.pin && nodes.use.cores == 4);
    choose(t, "1"); /* memory of one, cores of the other: as asked, and said */
    assert_true(nodes.parts == 1 && nodes.bind && nodes.use.cores == 4 && nodes.use.node_os[0] == 1);
    assert_non_null(strstr(nodes.note, "no allowed processor"));
    choose(t, "0,1");
    assert_true(nodes.parts == 2 && nodes.use.cores == 4 && nodes.note[0] == '\0');
    t = MACHINE(((int[]){1, 2, 5}), ((uint32_t[]){2, 3, 0})); /* node 5 has memory only */
    choose(t, "auto");
    assert_true(nodes.parts == 2 && nodes.use.node_os[0] == 1 && nodes.use.node_os[1] == 2 && nodes.use.cores == 5);
    choose(t, "2,5");
    assert_true(nodes.parts == 2 && nodes.use.node_os[0] == 2 && nodes.use.node_os[1] == 5 && nodes.use.cores == 3 && nodes.use.core_node[2] == 0);
    int many[12];
    uint32_t one[12];
    for (int i = 0; i < 12; i++) {
        many[i] = i;
        one[i] = 1;
    }
    t = machine(12, many, one);
    choose(t, "auto");
    assert_true(nodes.parts == 1 && !nodes.bind && nodes.pin && nodes.use.cores == 12);
    assert_non_null(strstr(nodes.note, "12 nodes"));
    refuse(t, "on", "at most 8");
    choose(t, "0,11");
    assert_true(nodes.parts == 2 && nodes.use.cores == 2);
}

static void test_threads_are_spread(void **state)
{
    (void)state;
    int cpu[16];
    uint32_t node[16];
    choose(MACHINE(((int[]){0, 1}), ((uint32_t[]){4, 4})), "auto");
    for (uint32_t threads = 1; threads <= 8; threads++) {
        uint32_t on[2] = {0}, used = 0;
        assert_true(nodes_assign(&nodes, threads, cpu, node));
        for (uint32_t i = 0; i < threads; i++) {
            assert_in_range(cpu[i], 0, 7);
            assert_int_equal(node[i], cpu[i] / 4); /* each works where its memory is */
            assert_int_equal(used >> cpu[i] & 1, 0);
            used |= 1u << cpu[i];
            on[node[i]]++;
        }
        assert_in_range(on[0] - on[1], 0, 1);
    }
    assert_false(nodes_assign(&nodes, 9, cpu, node));
    assert_true(node[0] == 0 && node[1] == 1 && node[8] == 0);
    choose(MACHINE(((int[]){0, 1}), ((uint32_t[]){1, 4})), "auto"); /* uneven */
    assert_true(nodes_assign(&nodes, 5, cpu, node));
    assert_true(node[0] == 0 && node[1] == 1 && node[2] == 1 && node[3] == 1 && node[4] == 1);
    assert_true(cpu[0] == 0 && cpu[1] == 1 && cpu[4] == 4);
    choose(&topology, "1");
    assert_true(nodes_assign(&nodes, 2, cpu, node));
    assert_true(node[0] == 0 && node[1] == 0 && cpu[0] == 1 && cpu[1] == 2);
    choose(&topology, "off");
    assert_false(nodes_assign(&nodes, 6, cpu, node));
    assert_true(node[1] == 0 && node[5] == 0);
}

static void test_placement_of_buffers(void **state)
{
    (void)state;
    struct error e = {0};
    struct buffer b[3];
    const struct buffer *list[3] = {&b[0], &b[1], &b[2]};
    static struct placement p;
    struct str text = {0}, json = {0};
    assert_int_equal(topology_read(&topology, &e), 0);
    int first = topology.node_os[0];
    assert_int_equal(buffer_init_node(&b[0], NULL, PURPOSE_EXPERTS, 40 << 20, first, &e), 0);
    assert_int_equal(buffer_init_node(&b[1], NULL, PURPOSE_RESIDENT, 5000, first, &e), 0);
    assert_int_equal(buffer_init(&b[2], NULL, PURPOSE_RESIDENT, 0, &e), 0);
    memset(b[0].data, 1, 20 << 20); /* half of it */
    memset(b[1].data, 1, 5000);
    assert_int_equal(placement_measure(list, 3, &topology, &p, &e), 0);
    assert_int_equal(p.bytes, (40 << 20) + 8192);
    if (p.refused != 0 || b[0].bind_errno != 0) {
        print_message("this system refuses mbind or move_pages\n");
    } else {
        assert_int_equal(p.row[0].node, first);
        assert_int_equal(p.row[0].asked, p.bytes);
        assert_in_range(p.row[0].found, 20 << 20, (23 << 20));
        assert_true(p.row[0].huge <= p.row[0].found && placement_huge(&p) >= p.row[0].huge && p.elsewhere == 0);
        assert_true(placement_misses(&p));
        memset(b[0].data, 1, 40 << 20);
        assert_int_equal(placement_measure(list, 3, &topology, &p, &e), 0);
        assert_int_equal(p.row[0].found, p.bytes);
        assert_false(placement_misses(&p));
        placement_text(&p, &text);
        placement_json(&p, &json);
        assert_non_null(strstr(text.data, " MiB asked, "));
        assert_non_null(strstr(json.data, "\"asked\": 41951232, \"found\": 41951232"));
    }
    p.refused = 1;
    text.len = json.len = 0;
    placement_text(&p, &text);
    placement_json(&p, &json);
    assert_non_null(strstr(text.data, "not verified"));
    assert_non_null(strstr(json.data, "\"found\": null"));
    assert_false(placement_misses(&p));
    str_deinit(&text);
    str_deinit(&json);
    for (int i = 0; i < 3; i++) {
        buffer_deinit(&b[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_node), cmocka_unit_test(test_two_nodes), cmocka_unit_test(test_parts_of_a_machine),
        cmocka_unit_test(test_threads_are_spread), cmocka_unit_test(test_placement_of_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
