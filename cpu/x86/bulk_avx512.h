/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the bulk templates need beyond simd_avx512.h, on AVX-512 F, BW, DQ, VL; integer products are in bulk_words_tmpl.h
 * or bulk_vnni_tmpl.h. Must not know: weight formats. */
#ifndef SLUICE_CPU_X86_BULK_AVX512_H
#define SLUICE_CPU_X86_BULK_AVX512_H

#include "cpu/x86/simd_avx512.h"

#include "cpu/x86/bulk_x86_tmpl.h"

enum {
    BULK_ROWS = 8,      /* activation rows that share a load of integer codes */
    BULK_F32_ROWS = 12, /* and of floats */
};

#define BULK_EACH_ROWS(X, name)                                                                                      \
    X(name, 1) X(name, 2) X(name, 3) X(name, 4) X(name, 5) X(name, 6) X(name, 7) X(name, 8)
#define BULK_EACH_F32_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)

SIMD_INLINE void vi_store(void *p, struct vi x) { _mm512_storeu_ps(p, _mm512_castsi512_ps(x.v)); }
SIMD_INLINE struct vi vi_sub32(struct vi x, struct vi y) { return (struct vi){_mm512_sub_epi32(x.v, y.v)}; }
SIMD_INLINE struct vi vi_add16(struct vi x, struct vi y) { return (struct vi){_mm512_add_epi16(x.v, y.v)}; }
SIMD_INLINE struct vi vi_negative8(struct vi x) { return (struct vi){_mm512_movm_epi8(_mm512_movepi8_mask(x.v))}; }
SIMD_INLINE struct vi vi_sar16(struct vi x, int n) { return (struct vi){_mm512_srai_epi16(x.v, (unsigned)n)}; }
SIMD_INLINE struct vi vi_ready(struct vi x) { return x; }
SIMD_INLINE struct vi vi_zip32_low(struct vi x, struct vi y) { return (struct vi){_mm512_unpacklo_epi32(x.v, y.v)}; }
SIMD_INLINE struct vi vi_zip32_high(struct vi x, struct vi y) { return (struct vi){_mm512_unpackhi_epi32(x.v, y.v)}; }
SIMD_INLINE struct vi vi_zip64_low(struct vi x, struct vi y) { return (struct vi){_mm512_unpacklo_epi64(x.v, y.v)}; }
SIMD_INLINE struct vi vi_zip64_high(struct vi x, struct vi y) { return (struct vi){_mm512_unpackhi_epi64(x.v, y.v)}; }

SIMD_INLINE struct vi vi_equal16(struct vi x, struct vi y)
{
    return (struct vi){_mm512_movm_epi16(_mm512_cmpeq_epi16_mask(x.v, y.v))};
}

SIMD_INLINE struct vi vi_byte_pair(struct vi x, int i, int j)
{
    __m128i lane = _mm_setr_epi32(0, 0x04000400, 0x08000800, 0x0c000c00);
    __m128i order = _mm_add_epi8(lane, _mm_set1_epi32((int)(0x00800080u | (unsigned)i << 8 | (unsigned)j << 24)));
    return (struct vi){_mm512_srai_epi16(_mm512_shuffle_epi8(x.v, _mm512_broadcast_i32x4(order)), 8)};
}

SIMD_INLINE void vf_from_half_pairs(struct vi x, struct vf *ret_low, struct vf *ret_high)
{
    ret_low->v = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x.v));
    ret_high->v = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(x.v, 16)));
}

#endif
