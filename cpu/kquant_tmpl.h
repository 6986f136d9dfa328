/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/simd_<isa>.h. Owns: the K types, blocks of 256 weights with a scale for each 16 or 32 of them.
 * Must not know: loops over rows. */
#ifndef SLUICE_CPU_KQUANT_TMPL_H
#define SLUICE_CPU_KQUANT_TMPL_H

#include "cpu/matvec_tmpl.h"

/* A block as unsigned bytes: the halves (32 bytes) h of w[k] are the weights from kquant_first(layout, k, h) on. */
struct kquant {
    struct vi w[4];
    struct b16 scale, min; /* of the weights 16l..16l+15 */
    float d, dmin;
};

enum kquant_layout {
    KQUANT_BY_32, /* Q2_K, Q3_K: byte i of each half of the block holds weights i, i+32, i+64, i+96 */
    KQUANT_BY_64, /* Q4_K, Q5_K: 32 bytes hold 64 weights */
    KQUANT_PLAIN, /* Q6_K */
};

SIMD_INLINE uint32_t kquant_first(enum kquant_layout layout, uint32_t k, uint32_t h)
{
    return layout == KQUANT_BY_32   ? 128 * h + 32 * k
           : layout == KQUANT_BY_64 ? 128 * (k / 2) + 64 * h + 32 * (k % 2)
                                    : 64 * k + 32 * h;
}

/* Scales in the order vi_spread wants: byte 8h + 2k + m belongs to the weights kquant_first(layout, k, h) + 16m. */
SIMD_INLINE struct vi kquant_scales(enum kquant_layout layout, struct b16 scale)
{
    static const uint8_t by_64[16] = {0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15};
    static const uint8_t plain[16] = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
    return vi_spreadable(layout == KQUANT_BY_32   ? scale
                         : layout == KQUANT_BY_64 ? b16_permute(scale, by_64)
                                                  : b16_permute(scale, plain));
}

SIMD_INLINE struct vi kquant_part(const struct kquant *b, enum kquant_layout layout, uint32_t k, const int8_t *q,
                                  struct vi scales, struct vi sum)
{
    struct vi a = vi_load_pair(q + kquant_first(layout, k, 0), q + kquant_first(layout, k, 1));
    return vi_madd(sum, vi_dot2(b->w[k], a), vi_spread(scales, (int)k));
}

/* Codes are `offset` above their value; or, without offset, the block has minima. */
SIMD_INLINE void dot_kquant(const struct kquant *b, enum kquant_layout layout, int offset, const struct act_rows *act,
                            size_t col, uint32_t n, struct vf *acc)
{
    struct vi scales = kquant_scales(layout, b->scale);
    struct vi by_sum = offset == 0 ? vi_from_s8(b->min) : vi_mul_words(vi_from_s8(b->scale), vi_set1_word(-offset));
    for (uint32_t i = 0; i < n; i++) {
        const int8_t *q = act->q + i * act->stride + col;
        float scale = act->scale[(i * act->stride + col) / 256];
        struct vi s = vi_mul_words(vi_load_words(act->bsum16 + (i * act->stride + col) / 16), by_sum);
        struct vi sum = offset == 0 ? vi_zero() : s;
        sum = kquant_part(b, layout, 0, q, scales, sum);
        sum = kquant_part(b, layout, 1, q, scales, sum);
        sum = kquant_part(b, layout, 2, q, scales, sum);
        sum = kquant_part(b, layout, 3, q, scales, sum);
        acc[i] = vf_fma(vf_set1(b->d * scale), vf_from_i32(sum), acc[i]);
        if (offset == 0) {
            acc[i] = vf_fma(vf_set1(-(b->dmin * scale)), vf_from_i32(s), acc[i]);
        }
    }
}

/* 32 weights, the half h of w[k]. */
SIMD_INLINE void decode_kquant_half(const struct kquant *b, enum kquant_layout layout, int offset, uint32_t k,
                                    uint32_t h, const float scale[16], const float min[16], float *y)
{
    uint32_t first = kquant_first(layout, k, h);
    struct vi codes = offset == 0 ? b->w[k] : vi_sub8(b->w[k], vi_set1_8((int8_t)offset));
    SIMD_UNROLL
    for (uint32_t m = 0; m < 2; m++) {
        uint32_t group = first / 16 + m;
        struct vf value = vf_mul(vf_set1(scale[group]), vf_from_s8(vi_quarter(codes, (int)(2 * h + m))));
        vf_store(y + 16 * group, offset == 0 ? vf_sub(value, vf_set1(min[group])) : value);
    }
}

SIMD_INLINE void decode_kquant(const struct kquant *b, enum kquant_layout layout, int offset, float *y)
{
    float scale[16], min[16] = {0};
    vf_store(scale, vf_mul(vf_set1(b->d), vf_from_s8(b->scale)));
    if (offset == 0) {
        vf_store(min, vf_mul(vf_set1(b->dmin), vf_from_s8(b->min)));
    }
    SIMD_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        decode_kquant_half(b, layout, offset, k, 0, scale, min, y);
        decode_kquant_half(b, layout, offset, k, 1, scale, min, y);
    }
}

/* ---- unpacking ---- */

SIMD_INLINE struct vi two_bits(struct vi q, int k) { return vi_and(vi_shr16(q, 2 * k), vi_set1_8(3)); }

SIMD_INLINE void unpack_q2_k(const uint8_t *b, struct kquant *ret)
{
    struct vi q = vi_load(b + 16);
    ret->scale = b16_and(b16_load(b), 15);
    ret->min = b16_high_nibbles(b16_load(b));
    ret->d = half_float(b + 80);
    ret->dmin = half_float(b + 82);
    ret->w[0] = two_bits(q, 0);
    ret->w[1] = two_bits(q, 1);
    ret->w[2] = two_bits(q, 2);
    ret->w[3] = two_bits(q, 3);
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

SIMD_INLINE void unpack_q3_k(const uint8_t *b, struct kquant *ret)
{
    struct vi q = vi_load(b + 32), bit = vi_set1_8(4);
    struct vi high = vi_shr16_pair(vi_load_pair(b, b), 0, 4); /* weights of w[k]: bit k of each byte's low nibble */
    ret->scale = q3_k_scales(b + 96);
    ret->d = half_float(b + 108);
    ret->w[0] = vi_or(two_bits(q, 0), vi_and(vi_shl16(high, 2), bit));
    ret->w[1] = vi_or(two_bits(q, 1), vi_and(vi_shl16(high, 1), bit));
    ret->w[2] = vi_or(two_bits(q, 2), vi_and(high, bit));
    ret->w[3] = vi_or(two_bits(q, 3), vi_and(vi_shr16(high, 1), bit));
}

/* 8 scales and 8 minima of 6 bits in 12 bytes, each doubled: one for 16 weights. */
SIMD_INLINE void unpack_six_bit_scales(const uint8_t *s, struct kquant *ret)
{
    const uint32_t six = UINT32_C(0x3f3f3f3f), four = UINT32_C(0x0f0f0f0f), two = UINT32_C(0x03030303);
    uint32_t a = load_u32(s), b = load_u32(s + 4), c = load_u32(s + 8);
    uint32_t scale_high = (c & four) | (a >> 6 & two) << 4, min_high = (c >> 4 & four) | (b >> 6 & two) << 4;
    ret->scale = b16_double((a & six) | (uint64_t)scale_high << 32);
    ret->min = b16_double((b & six) | (uint64_t)min_high << 32);
}

SIMD_INLINE void unpack_q4_k(const uint8_t *b, struct kquant *ret)
{
    struct vi q0 = vi_load(b + 16), q1 = vi_load(b + 80), mask = vi_set1_8(15);
    unpack_six_bit_scales(b + 4, ret);
    ret->d = half_float(b);
    ret->dmin = half_float(b + 2);
    ret->w[0] = vi_and(q0, mask);
    ret->w[1] = vi_and(vi_shr16(q0, 4), mask);
    ret->w[2] = vi_and(q1, mask);
    ret->w[3] = vi_and(vi_shr16(q1, 4), mask);
}

SIMD_INLINE void unpack_q5_k(const uint8_t *b, struct kquant *ret)
{
    struct vi q0 = vi_load(b + 48), q1 = vi_load(b + 112), mask = vi_set1_8(15), bit = vi_set1_8(16);
    struct vi high = vi_shr16_pair(vi_load_pair(b + 16, b + 16), 0, 2); /* w[k]: bits 0, 1, 4, 5 of both halves */
    unpack_six_bit_scales(b + 4, ret);
    ret->d = half_float(b);
    ret->dmin = half_float(b + 2);
    ret->w[0] = vi_or(vi_and(q0, mask), vi_and(vi_shl16(high, 4), bit));
    ret->w[1] = vi_or(vi_and(vi_shr16(q0, 4), mask), vi_and(vi_shl16(high, 3), bit));
    ret->w[2] = vi_or(vi_and(q1, mask), vi_and(high, bit));
    ret->w[3] = vi_or(vi_and(vi_shr16(q1, 4), mask), vi_and(vi_shr16(high, 1), bit));
}

/* 128 weights: 64 bytes of low nibbles, 32 bytes of pairs of high bits. */
SIMD_INLINE void unpack_q6_k_half(const uint8_t *ql, const uint8_t *qh, struct vi *ret_first, struct vi *ret_second)
{
    struct vi q = vi_load(ql), high = vi_shr16_pair(vi_load_pair(qh, qh), 0, 2);
    struct vi mask = vi_set1_8(15), bits = vi_set1_8(48);
    *ret_first = vi_or(vi_and(q, mask), vi_and(vi_shl16(high, 4), bits));
    *ret_second = vi_or(vi_and(vi_shr16(q, 4), mask), vi_and(high, bits));
}

SIMD_INLINE void unpack_q6_k(const uint8_t *b, struct kquant *ret)
{
    unpack_q6_k_half(b, b + 128, &ret->w[0], &ret->w[1]);
    unpack_q6_k_half(b + 64, b + 160, &ret->w[2], &ret->w[3]);
    ret->scale = b16_load(b + 192);
    ret->d = half_float(b + 208);
}

#define KQUANT_FORMAT(name, layout, offset, bytes)                                                                   \
    SIMD_INLINE STEP_FUNCTION(step_##name)                                                                           \
    {                                                                                                                \
        struct kquant b;                                                                                             \
        (void)blocks;                                                                                                \
        unpack_##name(w, &b);                                                                                        \
        dot_kquant(&b, layout, offset, act, col, n, acc);                                                            \
    }                                                                                                                \
    SIMD_INLINE PIECE_FUNCTION(piece_##name)                                                                         \
    {                                                                                                                \
        const uint8_t *data = row_data(w, r) + (size_t)(col / 256) * (bytes);                                        \
        for (uint32_t c = 0; c < count; c += 256, data += (bytes)) {                                                 \
            struct kquant b;                                                                                         \
            unpack_##name(data, &b);                                                                                 \
            decode_kquant(&b, layout, offset, y + c);                                                                \
        }                                                                                                            \
    }

KQUANT_FORMAT(q2_k, KQUANT_BY_32, 0, 84)
KQUANT_FORMAT(q3_k, KQUANT_BY_32, 4, 110)
KQUANT_FORMAT(q4_k, KQUANT_BY_64, 0, 144)
KQUANT_FORMAT(q5_k, KQUANT_BY_64, 0, 176)
KQUANT_FORMAT(q6_k, KQUANT_PLAIN, 32, 210)

#endif
