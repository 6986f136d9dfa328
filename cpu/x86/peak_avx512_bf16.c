/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: multiplying bfloat16 at full speed with AVX-512. Must not know: other instruction sets. */
#include <immintrin.h>

#include "cpu/x86/peak_tmpl.h"

#define PEAK_STEP_BF16(k) PEAK_HIDE(a); s##k = _mm512_dpbf16_ps(s##k, (__m512bh)a, (__m512bh)a);

PEAK_FUNCTION(bf16_avx512, __m512, _mm512_setzero_ps(), __m512i, _mm512_set1_epi16(0x3f00), BF16, 2 * 32)

void peak_init_avx512_bf16(struct cpu_peak *p)
{
    p->compute[PEAK_BF16] = bf16_avx512;
    p->name[PEAK_BF16] = "avx512-bf16";
}
