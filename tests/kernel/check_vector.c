/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: checks and rates of the operations on activation rows, and of the float GEMM. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/attr.h"
#include "tests/kernel/check.h"

/* Mostly short and ragged. */
static uint32_t random_length(struct check *c)
{
    return check_one_in(c, 20) ? 0 : 1 + check_below(c, check_one_in(c, 2) ? 40 : 700);
}

/* ---- quantise ---- */

static void quantise_with(struct check *c, const struct ops *ops, struct quantise_args *args)
{
    size_t n = args->n * args->stride;
    args->q = check_bytes(c, n);
    args->scale = check_output(c, n / args->block);
    args->bsum16 = check_bytes(c, n / 16 * sizeof(*args->bsum16));
    memset(args->q, 0x55, n);
    memset(args->bsum16, 0x55, n / 16 * sizeof(*args->bsum16));
    ops->quantise(args);
}

/* Each code is the nearest to x / scale, and the largest magnitude has 127. */
static bool quantised_well(struct check *c, const struct quantise_args *a)
{
    for (uint32_t i = 0; i < a->n; i++) {
        for (uint32_t col = 0; col < a->cols; col++) {
            size_t at = i * a->stride + col;
            double scale = (double)a->scale[at / a->block];
            if (!check_near(c, "q * scale", (double)a->x[at], a->q[at] * scale, scale * 0.50002)) {
                return false;
            }
        }
    }
    return true;
}

static bool quantise_case(struct check *c, int block)
{
    struct quantise_args a = {.block = (uint32_t)block, .n = check_below(c, 9)};
    a.cols = a.block * check_below(c, 2048 / a.block);
    a.stride = (a.cols + 255) / 256 * 256 + 256 * check_below(c, 2);
    struct quantise_args b;
    float *x = check_floats(c, a.n * a.stride);
    bool ordinary = true;
    for (uint32_t i = 0; i < a.n; i++) {
        ordinary = check_fill_activations(c, x + i * a.stride, a.cols) && ordinary;
    }
    a.x = x;
    b = a;
    snprintf(c->shape, sizeof(c->shape), "n %u, cols %u, stride %zu", a.n, a.cols, a.stride);
    quantise_with(c, c->ref, &a);
    quantise_with(c, c->ops, &b);
    size_t n = a.n * a.stride;
    return check_same_bytes(c, "q", a.q, b.q, n) && check_same(c, "scale", a.scale, b.scale, n / a.block) &&
           check_same_bytes(c, "bsum16", a.bsum16, b.bsum16, n / 16 * sizeof(*a.bsum16)) &&
           (!ordinary || quantised_well(c, &b));
}

/* ---- dot16, rmsnorm, rope, swiglu, expert_sum, add ---- */

static bool dot16_case(struct check *c, int unused)
{
    (void)unused;
    uint32_t n = random_length(c);
    float *a = check_floats(c, n), *b = check_floats(c, n);
    bool ordinary = check_fill_activations(c, a, n);
    snprintf(c->shape, sizeof(c->shape), "n %u", n);
    float expected = c->ref->dot16(a, b, n), got = c->ops->dot16(a, b, n);
    double sum = 0, size = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
        size += fabs((double)a[i] * (double)b[i]);
    }
    return check_same(c, "sum", &expected, &got, 1) &&
           (!ordinary || check_near(c, "against doubles", sum, (double)got, 1e-5 * size + 1e-30));
}

static bool rmsnorm_case(struct check *c, int unused)
{
    (void)unused;
    struct rmsnorm_args a = {.n = check_below(c, 4), .cols = 1 + random_length(c), .eps = 1e-6f};
    a.x_stride = a.cols + check_below(c, 3);
    a.y_stride = a.cols + check_below(c, 3);
    bool in_place = check_one_in(c, 3);
    float *x = check_floats(c, a.n * a.x_stride), *copy = check_bytes(c, a.n * a.x_stride * sizeof(*x));
    float *expected = check_output(c, a.n * a.y_stride), *got = check_output(c, a.n * a.y_stride);
    a.w = check_floats(c, a.cols);
    check_fill_activations(c, x, a.n * a.x_stride);
    memcpy(copy, x, a.n * a.x_stride * sizeof(*x));
    snprintf(c->shape, sizeof(c->shape), "n %u, cols %u%s", a.n, a.cols, in_place ? ", in place" : "");
    struct rmsnorm_args b = a;
    a.x = x;
    b.x = copy;
    a.y = expected;
    b.y = got;
    if (in_place) {
        a.y = x;
        b.y = copy;
        a.y_stride = b.y_stride = a.x_stride;
    }
    c->ref->rmsnorm(&a);
    c->ops->rmsnorm(&b);
    return check_same(c, "y", a.y, b.y, a.n * a.y_stride);
}

static bool rope_case(struct check *c, int half_split)
{
    struct rope_args a = {
        .heads = check_below(c, 6), .dim = 2 * (1 + check_below(c, 40)), .half_split = half_split != 0};
    a.head_stride = a.dim + check_below(c, 70);
    size_t n = a.heads == 0 ? 0 : (a.heads - 1) * a.head_stride + a.dim;
    struct rope_args b;
    a.cos_sin = check_floats(c, a.dim);
    a.x = check_floats(c, n);
    check_fill_activations(c, a.x, n);
    b = a;
    b.x = check_bytes(c, n * sizeof(float));
    memcpy(b.x, a.x, n * sizeof(float));
    snprintf(c->shape, sizeof(c->shape), "heads %u, dim %u, stride %zu", a.heads, a.dim, a.head_stride);
    c->ref->rope(&a);
    c->ops->rope(&b);
    return check_same(c, "x", a.x, b.x, n);
}

static bool swiglu_case(struct check *c, int unused)
{
    (void)unused;
    uint32_t n = random_length(c);
    float *gate = check_floats(c, n), *up = check_floats(c, n), *expected = check_output(c, n),
          *got = check_bytes(c, n * sizeof(float));
    check_fill_activations(c, gate, n);
    check_fill_activations(c, up, n);
    bool in_place = check_one_in(c, 3);
    memcpy(got, gate, n * sizeof(float));
    snprintf(c->shape, sizeof(c->shape), "n %u%s", n, in_place ? ", in place" : "");
    c->ref->swiglu(&(struct swiglu_args){gate, up, expected, n});
    c->ops->swiglu(&(struct swiglu_args){in_place ? got : gate, up, got, n});
    return check_same(c, "y", expected, got, n);
}

/* exp and sigmoid over their whole range, through SwiGLU with up = 1 (g*sigmoid(g) shows every bit of the sigmoid). */
static bool swiglu_range_case(struct check *c, int unused)
{
    (void)unused;
    enum { N = 1000 };
    float *gate = check_floats(c, N), *up = check_floats(c, N), *expected = check_output(c, N),
          *got = check_output(c, N);
    for (int i = 0; i < N; i++) {
        gate[i] = 110.0f * check_float(c);
        up[i] = 1.0f;
    }
    c->ref->swiglu(&(struct swiglu_args){gate, up, expected, N});
    c->ops->swiglu(&(struct swiglu_args){gate, up, got, N});
    return check_same(c, "y", expected, got, N);
}

/* Over the whole range, infinities and NaN included. */
static bool exp_case(struct check *c, int unused)
{
    (void)unused;
    static const float odd[] = {-INFINITY, INFINITY, NAN, 0.0f, -0.0f, -87.0f, -87.00001f, 88.7228317f, 88.8f};
    uint32_t n = random_length(c);
    float *x = check_floats(c, n), *expected = check_output(c, n), *got = check_bytes(c, n * sizeof(float));
    for (uint32_t i = 0; i < n; i++) {
        x[i] = check_one_in(c, 8) ? odd[i % (sizeof(odd) / sizeof(odd[0]))] : 110.0f * check_float(c);
    }
    float minus = check_one_in(c, 2) ? 0.0f : 10.0f * check_float(c), over = check_one_in(c, 2) ? 1.0f : 0.1f + check_float(c) * check_float(c);
    bool in_place = check_one_in(c, 3);
    memcpy(got, x, n * sizeof(float));
    snprintf(c->shape, sizeof(c->shape), "n %u, minus %g, over %g%s", n, (double)minus, (double)over, in_place ? ", in place" : "");
    c->ref->exp(&(struct exp_args){x, expected, n, minus, over});
    c->ops->exp(&(struct exp_args){in_place ? got : x, got, n, minus, over});
    return check_same(c, "y", expected, got, n);
}

static bool expert_sum_case(struct check *c, int unused)
{
    (void)unused;
    struct expert_sum_args a = {.k = check_below(c, 10), .cols = random_length(c)};
    a.e_stride = a.cols + check_below(c, 3);
    float *e = check_floats(c, a.k * a.e_stride);
    a.w = check_floats(c, a.k);
    a.shared = check_one_in(c, 3) ? NULL : check_floats(c, a.cols);
    a.residual = check_floats(c, a.cols);
    check_fill_activations(c, e, a.k * a.e_stride);
    a.e = e;
    struct expert_sum_args b = a;
    a.y = check_output(c, a.cols);
    b.y = check_output(c, a.cols);
    if (check_one_in(c, 3)) {
        memcpy(b.y, b.residual, b.cols * sizeof(float));
        b.residual = b.y;
    }
    snprintf(c->shape, sizeof(c->shape), "k %u, cols %u", a.k, a.cols);
    c->ref->expert_sum(&a);
    c->ops->expert_sum(&b);
    return check_same(c, "y", a.y, b.y, a.cols);
}

static bool add_case(struct check *c, int unused)
{
    (void)unused;
    uint32_t n = random_length(c);
    float *x = check_floats(c, n), *a = check_floats(c, n), *b = check_bytes(c, n * sizeof(float));
    check_fill_activations(c, x, n);
    memcpy(b, a, n * sizeof(float));
    c->ref->add(&(struct add_args){x, a, n});
    c->ops->add(&(struct add_args){x, b, n});
    return check_same(c, "y", a, b, n);
}

/* ---- gemm: another order of sums is allowed, so only near doubles ---- */

static bool gemm_case(struct check *c, int b_rows_are_outputs)
{
    struct gemm_args a = {.m = check_below(c, 20),
                          .n = check_below(c, 20),
                          .k = check_below(c, 60),
                          .b_rows_are_outputs = b_rows_are_outputs != 0,
                          .alpha = check_float(c),
                          .beta = check_one_in(c, 2) ? 0 : 1};
    uint32_t b_rows = b_rows_are_outputs ? a.n : a.k, b_cols = b_rows_are_outputs ? a.k : a.n;
    a.x_stride = a.k + 1 + check_below(c, 3);
    a.b_stride = b_cols + 1 + check_below(c, 3);
    a.y_stride = a.n + 1 + check_below(c, 3);
    a.x = check_floats(c, a.m * a.x_stride);
    a.b = check_floats(c, b_rows * a.b_stride);
    float *before = check_floats(c, a.m * a.y_stride);
    a.y = check_output(c, a.m * a.y_stride);
    if (a.beta != 0) { /* with beta 0 whatever is there, NaN included, must not matter */
        memcpy(a.y, before, a.m * a.y_stride * sizeof(float));
    }
    snprintf(c->shape, sizeof(c->shape), "m %u, n %u, k %u", a.m, a.n, a.k);
    c->ops->gemm(c->ops, &a);
    for (uint32_t i = 0; i < a.m; i++) {
        for (uint32_t j = 0; j < a.n; j++) {
            double sum = 0, size = 0, old = a.beta != 0 ? (double)before[i * a.y_stride + j] : 0;
            for (uint32_t k = 0; k < a.k; k++) {
                double w = (double)a.b[b_rows_are_outputs ? j * a.b_stride + k : k * a.b_stride + j];
                sum += (double)a.x[i * a.x_stride + k] * w;
                size += fabs((double)a.x[i * a.x_stride + k] * w);
            }
            if (!check_near(c, "against doubles", (double)a.alpha * sum + old, (double)a.y[i * a.y_stride + j],
                            1e-5 * (size + fabs(old)) + 1e-30)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- rates ---- */

enum { BENCH_N = 7168 };

struct bench {
    const struct ops *ops;
    struct quantise_args quantise;
    struct rmsnorm_args rmsnorm;
    struct swiglu_args swiglu;
    struct expert_sum_args expert_sum;
    struct gemm_args gemm;
    float sink;
};

static void run_quantise(void *p) { ((struct bench *)p)->ops->quantise(&((struct bench *)p)->quantise); }
static void run_rmsnorm(void *p) { ((struct bench *)p)->ops->rmsnorm(&((struct bench *)p)->rmsnorm); }
static void run_swiglu(void *p) { ((struct bench *)p)->ops->swiglu(&((struct bench *)p)->swiglu); }
static void run_expert_sum(void *p) { ((struct bench *)p)->ops->expert_sum(&((struct bench *)p)->expert_sum); }
static void run_gemm(void *p) { ((struct bench *)p)->ops->gemm(((struct bench *)p)->ops, &((struct bench *)p)->gemm); }

static void run_dot16(void *p)
{
    struct bench *b = p;
    b->sink = b->ops->dot16(b->rmsnorm.x, b->rmsnorm.w, BENCH_N);
}

static void bench_vector(struct check *c)
{
    float *x = check_floats(c, BENCH_N), *w = check_floats(c, BENCH_N), *y = check_output(c, BENCH_N);
    struct bench b = {.ops = c->ops};
    b.rmsnorm = (struct rmsnorm_args){x, w, y, BENCH_N, BENCH_N, 1, BENCH_N, 1e-6f};
    b.swiglu = (struct swiglu_args){x, w, y, BENCH_N};
    b.expert_sum =
        (struct expert_sum_args){check_floats(c, 8 * BENCH_N), check_floats(c, 8), x, w, y, BENCH_N, 8, BENCH_N};
    b.quantise = (struct quantise_args){
        x,  check_bytes(c, BENCH_N), check_output(c, BENCH_N / 32), check_bytes(c, BENCH_N / 8), BENCH_N, 1, BENCH_N,
        256};
    double bytes = 4.0 * BENCH_N;
    unsigned kept = c->regions_used;
    const struct {
        const char *op;
        struct check_timed timed;
    } rows[] = {
        {"dot16", {run_dot16, &b, 2 * bytes}},          {"rmsnorm", {run_rmsnorm, &b, 3 * bytes}},
        {"swiglu", {run_swiglu, &b, 3 * bytes}},        {"expert_sum", {run_expert_sum, &b, 11 * bytes}},
        {"quantise", {run_quantise, &b, 1.25 * bytes}},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        c->regions_used = kept; /* the buffers serve all rows */
        check_bench(c, rows[i].op, "7168", rows[i].timed);
    }
}

void check_vector(struct check *c)
{
    const struct ops *r = c->ref, *o = c->ops;
    if (c->bench) {
        bench_vector(c);
        return;
    }
    check_slot(c, "quantise", "32", 32, o->quantise == r->quantise, quantise_case);
    check_slot(c, "quantise", "256", 256, o->quantise == r->quantise, quantise_case);
    check_slot(c, "dot16", "", 0, o->dot16 == r->dot16, dot16_case);
    check_slot(c, "rmsnorm", "", 0, o->rmsnorm == r->rmsnorm, rmsnorm_case);
    check_slot(c, "rope", "pairs", 0, o->rope == r->rope, rope_case);
    check_slot(c, "rope", "half_split", 1, o->rope == r->rope, rope_case);
    check_slot(c, "swiglu", "", 0, o->swiglu == r->swiglu, swiglu_case);
    check_slot(c, "swiglu", "range", 0, o->swiglu == r->swiglu, swiglu_range_case);
    check_slot(c, "exp", "", 0, o->exp == r->exp, exp_case);
    check_slot(c, "expert_sum", "", 0, o->expert_sum == r->expert_sum, expert_sum_case);
    check_slot(c, "add", "", 0, o->add == r->add, add_case);
}

void check_gemm(struct check *c)
{
    if (c->ops->blas_sgemm == NULL) {
        return; /* reported by main */
    }
    if (c->bench) {
        enum { M = 512, N = 512, K = 2048 };
        struct bench b = {.ops = c->ops};
        b.gemm = (struct gemm_args){
            check_floats(c, M * K), check_floats(c, N * K), check_output(c, M * N), K, K, N, M, N, K, true, 1, 0};
        check_bench(c, "gemm", "512x512x2048", (struct check_timed){run_gemm, &b, 4.0 * N * K});
        return;
    }
    check_slot(c, "gemm", "b_rows", 1, c->ops->gemm == c->ref->gemm, gemm_case);
    check_slot(c, "gemm", "b_cols", 0, c->ops->gemm == c->ref->gemm, gemm_case);
}
