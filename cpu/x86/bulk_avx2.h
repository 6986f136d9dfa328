/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the bulk templates need beyond simd_avx2.h, on AVX2. Must not know: weight formats. */
#ifndef SLUICE_CPU_X86_BULK_AVX2_H
#define SLUICE_CPU_X86_BULK_AVX2_H

#include "cpu/bulk_kind.h"
#include "cpu/x86/simd_avx2.h"

enum {
    BULK_ROWS = 4,     /* activation rows that share a load of integer codes */
    BULK_F32_ROWS = 6, /* and of floats */
};

/* Four bytes, or two words, to all lanes. */
SIMD_INLINE struct vi bulk_broadcast(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof(v));
    return vi_set1_32(v);
}

/* ---- products: a part is 32 words, each the sum of two products per line ---- */

/* Signed codes w with m = all ones where w < 0: |w| * (a ^ m) = w*a, less |w| where w < 0. That part of the sum does not
 * depend on a and is what it starts from. One operation of any unit, where a sign instruction takes a multiplier. */
struct bulk_code {
    struct vi size, mask;
};

SIMD_INLINE struct bulk_kind bulk_kind_here(struct bulk_kind kind) { return kind; }

SIMD_INLINE struct bulk_code bulk_code(struct vi w, bool is_signed)
{
    __m256i zero = _mm256_setzero_si256();
    if (!is_signed) {
        return (struct bulk_code){w, vi_zero()};
    }
    return (struct bulk_code){vi_abs8(w), {_mm256_cmpgt_epi8(zero, w.a), _mm256_cmpgt_epi8(zero, w.b)}};
}

/* Without it compilers collect all products before they add them up, in memory: half the speed. */
SIMD_INLINE struct vi bulk_ready(struct vi x)
{
    __asm__("" : "+x"(x.a), "+x"(x.b));
    return x;
}

SIMD_INLINE struct vi bulk_dot(struct vi part, struct bulk_code w, struct vi a, bool is_signed)
{
    struct vi p = vi_dot2(w.size, is_signed ? vi_xor(a, w.mask) : a);
    return bulk_ready((struct vi){_mm256_add_epi16(part.a, p.a), _mm256_add_epi16(part.b, p.b)});
}

/* A scale is a word, twice. */
SIMD_INLINE struct vi bulk_widen(struct vi total, struct vi part, struct vi scale)
{
    return bulk_ready(vi_madd(total, part, scale));
}

SIMD_INLINE struct vi bulk_unit_scale(void) { return (struct vi){_mm256_set1_epi16(1), _mm256_set1_epi16(1)}; }

/* Sums of two neighbours of 16 words, number i at bulk_pair_at(i). */
SIMD_INLINE uint32_t bulk_pair_at(uint32_t i) { return i < 4 ? i : i + 4; }

SIMD_INLINE void bulk_pair_sums(const int16_t *p, int16_t sums[16])
{
    __m256i pairs = _mm256_madd_epi16(_mm256_loadu_si256((const __m256i *)p), _mm256_set1_epi16(1));
    _mm256_storeu_si256((__m256i *)sums, _mm256_packs_epi32(pairs, pairs));
}

/* ---- unpacking ---- */

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

/* Signed byte j of each lane as a scale. */
SIMD_INLINE struct vi bulk_scale(struct vi x, int j) { return vi_byte_pair(x, j, j); }

/* Signed codes stay as they are. */
SIMD_INLINE void bulk_store_signed(uint8_t line[64], struct vi w) { vi_store(line, w); }

SIMD_INLINE void bulk_resign(uint8_t (*line)[64], uint32_t lines)
{
    (void)line;
    (void)lines;
}

/* Completes block b of signed codes: from its codes and scales, where the sum starts. */
SIMD_INLINE void bulk_finish_signed(struct bulk_kind kind, uint32_t b, struct bulk_panel *p)
{
    const uint32_t lines = kind.group / 4, groups = kind.block / kind.group;
    struct vi less = vi_zero();
    for (uint32_t g = b * groups; g < (b + 1) * groups; g++) {
        struct vi part = vi_zero();
        SIMD_UNROLL
        for (uint32_t l = 0; l < lines; l++) {
            struct bulk_code w = bulk_code(vi_load(p->code[lines * g + l]), true);
            part = bulk_dot(part, w, vi_zero(), true); /* 0 ^ m = -1 where w < 0 */
        }
        less = bulk_widen(less, part, kind.block == 32 ? bulk_unit_scale() : vi_load(p->scale[g]));
    }
    vi_store(p->start[b], vi_sub32(vi_zero(), less));
}

#endif
