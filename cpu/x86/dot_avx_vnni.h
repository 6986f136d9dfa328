/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the integer dot products of dot_avx2.h with AVX-VNNI. Must not know: weight formats. */
#ifndef SLUICE_CPU_X86_DOT_AVX_VNNI_H
#define SLUICE_CPU_X86_DOT_AVX_VNNI_H

#include "cpu/x86/simd_avx2.h"

SIMD_INLINE struct vi vi_dot4(struct vi x, struct vi u, struct vi s)
{
    return (struct vi){_mm256_dpbusd_avx_epi32(x.a, u.a, s.a), _mm256_dpbusd_avx_epi32(x.b, u.b, s.b)};
}

SIMD_INLINE struct vi vi_dot8(struct vi u0, struct vi s0, struct vi u1, struct vi s1)
{
    return vi_dot4(vi_dot4(vi_zero(), u0, s0), u1, s1);
}

SIMD_INLINE struct vi vi_dot8_offset(struct vi u0, struct vi s0, struct vi u1, struct vi s1, int8_t c)
{
    struct vi all = vi_set1_8(c);
    return vi_sub32(vi_dot8(u0, s0, u1, s1), vi_dot8(all, s0, all, s1));
}

#endif
