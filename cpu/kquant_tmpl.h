/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/simd_<isa>.h. Owns: the K types, blocks of 256 weights with a scale for each 16 or 32 of them.
 * Must not know: loops over rows. */
#ifndef SLUICE_CPU_KQUANT_TMPL_H
#define SLUICE_CPU_KQUANT_TMPL_H

#include "cpu/matvec_tmpl.h"

enum kquant_layout {
    KQUANT_BY_32, /* Q2_K, Q3_K: byte i of each half of the block holds weights i, i+32, i+64, i+96 */
    KQUANT_BY_64, /* Q4_K, Q5_K: 32 bytes hold 64 weights, which share a scale by 32 */
    KQUANT_PLAIN, /* Q6_K */
};

/* What is the same for all blocks of a format. */
struct kquant_format {
    enum kquant_layout layout;
    int offset; /* codes are so much above their value; or, without offset, the block has minima */
};

/* A block as unsigned bytes: the halves (32 bytes) h of w[k] are the weights from kquant_first(layout, k, h) on. */
struct kquant {
    struct vi w[4];
    struct b16 scale, min; /* of the weights 16l..16l+15 */
    const uint8_t *d;      /* halves: d, dmin; of a block without minima, which ends with d, any other and d */
};

/* In a product the codes of KQUANT_BY_32 stay where they are in their bytes, which makes those of w[k] 4^k times as
 * large (w[3]: 16 times), and the scales make up for it: all sums are 16 times too large, exactly, until shifted. */
enum { KQUANT_IN_PLACE_SHIFT = 4 };

SIMD_INLINE uint32_t kquant_first(enum kquant_layout layout, uint32_t k, uint32_t h)
{
    return layout == KQUANT_BY_32   ? 128 * h + 32 * k
           : layout == KQUANT_BY_64 ? 128 * (k / 2) + 64 * h + 32 * (k % 2)
                                    : 64 * k + 32 * h;
}

/* The scales of a block, ready for kquant_scale. */
struct kquant_scales {
    struct vi by_16;
    struct byte_cells by_32;
};

SIMD_INLINE void kquant_prepare_scales(const struct kquant *b, enum kquant_layout layout, struct kquant_scales *ret)
{
    /* vi_spread(.., k) takes bytes 8h + 2k + m for the weights kquant_first(layout, k, h) + 16m. */
    static const int16_t in_place[8] = {16, 16, 4, 4, 1, 1, 1, 1};
    static const uint8_t plain[16] = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
    if (layout == KQUANT_BY_64) {
        ret->by_32 = byte_cells_of(b->scale);
    } else if (layout == KQUANT_BY_32) {
        ret->by_16 = vi_spreadable_by(b->scale, in_place);
    } else {
        ret->by_16 = vi_spreadable(b16_permute(b->scale, plain));
    }
}

/* The scale of each lane of w[k]. */
SIMD_INLINE struct vi kquant_scale(const struct kquant_scales *s, enum kquant_layout layout, uint32_t k)
{
    uint32_t first = kquant_first(layout, k, 0) / 32, second = kquant_first(layout, k, 1) / 32;
    return layout == KQUANT_BY_64 ? vi_spread_pair(&s->by_32, first, second) : vi_spread(s->by_16, (int)k);
}

/* Products of w[k]. */
SIMD_INLINE struct vi kquant_part(struct vi w, enum kquant_layout layout, uint32_t k, const int8_t *q)
{
    return vi_dot2(w, vi_load_pair(q + kquant_first(layout, k, 0), q + kquant_first(layout, k, 1)));
}

/* What a block is multiplied with. */
struct kquant_factors {
    struct kquant_scales scales;
    struct d8 by_sum; /* words, of the sums of 16 activations: minima, or scales times what the offset costs */
    struct f8 d;      /* d and dmin, or something and d, in turn */
};

/* `rows` activation rows from i on. */
SIMD_INLINE void dot_kquant_rows(const struct kquant *b, const struct kquant_factors *by, struct kquant_format f,
                                 const struct act_rows *act, size_t col, uint32_t i, uint32_t rows, struct vf *acc)
{
    const size_t at = i * act->stride + col;
    struct vi sum[ROW_GROUP];
    SIMD_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        struct vi scale = kquant_scale(&by->scales, f.layout, k);
        SIMD_UNROLL
        for (uint32_t j = 0; j < rows; j++) {
            struct vi part = kquant_part(b->w[k], f.layout, k, act->q + j * act->stride + at);
            sum[j] = k == 0 ? vi_mul_words(part, scale) : vi_madd(sum[j], part, scale);
        }
    }
    SIMD_UNROLL
    for (uint32_t j = 0; j < rows; j++) {
        struct d8 s = d8_madd(by->by_sum, d8_load(act->bsum16 + (j * act->stride + at) / 16));
        struct f8 da = f8_mul(by->d, f8_set1(act->scale[(j * act->stride + at) / 256]));
        struct vi all = f.offset == 0 ? sum[j] : vi_add_low(sum[j], s);
        if (f.layout == KQUANT_BY_32) {
            all = vi_sra32(all, KQUANT_IN_PLACE_SHIFT);
        }
        struct vf r = vf_fma(f.offset == 0 ? vf_evens(da) : vf_odds(da), vf_from_i32(all), acc[i + j]);
        acc[i + j] = f.offset == 0 ? vf_fnma_low(vf_odds(da), s, r) : r;
    }
}

SIMD_INLINE void dot_kquant(struct kquant *b, struct kquant_format f, const struct act_rows *act, size_t col,
                            uint32_t n, struct vf *acc)
{
    const int shift = f.layout == KQUANT_BY_32 ? KQUANT_IN_PLACE_SHIFT : 0;
    struct kquant_factors by;
    kquant_prepare_scales(b, f.layout, &by.scales);
    by.by_sum = d8_from_s8(f.offset == 0 ? b->min : b->scale);
    if (f.offset != 0) {
        by.by_sum = d8_mul_low(by.by_sum, d8_set1_words(-(f.offset << shift)));
    }
    by.d = f8_two_halves(b->d);
    if (SIMD_LITERAL(n)) {
        dot_kquant_rows(b, &by, f, act, col, 0, n, acc);
        return;
    }
    SIMD_IN_MEMORY(b->w);
    SIMD_IN_MEMORY(by);
    uint32_t i = 0;
    for (; i + ROW_GROUP <= n; i += ROW_GROUP) {
        dot_kquant_rows(b, &by, f, act, col, i, ROW_GROUP, acc);
        SIMD_IN_MEMORY(by);
    }
    for (; i < n; i++) {
        dot_kquant_rows(b, &by, f, act, col, i, 1, acc);
        SIMD_IN_MEMORY(by);
    }
}

/* 32 weights, the half h of w[k]. */
SIMD_INLINE void decode_kquant_half(const struct kquant *b, struct kquant_format f, uint32_t k, uint32_t h,
                                    const float scale[16], const float min[16], float *y)
{
    uint32_t first = kquant_first(f.layout, k, h);
    struct vi codes = f.offset == 0 ? b->w[k] : vi_sub8(b->w[k], vi_set1_8((int8_t)f.offset));
    SIMD_UNROLL
    for (uint32_t m = 0; m < 2; m++) {
        uint32_t group = first / 16 + m;
        struct vf value = vf_mul(vf_set1(scale[group]), vf_from_s8(vi_quarter(codes, (int)(2 * h + m))));
        vf_store(y + 16 * group, f.offset == 0 ? vf_sub(value, vf_set1(min[group])) : value);
    }
}

SIMD_INLINE void decode_kquant(const struct kquant *b, struct kquant_format f, float *y)
{
    float scale[16], min[16] = {0};
    vf_store(scale, vf_mul(vf_set1(half_float(b->d + (f.offset == 0 ? 0 : 2))), vf_from_s8(b->scale)));
    if (f.offset == 0) {
        vf_store(min, vf_mul(vf_set1(half_float(b->d + 2)), vf_from_s8(b->min)));
    }
    SIMD_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        decode_kquant_half(b, f, k, 0, scale, min, y);
        decode_kquant_half(b, f, k, 1, scale, min, y);
    }
}

/* ---- unpacking; in_place: see KQUANT_IN_PLACE_SHIFT ---- */

/* Bits 2k and 2k+1 of each byte. */
SIMD_INLINE struct vi two_bits(struct vi q, int k, bool in_place)
{
    int place = !in_place ? 0 : k == 3 ? 4 : 2 * k, shift = 2 * k - place;
    return vi_and(shift == 0 ? q : vi_shr16(q, shift), vi_set1_8((int8_t)(3 << place)));
}

SIMD_INLINE void unpack_q2_k(const uint8_t *b, bool in_place, struct kquant *ret)
{
    struct vi q = vi_load(b + 16);
    ret->scale = b16_and(b16_load(b), 15);
    ret->min = b16_high_nibbles(b16_load(b));
    ret->d = b + 80;
    ret->w[0] = two_bits(q, 0, in_place);
    ret->w[1] = two_bits(q, 1, in_place);
    ret->w[2] = two_bits(q, 2, in_place);
    ret->w[3] = two_bits(q, 3, in_place);
}

/* 16 scales of 6 bits in 12 bytes, 32 above their value. */
SIMD_INLINE struct b16 q3_k_scales(const uint8_t *s)
{
    const uint64_t low = UINT64_C(0x0f0f0f0f0f0f0f0f), high = UINT64_C(0x0303030303030303);
    uint64_t nibbles = load_u64(s), t = load_u32(s + 8);
    uint64_t pairs = t | t >> 2 << 32; /* for scales 0-3 and 4-7 in the low, 8-11 and 12-15 in the higher two bits */
    uint64_t first = (nibbles & low) | (pairs & high) << 4, second = (nibbles >> 4 & low) | (pairs >> 4 & high) << 4;
    return b16_sub(b16_make(first, second), 32);
}

/* The third bit of the weights of w[k], which is bit k of each byte's low nibble in the first half of the block, of its
 * high nibble in the second. */
SIMD_INLINE struct vi third_bits(struct vi high, int k, bool in_place)
{
    int to = 2 + (!in_place ? 0 : k == 3 ? 4 : 2 * k);
    return vi_and(vi_shift16_pair(high, to - k, to - k - 4), vi_set1_8((int8_t)(1 << to)));
}

SIMD_INLINE void unpack_q3_k(const uint8_t *b, bool in_place, struct kquant *ret)
{
    struct vi q = vi_load(b + 32), high = vi_load_pair(b, b);
    ret->scale = q3_k_scales(b + 96);
    ret->d = b + 106;
    ret->w[0] = vi_or(two_bits(q, 0, in_place), third_bits(high, 0, in_place));
    ret->w[1] = vi_or(two_bits(q, 1, in_place), third_bits(high, 1, in_place));
    ret->w[2] = vi_or(two_bits(q, 2, in_place), third_bits(high, 2, in_place));
    ret->w[3] = vi_or(two_bits(q, 3, in_place), third_bits(high, 3, in_place));
}

/* 8 scales and 8 minima of 6 bits in 12 of the 16 bytes s, each doubled: one for 16 weights. */
SIMD_INLINE void unpack_six_bit_scales(const uint8_t *s, struct kquant *ret)
{
    struct b16 six = b16_six_bits(b16_load(s));
    ret->scale = b16_double_low(six);
    ret->min = b16_double_high(six);
}

SIMD_INLINE void unpack_q4_k(const uint8_t *b, bool in_place, struct kquant *ret)
{
    struct vi q0 = vi_load(b + 16), q1 = vi_load(b + 80), mask = vi_set1_8(15);
    (void)in_place;
    unpack_six_bit_scales(b + 4, ret);
    ret->d = b;
    ret->w[0] = vi_and(q0, mask);
    ret->w[1] = vi_and(vi_shr16(q0, 4), mask);
    ret->w[2] = vi_and(q1, mask);
    ret->w[3] = vi_and(vi_shr16(q1, 4), mask);
}

SIMD_INLINE void unpack_q5_k(const uint8_t *b, bool in_place, struct kquant *ret)
{
    struct vi q0 = vi_load(b + 48), q1 = vi_load(b + 112), mask = vi_set1_8(15), bit = vi_set1_8(16);
    struct vi high = vi_load_pair(b + 16, b + 16); /* w[k]: bits 0, 1, 4, 5 of half 0, bits 2, 3, 6, 7 of half 1 */
    (void)in_place;
    unpack_six_bit_scales(b + 4, ret);
    ret->d = b;
    ret->w[0] = vi_or(vi_and(q0, mask), vi_and(vi_shift16_pair(high, 4, 2), bit));
    ret->w[1] = vi_or(vi_and(vi_shr16(q0, 4), mask), vi_and(vi_shift16_pair(high, 3, 1), bit));
    ret->w[2] = vi_or(vi_and(q1, mask), vi_and(vi_shift16_pair(high, 0, -2), bit));
    ret->w[3] = vi_or(vi_and(vi_shr16(q1, 4), mask), vi_and(vi_shift16_pair(high, -1, -3), bit));
}

/* 128 weights: 64 bytes of low nibbles, 32 bytes of pairs of high bits. */
SIMD_INLINE void unpack_q6_k_half(const uint8_t *ql, const uint8_t *qh, struct vi *ret_first, struct vi *ret_second)
{
    struct vi q = vi_load(ql), high = vi_load_pair(qh, qh), mask = vi_set1_8(15), bits = vi_set1_8(48);
    *ret_first = vi_or(vi_and(q, mask), vi_and(vi_shift16_pair(high, 4, 2), bits));
    *ret_second = vi_or(vi_and(vi_shr16(q, 4), mask), vi_and(vi_shift16_pair(high, 0, -2), bits));
}

SIMD_INLINE void unpack_q6_k(const uint8_t *b, bool in_place, struct kquant *ret)
{
    (void)in_place;
    unpack_q6_k_half(b, b + 128, &ret->w[0], &ret->w[1]);
    unpack_q6_k_half(b + 64, b + 160, &ret->w[2], &ret->w[3]);
    ret->scale = b16_load(b + 192);
    ret->d = b + 206;
}

#define KQUANT_FORMAT(name, layout, offset, bytes)                                                                   \
    SIMD_INLINE STEP_FUNCTION(step_##name)                                                                           \
    {                                                                                                                \
        struct kquant b;                                                                                             \
        (void)blocks;                                                                                                \
        unpack_##name(w, true, &b);                                                                                  \
        dot_kquant(&b, (struct kquant_format){layout, offset}, act, col, n, acc);                                    \
        SIMD_ONE_BY_ONE();                                                                                           \
    }                                                                                                                \
    SIMD_INLINE PIECE_FUNCTION(piece_##name)                                                                         \
    {                                                                                                                \
        const uint8_t *data = row_data(w, r) + (size_t)(col / 256) * (bytes);                                        \
        for (uint32_t c = 0; c < count; c += 256, data += (bytes)) {                                                 \
            struct kquant b;                                                                                         \
            unpack_##name(data, false, &b);                                                                          \
            decode_kquant(&b, (struct kquant_format){layout, offset}, y + c);                                        \
        }                                                                                                            \
    }

KQUANT_FORMAT(q2_k, KQUANT_BY_32, 0, 84)
KQUANT_FORMAT(q3_k, KQUANT_BY_32, 4, 110)
KQUANT_FORMAT(q4_k, KQUANT_BY_64, 0, 144)
KQUANT_FORMAT(q5_k, KQUANT_BY_64, 0, 176)
KQUANT_FORMAT(q6_k, KQUANT_PLAIN, 32, 210)

#endif
