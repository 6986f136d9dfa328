/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of the 671B shape: sums, numbers of the specification, refusals, recorded machines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "io/file.h"
#include "src/place/report.h"
#include "tests/unit/place/v3.h"

static struct machine machine_with(uint64_t bytes) { return (struct machine){.cores = 16, .nodes = 1, .limit[LIMIT_AVAILABLE] = bytes}; }

static void assert_sums(const struct plan *p)
{
    uint64_t sum = 0;
    for (int i = 0; i < PURPOSE_COUNT; i++) {
        sum += p->bytes[i];
    }
    assert_int_equal(sum, p->total);
}

static void test_numbers_of_the_specification(void **state)
{
    (void)state;
    struct shape s = v3_shape();
    struct machine m = machine_with(UINT64_C(1) << 40);
    struct plan_input in = v3_input(&s, &m);
    struct plan p;
    struct error e = {0};
    assert_int_equal(plan_make(&in, &p, &e), 0);
    assert_true(p.fits);
    assert_sums(&p);
    assert_int_equal(p.kv_token_bytes, 70272);
    assert_int_equal(p.kv_page_bytes, 70272 * 64);
    assert_int_equal(p.expert_slots, V3_EXPERTS);
    assert_int_equal(p.context, PLAN_DEFAULT_CONTEXT);
    assert_int_equal(p.context_max, 163840);
    assert_int_equal(p.kv_pages, 512);
    /* 20.967 GB of the specification, which counts the router and no norms */
    assert_true(p.speed.ram_bytes > 20960000000u && p.speed.ram_bytes < 20980000000u);

    in.context = 163840;
    assert_int_equal(plan_make(&in, &p, &e), 0);
    assert_int_equal(p.bytes[PURPOSE_KV], 11513364480u);
    in.kv = KV_F32;
    assert_int_equal(plan_make(&in, &p, &e), 0);
    assert_int_equal(p.kv_token_bytes, 140544);
    s.mtp_layers = 1;
    in.kv = KV_F16;
    assert_int_equal(plan_make(&in, &p, &e), 0);
    assert_int_equal(p.kv_token_bytes, 70272 + 1152);

    /* Timelines that draft: 16 states and the logits of 3 rows ahead, each */
    in.context = 4096;
    assert_int_equal(plan_make(&in, &p, &e), 0);
    uint64_t plain = p.bytes[PURPOSE_WORK], total = p.total;
    in.drafts = 3;
    assert_int_equal(plan_make(&in, &p, &e), 0);
    assert_int_equal(p.bytes[PURPOSE_WORK] - plain, (16 * 7168 + 3 * 129280) * 4);
    assert_int_equal(p.total - total, p.bytes[PURPOSE_WORK] - plain);
    in.sessions = 5;
    assert_int_equal(plan_make(&in, &p, &e), 0);
    assert_int_equal(p.bytes[PURPOSE_WORK] - plain, 5 * (16 * 7168 + 3 * 129280) * 4);
}

static void test_context_that_fits(void **state)
{
    (void)state;
    struct shape s = v3_shape();
    struct machine m = machine_with(UINT64_C(1) << 40);
    struct plan_input in = v3_input(&s, &m);
    struct plan p;
    struct error e = {0};
    assert_int_equal(plan_make(&in, &p, &e), 0);
    uint64_t roomy = p.total, needed = p.needed;
    assert_true(needed < roomy && p.staging_slots == 0 && p.speed.nvme_bytes == 0);

    for (uint64_t limit = needed; limit < roomy; limit += (roomy - needed) / 23 + 1) { /* chosen so that it fits */
        in.ram_setting = limit;
        assert_int_equal(plan_make(&in, &p, &e), 0);
        assert_true(p.total <= limit && p.context >= 64 && p.context <= p.context_max);
        assert_sums(&p);
        assert_int_equal(p.binding, LIMIT_SETTING);
        if (p.staging_slots > 0) { /* slots take all that the rest leaves */
            assert_true(p.expert_slots < V3_EXPERTS && p.speed.nvme_bytes > 0);
            assert_true(p.total + V3_EXPERT_Q4_K > limit && p.bytes[PURPOSE_EXPERTS] == (p.expert_slots + p.staging_slots) * V3_EXPERT_Q4_K);
            assert_true(p.context >= min_u32(p.context_max, PLAN_USEFUL_CONTEXT) && (p.context <= PLAN_USEFUL_CONTEXT || p.bytes[PURPOSE_KV] <= limit / 4));
        } else {
            assert_true(p.expert_slots == V3_EXPERTS && p.context >= PLAN_USEFUL_CONTEXT);
        }
        struct plan larger;
        if (p.context_max < s.max_positions) {
            in.context = p.context_max + 64;
            assert_int_equal(plan_make(&in, &larger, &e), ERROR_DOES_NOT_FIT);
            assert_true(larger.total > limit);
        }
        in.context = p.context_max;
        assert_int_equal(plan_make(&in, &larger, &e), 0);
        in.context = 0;
    }
    in.ram_setting = needed - 1;
    assert_int_equal(plan_make(&in, &p, &e), ERROR_DOES_NOT_FIT);
    assert_false(p.fits);
    assert_sums(&p);
    in.ram_setting = needed;
    assert_int_equal(plan_make(&in, &p, &e), 0);
}

/* Halves of the weights on nodes of different size. */
static void test_nodes_hold_their_shares(void **state)
{
    (void)state;
    struct shape s = v3_shape();
    struct machine m = machine_with(UINT64_C(1) << 40);
    struct plan_input in = v3_input(&s, &m);
    struct plan p;
    struct error e = {0};
    uint64_t half = (in.resident_bytes + in.expert_bytes) / 2, gib = UINT64_C(1) << 30;
    in.nodes = m.nodes = 2;
    in.node_bytes[0] = in.node_bytes[1] = half;
    m.node_number[0] = 1;
    m.node_number[1] = 3;
    assert_int_equal(plan_make(&in, &p, &e), 0); /* unknown sizes do not refuse */
    assert_true(p.nodes == 2 && p.node[1].number == 3 && p.node[1].weights == half && !p.node_short);
    m.node_available[0] = half + 20 * gib;
    m.node_available[1] = half - gib;
    assert_int_equal(plan_make(&in, &p, &e), ERROR_DOES_NOT_FIT);
    assert_true(!p.fits && p.node_short);
    assert_non_null(strstr(e.text, "node 3 would hold"));
    assert_non_null(strstr(e.text, "--numa off"));
    in.nodes = 0;
    assert_int_equal(plan_make(&in, &p, &e), 0);
    in.nodes = 2;
    m.node_available[1] = half + 20 * gib;
    assert_int_equal(plan_make(&in, &p, &e), 0);
    struct str text = {0};
    report_text(&p, &s, NULL, &text);
    assert_non_null(strstr(text.data, "node 3 "));
    text.len = 0;
    report_json(&p, &s, NULL, &text);
    json_t *root = json_loads(text.data, 0, NULL);
    assert_non_null(root);
    json_t *node = json_array_get(json_object_get(root, "nodes"), 1);
    assert_int_equal(json_integer_value(json_object_get(node, "weights")), half);
    json_decref(root);
    text.len = 0;
    machine_to_json(&m, &text); /* and back, numbered from 0 */
    assert_int_equal(machine_from_json(text.data, text.len, "machine", &m, &e), 0);
    assert_true(m.node_available[1] == half + 20 * gib && m.node_number[1] == 1);
    str_deinit(&text);
    m.limit[LIMIT_AVAILABLE] = gib; /* too small as a whole: nodes are not the reason */
    assert_int_equal(plan_make(&in, &p, &e), ERROR_DOES_NOT_FIT);
    assert_false(p.node_short);
}

static void test_refusals_name_numbers(void **state)
{
    (void)state;
    struct shape s = v3_shape();
    struct machine m = machine_with(UINT64_C(512) << 30);
    m.limit[LIMIT_CGROUP] = UINT64_C(8) << 30;
    struct plan_input in = v3_input(&s, &m);
    struct plan p;
    struct error e = {0};
    assert_int_equal(plan_make(&in, &p, &e), ERROR_DOES_NOT_FIT);
    assert_non_null(strstr(e.text, "cgroup memory limit"));
    assert_non_null(strstr(e.text, "8.00 GiB"));
    assert_int_equal(p.binding, LIMIT_CGROUP);
    assert_int_equal(p.context_max, 0);

    m.limit[LIMIT_CGROUP] = 0;
    in.context = 200000;
    assert_int_equal(plan_make(&in, &p, &e), ERROR_USAGE);
    assert_non_null(strstr(e.text, "163840"));
    in.context = 0;

    static const struct {
        struct amount amount;
        uint64_t slots;
    } few[] = {
        {{AMOUNT_BYTES, 0}, 0}, {{AMOUNT_BYTES, 1e9}, 40}, {{AMOUNT_PERCENT, 0}, 0}, {{AMOUNT_PERCENT, 99.9}, 14833}, {{AMOUNT_EXPERTS, 0}, 0},
        {{AMOUNT_EXPERTS, 14847}, 14847}};
    for (size_t i = 0; i < ARRAY_LEN(few); i++) {
        in.expert_ram = few[i].amount;
        assert_int_equal(plan_make(&in, &p, &e), 0);
        assert_int_equal(p.expert_slots, few[i].slots);
        assert_int_equal(p.staging_slots, 16); /* twice what a token uses of a layer */
        in.ram_setting = p.total - 1; /* less than that, or fewer slots to read into */
        int r = plan_make(&in, &p, &e);
        assert_true(r == 0 ? p.expert_slots == few[i].slots : r == ERROR_DOES_NOT_FIT && strstr(e.text, "--expert-ram asks for") != NULL);
        in.ram_setting = 0;
    }
    static const struct amount enough[] = {{AMOUNT_BYTES, 367823683584.0}, {AMOUNT_BYTES, 1e18}, {AMOUNT_PERCENT, 100}, {AMOUNT_EXPERTS, 14848}};
    for (size_t i = 0; i < ARRAY_LEN(enough); i++) {
        in.expert_ram = enough[i];
        assert_int_equal(plan_make(&in, &p, &e), 0);
        assert_true(p.expert_slots == V3_EXPERTS && p.staging_slots == 0);
    }
}

/* No input overflows into something that fits. */
static void test_extremes(void **state)
{
    (void)state;
    struct shape s = v3_shape();
    struct machine m = machine_with(UINT64_MAX - 1);
    struct plan p;
    static const uint32_t sizes[] = {0, 1, 8, 512, 65536, 65537, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct plan_input in = v3_input(&s, &m);
        in.threads = sizes[i];
        in.sessions = sizes[i];
        in.ubatch = sizes[i];
        int r = plan_make(&in, &p, NULL);
        assert_true(r == 0 || r == ERROR_DOES_NOT_FIT);
        assert_true(sizes[i] <= 65536 || r == ERROR_DOES_NOT_FIT);
    }
    struct plan_input in = v3_input(&s, &m);
    in.expert_bytes = in.resident_bytes = UINT64_MAX;
    assert_int_equal(plan_make(&in, &p, NULL), ERROR_DOES_NOT_FIT);
    assert_int_equal(p.total, UINT64_MAX);
    for (uint64_t ram = 1; ram != 0; ram <<= 1) {
        in = v3_input(&s, &m);
        in.ram_setting = ram;
        int r = plan_make(&in, &p, NULL);
        assert_int_equal(r == 0, ram >= p.needed);
    }
}

static char *data_file(const char *name, const char *suffix, size_t *ret_len)
{
    char path[512];
    char *text;
    snprintf(path, sizeof(path), "%s/%s%s", MACHINES, name, suffix);
    assert_int_equal(file_read_all(path, 1 << 20, &text, ret_len, NULL), 0);
    return text;
}

static void test_recorded_machines(void **state)
{
    (void)state;
    static const char *const names[] = {"server-768g", "one-node-384g", "desktop-64g", "container-500g"};
    struct shape s = v3_shape();
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        size_t len;
        char *text = data_file(names[i], ".json", &len);
        struct machine m;
        struct error e = {0};
        assert_int_equal(machine_from_json(text, len, names[i], &m, &e), 0);
        free(text);
        text = data_file(names[i], ".plan.json", &len);
        json_t *want = json_loadb(text, len, 0, NULL);
        free(text);
        assert_non_null(want);

        struct plan_input in = v3_input(&s, &m);
        struct plan p;
        plan_make(&in, &p, &e);
        struct str out = {0};
        report_json(&p, &s, NULL, &out);
        json_t *got = json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(got);
        str_deinit(&out);
        report_text(&p, &s, NULL, &out);
        assert_non_null(strstr(out.data, p.fits ? "\nfits" : "\ndoes not fit"));
        str_deinit(&out);

        json_t *ram = json_object_get(json_object_get(got, "tiers"), "ram");
        assert_int_equal(json_is_true(json_object_get(got, "fits")), json_is_true(json_object_get(want, "fits")));
        assert_string_equal(json_string_value(json_object_get(got, "limit_name")), json_string_value(json_object_get(want, "limit_name")));
        assert_int_equal(json_integer_value(json_object_get(ram, "limit")), json_integer_value(json_object_get(want, "limit")));
        assert_int_equal(json_integer_value(json_object_get(got, "context")), json_integer_value(json_object_get(want, "context")));
        assert_int_equal(json_integer_value(json_object_get(json_object_get(ram, "purposes"), "kv")), json_integer_value(json_object_get(want, "kv")));
        assert_true(json_object_get(want, "context_max") == NULL || json_equal(json_object_get(want, "context_max"), json_object_get(got, "context_max")));
        double rate = json_number_value(json_object_get(got, "decode_tok_s")), expected = json_number_value(json_object_get(want, "decode_tok_s"));
        if (p.staging_slots > 0 && expected > 0) { /* 464 experts of a token, of which 48.8 % come from the drive (docs/plan.md) */
            assert_true(p.expert_slots > (p.limit - V3_RESIDENT - 10e9) / V3_EXPERT_Q4_K && p.expert_slots < (0.95 * p.limit - V3_RESIDENT) / V3_EXPERT_Q4_K);
        }
        if (!(rate >= expected * 0.999 && rate <= expected * 1.001)) {
            fail_msg("%s: %g tokens/s, expected %g", names[i], rate, expected);
        }
        json_decref(got);
        json_decref(want);
    }
}

static void test_machine_round_trip(void **state)
{
    (void)state;
    struct machine m = {.cpu = "a \"b\" c", .cores = 3, .nodes = 2, .node_number = {0, 1}, .cgroup_cpus = 1.5, .memory_total = 1000, .ram_read_gb_s = 80.25};
    for (int i = 0; i < LIMIT_COUNT; i++) {
        m.limit[i] = (uint64_t)(1000 - i);
    }
    struct str text = {0};
    struct machine back;
    machine_to_json(&m, &text);
    assert_int_equal(machine_from_json(text.data, text.len, "x", &back, NULL), 0);
    assert_memory_equal(&m, &back, sizeof(m));
    str_deinit(&text);
    enum memory_limit which;
    assert_int_equal(machine_memory(&m, &which), 1000 - LIMIT_SETTING);
    assert_int_equal(which, LIMIT_SETTING);

    static const char *const bad[] = {
        "", "[]", "{}", "{\"limits\": {}}", "{\"limits\": {\"available\": -1}}", "{\"limits\": {\"available\": \"5Q\"}}",
        "{\"limits\": {\"swap\": 1}}", "{\"colour\": 1, \"limits\": {\"available\": 1}}", "{\"cores\": 0, \"limits\": {\"available\": 1}}",
        "{\"cores\": \"2\", \"limits\": {\"available\": 1}}", "{\"limits\": [1]}", "{\"limits\": {\"available\": 1}, \"limits\": {}}",
        "{\"cgroup_cpus\": -1, \"limits\": {\"available\": 1}}", "{\"cpu\": 4, \"limits\": {\"available\": 1}}",
        "{\"ram_read_gb_s\": 1e308, \"limits\": {\"available\": 1}}", "{\"node_read_gb_s\": [1e308], \"limits\": {\"available\": 1}}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct error e = {0};
        assert_int_equal(machine_from_json(bad[i], strlen(bad[i]), "m.json", &back, &e), ERROR_FORMAT);
        assert_true(strncmp(e.text, "m.json: ", 8) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_of_the_specification), cmocka_unit_test(test_context_that_fits),
        cmocka_unit_test(test_nodes_hold_their_shares), cmocka_unit_test(test_refusals_name_numbers),        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_recorded_machines),            cmocka_unit_test(test_machine_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
