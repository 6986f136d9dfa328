/* SPDX-License-Identifier: Apache-2.0 */
/* Costs and roofs against numbers worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "src/place/cost.h"
#include "src/place/report.h"
#include "tests/unit/place/v3.h"

/* Eight experts, two for each token. */
static struct cost small_cost(void)
{
    return (struct cost){
        .bytes = {[COST_ATTENTION] = 100, [COST_DENSE] = 50, [COST_SHARED] = 20, [COST_ROUTER] = 10, [COST_ROUTED] = 800, [COST_HEAD] = 40},
        .int8_weights = {[COST_ATTENTION] = 1000, [COST_ROUTED] = 8000, [COST_HEAD] = 300},
        .float_weights = {[COST_ATTENTION] = 7, [COST_ROUTER] = 5},
        .experts = 8, .experts_used = 2, .score_macs = 3, .latent_macs = 11};
}

static void test_decode(void **state)
{
    (void)state;
    struct cost c = small_cost();
    struct machine m = {.ram_read_gb_s = 1e-9, .int8_gop_s = 1e-7, .fma_gop_s = 1e-8, .bf16_gop_s = 2e-8};
    struct roof r;
    cost_decode(&c, &m, 1, 9, 6, -1, &r);
    assert_float_equal(r.bytes, 100 + 50 + 20 + 10 + 200 + 40 + 10 * 6, 1e-6);
    assert_float_equal(r.int8_operations, 2 * (1000 + 2000 + 300), 1e-6);
    assert_float_equal(r.float_operations, 2 * (12 + 10 * 11), 1e-6);
    assert_float_equal(r.memory_s, 480, 1e-6);
    assert_float_equal(r.compute_s, 6600 / 100.0 + 244 / 20.0, 1e-6); /* bfloat16 is the faster of the two */
    assert_float_equal(r.seconds, 480, 1e-6);
    assert_int_equal(r.bound, ROOF_MEMORY);

    cost_decode(&c, &m, 2, 0, 0, -1, &r); /* 1 - (6/8)^2 = 7/16 of the experts */
    assert_float_equal(r.bytes, 220 + 350, 1e-6);
    assert_float_equal(r.int8_operations, 2 * 6600, 1e-6);
    cost_decode(&c, &m, 2, 0, 0, 0.25, &r); /* as counted: both chose the same */
    assert_float_equal(r.bytes, 220 + 200, 1e-6);
}

static void test_prefill(void **state)
{
    (void)state;
    struct cost c = small_cost();
    struct machine m = {.ram_read_gb_s = 1e-9, .int8_gop_s = 1e-7, .fma_gop_s = 1e-8};
    struct roof r;
    cost_prefill(&c, &m, 4, 0, 4, &r); /* one chunk: 1 - (3/4)^4 = 175/256 of the experts */
    assert_float_equal(r.bytes, 220 + 800 * 175.0 / 256, 1e-6);
    assert_float_equal(r.int8_operations, 2 * (4 * 3000 + 300), 1e-6);
    assert_float_equal(r.float_operations, 2 * (4 * 12 + (1 + 2 + 3 + 4) * 3), 1e-6);

    cost_prefill(&c, &m, 4, 6, 4, &r); /* from position 6: chunks end at 8 and 10; the head is read once */
    assert_float_equal(r.bytes, 2 * (180 + 800 * 0.4375) + 40, 1e-6);
    assert_float_equal(r.float_operations, 2 * (4 * 12 + (7 + 8 + 9 + 10) * 3), 1e-6);

    m.ram_read_gb_s = 1;
    cost_prefill(&c, &m, 4, 0, 4, &r);
    assert_int_equal(r.bound, ROOF_INT8);
    assert_float_equal(r.seconds, r.int8_operations / 100 + r.float_operations / 10, 1e-6);
    m.int8_gop_s = 0;
    cost_prefill(&c, &m, 4, 0, 4, &r);
    assert_int_equal(r.bound, ROOF_UNKNOWN);
    assert_float_equal(r.seconds, 0, 0);
}

static void test_shape(void **state)
{
    (void)state;
    struct shape s = v3_shape();
    struct cost c;
    cost_of_shape(&s, &c);
    assert_float_equal(c.score_macs, 61.0 * 128 * (128 + 64 + 128), 0);
    assert_float_equal(c.latent_macs, 61.0 * 128 * (512 + 64 + 512), 0);
    assert_float_equal(cost_experts_met(&c, 1), 8.0 / 256, 1e-12);
    assert_true(cost_experts_met(&c, 512) > 0.9999999);
    s.experts = 0;
    cost_of_shape(&s, &c);
    assert_float_equal(cost_experts_met(&c, 512), 0, 0);
}

/* A plan predicts prompts from the same roof, and nothing without the rates. */
static void test_plan(void **state)
{
    (void)state;
    struct shape s = v3_shape();
    struct machine m = {.cores = 16, .nodes = 1, .limit[LIMIT_AVAILABLE] = UINT64_C(1) << 40, .ram_read_gb_s = 100};
    struct plan_input in = v3_input(&s, &m);
    struct plan p;
    struct error e = {0};
    in.cost = small_cost();
    assert_int_equal(plan_make(&in, &p, &e), 0);
    assert_float_equal(p.speed.prefill_tok_s, 0, 0);
    assert_true(p.speed.decode_tok_s > 0);
    m.fma_gop_s = m.int8_gop_s = 1e-6;
    assert_int_equal(plan_make(&in, &p, &e), 0);
    struct roof r;
    cost_prefill(&in.cost, &m, 512, 0, 512, &r);
    assert_float_equal(p.speed.prefill_tok_s, 512 / r.seconds, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_decode), cmocka_unit_test(test_prefill), cmocka_unit_test(test_shape),
                                       cmocka_unit_test(test_plan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
