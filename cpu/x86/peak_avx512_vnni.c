/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: multiplying int8 at full speed with AVX-512 VNNI. Must not know: other instruction sets. */
#include <immintrin.h>

#include "cpu/x86/peak_tmpl.h"

#define PEAK_STEP_INT8(k) PEAK_HIDE(a); s##k = _mm512_dpbusd_epi32(s##k, a, a);

PEAK_FUNCTION(int8_avx512_vnni, __m512i, _mm512_setzero_si512(), __m512i, _mm512_set1_epi8(3), INT8, 2 * 64)

void peak_init_avx512_vnni(struct cpu_peak *p)
{
    p->compute[PEAK_INT8] = int8_avx512_vnni;
    p->name[PEAK_INT8] = "avx512-vnni";
}
