/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/simd_<isa>.h. Owns: the IQ1, IQ2 and IQ3 types, whose weights are rows of a lattice.
 * Must not know: loops over rows. */
#ifndef SLUICE_CPU_LATTICE_TMPL_H
#define SLUICE_CPU_LATTICE_TMPL_H

#include "cpu/iq_grids.h"
#include "cpu/matvec_tmpl.h"

enum { LATTICE_PARTS = 4 }; /* of 64 weights; lane (i/4) % 16 */

/* 64 weights: size, and a byte that is negative where the weight is. */
struct lattice_part {
    struct vi size, sign;
};

struct lattice_head {
    float d;          /* with the constant of the type */
    struct b16 scale; /* of the weights 16l..16l+15: 2s+1 */
};

#define LATTICE_PART(name) void name(const uint8_t *b, uint32_t k, struct lattice_part *ret)
#define LATTICE_HEAD(name) struct lattice_head name(const uint8_t *b)

/* ---- scales ---- */

/* 2s+1 of the bytes s. */
SIMD_INLINE struct b16 odd_scales(struct b16 s) { return b16_or(b16_add(s, s), 1); }

/* 16 nibbles. */
SIMD_INLINE struct b16 nibble_scales(const uint8_t *b)
{
    struct b16 twice = b16_double(load_u64(b));
    return odd_scales(b16_choose(b16_and(twice, 15), b16_high_nibbles(twice)));
}

SIMD_INLINE LATTICE_HEAD(head_iq2_xxs)
{
    uint64_t s = 0;
    SIMD_UNROLL
    for (int g = 0; g < 8; g++) {
        s |= (uint64_t)(b[2 + 8 * g + 7] >> 4) << 8 * g;
    }
    return (struct lattice_head){half_float(b) * 0.125f, odd_scales(b16_double(s))};
}

SIMD_INLINE LATTICE_HEAD(head_iq2_xs)
{
    return (struct lattice_head){half_float(b) * 0.125f, nibble_scales(b + 66)};
}

SIMD_INLINE LATTICE_HEAD(head_iq2_s)
{
    return (struct lattice_head){half_float(b) * 0.125f, nibble_scales(b + 74)};
}

SIMD_INLINE LATTICE_HEAD(head_iq3_xxs)
{
    uint64_t s = 0;
    SIMD_UNROLL
    for (int g = 0; g < 8; g++) {
        s |= (uint64_t)(b[66 + 4 * g + 3] >> 4) << 8 * g;
    }
    return (struct lattice_head){half_float(b) * 0.25f, odd_scales(b16_double(s))};
}

SIMD_INLINE LATTICE_HEAD(head_iq3_s)
{
    uint64_t s = load_u32(b + 106); /* eight nibbles to eight bytes */
    s = (s | s << 16) & UINT64_C(0x0000ffff0000ffff);
    s = (s | s << 8) & UINT64_C(0x00ff00ff00ff00ff);
    s = (s | s << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (struct lattice_head){half_float(b), odd_scales(b16_double(s))};
}

SIMD_INLINE LATTICE_HEAD(head_iq1_s)
{
    uint64_t s = 0;
    SIMD_UNROLL
    for (int g = 0; g < 8; g++) {
        s |= (uint64_t)((b[34 + 2 * g + 1] >> 4) & 7) << 8 * g;
    }
    return (struct lattice_head){half_float(b) * 0.125f, odd_scales(b16_double(s))};
}

SIMD_INLINE LATTICE_HEAD(head_iq1_m)
{
    uint64_t s[2] = {0, 0};
    unsigned d = 0;
    SIMD_UNROLL
    for (int g = 0; g < 16; g++) {
        s[g / 8] |= (uint64_t)((load_u16(b + 48 + 2 * (g / 4)) >> 3 * (g % 4)) & 7) << 8 * (g % 8);
    }
    SIMD_UNROLL
    for (int k = 0; k < 4; k++) {
        d |= (unsigned)(load_u16(b + 48 + 2 * k) >> 12) << 4 * k;
    }
    return (struct lattice_head){half_bits_float((uint16_t)d) * 0.125f, odd_scales(b16_make(s[0], s[1]))};
}

/* ---- 64 weights ---- */

/* Sign bits to bytes of 1 and -1. */
SIMD_INLINE struct vi sign_bytes(uint64_t bits) { return vi_or(vi_from_bits(bits), vi_set1_8(1)); }

/* 7 bits in each byte; bit 7 becomes their parity. */
SIMD_INLINE uint64_t add_parity(uint64_t x)
{
    uint64_t p = x ^ x >> 4;
    p ^= p >> 2;
    p ^= p >> 1;
    return x | (p & UINT64_C(0x0101010101010101)) << 7;
}

/* Four groups of 7 bits to four bytes. */
SIMD_INLINE uint64_t sevens(uint32_t b)
{
    return (b & 0x7f) | (b & 0x3f80) << 1 | (b & 0x1fc000) << 2 | (b & 0xfe00000) << 3;
}

SIMD_INLINE LATTICE_PART(part_iq2_xxs)
{
    const uint8_t *p = b + 2 + 16 * k, *q = p + 8;
    uint64_t row[8];
    SIMD_UNROLL
    for (int j = 0; j < 4; j++) {
        row[j] = iq2_xxs_grid[p[j]];
        row[j + 4] = iq2_xxs_grid[q[j]];
    }
    ret->size = vi_from_u64(row);
    ret->sign = sign_bytes(add_parity(sevens(load_u32(p + 4)) | sevens(load_u32(q + 4)) << 32));
}

SIMD_INLINE LATTICE_PART(part_iq2_xs)
{
    uint64_t row[8], signs = 0;
    SIMD_UNROLL
    for (int j = 0; j < 8; j++) {
        unsigned q = load_u16(b + 2 + 16 * k + 2 * j);
        row[j] = iq2_xs_grid[q & 511];
        signs |= (uint64_t)(q >> 9) << 8 * j;
    }
    ret->size = vi_from_u64(row);
    ret->sign = sign_bytes(add_parity(signs));
}

SIMD_INLINE LATTICE_PART(part_iq2_s)
{
    const uint8_t *ql = b + 2 + 8 * k;
    unsigned qh = load_u16(b + 66 + 2 * k);
    uint64_t row[8];
    SIMD_UNROLL
    for (int j = 0; j < 8; j++) {
        row[j] = iq2_s_grid[ql[j] | ((qh >> 2 * j) & 3) << 8];
    }
    ret->size = vi_from_u64(row);
    ret->sign = sign_bytes(load_u64(b + 34 + 8 * k));
}

SIMD_INLINE LATTICE_PART(part_iq3_xxs)
{
    const uint8_t *q = b + 2 + 16 * k, *bits = b + 66 + 8 * k;
    uint64_t row[8];
    SIMD_UNROLL
    for (int j = 0; j < 8; j++) {
        row[j] = iq3_xxs_grid[q[2 * j]] | (uint64_t)iq3_xxs_grid[q[2 * j + 1]] << 32;
    }
    ret->size = vi_from_u64(row);
    ret->sign = sign_bytes(add_parity(sevens(load_u32(bits)) | sevens(load_u32(bits + 4)) << 32));
}

SIMD_INLINE LATTICE_PART(part_iq3_s)
{
    const uint8_t *q = b + 2 + 16 * k;
    unsigned qh = load_u16(b + 66 + 2 * k);
    uint64_t row[8];
    SIMD_UNROLL
    for (int j = 0; j < 8; j++) {
        unsigned even = q[2 * j] | ((qh >> 2 * j) & 1) << 8, odd = q[2 * j + 1] | ((qh >> (2 * j + 1)) & 1) << 8;
        row[j] = iq3_s_grid[even] | (uint64_t)iq3_s_grid[odd] << 32;
    }
    ret->size = vi_from_u64(row);
    ret->sign = sign_bytes(load_u64(b + 74 + 8 * k));
}

/* 8 * grid + 1, or - 1 where `down`; the bytes of a grid are -1, 0 or 1. */
SIMD_INLINE void put_shifted(const uint64_t row[8], const uint64_t shift[8], struct lattice_part *ret)
{
    struct vi grid = vi_from_u64(row), delta = vi_from_u64(shift);
    struct vi code = vi_add8(vi_and(vi_shl16(grid, 3), vi_set1_8((int8_t)0xf8)), delta);
    ret->size = vi_abs8(code);
    ret->sign = code;
}

SIMD_INLINE uint64_t shift_bytes(bool down)
{
    return down ? UINT64_C(0xffffffffffffffff) : UINT64_C(0x0101010101010101);
}

SIMD_INLINE LATTICE_PART(part_iq1_s)
{
    uint64_t row[8], shift[8];
    SIMD_UNROLL
    for (int j = 0; j < 8; j++) {
        unsigned h = load_u16(b + 34 + 4 * k + 2 * (j / 4));
        row[j] = iq1_grid[b[2 + 8 * k + j] | ((h >> 3 * (j % 4)) & 7) << 8];
        shift[j] = shift_bytes(h >> 15);
    }
    put_shifted(row, shift, ret);
}

SIMD_INLINE LATTICE_PART(part_iq1_m)
{
    uint32_t qh = load_u32(b + 32 + 4 * k);
    uint64_t row[8], shift[8];
    SIMD_UNROLL
    for (int j = 0; j < 8; j++) {
        uint32_t nibble = qh >> 4 * j & 15;
        row[j] = iq1_grid[b[8 * k + j] | (nibble & 7) << 8];
        shift[j] = shift_bytes(nibble >> 3);
    }
    put_shifted(row, shift, ret);
}

/* ---- products ---- */

SIMD_INLINE void dot_lattice(const uint8_t *b, LATTICE_PART((*part)), LATTICE_HEAD((*head)),
                             const struct act_rows *act, size_t col, uint32_t n, struct vf *acc)
{
    /* vi_spread(.., k) takes bytes 8h + 2k + m for the weights 64k + 32h + 16m. */
    static const uint8_t order[16] = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
    struct lattice_head top = head(b);
    struct vi scales = vi_spreadable(b16_permute(top.scale, order));
    SIMD_UNROLL
    for (uint32_t k = 0; k < LATTICE_PARTS; k++) {
        struct lattice_part w;
        part(b, k, &w);
        struct vi scale = vi_spread(scales, (int)k);
        for (uint32_t i = 0; i < n; i++) {
            const int8_t *q = act->q + i * act->stride + col + 64 * k;
            struct vf da = vf_set1(top.d * act->scale[(i * act->stride + col) / 256]);
            struct vi s = vi_mul_words(vi_dot2(w.size, vi_sign8(vi_load(q), w.sign)), scale);
            acc[i] = vf_fma(da, vf_from_i32(s), acc[i]);
        }
    }
}

SIMD_INLINE void decode_lattice(const uint8_t *b, LATTICE_PART((*part)), LATTICE_HEAD((*head)), float *y)
{
    struct lattice_head top = head(b);
    float scale[16];
    vf_store(scale, vf_mul(vf_set1(top.d), vf_from_s8(top.scale)));
    for (uint32_t k = 0; k < LATTICE_PARTS; k++) {
        struct lattice_part w;
        part(b, k, &w);
        struct vi codes = vi_sign8(w.size, w.sign);
        SIMD_UNROLL
        for (int m = 0; m < 4; m++) {
            struct vf value = vf_mul(vf_set1(scale[4 * k + (uint32_t)m]), vf_from_s8(vi_quarter(codes, m)));
            vf_store(y + 64 * k + 16 * m, value);
        }
    }
}

#define LATTICE_FORMAT(name, bytes)                                                                                  \
    SIMD_INLINE STEP_FUNCTION(step_##name)                                                                           \
    {                                                                                                                \
        (void)blocks;                                                                                                \
        dot_lattice(w, part_##name, head_##name, act, col, n, acc);                                                  \
    }                                                                                                                \
    SIMD_INLINE PIECE_FUNCTION(piece_##name)                                                                         \
    {                                                                                                                \
        const uint8_t *b = row_data(w, r) + (size_t)(col / 256) * (bytes);                                           \
        for (uint32_t c = 0; c < count; c += 256, b += (bytes)) {                                                    \
            decode_lattice(b, part_##name, head_##name, y + c);                                                      \
        }                                                                                                            \
    }

LATTICE_FORMAT(iq1_s, 50)
LATTICE_FORMAT(iq1_m, 56)
LATTICE_FORMAT(iq2_xxs, 66)
LATTICE_FORMAT(iq2_xs, 74)
LATTICE_FORMAT(iq2_s, 82)
LATTICE_FORMAT(iq3_xxs, 98)
LATTICE_FORMAT(iq3_s, 110)

#endif
