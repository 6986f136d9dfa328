/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/simd_<isa>.h. Owns: cached rows and absorbed attention, sixteen heads at a time (a lane each
 * where heads do the same). Must not know: pages' owners, layers. */
#ifndef SLUICE_CPU_ATTENTION_TMPL_H
#define SLUICE_CPU_ATTENTION_TMPL_H

#include "cpu/vector_tmpl.h"

enum {
    KV_BLOCK = 32,
    HEAD_TILE = 16,
    HEAD_GROUP = 4, /* heads that share a load of latents */
};

/* ---- one part (latent or rope) of a cached row: returns where the next part starts ---- */

SIMD_INLINE uint8_t *store_part_f32(const float *x, uint8_t *row, uint32_t n)
{
    memcpy(row, x, n * sizeof(float));
    return row + n * sizeof(float);
}

/* Every NaN becomes the quiet one without payload, its sign kept. */
SIMD_INLINE struct vi canonical_bits(struct vf x)
{
    struct vi sign = vi_and(vi_bits(x), vi_set1_32(INT32_MIN));
    struct vf nan = vf_bits(vi_or(sign, vi_set1_32(0x7fc00000)));
    return vi_bits(vf_select(vf_unordered(x, x), nan, x));
}

SIMD_INLINE void to_halves(uint8_t *p, struct vf x) { vf_to_halves(p, vf_bits(canonical_bits(x))); }

SIMD_INLINE void to_bf16(uint8_t *p, struct vf x)
{
    struct vi bits = canonical_bits(x);
    struct vi odd = vi_and(vi_shr32(bits, 16), vi_set1_32(1));
    vi_store_words(p, vi_shr32(vi_add32(bits, vi_add32(odd, vi_set1_32(0x7fff))), 16));
}

SIMD_INLINE uint8_t *store_words(const float *x, uint8_t *row, uint32_t n, void (*convert)(uint8_t *, struct vf))
{
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        convert(row + 2 * (size_t)i, vf_load(x + i));
    }
    if (i < n) {
        uint8_t last[32];
        convert(last, vf_load_first(x + i, n - i));
        memcpy(row + 2 * (size_t)i, last, 2 * (size_t)(n - i));
    }
    return row + 2 * (size_t)n;
}

SIMD_INLINE uint8_t *store_part_f16(const float *x, uint8_t *row, uint32_t n)
{
    return store_words(x, row, n, to_halves);
}

SIMD_INLINE uint8_t *store_part_bf16(const float *x, uint8_t *row, uint32_t n)
{
    return store_words(x, row, n, to_bf16);
}

SIMD_INLINE uint8_t *store_part_q8_0(const float *x, uint8_t *row, uint32_t n)
{
    for (uint32_t c = 0; c < n; c += KV_BLOCK) {
        uint32_t count = min_u32(KV_BLOCK, n - c);
        float block[KV_BLOCK] = {0};
        int8_t q[KV_BLOCK];
        int16_t bsum16[KV_BLOCK / 16];
        memcpy(block, x + c, count * sizeof(float));
        uint16_t scale = float_to_half(quantise_block(block, q, bsum16, KV_BLOCK));
        memcpy(row, &scale, sizeof(scale));
        memcpy(row + sizeof(scale), q, count);
        row += sizeof(scale) + count;
    }
    return row;
}

SIMD_INLINE const uint8_t *load_part_f32(const uint8_t *row, float *y, uint32_t n)
{
    memcpy(y, row, n * sizeof(float));
    return row + n * sizeof(float);
}

SIMD_INLINE const uint8_t *load_words(const uint8_t *row, float *y, uint32_t n, struct vf (*convert)(const uint8_t *))
{
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        vf_store(y + i, convert(row + 2 * (size_t)i));
    }
    if (i < n) {
        uint8_t last[32] = {0};
        memcpy(last, row + 2 * (size_t)i, 2 * (size_t)(n - i));
        vf_store_first(y + i, convert(last), n - i);
    }
    return row + 2 * (size_t)n;
}

SIMD_INLINE const uint8_t *load_part_f16(const uint8_t *row, float *y, uint32_t n)
{
    return load_words(row, y, n, vf_from_halves);
}

SIMD_INLINE const uint8_t *load_part_bf16(const uint8_t *row, float *y, uint32_t n)
{
    return load_words(row, y, n, vf_from_bf16);
}

SIMD_INLINE const uint8_t *load_part_q8_0(const uint8_t *row, float *y, uint32_t n)
{
    for (uint32_t c = 0; c < n; c += KV_BLOCK) {
        uint32_t count = min_u32(KV_BLOCK, n - c);
        struct vf scale = vf_set1(half_float(row));
        uint8_t codes[KV_BLOCK] = {0};
        memcpy(codes, row + 2, count);
        for (uint32_t i = 0; i < count; i += 16) {
            vf_store_first(y + c + i, vf_mul(vf_from_s8(b16_load(codes + i)), scale), min_u32(16, count - i));
        }
        row += 2 + count;
    }
    return row;
}

#define KV_FORMAT(type)                                                                                              \
    static void kv_store_##type(const struct kv_store_args *a)                                                       \
    {                                                                                                                \
        store_part_##type(a->rope, store_part_##type(a->latent, a->row, a->layout.latent), a->layout.rope);          \
    }                                                                                                                \
    static void kv_load_##type(const struct kv_load_args *a)                                                         \
    {                                                                                                                \
        for (uint32_t i = 0; i < a->n; i++) {                                                                        \
            const uint8_t *row = (const uint8_t *)a->rows + i * a->layout.row_bytes;                                 \
            float *y = a->y + i * a->y_stride;                                                                       \
            load_part_##type(load_part_##type(row, y, a->layout.latent), y + a->layout.latent, a->layout.rope);      \
        }                                                                                                            \
    }

KV_FORMAT(f32)
KV_FORMAT(bf16)
KV_FORMAT(f16)
KV_FORMAT(q8_0)

static void kv_load(const struct kv_load_args *a)
{
    static void (*const by_type[KV_TYPE_COUNT])(const struct kv_load_args *) = {
        [KV_F32] = kv_load_f32, [KV_BF16] = kv_load_bf16, [KV_F16] = kv_load_f16, [KV_Q8_0] = kv_load_q8_0};
    by_type[a->layout.type](a);
}

/* ---- attention ---- */

/* Sixteen heads (from `first` on; fewer at the end) over one page of n rows. */
struct head_tile {
    const struct attn_segment_args *args;
    uint32_t first, heads, n;
    float e[KV_PAGE][HEAD_TILE]; /* scores, then exp(score - m) */
    float a[HEAD_TILE], b[HEAD_TILE]; /* where the segment goes on: factors of what was and of this page */
};

/* Rows or registers to take at once of those that are left: at most VR_WIDE; no single one is left over by a full step. */
SIMD_INLINE uint32_t step_of(uint32_t left)
{
    return left >= VR_WIDE && left != VR_WIDE + 1 ? VR_WIDE : min_u32(left, 2);
}

/* A block of dot products: `heads` <= HEAD_GROUP rows of q with `rows` <= VR_WIDE rows of c. One address per row: adding
 * up indices would cost as much as the products. */
struct dot_block {
    const float *q[HEAD_GROUP], *c[VR_WIDE];
    struct vr acc[HEAD_GROUP][VR_WIDE]; /* one register of the lanes */
};

SIMD_INLINE void dot_step(struct dot_block *b, uint32_t heads, uint32_t rows, size_t i)
{
    struct vr row[VR_WIDE];
    SIMD_UNROLL
    for (uint32_t t = 0; t < rows; t++) {
        row[t] = vr_load(b->c[t] + i);
    }
    SIMD_UNROLL
    for (uint32_t h = 0; h < heads; h++) {
        struct vr x = vr_load(b->q[h] + i);
        SIMD_UNROLL
        for (uint32_t t = 0; t < rows; t++) {
            b->acc[h][t] = vr_fma(x, row[t], b->acc[h][t]);
        }
    }
}

/* Leaves the lanes from `part` on in b->acc. */
SIMD_INLINE void dot_part(struct dot_block *b, uint32_t heads, uint32_t rows, size_t part, size_t n)
{
    size_t i = part;
    SIMD_UNROLL
    for (uint32_t h = 0; h < heads; h++) {
        SIMD_UNROLL
        for (uint32_t t = 0; t < rows; t++) {
            b->acc[h][t] = vr_zero();
        }
    }
    for (; i + 64 <= n + part; i += 64) { /* few turns: the processor does not foresee the end of a long loop */
        SIMD_UNROLL
        for (size_t k = 0; k < 64; k += 16) {
            dot_step(b, heads, rows, i + k);
        }
    }
    for (; i < n; i += 16) {
        dot_step(b, heads, rows, i);
    }
}

/* ret_dot[t] = products of row t with each head. */
SIMD_INLINE void dot_rows(struct dot_block *b, uint32_t heads, uint32_t rows, size_t n,
                          float ret_dot[VR_WIDE][HEAD_GROUP])
{
    float lanes[HEAD_GROUP][VR_WIDE][16];
    const size_t whole = n / 16 * 16;
    const bool in_registers = heads == HEAD_GROUP && whole == n;
    for (size_t part = 0; part < 16; part += VR_LANES) {
        dot_part(b, heads, rows, part, whole);
        if (in_registers && part + VR_LANES == 16) {
            break;
        }
        SIMD_UNROLL
        for (uint32_t h = 0; h < heads; h++) {
            SIMD_UNROLL
            for (uint32_t t = 0; t < rows; t++) {
                vr_store(lanes[h][t] + part, b->acc[h][t]);
            }
        }
    }
    SIMD_UNROLL
    for (uint32_t t = 0; in_registers && t < rows; t++) {
        v4_store(ret_dot[t], vr_sum4(lanes[0][t], b->acc[0][t], lanes[1][t], b->acc[1][t], lanes[2][t], b->acc[2][t],
                                     lanes[3][t], b->acc[3][t]));
    }
    for (uint32_t i = 0; !in_registers && i < heads * rows; i++) {
        uint32_t h = i / rows, t = i % rows;
        ret_dot[t][h] = vf_sum(dot_rest(b->q[h], b->c[t], whole, n, vf_load(lanes[h][t])));
    }
}

SIMD_INLINE void score_group(struct head_tile *p, uint32_t h, uint32_t heads, uint32_t t, uint32_t rows)
{
    const struct attn_segment_args *args = p->args;
    const size_t latent = args->layout.latent, width = latent + args->layout.rope;
    float of_latent[VR_WIDE][HEAD_GROUP], of_rope[VR_WIDE][HEAD_GROUP];
    struct dot_block b;
    SIMD_UNROLL
    for (uint32_t i = 0; i < heads; i++) {
        b.q[i] = args->q_latent + (p->first + h + i) * latent;
    }
    SIMD_UNROLL
    for (uint32_t j = 0; j < rows; j++) {
        b.c[j] = args->scratch + (t + j) * width;
    }
    dot_rows(&b, heads, rows, latent, of_latent);
    SIMD_UNROLL
    for (uint32_t i = 0; i < heads; i++) {
        b.q[i] = args->q_rope + (p->first + h + i) * args->q_rope_stride;
    }
    SIMD_UNROLL
    for (uint32_t j = 0; j < rows; j++) {
        b.c[j] += latent;
    }
    dot_rows(&b, heads, rows, args->layout.rope, of_rope);
    SIMD_UNROLL
    for (uint32_t j = 0; j < rows; j++) {
        if (heads == HEAD_GROUP) {
            struct v4 sum = v4_add(v4_load(of_latent[j]), v4_load(of_rope[j]));
            v4_store(&p->e[t + j][h], v4_mul(v4_set1(args->scale), sum));
        } else {
            p->e[t + j][h] = args->scale * (of_latent[j][0] + of_rope[j][0]);
        }
    }
}

/* All rows pass by few heads at a time, which stay in the first-level cache. */
SIMD_INLINE void score_heads(struct head_tile *p, uint32_t h, uint32_t heads)
{
    for (uint32_t t = 0, rows; t < p->n; t += rows) {
        rows = step_of(p->n - t);
        if (rows == VR_WIDE) {
            score_group(p, h, heads, t, VR_WIDE);
        } else if (rows == 2) {
            score_group(p, h, heads, t, 2);
        } else {
            score_group(p, h, heads, t, 1);
        }
    }
}

static void score_page(struct head_tile *p)
{
    uint32_t h = 0;
    memset(p->e, 0, sizeof(p->e));
    for (; h + HEAD_GROUP <= p->heads; h += HEAD_GROUP) {
        score_heads(p, h, HEAD_GROUP);
    }
    for (; h < p->heads; h++) {
        score_heads(p, h, 1);
    }
}

/* Scores to weights, sum and maximum; the latter two joined with those of the pages before. A lane is a head. */
static void weigh_page(struct head_tile *p, bool first_page)
{
    float *to_m = p->args->m + p->first, *to_z = p->args->z + p->first;
    struct vf m = vf_set1(-INFINITY), z = vf_zero();
    for (uint32_t t = 0; t < p->n; t++) {
        m = vf_max(vf_load(p->e[t]), m);
    }
    for (uint32_t t = 0; t < p->n; t++) {
        struct vf e = vf_exp(vf_sub(vf_load(p->e[t]), m));
        vf_store(p->e[t], e);
        z = vf_add(z, e);
    }
    if (!first_page) {
        struct vf before = vf_load_first(to_m, p->heads), both = vf_max(m, before);
        struct vf a = vf_exp(vf_sub(before, both)), b = vf_exp(vf_sub(m, both));
        vf_store(p->a, a);
        vf_store(p->b, b);
        m = both;
        z = vf_fma(vf_load_first(to_z, p->heads), a, vf_mul(b, z));
    }
    vf_store_first(to_m, m, p->heads);
    vf_store_first(to_z, z, p->heads);
}

/* `regs` registers of latents from c on, of `heads` heads from h on. */
SIMD_INLINE void sum_group(const struct head_tile *p, uint32_t h, uint32_t heads, uint32_t c, uint32_t regs,
                           bool first_page)
{
    const struct attn_segment_args *args = p->args;
    const size_t latent = args->layout.latent, width = latent + args->layout.rope;
    const float *row = args->scratch + c, *e = &p->e[0][h];
    struct vr sum[HEAD_GROUP][VR_WIDE], value[VR_WIDE];
    SIMD_UNROLL
    for (uint32_t i = 0; i < heads; i++) {
        SIMD_UNROLL
        for (uint32_t k = 0; k < regs; k++) {
            sum[i][k] = vr_zero();
        }
    }
    for (uint32_t t = 0; t < p->n; t++, row += width, e += HEAD_TILE) {
        SIMD_UNROLL
        for (uint32_t k = 0; k < regs; k++) {
            value[k] = vr_load(row + k * VR_LANES);
        }
        SIMD_UNROLL
        for (uint32_t i = 0; i < heads; i++) {
            struct vr weight = vr_set1(e[i]);
            SIMD_UNROLL
            for (uint32_t k = 0; k < regs; k++) {
                sum[i][k] = vr_fma(weight, value[k], sum[i][k]);
            }
        }
    }
    SIMD_UNROLL
    for (uint32_t i = 0; i < heads; i++) {
        float *u = args->u + (p->first + h + i) * latent + c;
        struct vr a = vr_set1(p->a[h + i]), b = vr_set1(p->b[h + i]);
        SIMD_UNROLL
        for (uint32_t k = 0; k < regs; k++) {
            struct vr joined = sum[i][k];
            if (!first_page) {
                joined = vr_fma(vr_load(u + k * VR_LANES), a, vr_mul(b, joined));
            }
            vr_store(u + k * VR_LANES, joined);
        }
    }
}

SIMD_INLINE void sum_heads(const struct head_tile *p, uint32_t c, uint32_t regs, bool first_page)
{
    uint32_t h = 0;
    for (; h + HEAD_GROUP <= p->heads; h += HEAD_GROUP) {
        sum_group(p, h, HEAD_GROUP, c, regs, first_page);
    }
    for (; h < p->heads; h++) {
        sum_group(p, h, 1, c, regs, first_page);
    }
}

/* The last latents from c on, fewer than a register holds. */
static void sum_rest(const struct head_tile *p, uint32_t c, bool first_page)
{
    const struct attn_segment_args *args = p->args;
    const size_t latent = args->layout.latent, width = latent + args->layout.rope;
    const uint32_t count = args->layout.latent - c;
    for (uint32_t h = 0; h < p->heads; h++) {
        float *u = args->u + (p->first + h) * latent + c;
        struct vf sum = vf_zero();
        for (uint32_t t = 0; t < p->n; t++) {
            sum = vf_fma(vf_set1(p->e[t][h]), vf_load_first(args->scratch + t * width + c, count), sum);
        }
        if (!first_page) {
            sum = vf_fma(vf_load_first(u, count), vf_set1(p->a[h]), vf_mul(vf_set1(p->b[h]), sum));
        }
        vf_store_first(u, sum, count);
    }
}

static void sum_page(const struct head_tile *p, bool first_page)
{
    const uint32_t latent = p->args->layout.latent;
    uint32_t c = 0;
    for (uint32_t regs; c + VR_LANES <= latent; c += regs * VR_LANES) {
        regs = step_of((latent - c) / VR_LANES);
        if (regs == VR_WIDE) {
            sum_heads(p, c, VR_WIDE, first_page);
        } else if (regs == 2) {
            sum_heads(p, c, 2, first_page);
        } else {
            sum_heads(p, c, 1, first_page);
        }
    }
    if (c < latent) {
        sum_rest(p, c, first_page);
    }
}

static void attn_segment(const struct attn_segment_args *args)
{
    const uint32_t width = args->layout.latent + args->layout.rope;
    for (uint32_t done = 0, n; done < args->n; done += n) {
        n = min_u32(KV_PAGE, args->n - done);
        kv_load(&(struct kv_load_args){args->layout, args->pages[done / KV_PAGE], args->scratch, width, n});
        for (uint32_t first = 0; first < args->heads; first += HEAD_TILE) {
            uint32_t heads = min_u32(HEAD_TILE, args->heads - first);
            struct head_tile tile = {.args = args, .first = first, .heads = heads, .n = n};
            score_page(&tile);
            weigh_page(&tile, done == 0);
            sum_page(&tile, done == 0);
        }
    }
}

/* y = y * a + b * u */
SIMD_INLINE void merge_latents(float *y, const float *u, float a, float b, uint32_t latent)
{
    for (uint32_t c = 0; c < latent; c += 16) {
        uint32_t n = min_u32(16, latent - c);
        struct vf more = vf_mul(vf_set1(b), vf_load_first(u + c, n));
        vf_store_first(y + c, vf_fma(vf_load_first(y + c, n), vf_set1(a), more), n);
    }
}

static void attn_merge(const struct attn_merge_args *args)
{
    float m = args->m[0], z = args->z[0];
    memcpy(args->y, args->u, args->latent * sizeof(float));
    for (uint32_t s = 1; s < args->segments; s++) {
        float more = args->m[s * args->m_stride], both = more > m ? more : m;
        float a = exp_exact(m - both), b = exp_exact(more - both);
        m = both;
        z = fmaf(z, a, b * args->z[s * args->m_stride]);
        merge_latents(args->y, args->u + s * args->u_stride, a, b, args->latent);
    }
    for (uint32_t c = 0; c < args->latent; c += 16) {
        uint32_t n = min_u32(16, args->latent - c);
        vf_store_first(args->y + c, vf_div(vf_load_first(args->y + c, n), vf_set1(z)), n);
    }
}

/* ---- softmax of bulk rows ---- */

SIMD_INLINE float softmax_max(const float *s, uint32_t seen, float m)
{
    struct vf top = vf_set1(m);
    uint32_t t = 0;
    for (; t + 16 <= seen; t += 16) {
        top = vf_max(vf_load(s + t), top);
    }
    if (t < seen) {
        top = vf_select(vi_first(seen - t), vf_max(vf_load_first(s + t, seen - t), top), top);
    }
    float lanes[16];
    vf_store(lanes, top);
    for (uint32_t l = 0; l < 16; l++) {
        m = lanes[l] > m ? lanes[l] : m;
    }
    return m;
}

/* Returns the sum of the weights. */
SIMD_INLINE float softmax_weights(float *s, uint32_t seen, uint32_t n, float m)
{
    struct vf sum = vf_zero(), top = vf_set1(m);
    uint32_t t = 0;
    for (; t + 16 <= seen; t += 16) {
        struct vf e = vf_exp(vf_sub(vf_load(s + t), top));
        vf_store(s + t, e);
        sum = vf_add(sum, e);
    }
    if (t < seen) {
        struct vf e = vf_exp(vf_sub(vf_load_first(s + t, seen - t), top));
        e = vf_select(vi_first(seen - t), e, vf_zero());
        vf_store_first(s + t, e, seen - t);
        sum = vf_add(sum, e);
    }
    memset(s + seen, 0, (n - seen) * sizeof(*s));
    return vf_sum(sum);
}

static void attn_softmax(const struct attn_softmax_args *args)
{
    for (uint32_t i = 0; i < args->rows; i++) {
        const uint32_t seen = min_u32(args->seen + i, args->n);
        float *s = args->s + i * args->s_stride, *acc = args->acc + (size_t)i * args->width;
        float m = softmax_max(s, seen, args->m[i]), sum = softmax_weights(s, seen, args->n, m);
        float before = exp_exact(args->m[i] - m);
        for (uint32_t c = 0; before != 1.0f && c < args->width; c += 16) {
            uint32_t n = min_u32(16, args->width - c);
            vf_store_first(acc + c, vf_mul(vf_load_first(acc + c, n), vf_set1(before)), n);
        }
        args->z[i] = fmaf(args->z[i], before, sum);
        args->m[i] = m;
    }
}

#endif
