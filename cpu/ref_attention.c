/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the definition of cached rows and of absorbed attention. Must not know: pages' owners, threads, layers. */
#include <math.h>
#include <string.h>

#include "common/exact.h"
#include "common/intmath.h"
#include "cpu/lanes.h"
#include "cpu/ref.h"

enum { KV_BLOCK = 32 };

/* ---- one part (latent or rope) of a cached row: returns where the next part starts ---- */

static uint8_t *store_halves(const float *x, uint8_t *row, uint32_t n, uint16_t (*convert)(float))
{
    for (uint32_t i = 0; i < n; i++) {
        uint16_t h = convert(x[i]);
        memcpy(row + 2 * (size_t)i, &h, sizeof(h));
    }
    return row + 2 * (size_t)n;
}

static const uint8_t *load_halves(const uint8_t *row, float *y, uint32_t n, float (*convert)(uint16_t))
{
    for (uint32_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, row + 2 * (size_t)i, sizeof(h));
        y[i] = convert(h);
    }
    return row + 2 * (size_t)n;
}

/* Codes by the rule of activations, over a block that may be short; the stored scale is rounded to half. */
static uint8_t *store_q8_0(const float *x, uint8_t *row, uint32_t n)
{
    for (uint32_t col = 0; col < n; col += KV_BLOCK) {
        uint32_t count = min_u32(KV_BLOCK, n - col);
        float block[KV_BLOCK] = {0};
        int8_t q[KV_BLOCK];
        int16_t bsum16[KV_BLOCK / 16];
        float scale;
        memcpy(block, x + col, count * sizeof(float));
        ref_quantise(&(struct quantise_args){block, q, &scale, bsum16, KV_BLOCK, 1, KV_BLOCK, KV_BLOCK});
        row = store_halves(&scale, row, 1, float_to_half);
        memcpy(row, q, count);
        row += count;
    }
    return row;
}

static const uint8_t *load_q8_0(const uint8_t *row, float *y, uint32_t n)
{
    for (uint32_t col = 0; col < n; col += KV_BLOCK) {
        uint32_t count = min_u32(KV_BLOCK, n - col);
        float scale;
        row = load_halves(row, &scale, 1, half_to_float);
        for (uint32_t i = 0; i < count; i++) {
            y[col + i] = (float)(int8_t)row[i] * scale;
        }
        row += count;
    }
    return row;
}

static uint8_t *store_part(enum kv_type type, const float *x, uint8_t *row, uint32_t n)
{
    switch (type) {
    case KV_BF16:
        return store_halves(x, row, n, float_to_bf16);
    case KV_F16:
        return store_halves(x, row, n, float_to_half);
    case KV_Q8_0:
        return store_q8_0(x, row, n);
    default:
        memcpy(row, x, n * sizeof(float));
        return row + n * sizeof(float);
    }
}

static const uint8_t *load_part(enum kv_type type, const uint8_t *row, float *y, uint32_t n)
{
    switch (type) {
    case KV_BF16:
        return load_halves(row, y, n, bf16_to_float);
    case KV_F16:
        return load_halves(row, y, n, half_to_float);
    case KV_Q8_0:
        return load_q8_0(row, y, n);
    default:
        memcpy(y, row, n * sizeof(float));
        return row + n * sizeof(float);
    }
}

void ref_kv_store(const struct kv_store_args *args)
{
    const struct kv_layout *l = &args->layout;
    uint8_t *rope = store_part(l->type, args->latent, args->row, l->latent);
    store_part(l->type, args->rope, rope, l->rope);
}

void ref_kv_load(const struct kv_load_args *args)
{
    const struct kv_layout *l = &args->layout;
    for (uint32_t i = 0; i < args->n; i++) {
        const uint8_t *row = (const uint8_t *)args->rows + i * l->row_bytes;
        float *y = args->y + i * args->y_stride;
        load_part(l->type, load_part(l->type, row, y, l->latent), y + l->latent, l->rope);
    }
}

/* ---- attention ---- */

static float max_of(float m, float s) { return s > m ? s : m; }

/* Factors that bring two partial results to their common maximum, which is returned. */
static float merge_factors(float m_a, float m_b, float *ret_a, float *ret_b)
{
    float m = max_of(m_a, m_b);
    *ret_a = exp_exact(m_a - m);
    *ret_b = exp_exact(m_b - m);
    return m;
}

/* One head over one page of n rows [n, latent + rope]; `first`: nothing of the segment has been seen yet. */
static void attend_page(const struct attn_segment_args *args, uint32_t head, const float *rows, uint32_t n, bool first)
{
    const uint32_t latent = args->layout.latent, rope = args->layout.rope, width = latent + rope;
    const float *q_latent = args->q_latent + (size_t)head * latent;
    const float *q_rope = args->q_rope + head * args->q_rope_stride;
    float *u = args->u + (size_t)head * latent;
    float e[KV_PAGE], m = -INFINITY, z = 0.0f;
    for (uint32_t t = 0; t < n; t++) {
        const float *row = rows + (size_t)t * width;
        e[t] = args->scale * (ref_dot16(q_latent, row, latent) + ref_dot16(q_rope, row + latent, rope));
        m = max_of(m, e[t]);
    }
    for (uint32_t t = 0; t < n; t++) {
        e[t] = exp_exact(e[t] - m);
        z += e[t];
    }
    float a = 0.0f, b = 0.0f;
    if (first) {
        args->m[head] = m;
        args->z[head] = z;
    } else {
        args->m[head] = merge_factors(args->m[head], m, &a, &b);
        args->z[head] = fmaf(args->z[head], a, b * z);
    }
    for (uint32_t c = 0; c < latent; c++) {
        float sum = 0.0f;
        for (uint32_t t = 0; t < n; t++) {
            sum = fmaf(e[t], rows[(size_t)t * width + c], sum);
        }
        u[c] = first ? sum : fmaf(u[c], a, b * sum);
    }
}

void ref_attn_segment(const struct attn_segment_args *args)
{
    const uint32_t width = args->layout.latent + args->layout.rope;
    for (uint32_t done = 0, n; done < args->n; done += n) {
        n = min_u32(KV_PAGE, args->n - done);
        ref_kv_load(&(struct kv_load_args){args->layout, args->pages[done / KV_PAGE], args->scratch, width, n});
        for (uint32_t h = 0; h < args->heads; h++) {
            attend_page(args, h, args->scratch, n, done == 0);
        }
    }
}

void ref_attn_merge(const struct attn_merge_args *args)
{
    float m = args->m[0], z = args->z[0];
    memcpy(args->y, args->u, args->latent * sizeof(float));
    for (uint32_t s = 1; s < args->segments; s++) {
        const float *u = args->u + s * args->u_stride;
        float a, b;
        m = merge_factors(m, args->m[s * args->m_stride], &a, &b);
        z = fmaf(z, a, b * args->z[s * args->m_stride]);
        for (uint32_t c = 0; c < args->latent; c++) {
            args->y[c] = fmaf(args->y[c], a, b * u[c]);
        }
    }
    for (uint32_t c = 0; c < args->latent; c++) {
        args->y[c] /= z;
    }
}

void ref_attn_softmax(const struct attn_softmax_args *args)
{
    for (uint32_t i = 0; i < args->rows; i++) {
        const uint32_t seen = min_u32(args->seen + i, args->n);
        float *s = args->s + i * args->s_stride, *acc = args->acc + (size_t)i * args->width;
        float m = args->m[i], lanes[LANES] = {0};
        for (uint32_t t = 0; t < seen; t++) {
            m = max_of(m, s[t]);
        }
        for (uint32_t t = 0; t < args->n; t++) {
            s[t] = t < seen ? exp_exact(s[t] - m) : 0.0f;
            lanes[t % LANES] += s[t];
        }
        float before = exp_exact(args->m[i] - m);
        for (uint32_t c = 0; c < args->width; c++) {
            acc[c] *= before;
        }
        args->z[i] = fmaf(args->z[i], before, lanes_sum(lanes));
        args->m[i] = m;
    }
}
