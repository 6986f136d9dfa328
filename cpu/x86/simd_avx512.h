/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the sixteen accumulators of docs/numerics.md as vectors, on AVX-512 F, BW, DQ, VL: one register each.
 * Must not know: weight formats. The functions are those of simd_avx2.h, where they are described; the integer dot
 * products are in dot_avx512bw.h or dot_avx512vnni.h. */
#ifndef SLUICE_CPU_X86_SIMD_AVX512_H
#define SLUICE_CPU_X86_SIMD_AVX512_H

#include "cpu/x86/simd_x86.h"

struct vf {
    __m512 v;
};
struct vi {
    __m512i v;
};

/* Two halves, four quarters. */
SIMD_INLINE __m512i join_256(__m256i low, __m256i high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

SIMD_INLINE __m256i load_256(const void *p) { return _mm256_loadu_si256(p); }

/* ---- floats ---- */

SIMD_INLINE struct vf vf_set1(float x) { return (struct vf){_mm512_set1_ps(x)}; }
SIMD_INLINE struct vf vf_zero(void) { return (struct vf){_mm512_setzero_ps()}; }
SIMD_INLINE struct vf vf_load(const float *p) { return (struct vf){_mm512_loadu_ps(p)}; }
SIMD_INLINE void vf_store(float *p, struct vf x) { _mm512_storeu_ps(p, x.v); }
SIMD_INLINE struct vf vf_add(struct vf x, struct vf y) { return (struct vf){_mm512_add_ps(x.v, y.v)}; }
SIMD_INLINE struct vf vf_sub(struct vf x, struct vf y) { return (struct vf){_mm512_sub_ps(x.v, y.v)}; }
SIMD_INLINE struct vf vf_mul(struct vf x, struct vf y) { return (struct vf){_mm512_mul_ps(x.v, y.v)}; }
SIMD_INLINE struct vf vf_div(struct vf x, struct vf y) { return (struct vf){_mm512_div_ps(x.v, y.v)}; }

SIMD_INLINE struct vf vf_fma(struct vf x, struct vf y, struct vf z)
{
    return (struct vf){_mm512_fmadd_ps(x.v, y.v, z.v)};
}

SIMD_INLINE struct vf vf_fnma_low(struct vf x, struct d8 y, struct vf z)
{
    return (struct vf){_mm512_mask3_fnmadd_ps(x.v, _mm512_castsi512_ps(_mm512_zextsi256_si512(_mm256_castps_si256(_mm256_cvtepi32_ps(y.v)))), z.v, 0xff)};
}

SIMD_INLINE struct vf vf_max(struct vf x, struct vf y) { return (struct vf){_mm512_max_ps(x.v, y.v)}; }

SIMD_INLINE struct vi vf_lt(struct vf x, struct vf y)
{
    return (struct vi){_mm512_movm_epi32(_mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ))};
}

SIMD_INLINE struct vi vf_unordered(struct vf x, struct vf y)
{
    return (struct vi){_mm512_movm_epi32(_mm512_cmp_ps_mask(x.v, y.v, _CMP_UNORD_Q))};
}

SIMD_INLINE struct vf vf_select(struct vi mask, struct vf x, struct vf y)
{
    return (struct vf){_mm512_mask_blend_ps(_mm512_movepi32_mask(mask.v), y.v, x.v)};
}

SIMD_INLINE __mmask16 first_mask(uint32_t n) { return (__mmask16)_bzhi_u32(0xffff, n); }
SIMD_INLINE struct vi vi_first(uint32_t n) { return (struct vi){_mm512_movm_epi32(first_mask(n))}; }

SIMD_INLINE struct vf vf_load_first(const float *p, uint32_t n)
{
    return (struct vf){_mm512_maskz_loadu_ps(first_mask(n), p)};
}

SIMD_INLINE void vf_store_first(float *p, struct vf x, uint32_t n) { _mm512_mask_storeu_ps(p, first_mask(n), x.v); }

SIMD_INLINE __m256 add_halves(struct vf x)
{
    return _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
}

SIMD_INLINE float vf_sum(struct vf x)
{
    __m256 h = add_halves(x);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}

SIMD_INLINE struct vf vf_spread4(struct v4 x)
{
    __m512i order = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return (struct vf){_mm512_permutexvar_ps(order, _mm512_castps128_ps512(x.v))};
}

SIMD_INLINE struct vf vf_evens(struct f8 x)
{
    return (struct vf){_mm512_broadcast_f32x8(_mm256_moveldup_ps(x.v))};
}

SIMD_INLINE struct vf vf_odds(struct f8 x)
{
    return (struct vf){_mm512_broadcast_f32x8(_mm256_movehdup_ps(x.v))};
}

SIMD_INLINE struct vf vf_e8m0(const uint8_t *p, size_t stride) { return vf_spread4(v4_e8m0(p, stride)); }

SIMD_INLINE struct vf vf_spread2(struct cells x, int k)
{
    __m512i order = join_256(_mm256_set1_epi32(2 * k), _mm256_set1_epi32(2 * k + 1));
    return (struct vf){_mm512_permutexvar_ps(order, _mm512_castps128_ps512(_mm_loadu_ps(x.f)))};
}

SIMD_INLINE void vf_load_paired(const float *x, struct vf *ret_even, struct vf *ret_odd)
{
    __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    ret_even->v = _mm512_permutex2var_ps(low, even, high);
    ret_odd->v = _mm512_permutex2var_ps(low, odd, high);
}

SIMD_INLINE void vf_store_paired(float *y, struct vf even, struct vf odd)
{
    __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    __m512i high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    _mm512_storeu_ps(y, _mm512_permutex2var_ps(even.v, low, odd.v));
    _mm512_storeu_ps(y + 16, _mm512_permutex2var_ps(even.v, high, odd.v));
}

/* ---- one register of float lanes ---- */

enum { VR_LANES = 16, VR_WIDE = 6 };
struct vr {
    __m512 v;
};

SIMD_INLINE struct vr vr_zero(void) { return (struct vr){_mm512_setzero_ps()}; }
SIMD_INLINE struct vr vr_set1(float x) { return (struct vr){_mm512_set1_ps(x)}; }
SIMD_INLINE struct vr vr_load(const float *p) { return (struct vr){_mm512_loadu_ps(p)}; }
SIMD_INLINE void vr_store(float *p, struct vr x) { _mm512_storeu_ps(p, x.v); }
SIMD_INLINE struct vr vr_mul(struct vr x, struct vr y) { return (struct vr){_mm512_mul_ps(x.v, y.v)}; }
SIMD_INLINE struct vr vr_fma(struct vr x, struct vr y, struct vr z)
{
    return (struct vr){_mm512_fmadd_ps(x.v, y.v, z.v)};
}

SIMD_INLINE struct v4 vr_sum4(const float *x0, struct vr x, const float *y0, struct vr y, const float *z0, struct vr z,
                              const float *w0, struct vr w)
{
    (void)x0, (void)y0, (void)z0, (void)w0; /* one register holds all lanes */
    return v4_sums(add_halves((struct vf){x.v}), add_halves((struct vf){y.v}), add_halves((struct vf){z.v}),
                   add_halves((struct vf){w.v}));
}

/* ---- conversions ---- */

SIMD_INLINE struct vf vf_from_i32(struct vi x) { return (struct vf){_mm512_cvtepi32_ps(x.v)}; }
SIMD_INLINE struct vf vf_bits(struct vi x) { return (struct vf){_mm512_castsi512_ps(x.v)}; }
SIMD_INLINE struct vi vi_bits(struct vf x) { return (struct vi){_mm512_castps_si512(x.v)}; }
SIMD_INLINE struct vi vi_round(struct vf x) { return (struct vi){_mm512_cvtps_epi32(x.v)}; }
SIMD_INLINE struct vf vf_from_halves(const uint8_t *p) { return (struct vf){_mm512_cvtph_ps(load_256(p))}; }

SIMD_INLINE void vf_to_halves(uint8_t *p, struct vf x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

SIMD_INLINE struct vf vf_from_bf16(const uint8_t *p)
{
    return (struct vf){_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_256(p)), 16))};
}

SIMD_INLINE void vf_from_e4m3(const uint8_t *p, struct vf *ret_even, struct vf *ret_odd)
{
    __m256i w = load_256(p), mask = _mm256_set1_epi16((short)0xbf80);
    ret_even->v = _mm512_cvtph_ps(_mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(w, 8), 1), mask));
    ret_odd->v = _mm512_cvtph_ps(_mm256_and_si256(_mm256_srai_epi16(w, 1), mask));
}

SIMD_INLINE struct vf vf_from_s8(struct b16 x) { return (struct vf){_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(x.v))}; }

/* ---- integers ---- */

SIMD_INLINE struct vi vi_zero(void) { return (struct vi){_mm512_setzero_si512()}; }
SIMD_INLINE struct vi vi_set1_8(int8_t x) { return (struct vi){_mm512_set1_epi8(x)}; }
SIMD_INLINE struct vi vi_set1_32(int32_t x) { return (struct vi){_mm512_set1_epi32(x)}; }
SIMD_INLINE struct vi vi_from_bits(uint64_t bits) { return (struct vi){_mm512_movm_epi8(bits)}; }
SIMD_INLINE struct vi vi_signs_at(const void *bits) { return vi_from_bits(load_u64(bits)); }

SIMD_INLINE struct vi vi_pair_at(const uint32_t *p)
{
    return (struct vi){join_256(_mm256_set1_epi32((int)p[0]), _mm256_set1_epi32((int)p[1]))};
}

SIMD_INLINE struct vi vi_octets_at(const uint32_t *p)
{
    __m256i order = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    return (struct vi){_mm512_shuffle_epi8(vi_pair_at(p).v, join_256(order, order))};
}

SIMD_INLINE struct vi vi_rows8(const uint64_t *table, const uint32_t i[8])
{
    return (struct vi){join_256(join_128(two_rows(table, i[0], i[1]), two_rows(table, i[2], i[3])),
                                join_128(two_rows(table, i[4], i[5]), two_rows(table, i[6], i[7])))};
}

SIMD_INLINE struct vi vi_rows16(const uint32_t *table, const uint32_t i[16])
{
    return (struct vi){join_256(join_128(four_rows(table, i), four_rows(table, i + 4)),
                                join_128(four_rows(table, i + 8), four_rows(table, i + 12)))};
}

SIMD_INLINE struct vi vi_load(const void *p) { return (struct vi){_mm512_loadu_si512(p)}; }

SIMD_INLINE struct vi vi_load_pair(const void *p, const void *q)
{
    return (struct vi){join_256(load_256(p), load_256(q))};
}

SIMD_INLINE struct vi vi_load_quad(const uint8_t *p, size_t stride)
{
    __m256i low = join_128(b16_load(p).v, b16_load(p + stride).v);
    return (struct vi){join_256(low, join_128(b16_load(p + 2 * stride).v, b16_load(p + 3 * stride).v))};
}

SIMD_INLINE void vi_load_halves(const int8_t *p, struct vi *ret_low, struct vi *ret_high)
{
    __m512i x = _mm512_loadu_si512(p), y = _mm512_loadu_si512(p + 64);
    ret_low->v = _mm512_shuffle_i64x2(x, y, 0x88);
    ret_high->v = _mm512_shuffle_i64x2(x, y, 0xdd);
}

SIMD_INLINE struct vi vi_and(struct vi x, struct vi y) { return (struct vi){_mm512_and_si512(x.v, y.v)}; }
SIMD_INLINE struct vi vi_or(struct vi x, struct vi y) { return (struct vi){_mm512_or_si512(x.v, y.v)}; }
SIMD_INLINE struct vi vi_xor(struct vi x, struct vi y) { return (struct vi){_mm512_xor_si512(x.v, y.v)}; }
SIMD_INLINE struct vi vi_shl16(struct vi x, unsigned n) { return (struct vi){_mm512_slli_epi16(x.v, n)}; }
SIMD_INLINE struct vi vi_shr16(struct vi x, unsigned n) { return (struct vi){_mm512_srli_epi16(x.v, n)}; }
SIMD_INLINE struct vi vi_shl32(struct vi x, unsigned n) { return (struct vi){_mm512_slli_epi32(x.v, n)}; }
SIMD_INLINE struct vi vi_shr32(struct vi x, unsigned n) { return (struct vi){_mm512_srli_epi32(x.v, n)}; }

SIMD_INLINE struct vi vi_sra32(struct vi x, unsigned n) { return (struct vi){_mm512_srai_epi32(x.v, n)}; }

SIMD_INLINE struct vi vi_shift16_pair(struct vi x, int n0, int n1)
{
    __m512i left = join_256(_mm256_set1_epi16((short)(n0 < 0 ? 0 : n0)), _mm256_set1_epi16((short)(n1 < 0 ? 0 : n1)));
    __m512i right = join_256(_mm256_set1_epi16((short)(n0 < 0 ? -n0 : 0)), _mm256_set1_epi16((short)(n1 < 0 ? -n1 : 0)));
    __m512i moved = n0 > 0 || n1 > 0 ? _mm512_sllv_epi16(x.v, left) : x.v;
    return (struct vi){n0 < 0 || n1 < 0 ? _mm512_srlv_epi16(moved, right) : moved};
}

SIMD_INLINE struct vi vi_add8(struct vi x, struct vi y) { return (struct vi){_mm512_add_epi8(x.v, y.v)}; }
SIMD_INLINE struct vi vi_sub8(struct vi x, struct vi y) { return (struct vi){_mm512_sub_epi8(x.v, y.v)}; }
SIMD_INLINE struct vi vi_add32(struct vi x, struct vi y) { return (struct vi){_mm512_add_epi32(x.v, y.v)}; }
SIMD_INLINE struct vi vi_add_low(struct vi x, struct d8 y)
{
    return (struct vi){_mm512_add_epi32(x.v, _mm512_zextsi256_si512(y.v))};
}
SIMD_INLINE struct vi vi_max32(struct vi x, struct vi y) { return (struct vi){_mm512_max_epi32(x.v, y.v)}; }
SIMD_INLINE int32_t vi_max(struct vi x) { return _mm512_reduce_max_epi32(x.v); }
SIMD_INLINE int32_t vi_sum(struct vi x) { return _mm512_reduce_add_epi32(x.v); }

SIMD_INLINE struct vi vi_lookup(const int8_t table[16], struct vi index)
{
    __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
    return (struct vi){_mm512_shuffle_epi8(t, index.v)};
}

SIMD_INLINE struct vi vi_abs8(struct vi x) { return (struct vi){_mm512_abs_epi8(x.v)}; }

SIMD_INLINE struct vi vi_sign8(struct vi x, struct vi s)
{
    return (struct vi){_mm512_mask_sub_epi8(x.v, _mm512_movepi8_mask(s.v), _mm512_setzero_si512(), x.v)};
}

SIMD_INLINE struct vi vi_dot2(struct vi u, struct vi s) { return (struct vi){_mm512_maddubs_epi16(u.v, s.v)}; }
SIMD_INLINE struct vi vi_dot2_offset(struct vi u, struct vi s, int8_t c)
{
    return (struct vi){_mm512_sub_epi16(vi_dot2(u, s).v, vi_dot2(vi_set1_8(c), s).v)};
}

SIMD_INLINE struct vi vi_mul_words(struct vi p, struct vi q) { return (struct vi){_mm512_madd_epi16(p.v, q.v)}; }

SIMD_INLINE void vi_store_words(void *p, struct vi x) { _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(x.v)); }
SIMD_INLINE void vi_store_bytes(void *p, struct vi x) { _mm_storeu_si128(p, _mm512_cvtepi32_epi8(x.v)); }

struct byte_cells {
    __m512i twice;
};

SIMD_INLINE struct byte_cells byte_cells_of(struct b16 twice)
{
    return (struct byte_cells){_mm512_castsi256_si512(d8_from_s8(twice).v)};
}

SIMD_INLINE struct vi vi_spread_pair(const struct byte_cells *x, uint32_t i, uint32_t j)
{
    __m512i order = join_256(_mm256_set1_epi32((int)i), _mm256_set1_epi32((int)j));
    return (struct vi){_mm512_permutexvar_epi32(order, x->twice)};
}

SIMD_INLINE struct vi vi_spreadable_words(struct d8 x)
{
    __m512i order = _mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3);
    return (struct vi){_mm512_permutexvar_epi64(order, _mm512_castsi256_si512(x.v))};
}

SIMD_INLINE struct vi vi_spreadable_by(struct b16 x, const int16_t by[8])
{
    __m256i factor = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)by));
    return vi_spreadable_words((struct d8){_mm256_mullo_epi16(_mm256_cvtepi8_epi16(x.v), factor)});
}

SIMD_INLINE struct vi vi_spreadable(struct b16 x)
{
    return vi_spreadable_words((struct d8){_mm256_cvtepi8_epi16(x.v)});
}

SIMD_INLINE struct vi vi_spread(struct vi x, int k)
{
    __m128i low = _mm_set1_epi16((short)(0x0100 + 0x0404 * k)), high = _mm_set1_epi16((short)(0x0302 + 0x0404 * k));
    __m256i order = join_128(low, high);
    return (struct vi){_mm512_shuffle_epi8(x.v, join_256(order, order))};
}

SIMD_INLINE struct b16 vi_quarter(struct vi x, int k)
{
    return (struct b16){k == 0   ? _mm512_castsi512_si128(x.v)
                        : k == 1 ? _mm512_extracti32x4_epi32(x.v, 1)
                        : k == 2 ? _mm512_extracti32x4_epi32(x.v, 2)
                                 : _mm512_extracti32x4_epi32(x.v, 3)};
}

#endif
