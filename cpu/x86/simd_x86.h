/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the short vectors (4 floats, 16 bytes) that AVX2 and AVX-512 kernels share, and unaligned scalar loads.
 * Must not know: weight formats. Included only by the per-ISA headers; needs the flags of its library. */
#ifndef SLUICE_CPU_X86_SIMD_X86_H
#define SLUICE_CPU_X86_SIMD_X86_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Templates rely on literal arguments being folded, also where the compiler finds a function large. */
#define SIMD_INLINE static inline __attribute__((always_inline))
/* Before loops of literal length, at most 8: what they index must end up in registers. */
#define SIMD_UNROLL _Pragma("GCC unroll 8")

struct v4 {
    __m128 v;
};
struct b16 {
    __m128i v;
};

SIMD_INLINE uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

SIMD_INLINE uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

SIMD_INLINE uint64_t load_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

/* Asks for the lines of `bytes` bytes from p on; p need not be mapped. */
SIMD_INLINE void prefetch(const uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
        _mm_prefetch((const char *)p + i, _MM_HINT_T0);
    }
}

SIMD_INLINE float half_bits_float(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
SIMD_INLINE float half_float(const uint8_t *p) { return half_bits_float(load_u16(p)); }

/* 2^(e-128), also where that is subnormal. */
SIMD_INLINE float e8m0_float(uint8_t e)
{
    uint32_t bits = e < 2 ? UINT32_C(0x00200000) << e : (uint32_t)(e - 1) << 23;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

SIMD_INLINE struct v4 v4_load(const float *p) { return (struct v4){_mm_loadu_ps(p)}; }
SIMD_INLINE void v4_store(float *p, struct v4 a) { _mm_storeu_ps(p, a.v); }
SIMD_INLINE struct v4 v4_set1(float x) { return (struct v4){_mm_set1_ps(x)}; }
SIMD_INLINE struct v4 v4_add(struct v4 a, struct v4 b) { return (struct v4){_mm_add_ps(a.v, b.v)}; }
SIMD_INLINE struct v4 v4_mul(struct v4 a, struct v4 b) { return (struct v4){_mm_mul_ps(a.v, b.v)}; }

/* The sums of four times eight lanes: l += l+4, l += l+2, l += l+1. */
SIMD_INLINE struct v4 v4_sums(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
    __m256 pairs = _mm256_add_ps(_mm256_unpacklo_ps(ab, cd), _mm256_unpackhi_ps(ab, cd));
    __m128 ac = _mm256_castps256_ps128(pairs), bd = _mm256_extractf128_ps(pairs, 1);
    return (struct v4){_mm_add_ps(_mm_unpacklo_ps(ac, bd), _mm_unpackhi_ps(ac, bd))};
}

/* Four half floats that lie `stride` bytes apart. */
SIMD_INLINE struct v4 v4_halves(const uint8_t *p, size_t stride)
{
    __m128i h = _mm_cvtsi32_si128(load_u16(p));
    h = _mm_insert_epi16(h, load_u16(p + stride), 1);
    h = _mm_insert_epi16(h, load_u16(p + 2 * stride), 2);
    h = _mm_insert_epi16(h, load_u16(p + 3 * stride), 3);
    return (struct v4){_mm_cvtph_ps(h)};
}

/* Four E8M0 exponents that lie `stride` bytes apart: 2^(e-128) each. */
SIMD_INLINE struct v4 v4_e8m0(const uint8_t *p, size_t stride)
{
    __m128i e = _mm_setr_epi32(p[0], p[stride], p[2 * stride], p[3 * stride]);
    __m128i normal = _mm_slli_epi32(_mm_sub_epi32(e, _mm_set1_epi32(1)), 23);
    __m128i subnormal = _mm_sllv_epi32(_mm_set1_epi32(0x00200000), e);
    __m128i is_normal = _mm_cmpgt_epi32(e, _mm_set1_epi32(1));
    return (struct v4){_mm_castsi128_ps(_mm_blendv_epi8(subnormal, normal, is_normal))};
}

SIMD_INLINE struct b16 b16_load(const uint8_t *p) { return (struct b16){_mm_loadu_si128((const __m128i *)p)}; }

SIMD_INLINE struct b16 b16_make(uint64_t low, uint64_t high)
{
    return (struct b16){_mm_set_epi64x((long long)high, (long long)low)};
}

/* Each of the 8 bytes twice. */
SIMD_INLINE struct b16 b16_double(uint64_t x)
{
    __m128i v = _mm_cvtsi64_si128((long long)x);
    return (struct b16){_mm_unpacklo_epi8(v, v)};
}

/* Byte i of the result is byte order[i] of b. */
SIMD_INLINE struct b16 b16_permute(struct b16 b, const uint8_t order[16])
{
    return (struct b16){_mm_shuffle_epi8(b.v, _mm_loadu_si128((const __m128i *)order))};
}

SIMD_INLINE struct b16 b16_and(struct b16 b, uint8_t mask)
{
    return (struct b16){_mm_and_si128(b.v, _mm_set1_epi8((char)mask))};
}

SIMD_INLINE struct b16 b16_high_nibbles(struct b16 b)
{
    return b16_and((struct b16){_mm_srli_epi16(b.v, 4)}, 15);
}

SIMD_INLINE struct b16 b16_or(struct b16 b, uint8_t bits)
{
    return (struct b16){_mm_or_si128(b.v, _mm_set1_epi8((char)bits))};
}

SIMD_INLINE struct b16 b16_add(struct b16 a, struct b16 b) { return (struct b16){_mm_add_epi8(a.v, b.v)}; }

/* Even bytes of a, odd bytes of b. */
SIMD_INLINE struct b16 b16_choose(struct b16 a, struct b16 b)
{
    return (struct b16){_mm_blendv_epi8(a.v, b.v, _mm_set1_epi16((short)0xff00))};
}

SIMD_INLINE struct b16 b16_sub(struct b16 b, int8_t c) { return (struct b16){_mm_sub_epi8(b.v, _mm_set1_epi8(c))}; }

#endif
