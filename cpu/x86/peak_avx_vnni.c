/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: multiplying int8 at full speed with AVX-VNNI (256 bits). Must not know: other instruction sets. */
#include <immintrin.h>

#include "cpu/x86/peak_tmpl.h"

#define PEAK_STEP_INT8(k) PEAK_HIDE(a); s##k = _mm256_dpbusd_avx_epi32(s##k, a, a);

PEAK_FUNCTION(int8_avx_vnni, __m256i, _mm256_setzero_si256(), __m256i, _mm256_set1_epi8(3), INT8, 2 * 32)

void peak_init_avx_vnni(struct cpu_peak *p)
{
    p->compute[PEAK_INT8] = int8_avx_vnni;
    p->name[PEAK_INT8] = "avx-vnni";
}
