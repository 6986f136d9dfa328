/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading and multiplying at full speed with AVX2. An empty asm makes a register's value unknown, so that products
 * neither leave the loop nor are shared. Must not know: other instruction sets. */
#include <immintrin.h>

#include "cpu/x86/peak.h"

enum { SUMS = 10, INT8_SUMS = 4 }; /* latency times units, with room to spare in 16 registers */

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

static double fma_avx2(uint64_t rounds)
{
    __m256 a = _mm256_set1_ps(0.5f), sum[SUMS];
    for (int k = 0; k < SUMS; k++) {
        sum[k] = _mm256_setzero_ps();
    }
    for (uint64_t i = 0; i < rounds; i++) {
        for (int k = 0; k < SUMS; k++) {
            __asm__ volatile("" : "+x"(a));
            sum[k] = _mm256_fmadd_ps(a, a, sum[k]);
        }
    }
    for (int k = 0; k < SUMS; k++) {
        __asm__ volatile("" : : "x"(sum[k]));
    }
    return 2.0 * 8 * SUMS * (double)rounds;
}

static double int8_avx2(uint64_t rounds)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i a = _mm256_set1_epi8(3), sum[INT8_SUMS];
    for (int k = 0; k < INT8_SUMS; k++) {
        sum[k] = _mm256_setzero_si256();
    }
    for (uint64_t i = 0; i < rounds; i++) {
        for (int k = 0; k < INT8_SUMS; k++) {
            __asm__ volatile("" : "+x"(a));
            sum[k] = _mm256_add_epi32(sum[k], _mm256_madd_epi16(_mm256_maddubs_epi16(a, a), ones));
        }
    }
    for (int k = 0; k < INT8_SUMS; k++) {
        __asm__ volatile("" : : "x"(sum[k]));
    }
    return 2.0 * 32 * INT8_SUMS * (double)rounds;
}

void peak_init_avx2(struct cpu_peak *p)
{
    p->read = read_avx2;
    p->compute[PEAK_FMA] = fma_avx2;
    p->compute[PEAK_INT8] = int8_avx2;
    p->name[PEAK_FMA] = p->name[PEAK_INT8] = "avx2";
}
