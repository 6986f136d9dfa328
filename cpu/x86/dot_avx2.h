/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: integer dot products on AVX2. Must not know: weight formats. */
#ifndef SLUICE_CPU_X86_DOT_AVX2_H
#define SLUICE_CPU_X86_DOT_AVX2_H

#include "cpu/x86/simd_avx2.h"

/* x + sums of 4 products of unsigned u and signed s; two of them must fit int16. */
SIMD_INLINE struct vi vi_dot4(struct vi x, struct vi u, struct vi s)
{
    __m256i one = _mm256_set1_epi16(1);
    return vi_madd(x, vi_dot2(u, s), (struct vi){one, one});
}

/* Sums of 8 products: 4 of u0 and s0, 4 of u1 and s1; any 4 of them must fit int16. */
SIMD_INLINE struct vi vi_dot8(struct vi u0, struct vi s0, struct vi u1, struct vi s1)
{
    __m256i one = _mm256_set1_epi16(1);
    struct vi p = vi_dot2(u0, s0), q = vi_dot2(u1, s1);
    return (struct vi){_mm256_madd_epi16(_mm256_add_epi16(p.a, q.a), one),
                       _mm256_madd_epi16(_mm256_add_epi16(p.b, q.b), one)};
}

/* The same with u0 - c and u1 - c in place of u0 and u1. */
SIMD_INLINE struct vi vi_dot8_offset(struct vi u0, struct vi s0, struct vi u1, struct vi s1, int8_t c)
{
    __m256i one = _mm256_set1_epi16(1);
    struct vi all = vi_set1_8(c), p = vi_dot2(u0, s0), q = vi_dot2(u1, s1), o = vi_dot2(all, s0), t = vi_dot2(all, s1);
    __m256i a = _mm256_sub_epi16(_mm256_add_epi16(p.a, q.a), _mm256_add_epi16(o.a, t.a));
    __m256i b = _mm256_sub_epi16(_mm256_add_epi16(p.b, q.b), _mm256_add_epi16(o.b, t.b));
    return (struct vi){_mm256_madd_epi16(a, one), _mm256_madd_epi16(b, one)};
}

#endif
