/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: multiplying int8 at full speed with AVX-VNNI (256 bits). Must not know: other instruction sets. */
#include <immintrin.h>

#include "cpu/x86/peak.h"

enum { SUMS = 12 }; /* latency times units, within 16 registers */

static double int8_avx_vnni(uint64_t rounds)
{
    __m256i a = _mm256_set1_epi8(3), sum[SUMS];
    for (int k = 0; k < SUMS; k++) {
        sum[k] = _mm256_setzero_si256();
    }
    for (uint64_t i = 0; i < rounds; i++) {
        for (int k = 0; k < SUMS; k++) {
            sum[k] = _mm256_dpbusd_avx_epi32(sum[k], a, a);
        }
    }
    for (int k = 0; k < SUMS; k++) {
        __asm__ volatile("" : : "x"(sum[k]));
    }
    return 2.0 * 32 * SUMS * (double)rounds;
}

void peak_init_avx_vnni(struct cpu_peak *p)
{
    p->compute[PEAK_INT8] = int8_avx_vnni;
    p->name[PEAK_INT8] = "avx-vnni";
}
