/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading and multiplying at full speed with AVX-512. An empty asm makes a register's value unknown, so that products
 * neither leave the loop nor are shared. Must not know: other instruction sets. */
#include <immintrin.h>

#include "cpu/x86/peak.h"

enum { SUMS = 12, INT8_SUMS = 4 }; /* latency times units, with room to spare in 32 registers */

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

static double fma_avx512(uint64_t rounds)
{
    __m512 a = _mm512_set1_ps(0.5f), sum[SUMS];
    for (int k = 0; k < SUMS; k++) {
        sum[k] = _mm512_setzero_ps();
    }
    for (uint64_t i = 0; i < rounds; i++) {
        for (int k = 0; k < SUMS; k++) {
            __asm__ volatile("" : "+v"(a));
            sum[k] = _mm512_fmadd_ps(a, a, sum[k]);
        }
    }
    for (int k = 0; k < SUMS; k++) {
        __asm__ volatile("" : : "v"(sum[k]));
    }
    return 2.0 * 16 * SUMS * (double)rounds;
}

static double int8_avx512(uint64_t rounds)
{
    const __m512i ones = _mm512_set1_epi16(1);
    __m512i a = _mm512_set1_epi8(3), sum[INT8_SUMS];
    for (int k = 0; k < INT8_SUMS; k++) {
        sum[k] = _mm512_setzero_si512();
    }
    for (uint64_t i = 0; i < rounds; i++) {
        for (int k = 0; k < INT8_SUMS; k++) {
            __asm__ volatile("" : "+v"(a));
            sum[k] = _mm512_add_epi32(sum[k], _mm512_madd_epi16(_mm512_maddubs_epi16(a, a), ones));
        }
    }
    for (int k = 0; k < INT8_SUMS; k++) {
        __asm__ volatile("" : : "v"(sum[k]));
    }
    return 2.0 * 64 * INT8_SUMS * (double)rounds;
}

void peak_init_avx512(struct cpu_peak *p)
{
    p->read = read_avx512;
    p->compute[PEAK_FMA] = fma_avx512;
    p->compute[PEAK_INT8] = int8_avx512;
    p->name[PEAK_FMA] = p->name[PEAK_INT8] = "avx512";
}
