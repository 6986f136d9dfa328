/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the integer dot products of simd_avx2.h on AVX-512 with VNNI. Must not know: weight formats. */
#ifndef SLUICE_CPU_X86_DOT_AVX512VNNI_H
#define SLUICE_CPU_X86_DOT_AVX512VNNI_H

#include "cpu/x86/simd_avx512.h"

SIMD_INLINE struct vi vi_madd(struct vi x, struct vi p, struct vi q)
{
    return (struct vi){_mm512_dpwssd_epi32(x.v, p.v, q.v)};
}

SIMD_INLINE struct vi vi_dot4(struct vi x, struct vi u, struct vi s)
{
    return (struct vi){_mm512_dpbusd_epi32(x.v, u.v, s.v)};
}

SIMD_INLINE struct vi vi_dot8(struct vi u0, struct vi s0, struct vi u1, struct vi s1)
{
    return vi_dot4(vi_dot4(vi_zero(), u0, s0), u1, s1);
}

SIMD_INLINE struct vi vi_dot8_offset(struct vi u0, struct vi s0, struct vi u1, struct vi s1, int8_t c)
{
    struct vi all = vi_set1_8(c), raised = vi_dot8(u0, s0, u1, s1), by_offset = vi_dot8(all, s0, all, s1);
    return (struct vi){_mm512_sub_epi32(raised.v, by_offset.v)};
}

#endif
