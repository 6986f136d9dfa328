/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the worked numbers of the model's description (rotation, norm, attention, router, SwiGLU) and the rules of
 * choice, by every instruction set of this machine. Bit equality between those is tests/kernel's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/attr.h"
#include "cpu/cpu.h"

struct tables {
    struct ops ops[CPU_ISA_COUNT];
    int count;
};

#define assert_near(value, expected) assert_near_at((value), (expected), __FILE__, __LINE__)

/* The numbers of the description have seven digits. */
static void assert_near_at(float value, double expected, const char *file, int line)
{
    if (!(fabs((double)value - expected) <= 1e-6 * fabs(expected) + 1e-9)) {
        print_error("%.9g, expected %.9g\n", (double)value, expected);
        _fail(file, line);
    }
}

static void rotation(const struct ops *ops)
{
    float cos_sin[4] = {cosf(3.0f), sinf(3.0f), cosf(0.03f), sinf(0.03f)};
    float x[4] = {1, 2, 3, 4}, y[4] = {1, 3, 2, 4};
    ops->rope(&(struct rope_args){.x = x, .cos_sin = cos_sin, .head_stride = 4, .heads = 1, .dim = 4});
    static const double expected[4] = {-1.272233, -1.838865, 2.878668, 4.088187};
    for (int i = 0; i < 4; i++) {
        assert_near(x[i], expected[i]);
    }
    /* The same pairs in half-split order: elements 0, 2 and 1, 3 of the reordered slice. */
    ops->rope(
        &(struct rope_args){.x = y, .cos_sin = cos_sin, .head_stride = 4, .heads = 1, .dim = 4, .half_split = true});
    for (int i = 0; i < 4; i++) {
        assert_true(y[i] == x[i % 2 * 2 + i / 2]);
    }
}

static void norm(const struct ops *ops)
{
    static const float x[4] = {1, 2, 3, 4}, w[4] = {0.5f, 1, 1, 2};
    static const double expected[4] = {0.1825742, 0.7302967, 1.095445, 2.921187};
    float y[4];
    ops->rmsnorm(
        &(struct rmsnorm_args){.x = x, .w = w, .y = y, .x_stride = 4, .y_stride = 4, .n = 1, .cols = 4, .eps = 1e-6f});
    for (int i = 0; i < 4; i++) {
        assert_near(y[i], expected[i]);
    }
}

static void swiglu(const struct ops *ops)
{
    float gate[2] = {1.5f, 1.5f}, up[2] = {1.0f, -2.0f}, y[2];
    ops->swiglu(&(struct swiglu_args){.gate = gate, .up = up, .y = y, .n = 2});
    assert_near(y[0], 1.226362);
    assert_near(y[1], -2.452723);
}

/* Attention of one head over n float32 rows of [latent + rope]: y = sum of P_t c_t. */
static void attend(const struct ops *ops, const float *rows, uint32_t n, uint32_t latent, uint32_t rope,
                   const float *q_latent, const float *q_rope, float scale, float *y)
{
    float scratch[KV_PAGE * 8], u[8], m, z;
    const void *pages[1] = {rows};
    struct kv_layout layout = {KV_F32, latent, rope, kv_row_bytes(KV_F32, latent, rope)};
    ops->attn_segment(&(struct attn_segment_args){.layout = layout,
                                                  .pages = pages,
                                                  .n = n,
                                                  .q_latent = q_latent,
                                                  .q_rope = q_rope,
                                                  .q_rope_stride = rope,
                                                  .scratch = scratch,
                                                  .m = &m,
                                                  .z = &z,
                                                  .u = u,
                                                  .scale = scale,
                                                  .heads = 1});
    ops->attn_merge(&(struct attn_merge_args){
        .m = &m, .z = &z, .u = u, .m_stride = 1, .u_stride = latent, .y = y, .segments = 1, .latent = latent});
}

static void attention(const struct ops *ops)
{
    static const float uk[2][3] = {{1, 0, 2}, {-1, 3, 1}}, uv[2][3] = {{2, 1, 0}, {0, -1, 1}};
    static const float qn[2] = {1, -2}, qr[2] = {0.5f, 1};
    static const float rows[2][5] = {{1, 0, -1, 1, 2}, {2, 1, 1, 0, -1}};
    float q[3], u[3], out[2];
    ops->matvec_t[FORMAT_F32](&(struct matvec_t_args){
        .w = {.data = uk, .row_bytes = 12, .rows = 2, .cols = 3, .format = FORMAT_F32}, .x = qn, .y = q});
    assert_true(q[0] == 3 && q[1] == -6 && q[2] == 0);
    attend(ops, rows[0], 2, 3, 2, q, qr, 0.5f, u);
    ops->matvec[FORMAT_F32](
        &(struct matvec_args){.w = {.data = uv, .row_bytes = 12, .rows = 2, .cols = 3, .format = FORMAT_F32},
                              .act = {.x = u, .stride = 3},
                              .y = out,
                              .y_stride = 2,
                              .n = 1,
                              .row_end = 2});
    assert_near(out[0], 2.111981);
    assert_near(out[1], -0.9626731);
}

static void attention_scale(const struct ops *ops)
{
    static const float unit[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, raw[3] = {10, 12, 9};
    float p[3];
    attend(ops, unit[0], 3, 3, 0, raw, raw, 0.135233779f, p);
    assert_near(p[0], 0.3140616);
    assert_near(p[1], 0.4116019);
    assert_near(p[2], 0.2743365);
}

struct choice {
    int32_t ids[8];
    float weights[8];
};

static struct choice route(const struct ops *ops, struct router_args args)
{
    struct choice c = {{0}, {0}};
    float scratch[40];
    args.scratch = scratch;
    args.ids = c.ids;
    args.weights = c.weights;
    ops->router(&args);
    return c;
}

static void assert_ids(struct choice c, int a, int b, int d)
{
    assert_int_equal(c.ids[0], a);
    assert_int_equal(c.ids[1], b);
    assert_int_equal(c.ids[2], d);
}

static const float router_logits[8] = {2, -3, 0.9f, 0.7f, 0.4f, 0.8f, -0.5f, 0.1f};

static void router_v3(const struct ops *ops)
{
    static const float bias[8] = {0, 0, 0, -0.05f, 0.1f, 0, 0.3f, 0.05f};
    static const float low[8] = {-0.9f, -0.9f, -0.9f, -0.9f, -0.9f, -0.9f, -0.9f, -0.9f};
    struct router_args args = {.logits = router_logits,
                               .bias = bias,
                               .experts = 8,
                               .k = 3,
                               .groups = 4,
                               .groups_used = 2,
                               .score = ROUTER_SIGMOID,
                               .group = ROUTER_GROUP_SUM2,
                               .normalise = true,
                               .factor = 2.5f};
    struct choice c = route(ops, args);
    assert_ids(c, 2, 4, 5);
    assert_near(c.weights[0], 0.8888595);
    assert_near(c.weights[1], 0.7485049);
    assert_near(c.weights[2], 0.8626356);
    args.bias = low; /* negative ranks: dropped groups must not win */
    assert_ids(route(ops, args), 2, 3, 5);
    args.bias = bias;
    args.groups = args.groups_used = 1;
    assert_ids(route(ops, args), 0, 2, 4);
}

static void router_v2(const struct ops *ops)
{
    struct choice c = route(ops, (struct router_args){.logits = router_logits,
                                                      .experts = 8,
                                                      .k = 3,
                                                      .groups = 4,
                                                      .groups_used = 2,
                                                      .score = ROUTER_SOFTMAX,
                                                      .group = ROUTER_GROUP_MAX,
                                                      .factor = 16.0f});
    assert_ids(c, 0, 2, 3);
    assert_near(c.weights[0], 6.817547);
    assert_near(c.weights[1], 2.269364);
    assert_near(c.weights[2], 1.857998);
}

static void router_ties_and_nan(const struct ops *ops)
{
    float equal[8] = {0}, nan[8], mixed[8] = {NAN, 1, NAN, -INFINITY, NAN, 3, NAN, NAN};
    for (int i = 0; i < 8; i++) {
        nan[i] = NAN;
    }
    for (int score = ROUTER_SOFTMAX; score <= ROUTER_SIGMOID; score++) {
        struct router_args args = {.logits = equal,
                                   .experts = 8,
                                   .k = 3,
                                   .groups = 4,
                                   .groups_used = 2,
                                   .score = (enum router_score)score,
                                   .group = ROUTER_GROUP_SUM2,
                                   .normalise = true,
                                   .factor = 1};
        assert_ids(route(ops, args), 0, 1, 2);
        args.logits = nan;
        assert_ids(route(ops, args), 0, 1, 2);
        args.groups = args.groups_used = 1;
        assert_ids(route(ops, args), 0, 1, 2);
    }
    assert_ids(route(ops, (struct router_args){.logits = mixed,
                                               .experts = 8,
                                               .k = 3,
                                               .groups = 1,
                                               .groups_used = 1,
                                               .score = ROUTER_SIGMOID,
                                               .factor = 1}),
               1, 3, 5);
}

static void sum_of_experts(const struct ops *ops)
{
    static const float e[2][2] = {{1, 2}, {3, 4}}, w[2] = {0.5f, 0.25f}, shared[2] = {10, 20}, residual[2] = {100, 200};
    float y[2];
    struct expert_sum_args args = {
        .e = e[0], .w = w, .shared = shared, .residual = residual, .y = y, .e_stride = 2, .k = 2, .cols = 2};
    ops->expert_sum(&args);
    assert_true(y[0] == 111.25f && y[1] == 222.0f);
    args.shared = NULL;
    args.k = 0;
    ops->expert_sum(&args);
    assert_true(y[0] == 100.0f && y[1] == 200.0f);
}

static void every_table(void **state)
{
    static void (*const checks[])(const struct ops *) = {
        rotation, norm, swiglu, attention, attention_scale, router_v3, router_v2, router_ties_and_nan, sum_of_experts,
    };
    const struct tables *tables = *state;
    for (int i = 0; i < tables->count; i++) {
        for (size_t c = 0; c < ARRAY_LEN(checks); c++) {
            checks[c](&tables->ops[i]);
        }
    }
}

static void float_mode(void **state)
{
    (void)state;
    cpu_float_mode_set();
    assert_true(cpu_float_mode_ok());
    volatile float tiny = 0x1p-126f;
    assert_true(tiny * 0.5f != 0.0f);
}

static void isa_names(void **state)
{
    (void)state;
    struct cpu_flags none = {0};
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        enum cpu_isa isa;
        assert_true(cpu_isa_by_name(cpu_isa_name((enum cpu_isa)i), &isa));
        assert_int_equal(isa, i);
    }
    enum cpu_isa isa = CPU_AVX2;
    assert_false(cpu_isa_by_name("sse9", &isa));
    assert_int_equal(isa, CPU_AVX2);
    assert_int_equal(cpu_isa_best(&none), CPU_SCALAR);
    assert_false(cpu_isa_runs(CPU_AVX512, &none));
}

static void kv_sizes(void **state)
{
    (void)state;
    assert_int_equal(kv_row_bytes(KV_F32, 512, 64), 2304);
    assert_int_equal(kv_row_bytes(KV_F16, 512, 64), 1152);
    assert_int_equal(kv_row_bytes(KV_Q8_0, 512, 64), 18 * 34);
    assert_int_equal(kv_row_bytes(KV_Q8_0, 40, 8), (34 + 10) + 10);
    assert_string_equal(kv_type_name(KV_Q8_0), "q8_0");
}

int main(void)
{
    struct tables tables = {.count = 0};
    struct cpu_flags flags;
    cpu_detect(&flags);
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        if (cpu_isa_runs((enum cpu_isa)isa, &flags)) {
            cpu_ops_init(&tables.ops[tables.count++], (enum cpu_isa)isa, &flags);
        }
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_table, &tables),
        cmocka_unit_test(float_mode),
        cmocka_unit_test(isa_names),
        cmocka_unit_test(kv_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
