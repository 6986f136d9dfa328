/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: multiplying int8 at full speed with AVX-512 VNNI. Must not know: other instruction sets. */
#include <immintrin.h>

#include "cpu/x86/peak.h"

enum { SUMS = 16 }; /* latency times units, with room to spare in 32 registers */

static double int8_avx512_vnni(uint64_t rounds)
{
    __m512i a = _mm512_set1_epi8(3), sum[SUMS];
    for (int k = 0; k < SUMS; k++) {
        sum[k] = _mm512_setzero_si512();
    }
    for (uint64_t i = 0; i < rounds; i++) {
        for (int k = 0; k < SUMS; k++) {
            sum[k] = _mm512_dpbusd_epi32(sum[k], a, a);
        }
    }
    for (int k = 0; k < SUMS; k++) {
        __asm__ volatile("" : : "v"(sum[k]));
    }
    return 2.0 * 64 * SUMS * (double)rounds;
}

void peak_init_avx512_vnni(struct cpu_peak *p)
{
    p->compute[PEAK_INT8] = int8_avx512_vnni;
    p->name[PEAK_INT8] = "avx512-vnni";
}
