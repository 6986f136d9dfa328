/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a plain C version of the AVX-VNNI intrinsic that cpu/x86 uses, as emulate_avx512.h has those of AVX-512. */
#ifndef SLUICE_TESTS_KERNEL_EMULATE_AVX_VNNI_H
#define SLUICE_TESTS_KERNEL_EMULATE_AVX_VNNI_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

static inline __m256i emulated_dpbusd_avx_epi32(__m256i c, __m256i a, __m256i b)
{
    uint32_t sum[8];
    uint8_t u[32];
    int8_t s[32];
    memcpy(sum, &c, sizeof(sum));
    memcpy(u, &a, sizeof(u));
    memcpy(s, &b, sizeof(s));
    for (int i = 0; i < 32; i++) {
        sum[i / 4] += (uint32_t)(u[i] * s[i]);
    }
    memcpy(&c, sum, sizeof(sum));
    return c;
}

#undef _mm256_dpbusd_avx_epi32
#define _mm256_dpbusd_avx_epi32 emulated_dpbusd_avx_epi32

#endif
