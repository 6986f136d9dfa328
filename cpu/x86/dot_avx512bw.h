/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the integer dot products of simd_avx2.h on AVX-512 without VNNI. Must not know: weight formats. */
#ifndef SLUICE_CPU_X86_DOT_AVX512BW_H
#define SLUICE_CPU_X86_DOT_AVX512BW_H

#include "cpu/x86/simd_avx512.h"

SIMD_INLINE struct vi vi_madd(struct vi x, struct vi p, struct vi q) { return vi_add32(x, vi_mul_words(p, q)); }

SIMD_INLINE struct vi vi_dot4(struct vi x, struct vi u, struct vi s)
{
    return vi_madd(x, vi_dot2(u, s), (struct vi){_mm512_set1_epi16(1)});
}

SIMD_INLINE struct vi vi_dot8(struct vi u0, struct vi s0, struct vi u1, struct vi s1)
{
    __m512i pairs = _mm512_add_epi16(vi_dot2(u0, s0).v, vi_dot2(u1, s1).v);
    return (struct vi){_mm512_madd_epi16(pairs, _mm512_set1_epi16(1))};
}

SIMD_INLINE struct vi vi_dot8_offset(struct vi u0, struct vi s0, struct vi u1, struct vi s1, int8_t c)
{
    struct vi all = vi_set1_8(c);
    __m512i raised = _mm512_add_epi16(vi_dot2(u0, s0).v, vi_dot2(u1, s1).v);
    __m512i by_offset = _mm512_add_epi16(vi_dot2(all, s0).v, vi_dot2(all, s1).v);
    return (struct vi){_mm512_madd_epi16(_mm512_sub_epi16(raised, by_offset), _mm512_set1_epi16(1))};
}

#endif
