/* SPDX-License-Identifier: Apache-2.0 */
/* Hit ratios and what follows from them for the 671B shape, beside figures worked out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "src/place/speed.h"
#include "tests/unit/place/v3.h"

static void assert_near(double got, double want, double share)
{
    if (!(fabs(got - want) <= share * fabs(want))) {
        fail_msg("%.9g, expected %.9g", got, want);
    }
}

static void test_hits_rise_and_meet_the_published_points(void **state)
{
    (void)state;
    static const double points[][2] = {{0.049, 0.24}, {0.123, 0.51}, {0.184, 0.60}, {0.758, 0.98}};
    const struct hits h = {0};
    double last = 0;
    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        assert_near(hits_ratio(&h, points[i][0]), points[i][1], 1e-12);
    }
    assert_near(hits_ratio(&h, 0.1655), 0.575, 1e-12); /* half way between two points */
    for (int i = -1; i <= 1001; i++) {
        double hit = hits_ratio(&h, 0.001 * i);
        assert_true(hit >= last && hit >= fmin(fmax(0, 0.001 * i), 1) - 1e-12 && hit <= 1);
        last = hit;
    }
    assert_true(hits_ratio(&h, 0) == 0 && hits_ratio(&h, 1) == 1);
}

static void test_hits_go_through_what_was_measured(void **state)
{
    (void)state;
    static const double points[][2] = {{0.28, 0.619}, {0.47, 0.86}, {0.05, 0.3}};
    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        struct hits h = hits_measured(points[i][0], points[i][1]);
        assert_near(hits_ratio(&h, points[i][0]), points[i][1], 1e-9);
        assert_true(hits_ratio(&h, 0) == 0 && hits_ratio(&h, 1) == 1);
        assert_true(hits_ratio(&h, points[i][0] / 2) < points[i][1]);
    }
    struct hits edge = hits_measured(1e-300, 0.999999);
    assert_true(hits_ratio(&edge, 0.5) <= 1 && hits_ratio(&edge, 0) == 0);
}

static void test_hits_follow_measured_points(void **state)
{
    (void)state;
    const struct hits even = {.n = 1, .point = {{0.25, 0.25}}}, two = {.n = 2, .point = {{0.2, 0.5}, {0.4, 0.6}}};
    for (int i = 0; i <= 20; i++) {
        assert_true(fabs(hits_ratio(&even, 0.05 * i) - 0.05 * i) < 1e-12);
    }
    assert_near(hits_ratio(&two, 0.1), 0.25, 1e-12);
    assert_near(hits_ratio(&two, 0.2), 0.5, 1e-12);
    assert_near(hits_ratio(&two, 0.3), 0.55, 1e-12);
    assert_near(hits_ratio(&two, 0.7), 0.8, 1e-12);
    assert_true(hits_ratio(&two, 0) == 0 && hits_ratio(&two, 1) == 1 && hits_ratio(&two, 2) == 1);
}

/* 58 layers x 8 experts x 24,772,608 bytes = 11.494 GB of experts per token; dense weights as the specification has them. */
#define ROUTED 11494490112.0
#define DENSE ((double)(V3_RESIDENT - V3_TABLE_Q4_K))

static void test_all_in_ram_is_read_at_the_rate_of_ram(void **state)
{
    (void)state;
    struct shape s = v3_shape();
    struct machine m = {.ram_read_gb_s = 400};
    struct plan_input in = v3_input(&s, &m);
    struct speed v;
    speed_of(&in, V3_EXPERTS, V3_EXPERTS, &v);
    assert_near((double)v.ram_bytes, DENSE + ROUTED, 1e-9);
    assert_int_equal(v.nvme_bytes, 0);
    assert_near(v.decode_tok_s, 400e9 / (DENSE + ROUTED), 1e-6);
    assert_true(v.serial_tok_s == v.decode_tok_s && v.hit_ratio == 1 && v.more_ram_tok_s == 0 && v.more_nvme_tok_s == 0);
    assert_non_null(strstr(v.binding, "RAM reads of"));
}

/* A laptop: 12.3 % of the experts in RAM, so 49 % of 11.494 GB = 5.63 GB come from the drive. */
static void test_the_drive_binds_a_laptop(void **state)
{
    (void)state;
    struct shape s = v3_shape();
    struct machine m = {.ram_read_gb_s = 100, .nvme_read_gb_s = 6.8};
    struct plan_input in = v3_input(&s, &m);
    struct speed v, more;
    uint64_t slots = 1826; /* 0.12298 of 14,848 */
    speed_of(&in, V3_EXPERTS, slots, &v);
    assert_near(v.hit_ratio, 0.51, 1e-3);
    assert_near((double)v.nvme_bytes, 5.632e9, 1e-3);
    assert_near(v.nvme_s, 5.632 / 6.8, 1e-3);
    assert_near(v.ram_s, (DENSE + ROUTED + 5.632e9) / 100e9, 1e-3);
    assert_near(v.decode_tok_s, 6.8 / 5.632, 1e-3);
    assert_near(v.serial_tok_s, 1 / (v.ram_s + v.nvme_s), 1e-12);
    assert_non_null(strstr(v.binding, "drive reads of 5.2"));
    assert_non_null(strstr(v.binding, "at 6.8 GB/s"));

    m.nvme_read_gb_s = 7.8;
    speed_of(&in, V3_EXPERTS, slots, &more);
    assert_near(v.more_nvme_tok_s, more.decode_tok_s - v.decode_tok_s, 1e-9);
    assert_near(more.decode_tok_s, 7.8 / 5.632, 1e-3);
    m.nvme_read_gb_s = 6.8;
    speed_of(&in, V3_EXPERTS, slots + 43, &more); /* 2^30 / 24,772,608 = 43.3 */
    assert_near(v.more_ram_tok_s, more.decode_tok_s - v.decode_tok_s, 0.02);
    assert_true(v.more_ram_tok_s > 0);

    m.nvme_read_gb_s = 60; /* now memory binds: a faster drive buys nothing, more RAM a little less traffic */
    speed_of(&in, V3_EXPERTS, slots, &v);
    assert_near(v.decode_tok_s, 1 / v.ram_s, 1e-12);
    assert_true(v.more_nvme_tok_s == 0 && v.more_ram_tok_s > 0);
    assert_non_null(strstr(v.binding, "RAM reads"));
}

/* What is expected goes by the rate of the kernels: dense weights first, then 8 experts a layer beside the drive, the last one after it. */
static void test_what_is_expected_without_reading_ahead(void **state)
{
    (void)state;
    struct shape s = v3_shape();
    struct machine m = {.ram_read_gb_s = 100, .nvme_read_gb_s = 6.8, .decode_read_gb_s = 80};
    struct plan_input in = v3_input(&s, &m);
    struct speed v;
    in.hits = (struct hits){.n = 1, .point = {{0.5, 0.5}}};
    speed_of(&in, V3_EXPERTS, V3_EXPERTS / 2, &v);
    assert_near(1 / v.expected_tok_s, DENSE / 80e9 + ROUTED / 2 / 6.8e9 + ROUTED / 8 / 80e9 * (1 - pow(0.5, 8)), 1e-6);
    assert_true(v.kernels_known && v.expected_tok_s < v.decode_tok_s);
    m.nvme_read_gb_s = 1000; /* the drive is done before the kernels are */
    speed_of(&in, V3_EXPERTS, V3_EXPERTS / 2, &v);
    assert_near(v.expected_tok_s, 80e9 / (DENSE + ROUTED), 1e-6);
    m.decode_read_gb_s = 0;
    speed_of(&in, V3_EXPERTS, V3_EXPERTS, &v);
    assert_true(!v.kernels_known && v.expected_tok_s == v.decode_tok_s);
}

static void test_unknown_rates_and_models_without_experts(void **state)
{
    (void)state;
    struct shape s = v3_shape();
    struct machine m = {.ram_read_gb_s = 100};
    struct plan_input in = v3_input(&s, &m);
    struct speed v;
    speed_of(&in, V3_EXPERTS, 100, &v); /* no rate of the drive */
    assert_true(v.decode_tok_s == 0 && v.serial_tok_s == 0 && v.prefill_tok_s == 0 && v.nvme_bytes > 0);
    assert_non_null(strstr(v.binding, "drive reads of"));
    m = (struct machine){.nvme_read_gb_s = 5};
    speed_of(&in, V3_EXPERTS, V3_EXPERTS, &v);
    assert_true(v.decode_tok_s == 0 && v.prefill_tok_s == 0);
    m = (struct machine){.ram_read_gb_s = 100};
    s.experts = s.experts_used = 0;
    in.expert_bytes = 0;
    speed_of(&in, 0, 0, &v);
    assert_near(v.decode_tok_s, 100e9 / DENSE, 1e-9);
    assert_true(v.hit_ratio == 1);
}

/* A chunk meets every expert and reads those that RAM lacks: 367.8 GB x 0.877 at 6.8 GB/s is 47 s. */
static void test_prompts_wait_for_the_drive(void **state)
{
    (void)state;
    struct shape s = v3_shape();
    struct machine m = {.ram_read_gb_s = 100, .nvme_read_gb_s = 6.8, .fma_gop_s = 1000, .int8_gop_s = 4000};
    struct plan_input in = v3_input(&s, &m);
    cost_of_shape(&s, &in.cost);
    in.cost.bytes[COST_ROUTED] = (double)in.expert_bytes;
    in.cost.int8_weights[COST_ROUTED] = 653908770816.0;
    struct speed v;
    speed_of(&in, V3_EXPERTS, 1826, &v);
    assert_near(v.prefill_tok_s, 512 / (367.8237e9 * (1 - 1826.0 / 14848) / 6.8e9), 1e-4);
    struct speed all;
    speed_of(&in, V3_EXPERTS, V3_EXPERTS, &all);
    assert_true(all.prefill_tok_s > v.prefill_tok_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hits_rise_and_meet_the_published_points), cmocka_unit_test(test_hits_go_through_what_was_measured),
        cmocka_unit_test(test_hits_follow_measured_points),             cmocka_unit_test(test_what_is_expected_without_reading_ahead),
        cmocka_unit_test(test_all_in_ram_is_read_at_the_rate_of_ram),   cmocka_unit_test(test_the_drive_binds_a_laptop),
        cmocka_unit_test(test_unknown_rates_and_models_without_experts), cmocka_unit_test(test_prompts_wait_for_the_drive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
