/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: checks and rates of cached rows and of absorbed attention, for every KV type. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "tests/kernel/check.h"

static struct kv_layout random_layout(struct check *c, int type)
{
    static const uint32_t latents[] = {512, 256, 64, 1, 17, 40}, ropes[] = {64, 32, 2, 10};
    uint32_t latent = check_one_in(c, 3) ? 1 + check_below(c, 90) : latents[check_below(c, ARRAY_LEN(latents))];
    uint32_t rope = check_one_in(c, 3) ? 2 * check_below(c, 20) : ropes[check_below(c, ARRAY_LEN(ropes))];
    return (struct kv_layout){(enum kv_type)type, latent, rope, kv_row_bytes((enum kv_type)type, latent, rope)};
}

static bool kv_store_case(struct check *c, int type)
{
    struct kv_layout l = random_layout(c, type);
    float *latent = check_floats(c, l.latent), *rope = check_floats(c, l.rope);
    uint8_t *expected = check_bytes(c, l.row_bytes), *got = check_bytes(c, l.row_bytes);
    check_fill_activations(c, latent, l.latent);
    check_fill_activations(c, rope, l.rope);
    memset(expected, 0x55, l.row_bytes);
    memset(got, 0x55, l.row_bytes);
    snprintf(c->shape, sizeof(c->shape), "latent %u, rope %u", l.latent, l.rope);
    c->ref->kv_store[type](&(struct kv_store_args){l, latent, rope, expected});
    c->ops->kv_store[type](&(struct kv_store_args){l, latent, rope, got});
    return check_same_bytes(c, "row", expected, got, l.row_bytes);
}

/* Stored values come back within the type's precision. */
static bool kv_round_trip_case(struct check *c, int type)
{
    static const double relative[KV_TYPE_COUNT] = {0, 1.0 / 256, 1.0 / 2048, 0},
                        of_largest[KV_TYPE_COUNT] = {0, 0, 0, 0.0045};
    struct kv_layout l = random_layout(c, type);
    float *x = check_floats(c, l.latent + l.rope), *y = check_output(c, l.latent + l.rope);
    uint8_t *row = check_bytes(c, l.row_bytes);
    c->ops->kv_store[type](&(struct kv_store_args){l, x, x + l.latent, row});
    c->ops->kv_load[type](&(struct kv_load_args){l, row, y, l.latent + l.rope, 1});
    double largest = 0;
    for (uint32_t i = 0; i < l.latent + l.rope; i++) {
        largest = fmax(largest, fabs((double)x[i]));
    }
    for (uint32_t i = 0; i < l.latent + l.rope; i++) {
        double tolerance = relative[type] * fabs((double)x[i]) + of_largest[type] * largest + 1e-7;
        if (!check_near(c, "value", (double)x[i], (double)y[i], tolerance)) {
            return false;
        }
    }
    return true;
}

/* n rows of random values, odd ones included unless `tame`. */
static void *random_rows(struct check *c, struct kv_layout l, uint32_t n, bool tame)
{
    uint8_t *rows = check_bytes(c, n * l.row_bytes);
    float *x = check_floats(c, l.latent + l.rope);
    for (uint32_t t = 0; t < n; t++) {
        check_fill_floats(c, x, l.latent + l.rope);
        if (!tame) {
            check_fill_activations(c, x, l.latent + l.rope);
        }
        c->ref->kv_store[l.type](&(struct kv_store_args){l, x, x + l.latent, rows + t * l.row_bytes});
    }
    return rows;
}

static bool kv_load_case(struct check *c, int type)
{
    struct kv_load_args a = {.layout = random_layout(c, type), .n = check_below(c, 6)};
    uint32_t width = a.layout.latent + a.layout.rope;
    a.y_stride = width + check_below(c, 3);
    struct kv_load_args b;
    a.rows = random_rows(c, a.layout, a.n, false);
    b = a;
    a.y = check_output(c, a.n * a.y_stride);
    b.y = check_output(c, a.n * a.y_stride);
    snprintf(c->shape, sizeof(c->shape), "latent %u, rope %u, n %u", a.layout.latent, a.layout.rope, a.n);
    c->ref->kv_load[type](&a);
    c->ops->kv_load[type](&b);
    return check_same(c, "y", a.y, b.y, a.n * a.y_stride);
}

/* ---- attention ---- */

enum { CHECK_PAGES = 4 };

struct segment {
    struct attn_segment_args args;
    const void *pages[CHECK_PAGES];
};

static void random_segment(struct check *c, int type, bool tame, struct segment *s)
{
    struct attn_segment_args *a = &s->args;
    *s = (struct segment){.args = {.layout = random_layout(c, type), .n = 1 + check_below(c, CHECK_PAGES * KV_PAGE)}};
    if (check_one_in(c, 4)) {
        a->n = KV_PAGE * (1 + check_below(c, CHECK_PAGES));
    }
    a->heads = 1 + check_below(c, 9);
    a->scale = 0.13f;
    for (uint32_t p = 0; p * KV_PAGE < a->n; p++) {
        s->pages[p] = random_rows(c, a->layout, min_u32(KV_PAGE, a->n - p * KV_PAGE), tame);
    }
    a->pages = s->pages;
    a->q_rope_stride = a->layout.rope + check_below(c, 130);
    size_t q_rope_len = (a->heads - 1) * a->q_rope_stride + a->layout.rope;
    a->q_latent = check_floats(c, (size_t)a->heads * a->layout.latent);
    a->q_rope = check_floats(c, q_rope_len);
    a->scratch = check_output(c, (size_t)KV_PAGE * (a->layout.latent + a->layout.rope));
    snprintf(c->shape, sizeof(c->shape), "latent %u, rope %u, n %u, heads %u", a->layout.latent, a->layout.rope, a->n,
             a->heads);
}

static void run_segment_with(struct check *c, const struct ops *ops, struct attn_segment_args *a)
{
    a->m = check_output(c, a->heads);
    a->z = check_output(c, a->heads);
    a->u = check_output(c, (size_t)a->heads * a->layout.latent);
    ops->attn_segment(a);
}

/* The sign of a zero maximum is free (docs/numerics.md): exp of the difference is 1 either way. */
static void drop_zero_sign(float *m, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        m[i] = m[i] == 0.0f ? 0.0f : m[i];
    }
}

/* Softmax-weighted latents in double, one head. */
static bool attention_near_doubles(struct check *c, const struct attn_segment_args *a, uint32_t head)
{
    uint32_t latent = a->layout.latent, rope = a->layout.rope, width = latent + rope;
    float *rows = check_output(c, (size_t)a->n * width), *y = check_output(c, latent);
    for (uint32_t p = 0; p * KV_PAGE < a->n; p++) {
        c->ref->kv_load[a->layout.type](&(struct kv_load_args){
            a->layout, a->pages[p], rows + (size_t)p * KV_PAGE * width, width, min_u32(KV_PAGE, a->n - p * KV_PAGE)});
    }
    double s[CHECK_PAGES * KV_PAGE], max = -INFINITY, z = 0, largest = 0;
    for (uint32_t t = 0; t < a->n; t++) {
        const float *row = rows + (size_t)t * width;
        double sum = 0;
        for (uint32_t i = 0; i < width; i++) {
            const float *q =
                i < latent ? a->q_latent + (size_t)head * latent + i : a->q_rope + head * a->q_rope_stride + i - latent;
            sum += (double)*q * (double)row[i];
            largest = fmax(largest, fabs((double)row[i]));
        }
        s[t] = (double)a->scale * sum;
        max = fmax(max, s[t]);
    }
    for (uint32_t t = 0; t < a->n; t++) {
        s[t] = exp(s[t] - max);
        z += s[t];
    }
    c->ops->attn_merge(
        &(struct attn_merge_args){a->m + head, a->z + head, a->u + (size_t)head * latent, 1, latent, y, 1, latent});
    double tolerance = largest * (1e-4 + 2e-6 * fabs(max));
    for (uint32_t i = 0; i < latent; i++) {
        double sum = 0;
        for (uint32_t t = 0; t < a->n; t++) {
            sum += s[t] / z * (double)rows[(size_t)t * width + i];
        }
        if (!check_near(c, "against doubles", sum, (double)y[i], tolerance)) {
            return false;
        }
    }
    return true;
}

static bool segment_case(struct check *c, int type)
{
    struct segment s;
    bool tame = !check_one_in(c, 4);
    random_segment(c, type, tame, &s);
    struct attn_segment_args a = s.args, b = s.args;
    run_segment_with(c, c->ref, &a);
    run_segment_with(c, c->ops, &b);
    drop_zero_sign(a.m, a.heads);
    drop_zero_sign(b.m, b.heads);
    return check_same(c, "m", a.m, b.m, a.heads) && check_same(c, "z", a.z, b.z, a.heads) &&
           check_same(c, "u", a.u, b.u, (size_t)a.heads * a.layout.latent) &&
           (!tame || attention_near_doubles(c, &b, check_below(c, b.heads)));
}

static bool merge_case(struct check *c, int unused)
{
    (void)unused;
    struct attn_merge_args a = {
        .segments = 1 + check_below(c, 9), .latent = 1 + check_below(c, 600), .m_stride = 1 + check_below(c, 5)};
    a.u_stride = a.latent + check_below(c, 5);
    size_t m_len = (a.segments - 1) * a.m_stride + 1, u_len = (a.segments - 1) * a.u_stride + a.latent;
    float *m = check_floats(c, m_len), *z = check_floats(c, m_len), *u = check_floats(c, u_len);
    struct attn_merge_args b;
    for (size_t i = 0; i < m_len; i++) {
        m[i] *= check_one_in(c, 4) ? 60.0f : 1.0f;
        z[i] = 1.0f + fabsf(z[i]);
    }
    if (check_one_in(c, 4)) {
        check_fill_activations(c, u, u_len);
        m[check_below(c, (uint32_t)m_len)] = check_one_in(c, 2) ? NAN : -INFINITY;
    }
    a.m = m;
    a.z = z;
    a.u = u;
    b = a;
    a.y = check_output(c, a.latent);
    b.y = check_output(c, a.latent);
    snprintf(c->shape, sizeof(c->shape), "segments %u, latent %u", a.segments, a.latent);
    c->ref->attn_merge(&a);
    c->ops->attn_merge(&b);
    return check_same(c, "y", a.y, b.y, a.latent);
}

/* ---- softmax of bulk rows ---- */

/* Weights are what doubles say, in the rows' own tile and in what earlier tiles left. */
static bool softmax_near_doubles(struct check *c, const struct attn_softmax_args *a, const float *scores,
                                 const float *m_before, const float *z_before)
{
    for (uint32_t i = 0; i < a->rows; i++) {
        uint32_t seen = min_u32(a->seen + i, a->n);
        double max = (double)m_before[i], z;
        for (uint32_t t = 0; t < seen; t++) {
            max = fmax(max, (double)scores[i * a->s_stride + t]);
        }
        z = (double)z_before[i] * exp((double)m_before[i] - max);
        for (uint32_t t = 0; t < a->n; t++) {
            double weight = t < seen ? exp((double)scores[i * a->s_stride + t] - max) : 0;
            z += weight;
            if (!check_near(c, "weight", weight, (double)a->s[i * a->s_stride + t], 1e-5)) {
                return false;
            }
        }
        if (!check_near(c, "z", z, (double)a->z[i], 1e-5 * z)) {
            return false;
        }
    }
    return true;
}

static bool softmax_case(struct check *c, int first_tile)
{
    struct attn_softmax_args a = {.rows = check_below(c, 5), .n = 1 + check_below(c, 80), .width = 1 + check_below(c, 70)};
    a.s_stride = a.n + check_below(c, 4);
    a.seen = 1 + check_below(c, a.n);
    size_t scores = a.rows * a.s_stride, sums = (size_t)a.rows * a.width;
    float *s = check_floats(c, scores), *acc = check_floats(c, sums), *m = check_floats(c, a.rows),
          *z = check_floats(c, a.rows);
    bool tame = !check_one_in(c, 4) || check_fill_activations(c, s, scores);
    for (uint32_t i = 0; i < a.rows; i++) {
        m[i] = first_tile ? -INFINITY : m[i];
        z[i] = first_tile ? 0.0f : 1.0f + fabsf(z[i]);
    }
    struct attn_softmax_args b = a;
    a.s = check_bytes(c, scores * sizeof(float));
    a.acc = check_bytes(c, sums * sizeof(float));
    a.m = check_bytes(c, a.rows * sizeof(float));
    a.z = check_bytes(c, a.rows * sizeof(float));
    b.s = check_bytes(c, scores * sizeof(float));
    b.acc = check_bytes(c, sums * sizeof(float));
    b.m = check_bytes(c, a.rows * sizeof(float));
    b.z = check_bytes(c, a.rows * sizeof(float));
    for (int k = 0; k < 2; k++) {
        struct attn_softmax_args *to = k ? &b : &a;
        memcpy(to->s, s, scores * sizeof(float));
        memcpy(to->acc, acc, sums * sizeof(float));
        memcpy(to->m, m, a.rows * sizeof(float));
        memcpy(to->z, z, a.rows * sizeof(float));
        (k ? c->ops : c->ref)->attn_softmax(to);
    }
    snprintf(c->shape, sizeof(c->shape), "rows %u, n %u, seen %u, width %u", a.rows, a.n, a.seen, a.width);
    drop_zero_sign(a.m, a.rows);
    drop_zero_sign(b.m, b.rows);
    return check_same(c, "s", a.s, b.s, scores) && check_same(c, "acc", a.acc, b.acc, sums) &&
           check_same(c, "m", a.m, b.m, a.rows) && check_same(c, "z", a.z, b.z, a.rows) &&
           (!tame || softmax_near_doubles(c, &b, s, m, z));
}

/* ---- rates: one full segment for 16 heads, 512 + 64 ---- */

struct bench {
    const struct ops *ops;
    struct attn_segment_args segment;
    struct kv_load_args load;
};

static void run_segment(void *p) { ((struct bench *)p)->ops->attn_segment(&((struct bench *)p)->segment); }

static void run_load(void *p)
{
    struct bench *b = p;
    b->ops->kv_load[b->load.layout.type](&b->load);
}

static void bench_attention(struct check *c, enum kv_type type)
{
    enum { LATENT = 512, ROPE = 64, HEADS = 16 };
    struct kv_layout l = {type, LATENT, ROPE, kv_row_bytes(type, LATENT, ROPE)};
    const void *pages[KV_SEGMENT_PAGES];
    for (int p = 0; p < KV_SEGMENT_PAGES; p++) {
        pages[p] = random_rows(c, l, KV_PAGE, true);
        c->regions_used--; /* the row it was made from */
    }
    struct bench b = {.ops = c->ops};
    b.segment = (struct attn_segment_args){.layout = l,
                                           .pages = pages,
                                           .n = KV_PAGE * KV_SEGMENT_PAGES,
                                           .q_latent = check_floats(c, HEADS * LATENT),
                                           .q_rope = check_floats(c, HEADS * ROPE),
                                           .q_rope_stride = ROPE,
                                           .scratch = check_output(c, KV_PAGE * (LATENT + ROPE)),
                                           .m = check_output(c, HEADS),
                                           .z = check_output(c, HEADS),
                                           .u = check_output(c, HEADS * LATENT),
                                           .scale = 0.13f,
                                           .heads = HEADS};
    check_bench(c, "attn_segment", kv_type_name(type),
                (struct check_timed){run_segment, &b, (double)b.segment.n * (double)l.row_bytes});
    b.load = (struct kv_load_args){l, random_rows(c, l, KV_PAGE, true), check_output(c, KV_PAGE * (LATENT + ROPE)),
                                   LATENT + ROPE, KV_PAGE};
    check_bench(c, "kv_load", kv_type_name(type), (struct check_timed){run_load, &b, KV_PAGE * (double)l.row_bytes});
}

void check_attention(struct check *c)
{
    const struct ops *r = c->ref, *o = c->ops;
    for (int t = 0; t < KV_TYPE_COUNT; t++) {
        const char *name = kv_type_name((enum kv_type)t);
        if (c->bench) {
            bench_attention(c, (enum kv_type)t);
            continue;
        }
        check_slot(c, "kv_store", name, t, o->kv_store[t] == r->kv_store[t], kv_store_case);
        check_slot(c, "kv_round", name, t, o->kv_store[t] == r->kv_store[t], kv_round_trip_case);
        check_slot(c, "kv_load", name, t, o->kv_load[t] == r->kv_load[t], kv_load_case);
        check_slot(c, "attn_segment", name, t, o->attn_segment == r->attn_segment, segment_case);
    }
    if (!c->bench) {
        check_slot(c, "attn_merge", "", 0, o->attn_merge == r->attn_merge, merge_case);
        check_slot(c, "attn_softmax", "later", 0, o->attn_softmax == r->attn_softmax, softmax_case);
        check_slot(c, "attn_softmax", "first", 1, o->attn_softmax == r->attn_softmax, softmax_case);
    }
}
