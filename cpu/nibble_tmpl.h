/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/simd_<isa>.h. Owns: blocks of 32 weights (Q8_0, the 4- and 5-bit types, MXFP4), four at a time,
 * and IQ4_XS, whose 256 are packed likewise. Must not know: loops over rows. */
#ifndef SLUICE_CPU_NIBBLE_TMPL_H
#define SLUICE_CPU_NIBBLE_TMPL_H

#include "cpu/matvec_tmpl.h"

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/* Raised by 12 to be unsigned. */
enum { MXFP4_OFFSET = 12 };
static const int8_t mxfp4_raised[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

/* ---- Q8_0: lane ((i/32)%2)*8 + (i%32)/4 ---- */

enum { Q8_0_BYTES = 34 };

SIMD_INLINE STEP_FUNCTION(step_q8_0)
{
    const uint8_t *second = w + 2 * Q8_0_BYTES;
    struct vi w0 = vi_load_pair(w + 2, w + 2 + Q8_0_BYTES), w1 = vi_load_pair(second + 2, second + 2 + Q8_0_BYTES);
    struct vi m0 = vi_abs8(w0), m1 = vi_abs8(w1);
    struct v4 d = v4_halves(w, Q8_0_BYTES);
    for (uint32_t i = 0; i < n; i++) {
        const int8_t *q = act->q + i * act->stride + col;
        struct cells da = cells_of(v4_mul(d, v4_load(act->scale + (i * act->stride + col) / 32)));
        struct vf s0 = vf_from_i32(vi_dot4(vi_zero(), m0, vi_sign8(vi_load(q), w0)));
        struct vf s1 = vf_from_i32(vi_dot4(vi_zero(), m1, vi_sign8(vi_load(q + 64), w1)));
        struct vf sum = vf_fma(vf_spread2(da, 0), s0, acc[i]);
        if (blocks == BLOCKS_PER_STEP) {
            acc[i] = vf_fma(vf_spread2(da, 1), s1, sum);
        } else {
            sum = vf_select(vi_first(8 * blocks), sum, acc[i]);
            acc[i] = vf_select(vi_first(blocks > 2 ? 8 : 0), vf_fma(vf_spread2(da, 1), s1, sum), sum);
        }
    }
}

SIMD_INLINE PIECE_FUNCTION(piece_q8_0)
{
    const uint8_t *b = row_data(w, r) + (size_t)(col / 32) * Q8_0_BYTES;
    for (uint32_t c = 0; c < count; c += 32, b += Q8_0_BYTES) {
        struct vf d = vf_set1(half_float(b));
        vf_store(y + c, vf_mul(vf_from_s8(b16_load(b + 2)), d));
        vf_store(y + c + 16, vf_mul(vf_from_s8(b16_load(b + 18)), d));
    }
}

/* ---- nibbles: lane ((i/32)%4)*4 + (i%16)/4 ---- */

/* Four blocks: weights 0-15 and 16-31 of each as bytes. */
struct nibbles {
    struct vi low, high;
    struct v4 d, m;
    struct vf spread; /* d of each block in its four lanes, instead of d, where */
    bool is_spread;
};

enum nibble_kind {
    NIBBLE_OFFSET, /* codes are unsigned, `offset` above their value */
    NIBBLE_MIN,    /* codes are unsigned, the value has m added */
    NIBBLE_SIGNED, /* codes are values of up to 7 bits and a sign */
};

SIMD_INLINE void split_nibbles(const uint8_t *q, size_t stride, struct nibbles *ret)
{
    struct vi bytes = vi_load_quad(q, stride), mask = vi_set1_8(15);
    ret->low = vi_and(bytes, mask);
    ret->high = vi_and(vi_shr16(bytes, 4), mask);
}

/* Bit 4 of each code: bit i of a block's 32 bits belongs to weight i. */
SIMD_INLINE void add_fifth_bits(const uint8_t *qh, size_t stride, struct nibbles *w)
{
    uint64_t low = 0, high = 0;
    SIMD_UNROLL
    for (int b = 0; b < BLOCKS_PER_STEP; b++) {
        low |= (uint64_t)load_u16(qh + (size_t)b * stride) << 16 * b;
        high |= (uint64_t)load_u16(qh + (size_t)b * stride + 2) << 16 * b;
    }
    w->low = vi_or(w->low, vi_and(vi_from_bits(low), vi_set1_8(16)));
    w->high = vi_or(w->high, vi_and(vi_from_bits(high), vi_set1_8(16)));
}

SIMD_INLINE void unpack_q4_0(const uint8_t *b, struct nibbles *ret)
{
    split_nibbles(b + 2, 18, ret);
    ret->d = v4_halves(b, 18);
}

SIMD_INLINE void unpack_q4_1(const uint8_t *b, struct nibbles *ret)
{
    split_nibbles(b + 4, 20, ret);
    ret->d = v4_halves(b, 20);
    ret->m = v4_halves(b + 2, 20);
}

SIMD_INLINE void unpack_q5_0(const uint8_t *b, struct nibbles *ret)
{
    split_nibbles(b + 6, 22, ret);
    add_fifth_bits(b + 2, 22, ret);
    ret->d = v4_halves(b, 22);
}

SIMD_INLINE void unpack_q5_1(const uint8_t *b, struct nibbles *ret)
{
    split_nibbles(b + 8, 24, ret);
    add_fifth_bits(b + 4, 24, ret);
    ret->d = v4_halves(b, 24);
    ret->m = v4_halves(b + 2, 24);
}

SIMD_INLINE void unpack_iq4_nl(const uint8_t *b, struct nibbles *ret)
{
    unpack_q4_0(b, ret);
    ret->low = vi_lookup(iq4_values, ret->low);
    ret->high = vi_lookup(iq4_values, ret->high);
}

SIMD_INLINE void unpack_mxfp4(const uint8_t *b, struct nibbles *ret)
{
    split_nibbles(b + 1, 17, ret);
    ret->low = vi_lookup(mxfp4_raised, ret->low);
    ret->high = vi_lookup(mxfp4_raised, ret->high);
    ret->spread = vf_e8m0(b, 17);
    ret->is_spread = true;
}

/* Signed codes times the activations of both halves; small: sums of four products fit a word. One factor gives its sign
 * to the other: the activations if weight rows share them, since their size is then taken once. */
SIMD_INLINE struct vi dot_signed(const struct nibbles *w, struct vi low, struct vi high, bool small, bool shared)
{
    struct vi u0 = vi_abs8(shared ? low : w->low), s0 = shared ? vi_sign8(w->low, low) : vi_sign8(low, w->low);
    struct vi u1 = vi_abs8(shared ? high : w->high), s1 = shared ? vi_sign8(w->high, high) : vi_sign8(high, w->high);
    return small ? vi_dot8(u0, s0, u1, s1) : vi_dot4(vi_dot4(vi_zero(), u0, s0), u1, s1);
}

SIMD_INLINE void dot_nibbles_row(const struct nibbles *w, enum nibble_kind kind, int8_t offset, uint32_t blocks,
                                 const struct act_rows *act, size_t at, bool shared, struct vf *acc)
{
    struct v4 scale = v4_load(act->scale + at / 32);
    struct vf da = w->is_spread ? vf_mul(w->spread, vf_spread4(scale)) : vf_spread4(v4_mul(w->d, scale));
    struct vi low, high, s, one = vi_set1_8(1);
    vi_load_halves(act->q + at, &low, &high);
    if (kind == NIBBLE_SIGNED) {
        s = dot_signed(w, low, high, offset != 0, shared);
    } else if (kind == NIBBLE_OFFSET) {
        s = vi_dot8_offset(w->low, low, w->high, high, offset);
    } else {
        s = vi_dot8(w->low, low, w->high, high);
    }
    struct vf sum = vf_fma(da, vf_from_i32(s), *acc);
    if (kind == NIBBLE_MIN) {
        struct vf act_sum = vf_from_i32(vi_dot8(one, low, one, high));
        sum = vf_fma(vf_spread4(v4_mul(w->m, scale)), act_sum, sum);
    }
    *acc = blocks == BLOCKS_PER_STEP ? sum : vf_select(vi_first(4 * blocks), sum, *acc);
}

/* What an offset costs is a sum of activations, which weight rows share; with many activation rows the offset is better
 * taken off the weights. */
SIMD_INLINE void dot_nibbles(struct nibbles *w, enum nibble_kind kind, int8_t offset, uint32_t blocks,
                             const struct act_rows *act, size_t col, uint32_t n, struct vf *acc)
{
    const bool shared = SIMD_LITERAL(n);
    if (kind == NIBBLE_OFFSET && !shared) {
        w->low = vi_sub8(w->low, vi_set1_8(offset));
        w->high = vi_sub8(w->high, vi_set1_8(offset));
        kind = NIBBLE_SIGNED;
    }
    for (uint32_t i = 0; i < n; i++) {
        dot_nibbles_row(w, kind, offset, blocks, act, i * act->stride + col, shared, acc + i);
    }
}

/* The 16 weights of which part q (0-3) of `codes` is the codes. */
SIMD_INLINE struct vf nibble_values(struct vi codes, int q, float d, enum nibble_kind kind, float m)
{
    struct vf value = vf_mul(vf_from_s8(vi_quarter(codes, q)), vf_set1(d));
    return kind == NIBBLE_MIN ? vf_add(value, vf_set1(m)) : value;
}

SIMD_INLINE void decode_nibbles(struct nibbles *w, enum nibble_kind kind, int8_t offset, float *y)
{
    float d[16], m[4] = {0};
    vf_store(d, w->is_spread ? w->spread : vf_spread4(w->d));
    if (kind == NIBBLE_MIN) {
        v4_store(m, w->m);
    }
    if (kind == NIBBLE_OFFSET) {
        w->low = vi_sub8(w->low, vi_set1_8(offset));
        w->high = vi_sub8(w->high, vi_set1_8(offset));
    }
    vf_store(y, nibble_values(w->low, 0, d[0], kind, m[0]));
    vf_store(y + 16, nibble_values(w->high, 0, d[0], kind, m[0]));
    vf_store(y + 32, nibble_values(w->low, 1, d[4], kind, m[1]));
    vf_store(y + 48, nibble_values(w->high, 1, d[4], kind, m[1]));
    vf_store(y + 64, nibble_values(w->low, 2, d[8], kind, m[2]));
    vf_store(y + 80, nibble_values(w->high, 2, d[8], kind, m[2]));
    vf_store(y + 96, nibble_values(w->low, 3, d[12], kind, m[3]));
    vf_store(y + 112, nibble_values(w->high, 3, d[12], kind, m[3]));
}

SIMD_INLINE void piece_nibbles(const struct matrix_view *view, uint32_t r, uint32_t col, uint32_t count, float *y,
                               void (*unpack)(const uint8_t *, struct nibbles *), enum nibble_kind kind,
                               int8_t offset, uint32_t bytes)
{
    const uint8_t *b = row_data(view, r) + (size_t)(col / 32) * bytes;
    struct nibbles w = {.is_spread = false};
    uint32_t c = 0;
    for (; c + 128 <= count; c += 128, b += 4 * bytes) {
        unpack(b, &w);
        decode_nibbles(&w, kind, offset, y + c);
    }
    if (c < count) {
        uint8_t padded[STEP_MAX_BYTES] = {0};
        float last[128];
        memcpy(padded, b, (size_t)((count - c) / 32) * bytes);
        unpack(padded, &w);
        decode_nibbles(&w, kind, offset, last);
        memcpy(y + c, last, (count - c) * sizeof(float));
    }
}

#define NIBBLE_FORMAT(name, kind, offset, bytes)                                                                     \
    SIMD_INLINE STEP_FUNCTION(step_##name)                                                                           \
    {                                                                                                                \
        struct nibbles unpacked = {.is_spread = false};                                                              \
        unpack_##name(w, &unpacked);                                                                                 \
        dot_nibbles(&unpacked, kind, offset, blocks, act, col, n, acc);                                              \
    }                                                                                                                \
    SIMD_INLINE PIECE_FUNCTION(piece_##name)                                                                         \
    {                                                                                                                \
        piece_nibbles(w, r, col, count, y, unpack_##name, kind, offset, bytes);                                      \
    }

NIBBLE_FORMAT(q4_0, NIBBLE_OFFSET, 8, 18)
NIBBLE_FORMAT(q4_1, NIBBLE_MIN, 0, 20)
NIBBLE_FORMAT(q5_0, NIBBLE_OFFSET, 16, 22)
NIBBLE_FORMAT(q5_1, NIBBLE_MIN, 0, 24)
NIBBLE_FORMAT(iq4_nl, NIBBLE_SIGNED, 0, 18)
NIBBLE_FORMAT(mxfp4, NIBBLE_OFFSET, MXFP4_OFFSET, 17)

/* ---- IQ4_XS: 256 weights, eight scales of 6 bits ---- */

enum { IQ4_XS_BYTES = 136 };

/* The eight scales, as bytes. */
SIMD_INLINE struct b16 iq4_xs_scales(const uint8_t *b)
{
    uint64_t low = load_u32(b + 4), high = load_u16(b + 2);
    low = (low | low << 16) & UINT64_C(0x0000ffff0000ffff); /* a nibble to each byte */
    low = (low | low << 8) & UINT64_C(0x00ff00ff00ff00ff);
    low = (low | low << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    high = (high | high << 24) & UINT64_C(0x000000ff000000ff); /* two bits to each byte */
    high = (high | high << 12) & UINT64_C(0x000f000f000f000f);
    high = (high | high << 6) & UINT64_C(0x0303030303030303);
    return b16_sub(b16_make(low | high << 4, 0), 32);
}

/* Half k (128 weights) of a block. */
SIMD_INLINE void iq4_xs_codes(const uint8_t *b, int k, struct nibbles *ret)
{
    split_nibbles(b + 8 + 64 * k, 16, ret);
    ret->low = vi_lookup(iq4_values, ret->low);
    ret->high = vi_lookup(iq4_values, ret->high);
}

/* Word sums of 2 products of signed codes and activations; see dot_signed. */
SIMD_INLINE struct vi dot2_signed(struct vi w, struct vi q, bool shared)
{
    return shared ? vi_dot2(vi_abs8(q), vi_sign8(w, q)) : vi_dot2(vi_abs8(w), vi_sign8(q, w));
}

/* One accumulation per half of the block. */
SIMD_INLINE void iq4_xs_half(const uint8_t *b, int k, struct vi scales, float d, const struct act_rows *act, size_t col,
                             uint32_t n, struct vf *acc)
{
    struct nibbles w;
    iq4_xs_codes(b, k, &w);
    const bool shared = SIMD_LITERAL(n);
    struct vi scale = vi_spread(scales, k);
    for (uint32_t i = 0; i < n; i++) {
        struct vf da = vf_set1(d * act->scale[(i * act->stride + col) / 256]);
        struct vi low, high;
        vi_load_halves(act->q + i * act->stride + col + 128 * (size_t)k, &low, &high);
        struct vi s = vi_mul_words(dot2_signed(w.low, low, shared), scale);
        s = vi_madd(s, dot2_signed(w.high, high, shared), scale);
        acc[i] = vf_fma(da, vf_from_i32(s), acc[i]);
    }
}

SIMD_INLINE STEP_FUNCTION(step_iq4_xs)
{
    /* vi_spread(.., k) takes bytes 8h + 2k + m for the blocks 4k + 2h + m. */
    static const uint8_t order[16] = {0, 1, 4, 5, 0, 0, 0, 0, 2, 3, 6, 7, 0, 0, 0, 0};
    struct vi scales = vi_spreadable(b16_permute(iq4_xs_scales(w), order));
    float d = half_float(w);
    (void)blocks;
    iq4_xs_half(w, 0, scales, d, act, col, n, acc);
    iq4_xs_half(w, 1, scales, d, act, col, n, acc);
}

SIMD_INLINE PIECE_FUNCTION(piece_iq4_xs)
{
    const uint8_t *b = row_data(w, r) + (size_t)(col / 256) * IQ4_XS_BYTES;
    for (uint32_t c = 0; c < count; c += 256, b += IQ4_XS_BYTES) {
        float scale[16];
        vf_store(scale, vf_mul(vf_set1(half_float(b)), vf_from_s8(iq4_xs_scales(b))));
        SIMD_UNROLL
        for (int k = 0; k < 2; k++) {
            struct nibbles codes = {.is_spread = false};
            iq4_xs_codes(b, k, &codes);
            codes.d = v4_load(scale + 4 * k);
            decode_nibbles(&codes, NIBBLE_SIGNED, 0, y + c + 128 * k);
        }
    }
}

#endif
