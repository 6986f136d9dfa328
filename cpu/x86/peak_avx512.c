/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading and multiplying at full speed with AVX-512. Must not know: other instruction sets. */
#include <immintrin.h>

#include "cpu/x86/peak_tmpl.h"

static void read_avx512(const void *data, size_t bytes, uint32_t streams)
{
    size_t part = bytes / streams;
    __m512i sum[4] = {_mm512_setzero_si512()};
    for (size_t i = 0; i < part; i += PEAK_READ_STEP) {
        for (uint32_t s = 0; s < streams; s++) {
            const char *at = (const char *)data + s * part + i;
            for (int k = 0; k < 4; k++) {
                sum[k] = _mm512_xor_si512(sum[k], _mm512_loadu_si512(at + 64 * k));
            }
        }
    }
    for (int k = 0; k < 4; k++) {
        __asm__ volatile("" : : "v"(sum[k]));
    }
}

#define PEAK_STEP_FMA(k) PEAK_HIDE(a); s##k = _mm512_fmadd_ps(a, a, s##k);
#define PEAK_STEP_INT8(k) PEAK_HIDE(a); s##k = _mm512_add_epi32(s##k, _mm512_madd_epi16(_mm512_maddubs_epi16(a, a), _mm512_set1_epi16(1)));

PEAK_FUNCTION(fma_avx512, __m512, _mm512_setzero_ps(), __m512, _mm512_set1_ps(0.5f), FMA, 2 * 16)
PEAK_FUNCTION(int8_avx512, __m512i, _mm512_setzero_si512(), __m512i, _mm512_set1_epi8(3), INT8, 2 * 64)

void peak_init_avx512(struct cpu_peak *p)
{
    p->read = read_avx512;
    p->compute[PEAK_FMA] = fma_avx512;
    p->compute[PEAK_INT8] = int8_avx512;
    p->name[PEAK_FMA] = p->name[PEAK_INT8] = "avx512";
}
