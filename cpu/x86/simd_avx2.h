/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the sixteen accumulators of docs/numerics.md as vectors, on AVX2 + FMA + F16C: lanes 0-7 in a, 8-15 in b.
 * Must not know: weight formats. simd_avx512.h has the same functions, dot_<isa>.h further
 * products; the templates in cpu/ use nothing else. */
#ifndef SLUICE_CPU_X86_SIMD_AVX2_H
#define SLUICE_CPU_X86_SIMD_AVX2_H

#include "cpu/x86/simd_x86.h"

/* 16 float lanes; 64 bytes of integers (16 int32 lanes of 4 bytes or 2 words each). */
struct vf {
    __m256 a, b;
};
struct vi {
    __m256i a, b;
};

/* ---- floats ---- */

SIMD_INLINE struct vf vf_set1(float x) { return (struct vf){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
SIMD_INLINE struct vf vf_zero(void) { return (struct vf){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
SIMD_INLINE struct vf vf_load(const float *p) { return (struct vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }

SIMD_INLINE void vf_store(float *p, struct vf x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}

SIMD_INLINE struct vf vf_add(struct vf x, struct vf y)
{
    return (struct vf){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}

SIMD_INLINE struct vf vf_sub(struct vf x, struct vf y)
{
    return (struct vf){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}

SIMD_INLINE struct vf vf_mul(struct vf x, struct vf y)
{
    return (struct vf){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}

SIMD_INLINE struct vf vf_div(struct vf x, struct vf y)
{
    return (struct vf){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}

/* x * y + z, rounded once. */
SIMD_INLINE struct vf vf_fma(struct vf x, struct vf y, struct vf z)
{
    return (struct vf){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}

/* z - x * y, rounded once, in lanes 0-7 with integers y; z in the others. */
SIMD_INLINE struct vf vf_fnma_low(struct vf x, struct d8 y, struct vf z)
{
    return (struct vf){_mm256_fnmadd_ps(x.a, _mm256_cvtepi32_ps(y.v), z.a), z.b};
}

/* x > y ? x : y. */
SIMD_INLINE struct vf vf_max(struct vf x, struct vf y)
{
    return (struct vf){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}

/* All ones in lanes where x < y; where either is NaN. */
SIMD_INLINE struct vi vf_lt(struct vf x, struct vf y)
{
    return (struct vi){_mm256_castps_si256(_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
                       _mm256_castps_si256(_mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}

SIMD_INLINE struct vi vf_unordered(struct vf x, struct vf y)
{
    return (struct vi){_mm256_castps_si256(_mm256_cmp_ps(x.a, y.a, _CMP_UNORD_Q)),
                       _mm256_castps_si256(_mm256_cmp_ps(x.b, y.b, _CMP_UNORD_Q))};
}

/* Lane-wise mask ? x : y; a mask lane is all ones or all zeros. */
SIMD_INLINE struct vf vf_select(struct vi mask, struct vf x, struct vf y)
{
    return (struct vf){_mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(mask.a)),
                       _mm256_blendv_ps(y.b, x.b, _mm256_castsi256_ps(mask.b))};
}

/* All ones in the first n lanes. */
SIMD_INLINE struct vi vi_first(uint32_t n)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), count = _mm256_set1_epi32((int)n);
    return (struct vi){_mm256_cmpgt_epi32(count, lane),
                       _mm256_cmpgt_epi32(count, _mm256_add_epi32(lane, _mm256_set1_epi32(8)))};
}

/* The first n lanes from memory, +0 in the others; only those n are touched. Masked stores are slow here: whole vectors
 * go without. */
SIMD_INLINE struct vf vf_load_first(const float *p, uint32_t n)
{
    if (n >= 16) {
        return vf_load(p);
    }
    struct vi m = vi_first(n);
    return (struct vf){_mm256_maskload_ps(p, m.a), _mm256_maskload_ps(p + 8, m.b)};
}

SIMD_INLINE void vf_store_first(float *p, struct vf x, uint32_t n)
{
    if (n >= 16) {
        vf_store(p, x);
        return;
    }
    struct vi m = vi_first(n);
    _mm256_maskstore_ps(p, m.a, x.a);
    _mm256_maskstore_ps(p + 8, m.b, x.b);
}

/* The tree: l += l+8, l += l+4, l += l+2, l += l+1. */
SIMD_INLINE float vf_sum(struct vf x)
{
    __m256 h = _mm256_add_ps(x.a, x.b);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}

/* Lanes 4b..4b+3 = x[b]. */
SIMD_INLINE struct vf vf_spread4(struct v4 x)
{
    __m256 w = _mm256_castps128_ps256(x.v);
    return (struct vf){_mm256_permutevar8x32_ps(w, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1)),
                       _mm256_permutevar8x32_ps(w, _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3))};
}

/* All lanes: x[0], x[1] of numbers that take turns. */
SIMD_INLINE struct vf vf_evens(struct f8 x) { return (struct vf){_mm256_moveldup_ps(x.v), _mm256_moveldup_ps(x.v)}; }
SIMD_INLINE struct vf vf_odds(struct f8 x) { return (struct vf){_mm256_movehdup_ps(x.v), _mm256_movehdup_ps(x.v)}; }

/* Lanes 4b..4b+3 = 2^(e-128) of the exponent e at p + b * stride. */
SIMD_INLINE struct vf vf_e8m0(const uint8_t *p, size_t stride)
{
    __m256 e0 = _mm256_set1_ps(e8m0_float(p[0])), e1 = _mm256_set1_ps(e8m0_float(p[stride]));
    __m256 e2 = _mm256_set1_ps(e8m0_float(p[2 * stride])), e3 = _mm256_set1_ps(e8m0_float(p[3 * stride]));
    return (struct vf){_mm256_blend_ps(e0, e1, 0xf0), _mm256_blend_ps(e2, e3, 0xf0)};
}

/* Lanes 0..7 = x[2k], lanes 8..15 = x[2k+1]. */
SIMD_INLINE struct vf vf_spread2(struct cells x, int k)
{
    return (struct vf){_mm256_broadcast_ss(x.f + 2 * k), _mm256_broadcast_ss(x.f + 2 * k + 1)};
}

/* x[2l] and x[2l+1] of 32 floats. */
SIMD_INLINE void vf_load_paired(const float *x, struct vf *ret_even, struct vf *ret_odd)
{
    __m256 l0 = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x)), _mm_loadu_ps(x + 8), 1);
    __m256 h0 = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x + 4)), _mm_loadu_ps(x + 12), 1);
    __m256 l1 = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x + 16)), _mm_loadu_ps(x + 24), 1);
    __m256 h1 = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x + 20)), _mm_loadu_ps(x + 28), 1);
    *ret_even = (struct vf){_mm256_shuffle_ps(l0, h0, 0x88), _mm256_shuffle_ps(l1, h1, 0x88)};
    *ret_odd = (struct vf){_mm256_shuffle_ps(l0, h0, 0xdd), _mm256_shuffle_ps(l1, h1, 0xdd)};
}

/* The inverse: 32 floats from even and odd ones. */
SIMD_INLINE void vf_store_paired(float *y, struct vf even, struct vf odd)
{
    __m256 l0 = _mm256_unpacklo_ps(even.a, odd.a), h0 = _mm256_unpackhi_ps(even.a, odd.a);
    __m256 l1 = _mm256_unpacklo_ps(even.b, odd.b), h1 = _mm256_unpackhi_ps(even.b, odd.b);
    _mm256_storeu_ps(y, _mm256_permute2f128_ps(l0, h0, 0x20));
    _mm256_storeu_ps(y + 8, _mm256_permute2f128_ps(l0, h0, 0x31));
    _mm256_storeu_ps(y + 16, _mm256_permute2f128_ps(l1, h1, 0x20));
    _mm256_storeu_ps(y + 24, _mm256_permute2f128_ps(l1, h1, 0x31));
}

/* ---- one register of float lanes, for loops that fill all of them: VR_WIDE operands, one more and 4 * VR_WIDE sums ---- */

enum { VR_LANES = 8, VR_WIDE = 3 };
struct vr {
    __m256 v;
};

SIMD_INLINE struct vr vr_zero(void) { return (struct vr){_mm256_setzero_ps()}; }
SIMD_INLINE struct vr vr_set1(float x) { return (struct vr){_mm256_set1_ps(x)}; }
SIMD_INLINE struct vr vr_load(const float *p) { return (struct vr){_mm256_loadu_ps(p)}; }
SIMD_INLINE void vr_store(float *p, struct vr x) { _mm256_storeu_ps(p, x.v); }
SIMD_INLINE struct vr vr_mul(struct vr x, struct vr y) { return (struct vr){_mm256_mul_ps(x.v, y.v)}; }
SIMD_INLINE struct vr vr_fma(struct vr x, struct vr y, struct vr z)
{
    return (struct vr){_mm256_fmadd_ps(x.v, y.v, z.v)};
}

/* The trees (vf_sum) of four vectors: lanes before the last register in memory, that register. */
SIMD_INLINE struct v4 vr_sum4(const float *x0, struct vr x, const float *y0, struct vr y, const float *z0, struct vr z,
                              const float *w0, struct vr w)
{
    return v4_sums(_mm256_add_ps(x.v, _mm256_loadu_ps(x0)), _mm256_add_ps(y.v, _mm256_loadu_ps(y0)),
                   _mm256_add_ps(z.v, _mm256_loadu_ps(z0)), _mm256_add_ps(w.v, _mm256_loadu_ps(w0)));
}

/* ---- conversions ---- */

SIMD_INLINE struct vf vf_from_i32(struct vi x)
{
    return (struct vf){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}

SIMD_INLINE struct vf vf_bits(struct vi x)
{
    return (struct vf){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)};
}

SIMD_INLINE struct vi vi_bits(struct vf x)
{
    return (struct vi){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)};
}

/* Rounds to nearest, ties to even. */
SIMD_INLINE struct vi vi_round(struct vf x) { return (struct vi){_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }

/* Sixteen half floats. */
SIMD_INLINE struct vf vf_from_halves(const uint8_t *p)
{
    return (struct vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                       _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 16)))};
}

SIMD_INLINE void vf_to_halves(uint8_t *p, struct vf x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 16), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}

/* Sixteen bfloat16. */
SIMD_INLINE struct vf vf_from_bf16(const uint8_t *p)
{
    __m256i a = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    __m256i b = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 16)));
    return (struct vf){_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
}

/* 32 E4M3 bytes times 2^-8, by way of half bits: bytes 2l and 2l+1. */
SIMD_INLINE void vf_from_e4m3(const uint8_t *p, struct vf *ret_even, struct vf *ret_odd)
{
    __m256i w = _mm256_loadu_si256((const __m256i *)p), mask = _mm256_set1_epi16((short)0xbf80);
    __m256i half[2] = {_mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(w, 8), 1), mask),
                       _mm256_and_si256(_mm256_srai_epi16(w, 1), mask)};
    SIMD_IN_MEMORY(half); /* converting a register takes twice as long: it has to be taken apart first */
    const uint8_t *h = (const uint8_t *)half;
    *ret_even = vf_from_halves(h);
    *ret_odd = vf_from_halves(h + 32);
}

SIMD_INLINE struct vf vf_from_s8(struct b16 x)
{
    return (struct vf){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x.v)),
                       _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(x.v, x.v)))};
}

/* ---- integers ---- */

SIMD_INLINE struct vi vi_zero(void) { return (struct vi){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
SIMD_INLINE struct vi vi_set1_8(int8_t x) { return (struct vi){_mm256_set1_epi8(x), _mm256_set1_epi8(x)}; }
SIMD_INLINE struct vi vi_set1_32(int32_t x) { return (struct vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }

/* Byte i is all ones if bit i is set, else 0. */
SIMD_INLINE struct vi vi_from_bits(uint64_t bits)
{
    __m256i order = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    __m256i one_bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i a = _mm256_shuffle_epi8(_mm256_set1_epi32((int)(uint32_t)bits), order);
    __m256i b = _mm256_shuffle_epi8(_mm256_set1_epi32((int)(uint32_t)(bits >> 32)), order);
    return (struct vi){_mm256_cmpeq_epi8(_mm256_and_si256(a, one_bit), one_bit),
                       _mm256_cmpeq_epi8(_mm256_and_si256(b, one_bit), one_bit)};
}

/* Byte i of 64 is negative if bit i of the eight bytes is set, else positive. The last byte's constants differ, to the
 * same effect: constants that repeat are rebuilt by compilers from general registers, in five operations. */
SIMD_INLINE struct vi vi_signs_at(const void *bits)
{
    const uint8_t *p = bits;
    const long long one_bit = (long long)0x8040201008040201, most = 0x7f7f7f7f7f7f7f7f;
    const __m256i order = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i mask = _mm256_setr_epi64x(one_bit, one_bit, one_bit, (long long)0xc040201008040201);
    const __m256i up = _mm256_setr_epi64x(most, most, most, 0x3f7f7f7f7f7f7f7f);
    __m256i a = _mm256_shuffle_epi8(_mm256_set1_epi32((int)load_u32(p)), order);
    __m256i b = _mm256_shuffle_epi8(_mm256_set1_epi32((int)load_u32(p + 4)), order);
    return (struct vi){_mm256_add_epi8(_mm256_and_si256(a, mask), up), _mm256_add_epi8(_mm256_and_si256(b, mask), up)};
}

/* Lanes 0-7 = p[0], lanes 8-15 = p[1]. */
SIMD_INLINE struct vi vi_pair_at(const uint32_t *p)
{
    return (struct vi){_mm256_set1_epi32((int)p[0]), _mm256_set1_epi32((int)p[1])};
}

/* Eight bytes in memory, each 8 times. */
SIMD_INLINE struct vi vi_octets_at(const uint32_t *p)
{
    __m256i order = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    return (struct vi){_mm256_shuffle_epi8(_mm256_set1_epi32((int)p[0]), order),
                       _mm256_shuffle_epi8(_mm256_set1_epi32((int)p[1]), order)};
}

/* Eight entries of a table of 8 bytes each. */
SIMD_INLINE struct vi vi_rows8(const uint64_t *table, const uint32_t i[8])
{
    return (struct vi){join_128(two_rows(table, i[0], i[1]), two_rows(table, i[2], i[3])),
                       join_128(two_rows(table, i[4], i[5]), two_rows(table, i[6], i[7]))};
}

/* Sixteen entries of a table of 4 bytes each. */
SIMD_INLINE struct vi vi_rows16(const uint32_t *table, const uint32_t i[16])
{
    return (struct vi){join_128(four_rows(table, i), four_rows(table, i + 4)),
                       join_128(four_rows(table, i + 8), four_rows(table, i + 12))};
}

/* The first 32 bytes (lanes 0-7) from p, the others from q. */
SIMD_INLINE struct vi vi_load_pair(const void *p, const void *q)
{
    return (struct vi){_mm256_loadu_si256(p), _mm256_loadu_si256(q)};
}

SIMD_INLINE struct vi vi_load(const void *p) { return vi_load_pair(p, (const uint8_t *)p + 32); }

SIMD_INLINE void vi_store(void *p, struct vi x)
{
    _mm256_storeu_si256(p, x.a);
    _mm256_storeu_si256((__m256i *)p + 1, x.b);
}

/* Four times 16 bytes that lie `stride` apart. */
SIMD_INLINE struct vi vi_load_quad(const uint8_t *p, size_t stride)
{
    __m128i x0 = _mm_loadu_si128((const __m128i *)p), x1 = _mm_loadu_si128((const __m128i *)(p + stride));
    __m128i x2 = _mm_loadu_si128((const __m128i *)(p + 2 * stride));
    __m128i x3 = _mm_loadu_si128((const __m128i *)(p + 3 * stride));
    return (struct vi){_mm256_inserti128_si256(_mm256_castsi128_si256(x0), x1, 1),
                       _mm256_inserti128_si256(_mm256_castsi128_si256(x2), x3, 1)};
}

/* Of four blocks of 32 bytes the first and the second halves. */
SIMD_INLINE void vi_load_halves(const int8_t *p, struct vi *ret_low, struct vi *ret_high)
{
    *ret_low = vi_load_quad((const uint8_t *)p, 32);
    *ret_high = vi_load_quad((const uint8_t *)p + 16, 32);
}

SIMD_INLINE struct vi vi_and(struct vi x, struct vi y)
{
    return (struct vi){_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}

SIMD_INLINE struct vi vi_or(struct vi x, struct vi y)
{
    return (struct vi){_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}

SIMD_INLINE struct vi vi_xor(struct vi x, struct vi y)
{
    return (struct vi){_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)};
}

/* Word shifts by a literal. */
SIMD_INLINE struct vi vi_shl16(struct vi x, int n)
{
    return (struct vi){_mm256_slli_epi16(x.a, n), _mm256_slli_epi16(x.b, n)};
}

SIMD_INLINE struct vi vi_shr16(struct vi x, int n)
{
    return (struct vi){_mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n)};
}

/* Words shifted left by n0 in lanes 0-7, by n1 in the others; a negative n shifts right. */
SIMD_INLINE struct vi vi_shift16_pair(struct vi x, int n0, int n1)
{
    return (struct vi){n0 < 0 ? _mm256_srli_epi16(x.a, -n0) : _mm256_slli_epi16(x.a, n0),
                       n1 < 0 ? _mm256_srli_epi16(x.b, -n1) : _mm256_slli_epi16(x.b, n1)};
}

SIMD_INLINE struct vi vi_shl32(struct vi x, int n)
{
    return (struct vi){_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)};
}

/* With copies of the sign. */
SIMD_INLINE struct vi vi_sra32(struct vi x, int n)
{
    return (struct vi){_mm256_srai_epi32(x.a, n), _mm256_srai_epi32(x.b, n)};
}

SIMD_INLINE struct vi vi_shr32(struct vi x, int n)
{
    return (struct vi){_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)};
}

SIMD_INLINE struct vi vi_sub8(struct vi x, struct vi y)
{
    return (struct vi){_mm256_sub_epi8(x.a, y.a), _mm256_sub_epi8(x.b, y.b)};
}

SIMD_INLINE struct vi vi_add8(struct vi x, struct vi y)
{
    return (struct vi){_mm256_add_epi8(x.a, y.a), _mm256_add_epi8(x.b, y.b)};
}

SIMD_INLINE struct vi vi_add32(struct vi x, struct vi y)
{
    return (struct vi){_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}

/* y added to lanes 0-7. */
SIMD_INLINE struct vi vi_add_low(struct vi x, struct d8 y) { return (struct vi){_mm256_add_epi32(x.a, y.v), x.b}; }

SIMD_INLINE struct vi vi_sub32(struct vi x, struct vi y)
{
    return (struct vi){_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}

SIMD_INLINE struct vi vi_max32(struct vi x, struct vi y)
{
    return (struct vi){_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)};
}

/* The largest of the 16 int32 lanes. */
SIMD_INLINE int32_t vi_max(struct vi x)
{
    __m256i h = _mm256_max_epi32(x.a, x.b);
    __m128i q = _mm_max_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}

/* The sum of the lanes. */
SIMD_INLINE int32_t vi_sum(struct vi x)
{
    __m256i h = _mm256_add_epi32(x.a, x.b);
    __m128i q = _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}

/* table[index] per byte; indices 0..15. */
SIMD_INLINE struct vi vi_lookup(const int8_t table[16], struct vi index)
{
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return (struct vi){_mm256_shuffle_epi8(t, index.a), _mm256_shuffle_epi8(t, index.b)};
}

SIMD_INLINE struct vi vi_abs8(struct vi x) { return (struct vi){_mm256_abs_epi8(x.a), _mm256_abs_epi8(x.b)}; }

/* x with its sign turned where the byte of s is negative. Where s is 0 the result does not matter. */
SIMD_INLINE struct vi vi_sign8(struct vi x, struct vi s)
{
    return (struct vi){_mm256_sign_epi8(x.a, s.a), _mm256_sign_epi8(x.b, s.b)};
}

/* Word sums of 2 products of unsigned u and signed s; they must fit int16. */
SIMD_INLINE struct vi vi_dot2(struct vi u, struct vi s)
{
    return (struct vi){_mm256_maddubs_epi16(u.a, s.a), _mm256_maddubs_epi16(u.b, s.b)};
}

/* The same with u - c in place of u; the sums with u must fit as well. */
SIMD_INLINE struct vi vi_dot2_offset(struct vi u, struct vi s, int8_t c)
{
    struct vi raised = vi_dot2(u, s), by_offset = vi_dot2(vi_set1_8(c), s);
    return (struct vi){_mm256_sub_epi16(raised.a, by_offset.a), _mm256_sub_epi16(raised.b, by_offset.b)};
}

/* x + sums of 2 products of words; added now: the compiler would keep all terms for a tree of its own. */
SIMD_INLINE struct vi vi_madd(struct vi x, struct vi p, struct vi q)
{
    struct vi sum = {_mm256_add_epi32(x.a, _mm256_madd_epi16(p.a, q.a)),
                     _mm256_add_epi32(x.b, _mm256_madd_epi16(p.b, q.b))};
    __asm__("" : "+x"(sum.a), "+x"(sum.b));
    return sum;
}

/* Sums of 2 products of words. */
SIMD_INLINE struct vi vi_mul_words(struct vi p, struct vi q)
{
    return (struct vi){_mm256_madd_epi16(p.a, q.a), _mm256_madd_epi16(p.b, q.b)};
}

/* The lanes, each within uint16, to 16 words in memory. */
SIMD_INLINE void vi_store_words(void *p, struct vi x)
{
    _mm256_storeu_si256(p, _mm256_permute4x64_epi64(_mm256_packus_epi32(x.a, x.b), 0xd8));
}

/* The lanes, each within int8, to 16 bytes in memory. */
SIMD_INLINE void vi_store_bytes(void *p, struct vi x)
{
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
    _mm_storeu_si128(p, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

/* Eight numbers, each twice as a byte, as words laid out for vi_spread_pair. */
struct byte_cells {
    int32_t twice[8];
};

SIMD_INLINE struct byte_cells byte_cells_of(struct b16 twice)
{
    struct byte_cells c;
    d8_store(c.twice, d8_from_s8(twice)); /* in one piece: it may be copied */
    SIMD_IN_MEMORY(c);
    return c;
}

/* Words of lanes 0-7 = number i, of lanes 8-15 = number j. */
SIMD_INLINE struct vi vi_spread_pair(const struct byte_cells *x, uint32_t i, uint32_t j)
{
    return (struct vi){_mm256_set1_epi32(x->twice[i]), _mm256_set1_epi32(x->twice[j])};
}

/* Sixteen words laid out for vi_spread. */
SIMD_INLINE struct vi vi_spreadable_words(struct d8 x)
{
    return (struct vi){_mm256_permute4x64_epi64(x.v, 0x44), _mm256_permute4x64_epi64(x.v, 0xee)};
}

/* Sixteen signed bytes as words, byte i times by[i % 8], laid out for vi_spread. */
SIMD_INLINE struct vi vi_spreadable_by(struct b16 x, const int16_t by[8])
{
    __m256i factor = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)by));
    return vi_spreadable_words((struct d8){_mm256_mullo_epi16(_mm256_cvtepi8_epi16(x.v), factor)});
}

SIMD_INLINE struct vi vi_spreadable(struct b16 x)
{
    return vi_spreadable_words((struct d8){_mm256_cvtepi8_epi16(x.v)});
}

/* Words of lanes 4m..4m+3 = byte 8*(m/2) + 2k + m%2 of what vi_spreadable got. */
SIMD_INLINE struct vi vi_spread(struct vi x, int k)
{
    __m128i low = _mm_set1_epi16((short)(0x0100 + 0x0404 * k)), high = _mm_set1_epi16((short)(0x0302 + 0x0404 * k));
    __m256i order = _mm256_set_m128i(high, low);
    return (struct vi){_mm256_shuffle_epi8(x.a, order), _mm256_shuffle_epi8(x.b, order)};
}

/* Bytes 16k..16k+15. */
SIMD_INLINE struct b16 vi_quarter(struct vi x, int k)
{
    __m256i h = k < 2 ? x.a : x.b;
    return (struct b16){k % 2 == 0 ? _mm256_castsi256_si128(h) : _mm256_extracti128_si256(h, 1)};
}

#endif
