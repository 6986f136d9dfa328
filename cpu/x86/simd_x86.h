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
/* Before loops of literal length, at most 16: what they index must end up in registers. */
#define SIMD_UNROLL _Pragma("GCC unroll 16")

/* Whether n is one of the literal row numbers for which a kernel is made of its own. */
#define SIMD_LITERAL(n) __builtin_constant_p(n)
/* From here on x lies in memory: loops over rows load it from there instead of spilling more than there are registers. */
#define SIMD_IN_MEMORY(x) __asm__("" : "+m"(x))

/* What comes before is not mixed with what follows: rows interleaved by the compiler need more registers than there are,
 * and the processor overlaps them anyway. */
#define SIMD_ONE_BY_ONE() __asm__ volatile("" : : : "memory")

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

/* Not by way of a general register, which takes longer. */
SIMD_INLINE float half_float(const uint8_t *p)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_set1_epi16((short)load_u16(p))));
}

#define E8M0_BITS(e) ((e) < 2 ? UINT32_C(0x00200000) << (e) : (uint32_t)((e) - 1) << 23)
#define E8M0_BITS_4(e) E8M0_BITS(e), E8M0_BITS((e) + 1), E8M0_BITS((e) + 2), E8M0_BITS((e) + 3)
#define E8M0_BITS_16(e) E8M0_BITS_4(e), E8M0_BITS_4((e) + 4), E8M0_BITS_4((e) + 8), E8M0_BITS_4((e) + 12)
#define E8M0_BITS_64(e) E8M0_BITS_16(e), E8M0_BITS_16((e) + 16), E8M0_BITS_16((e) + 32), E8M0_BITS_16((e) + 48)

/* 2^(e-128), also where that is subnormal: looked up, since a number in memory fills a vector without a shuffle. */
SIMD_INLINE float e8m0_float(uint8_t e)
{
    static const uint32_t bits[256] = {E8M0_BITS_64(0), E8M0_BITS_64(64), E8M0_BITS_64(128), E8M0_BITS_64(192)};
    float f;
    memcpy(&f, &bits[e], sizeof(f));
    return f;
}

SIMD_INLINE struct v4 v4_load(const float *p) { return (struct v4){_mm_loadu_ps(p)}; }
SIMD_INLINE void v4_store(float *p, struct v4 a) { _mm_storeu_ps(p, a.v); }
SIMD_INLINE struct v4 v4_add(struct v4 a, struct v4 b) { return (struct v4){_mm_add_ps(a.v, b.v)}; }
SIMD_INLINE struct v4 v4_set1(float x) { return (struct v4){_mm_set1_ps(x)}; }
SIMD_INLINE struct v4 v4_mul(struct v4 a, struct v4 b) { return (struct v4){_mm_mul_ps(a.v, b.v)}; }

/* Four floats in memory: from there one of them fills a vector without a shuffle. */
struct cells {
    float f[4];
};

SIMD_INLINE struct cells cells_of(struct v4 x)
{
    struct cells c;
    _mm_storeu_ps(c.f, x.v);
    SIMD_IN_MEMORY(c);
    return c;
}

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

/* Four E8M0 exponents that lie `stride` bytes apart. */
SIMD_INLINE struct v4 v4_e8m0(const uint8_t *p, size_t stride)
{
    return (struct v4){_mm_setr_ps(e8m0_float(p[0]), e8m0_float(p[stride]), e8m0_float(p[2 * stride]),
                                   e8m0_float(p[3 * stride]))};
}

SIMD_INLINE struct b16 b16_load(const uint8_t *p) { return (struct b16){_mm_loadu_si128((const __m128i *)p)}; }

/* The lower 8 bytes from memory. */
SIMD_INLINE struct b16 b16_load_half(const uint8_t *p) { return (struct b16){_mm_loadl_epi64((const __m128i *)p)}; }

SIMD_INLINE __m256i join_128(__m128i low, __m128i high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* Entries i and j of a table of 8 bytes each. */
SIMD_INLINE __m128i two_rows(const uint64_t *table, uint32_t i, uint32_t j)
{
    __m128 low = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(table + i)));
    return _mm_castps_si128(_mm_loadh_pi(low, (const __m64 *)(table + j)));
}

/* Four entries of a table of 4 bytes each. */
SIMD_INLINE __m128i four_rows(const uint32_t *table, const uint32_t i[4])
{
    __m128i x = _mm_cvtsi32_si128((int)table[i[0]]);
    x = _mm_insert_epi32(x, (int)table[i[1]], 1);
    x = _mm_insert_epi32(x, (int)table[i[2]], 2);
    return _mm_insert_epi32(x, (int)table[i[3]], 3);
}

SIMD_INLINE struct b16 b16_make(uint64_t low, uint64_t high)
{
    return (struct b16){_mm_set_epi64x((long long)high, (long long)low)};
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

/* Each of the lower, of the higher 8 bytes twice. */
SIMD_INLINE struct b16 b16_double_low(struct b16 b) { return (struct b16){_mm_unpacklo_epi8(b.v, b.v)}; }
SIMD_INLINE struct b16 b16_double_high(struct b16 b) { return (struct b16){_mm_unpackhi_epi8(b.v, b.v)}; }

/* Sixteen numbers of 6 bits from the lower 12 bytes: those of bytes 0-3 and 4-7, as numbers 0-3 and 8-11, lie in the low
 * bits; 4-7 and 12-15 have their low nibbles in those of bytes 8-11 and their two high bits above the others. */
SIMD_INLINE struct b16 b16_six_bits(struct b16 b)
{
    const int all = 0x3f3f3f3f, low = 0x0f0f0f0f, high = 0x30303030;
    __m128i first = _mm_srlv_epi32(_mm_shuffle_epi32(b.v, 0x50), _mm_setr_epi32(0, 2, 0, 2));
    __m128i last = _mm_srlv_epi32(_mm_shuffle_epi32(b.v, 0xaa), _mm_setr_epi32(0, 0, 0, 4));
    return (struct b16){_mm_or_si128(_mm_and_si128(first, _mm_setr_epi32(all, high, all, high)),
                                     _mm_and_si128(last, _mm_setr_epi32(0, low, 0, low)))};
}

/* Even bytes of a, odd bytes of b. */
SIMD_INLINE struct b16 b16_choose(struct b16 a, struct b16 b)
{
    return (struct b16){_mm_blendv_epi8(a.v, b.v, _mm_set1_epi16((short)0xff00))};
}

SIMD_INLINE struct b16 b16_sub(struct b16 b, int8_t c) { return (struct b16){_mm_sub_epi8(b.v, _mm_set1_epi8(c))}; }

/* ---- eight dwords or sixteen words or 32 bytes, for what a block holds once ---- */

struct d8 {
    __m256i v;
};

SIMD_INLINE struct d8 d8_load(const void *p) { return (struct d8){_mm256_loadu_si256(p)}; }
SIMD_INLINE void d8_store(void *p, struct d8 x) { _mm256_storeu_si256(p, x.v); }
SIMD_INLINE struct d8 d8_set1(uint32_t x) { return (struct d8){_mm256_set1_epi32((int)x)}; }
SIMD_INLINE struct d8 d8_set1_words(int x) { return (struct d8){_mm256_set1_epi16((short)x)}; }
SIMD_INLINE struct d8 d8_from_s8(struct b16 b) { return (struct d8){_mm256_cvtepi8_epi16(b.v)}; }
SIMD_INLINE struct d8 d8_and(struct d8 a, struct d8 b) { return (struct d8){_mm256_and_si256(a.v, b.v)}; }
SIMD_INLINE struct d8 d8_or(struct d8 a, struct d8 b) { return (struct d8){_mm256_or_si256(a.v, b.v)}; }
SIMD_INLINE struct d8 d8_add(struct d8 a, struct d8 b) { return (struct d8){_mm256_add_epi32(a.v, b.v)}; }
SIMD_INLINE struct d8 d8_shl(struct d8 a, int n) { return (struct d8){_mm256_slli_epi32(a.v, n)}; }
SIMD_INLINE struct d8 d8_shr(struct d8 a, int n) { return (struct d8){_mm256_srli_epi32(a.v, n)}; }
SIMD_INLINE struct d8 d8_shr_words(struct d8 a, int n) { return (struct d8){_mm256_srli_epi16(a.v, n)}; }
/* Word products: their low and (unsigned) high halves. */
SIMD_INLINE struct d8 d8_mul_low(struct d8 a, struct d8 b) { return (struct d8){_mm256_mullo_epi16(a.v, b.v)}; }
SIMD_INLINE struct d8 d8_mul_high(struct d8 a, struct d8 b) { return (struct d8){_mm256_mulhi_epu16(a.v, b.v)}; }
/* Sums of 2 products of words. */
SIMD_INLINE struct d8 d8_madd(struct d8 a, struct d8 b) { return (struct d8){_mm256_madd_epi16(a.v, b.v)}; }
/* Bytes equal: all ones. */
SIMD_INLINE struct d8 d8_equal_bytes(struct d8 a, struct d8 b) { return (struct d8){_mm256_cmpeq_epi8(a.v, b.v)}; }

/* Eight words, zero-extended. */
SIMD_INLINE struct d8 d8_load_words(const void *p)
{
    return (struct d8){_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p))};
}

/* Sixteen bytes as words. */
SIMD_INLINE struct d8 d8_load_bytes(const void *p)
{
    return (struct d8){_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p))};
}

/* Eight nibbles. */
SIMD_INLINE struct d8 d8_nibbles(uint32_t x)
{
    __m256i n = _mm256_srlv_epi32(_mm256_set1_epi32((int)x), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    return (struct d8){_mm256_and_si256(n, _mm256_set1_epi32(15))};
}

/* The second dword of each pair of the 64 bytes at p. */
SIMD_INLINE struct d8 d8_load_seconds(const uint8_t *p)
{
    __m256 a = _mm256_loadu_ps((const void *)p), b = _mm256_loadu_ps((const void *)(p + 32));
    __m256i mixed = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd));
    return (struct d8){_mm256_permute4x64_epi64(mixed, 0xd8)};
}

/* Byte i is byte order[i] of the 16 at p, or 0 if order[i] has its top bit set. */
SIMD_INLINE struct d8 d8_spread(struct b16 x, const uint8_t order[32])
{
    return (struct d8){_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(x.v), d8_load(order).v)};
}

/* Sixteen words from 32: the low bytes of a, saturated, in order. */
SIMD_INLINE struct d8 d8_pack_words(struct d8 a, struct d8 b)
{
    return (struct d8){_mm256_permute4x64_epi64(_mm256_packus_epi16(a.v, b.v), 0xd8)};
}

/* Byte i of each half is byte order[i] of that half. */
SIMD_INLINE struct d8 d8_shuffle(struct d8 x, const uint8_t order[32])
{
    return (struct d8){_mm256_shuffle_epi8(x.v, d8_load(order).v)};
}

/* The 32 nibbles of 16 bytes, as bytes. */
SIMD_INLINE struct d8 b16_nibbles(struct b16 x)
{
    __m128i low = b16_and(x, 15).v, high = b16_high_nibbles(x).v;
    return (struct d8){join_128(_mm_unpacklo_epi8(low, high), _mm_unpackhi_epi8(low, high))};
}

/* 32 words to memory, of their low and high bytes. */
SIMD_INLINE void d8_store_words(uint16_t *p, struct d8 low, struct d8 high)
{
    __m256i even = _mm256_unpacklo_epi8(low.v, high.v), odd = _mm256_unpackhi_epi8(low.v, high.v);
    d8_store(p, (struct d8){_mm256_permute2x128_si256(even, odd, 0x20)});
    d8_store(p + 16, (struct d8){_mm256_permute2x128_si256(even, odd, 0x31)});
}

/* 7 bits in each byte; bit 7 becomes their parity. */
SIMD_INLINE struct d8 d8_add_parity(struct d8 x)
{
    const __m256i parity = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    __m256i mask = _mm256_set1_epi8(15);
    __m256i low = _mm256_shuffle_epi8(parity, _mm256_and_si256(x.v, mask));
    __m256i high = _mm256_shuffle_epi8(parity, _mm256_and_si256(_mm256_srli_epi16(x.v, 4), mask));
    return (struct d8){_mm256_or_si256(x.v, _mm256_xor_si256(low, high))};
}

/* ---- eight floats ---- */

struct f8 {
    __m256 v;
};

SIMD_INLINE struct f8 f8_set1(float x) { return (struct f8){_mm256_set1_ps(x)}; }
SIMD_INLINE struct f8 f8_mul(struct f8 a, struct f8 b) { return (struct f8){_mm256_mul_ps(a.v, b.v)}; }

/* Two half floats in turn. */
SIMD_INLINE struct f8 f8_two_halves(const uint8_t *p)
{
    return (struct f8){_mm256_cvtph_ps(_mm_castps_si128(_mm_broadcast_ss((const float *)(const void *)p)))};
}

#endif
