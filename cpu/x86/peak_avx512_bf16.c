/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: multiplying bfloat16 at full speed with AVX-512. Must not know: other instruction sets. */
#include <immintrin.h>

#include "cpu/x86/peak.h"

enum { SUMS = 16 }; /* latency times units, with room to spare in 32 registers */

static double bf16_avx512(uint64_t rounds)
{
    __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f));
    __m512 sum[SUMS];
    for (int k = 0; k < SUMS; k++) {
        sum[k] = _mm512_setzero_ps();
    }
    for (uint64_t i = 0; i < rounds; i++) {
        for (int k = 0; k < SUMS; k++) {
            sum[k] = _mm512_dpbf16_ps(sum[k], a, a);
        }
    }
    for (int k = 0; k < SUMS; k++) {
        __asm__ volatile("" : : "v"(sum[k]));
    }
    return 2.0 * 32 * SUMS * (double)rounds;
}

void peak_init_avx512_bf16(struct cpu_peak *p)
{
    p->compute[PEAK_BF16] = bf16_avx512;
    p->name[PEAK_BF16] = "avx512-bf16";
}
