/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what bulk_bf16_tmpl.h needs on every x86 processor with bfloat16: AVX-512 with BF16. Must not know: weight formats. */
#ifndef SLUICE_CPU_X86_BULK_AVX512_BF16_H
#define SLUICE_CPU_X86_BULK_AVX512_BF16_H

#include "cpu/x86/dot_avx512bw.h"

#include "cpu/x86/bulk_avx512.h"

/* Nearest, ties to even; denormals become zeros. The intrinsics' type of bfloat16 is none for arithmetic. */
SIMD_INLINE struct vi bf16_round(struct vf low, struct vf high)
{
    __m512bh rounded = _mm512_cvtne2ps_pbh(high.v, low.v);
    struct vi r;
    memcpy(&r, &rounded, sizeof(r));
    return r;
}

#endif
