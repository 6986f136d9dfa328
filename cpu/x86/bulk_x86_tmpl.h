/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the bulk templates need on every x86 instruction set from AVX2 on. Included by bulk_<isa>.h after its
 * simd_<isa>.h. Must not know: weight formats. */
#ifndef SLUICE_CPU_X86_BULK_X86_TMPL_H
#define SLUICE_CPU_X86_BULK_X86_TMPL_H

#include <stdbool.h>

#include "cpu/bulk_kind.h"

/* Four bytes, or two words, to all lanes. */
SIMD_INLINE struct vi bulk_broadcast(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof(v));
    return vi_set1_32(v);
}

/* Sums of two neighbours of 16 words, number i at bulk_pair_at(i). */
SIMD_INLINE uint32_t bulk_pair_at(uint32_t i) { return i < 4 ? i : i + 4; }

SIMD_INLINE void bulk_pair_sums(const int16_t *p, int16_t sums[16])
{
    __m256i pairs = _mm256_madd_epi16(_mm256_loadu_si256((const __m256i *)p), _mm256_set1_epi16(1));
    _mm256_storeu_si256((__m256i *)sums, _mm256_packs_epi32(pairs, pairs));
}

#endif
