/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the bulk templates need beyond simd_avx2.h, on AVX2. Must not know: weight formats. */
#ifndef SLUICE_CPU_X86_BULK_AVX2_H
#define SLUICE_CPU_X86_BULK_AVX2_H

#include "cpu/x86/simd_avx2.h"

#include "cpu/x86/bulk_x86_tmpl.h"

enum {
    BULK_ROWS = 4,     /* activation rows that share a load of integer codes */
    BULK_F32_ROWS = 6, /* and of floats */
};

#define BULK_EACH_ROWS(X, name) X(name, 1) X(name, 2) X(name, 3) X(name, 4)
#define BULK_EACH_F32_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)

SIMD_INLINE struct vi vi_add16(struct vi x, struct vi y)
{
    return (struct vi){_mm256_add_epi16(x.a, y.a), _mm256_add_epi16(x.b, y.b)};
}

/* All ones in bytes below 0. */
SIMD_INLINE struct vi vi_negative8(struct vi x)
{
    __m256i zero = _mm256_setzero_si256();
    return (struct vi){_mm256_cmpgt_epi8(zero, x.a), _mm256_cmpgt_epi8(zero, x.b)};
}

/* Without it compilers collect all products before they add them up, in memory: half the speed. */
SIMD_INLINE struct vi vi_ready(struct vi x)
{
    __asm__("" : "+x"(x.a), "+x"(x.b));
    return x;
}

SIMD_INLINE struct vi vi_zip32_low(struct vi x, struct vi y)
{
    return (struct vi){_mm256_unpacklo_epi32(x.a, y.a), _mm256_unpacklo_epi32(x.b, y.b)};
}

SIMD_INLINE struct vi vi_zip32_high(struct vi x, struct vi y)
{
    return (struct vi){_mm256_unpackhi_epi32(x.a, y.a), _mm256_unpackhi_epi32(x.b, y.b)};
}

SIMD_INLINE struct vi vi_zip64_low(struct vi x, struct vi y)
{
    return (struct vi){_mm256_unpacklo_epi64(x.a, y.a), _mm256_unpacklo_epi64(x.b, y.b)};
}

SIMD_INLINE struct vi vi_zip64_high(struct vi x, struct vi y)
{
    return (struct vi){_mm256_unpackhi_epi64(x.a, y.a), _mm256_unpackhi_epi64(x.b, y.b)};
}

/* Signed bytes i and j of each lane as its two words. */
SIMD_INLINE struct vi vi_byte_pair(struct vi x, int i, int j)
{
    __m256i lane = _mm256_setr_epi32(0, 0x04000400, 0x08000800, 0x0c000c00, 0, 0x04000400, 0x08000800, 0x0c000c00);
    __m256i order = _mm256_add_epi8(lane, _mm256_set1_epi32((int)(0x00800080u | (unsigned)i << 8 | (unsigned)j << 24)));
    return (struct vi){_mm256_srai_epi16(_mm256_shuffle_epi8(x.a, order), 8),
                       _mm256_srai_epi16(_mm256_shuffle_epi8(x.b, order), 8)};
}

/* Arithmetic word shift by a literal. */
SIMD_INLINE struct vi vi_sar16(struct vi x, int n)
{
    return (struct vi){_mm256_srai_epi16(x.a, n), _mm256_srai_epi16(x.b, n)};
}

/* All ones in words that are equal. */
SIMD_INLINE struct vi vi_equal16(struct vi x, struct vi y)
{
    return (struct vi){_mm256_cmpeq_epi16(x.a, y.a), _mm256_cmpeq_epi16(x.b, y.b)};
}

/* The low and the high word of each lane as half floats. */
SIMD_INLINE void vf_from_half_pairs(struct vi x, struct vf *ret_low, struct vf *ret_high)
{
    __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    __m256i a = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(x.a, order), 0xd8);
    __m256i b = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(x.b, order), 0xd8);
    *ret_low = (struct vf){_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_castsi256_si128(b))};
    *ret_high = (struct vf){_mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)), _mm256_cvtph_ps(_mm256_extracti128_si256(b, 1))};
}

#include "cpu/x86/bulk_words_tmpl.h"

#endif
