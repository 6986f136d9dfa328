/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading and multiplying at full speed with AVX2. Must not know: other instruction sets. */
#include <immintrin.h>

#include "cpu/x86/peak_tmpl.h"

static void read_avx2(const void *data, size_t bytes, uint32_t streams)
{
    size_t part = bytes / streams;
    __m256i sum[8] = {_mm256_setzero_si256()};
    for (size_t i = 0; i < part; i += PEAK_READ_STEP) {
        for (uint32_t s = 0; s < streams; s++) {
            const __m256i *at = (const __m256i *)((const char *)data + s * part + i);
            for (int k = 0; k < 8; k++) {
                sum[k] = _mm256_xor_si256(sum[k], _mm256_loadu_si256(at + k));
            }
        }
    }
    for (int k = 0; k < 8; k++) {
        __asm__ volatile("" : : "x"(sum[k]));
    }
}

#define PEAK_STEP_FMA(k) PEAK_HIDE(a); s##k = _mm256_fmadd_ps(a, a, s##k);
#define PEAK_STEP_INT8(k) PEAK_HIDE(a); s##k = _mm256_add_epi32(s##k, _mm256_madd_epi16(_mm256_maddubs_epi16(a, a), _mm256_set1_epi16(1)));

PEAK_FUNCTION(fma_avx2, __m256, _mm256_setzero_ps(), __m256, _mm256_set1_ps(0.5f), FMA, 2 * 8)
PEAK_FUNCTION(int8_avx2, __m256i, _mm256_setzero_si256(), __m256i, _mm256_set1_epi8(3), INT8, 2 * 32)

void peak_init_avx2(struct cpu_peak *p)
{
    p->read = read_avx2;
    p->compute[PEAK_FMA] = fma_avx2;
    p->compute[PEAK_INT8] = int8_avx2;
    p->name[PEAK_FMA] = p->name[PEAK_INT8] = "avx2";
}
