/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: plain C versions of the AVX-512 intrinsics that cpu/x86 uses, written from Intel's descriptions, so that its
 * kernels are checked on machines without AVX-512. Forced before the sources of those kernels (-include); knows nothing
 * of sluice. It shows that the kernels are right given the intrinsics, not that a compiler encodes them rightly. */
#ifndef SLUICE_TESTS_KERNEL_EMULATE_AVX512_H
#define SLUICE_TESTS_KERNEL_EMULATE_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* One register, in all its views. */
struct emulated {
    union {
        float f[16];
        int8_t b[64];
        uint8_t ub[64];
        int16_t w[32];
        uint16_t uw[32];
        int32_t d[16];
        uint32_t ud[16];
        int64_t q[8];
        __m128i x[4];
        __m256i y[2];
    };
};

#define __m512 struct emulated
#define __m512i struct emulated

/* Not inline: the templates would grow beyond what compilers take in reasonable time. */
#define EMULATE static __attribute__((unused, noinline))

/* result.member[i] = expression of a, b, i */
#define EMULATE_1(name, count, member, expression)                                                                   \
    EMULATE struct emulated name(struct emulated a)                                                                  \
    {                                                                                                                \
        struct emulated r = a;                                                                                       \
        for (int i = 0; i < (count); i++) {                                                                          \
            r.member[i] = expression;                                                                                \
        }                                                                                                            \
        return r;                                                                                                    \
    }
#define EMULATE_2(name, count, member, expression)                                                                   \
    EMULATE struct emulated name(struct emulated a, struct emulated b)                                               \
    {                                                                                                                \
        struct emulated r = a;                                                                                       \
        for (int i = 0; i < (count); i++) {                                                                          \
            r.member[i] = expression;                                                                                \
        }                                                                                                            \
        return r;                                                                                                    \
    }
#define EMULATE_SHIFT(name, count, member, expression)                                                               \
    EMULATE struct emulated name(struct emulated a, unsigned n)                                                      \
    {                                                                                                                \
        struct emulated r;                                                                                           \
        for (int i = 0; i < (count); i++) {                                                                          \
            r.member[i] = expression;                                                                                \
        }                                                                                                            \
        return r;                                                                                                    \
    }
#define EMULATE_SET1(name, type, count, member)                                                                      \
    EMULATE struct emulated name(type x)                                                                             \
    {                                                                                                                \
        struct emulated r;                                                                                           \
        for (int i = 0; i < (count); i++) {                                                                          \
            r.member[i] = x;                                                                                         \
        }                                                                                                            \
        return r;                                                                                                    \
    }

/* ---- arithmetic ---- */

EMULATE_2(emulated_add_ps, 16, f, a.f[i] + b.f[i])
EMULATE_2(emulated_sub_ps, 16, f, a.f[i] - b.f[i])
EMULATE_2(emulated_mul_ps, 16, f, a.f[i] * b.f[i])
EMULATE_2(emulated_div_ps, 16, f, a.f[i] / b.f[i])
EMULATE_2(emulated_max_ps, 16, f, a.f[i] > b.f[i] ? a.f[i] : b.f[i])
EMULATE_2(emulated_add_epi8, 64, ub, (uint8_t)(a.ub[i] + b.ub[i]))
EMULATE_2(emulated_sub_epi8, 64, ub, (uint8_t)(a.ub[i] - b.ub[i]))
EMULATE_2(emulated_add_epi16, 32, uw, (uint16_t)(a.uw[i] + b.uw[i]))
EMULATE_2(emulated_sub_epi16, 32, uw, (uint16_t)(a.uw[i] - b.uw[i]))
EMULATE_2(emulated_add_epi32, 16, ud, a.ud[i] + b.ud[i])
EMULATE_2(emulated_sub_epi32, 16, ud, a.ud[i] - b.ud[i])
EMULATE_2(emulated_max_epi32, 16, d, a.d[i] > b.d[i] ? a.d[i] : b.d[i])
EMULATE_2(emulated_and_si512, 8, q, a.q[i] & b.q[i])
EMULATE_2(emulated_or_si512, 8, q, a.q[i] | b.q[i])
EMULATE_2(emulated_xor_si512, 8, q, a.q[i] ^ b.q[i])
EMULATE_1(emulated_abs_epi8, 64, ub, (uint8_t)(a.b[i] < 0 ? -a.b[i] : a.b[i]))
EMULATE_2(emulated_madd_epi16, 16, ud,
          (uint32_t)(a.w[2 * i] * b.w[2 * i]) + (uint32_t)(a.w[2 * i + 1] * b.w[2 * i + 1]))
EMULATE_SHIFT(emulated_slli_epi16, 32, uw, (uint16_t)(n > 15 ? 0 : a.uw[i] << n))
EMULATE_SHIFT(emulated_srli_epi16, 32, uw, (uint16_t)(n > 15 ? 0 : a.uw[i] >> n))
EMULATE_SHIFT(emulated_slli_epi32, 16, ud, n > 31 ? 0 : a.ud[i] << n)
EMULATE_SHIFT(emulated_srli_epi32, 16, ud, n > 31 ? 0 : a.ud[i] >> n)
EMULATE_SHIFT(emulated_srai_epi32, 16, d, a.d[i] >> (n > 31 ? 31 : n))
EMULATE_2(emulated_sllv_epi16, 32, uw, (uint16_t)(b.uw[i] > 15 ? 0 : a.uw[i] << b.uw[i]))
EMULATE_2(emulated_srlv_epi16, 32, uw, (uint16_t)(b.uw[i] > 15 ? 0 : a.uw[i] >> b.uw[i]))

EMULATE int16_t saturate_word(int x) { return (int16_t)(x > 32767 ? 32767 : x < -32768 ? -32768 : x); }

EMULATE_2(emulated_maddubs_epi16, 32, w, saturate_word(a.ub[2 * i] * b.b[2 * i] + a.ub[2 * i + 1] * b.b[2 * i + 1]))

EMULATE struct emulated emulated_fmadd_ps(struct emulated a, struct emulated b, struct emulated c)
{
    for (int i = 0; i < 16; i++) {
        c.f[i] = fmaf(a.f[i], b.f[i], c.f[i]);
    }
    return c;
}

EMULATE struct emulated emulated_fnmadd_ps(struct emulated a, struct emulated b, struct emulated c)
{
    for (int i = 0; i < 16; i++) {
        c.f[i] = fmaf(-a.f[i], b.f[i], c.f[i]);
    }
    return c;
}

EMULATE struct emulated emulated_mask3_fnmadd_ps(struct emulated a, struct emulated b, struct emulated c, __mmask16 k)
{
    for (int i = 0; i < 16; i++) {
        c.f[i] = k >> i & 1 ? fmaf(-a.f[i], b.f[i], c.f[i]) : c.f[i];
    }
    return c;
}

EMULATE struct emulated emulated_dpbusd_epi32(struct emulated c, struct emulated a, struct emulated b)
{
    for (int i = 0; i < 16; i++) {
        for (int j = 4 * i; j < 4 * i + 4; j++) {
            c.ud[i] += (uint32_t)(a.ub[j] * b.b[j]);
        }
    }
    return c;
}

EMULATE struct emulated emulated_dpwssd_epi32(struct emulated c, struct emulated a, struct emulated b)
{
    return emulated_add_epi32(c, emulated_madd_epi16(a, b));
}

EMULATE int emulated_reduce_add_epi32(struct emulated a)
{
    uint32_t sum = 0;
    for (int i = 0; i < 16; i++) {
        sum += a.ud[i];
    }
    return (int)sum;
}

EMULATE int emulated_reduce_max_epi32(struct emulated a)
{
    int max = a.d[0];
    for (int i = 1; i < 16; i++) {
        max = a.d[i] > max ? a.d[i] : max;
    }
    return max;
}

/* ---- constants, memory ---- */

EMULATE_SET1(emulated_set1_ps, float, 16, f)
EMULATE_SET1(emulated_set1_epi8, int, 64, b)
EMULATE_SET1(emulated_set1_epi16, int, 32, w)
EMULATE_SET1(emulated_set1_epi32, int, 16, d)
EMULATE_SET1(emulated_broadcast_i32x4, __m128i, 4, x)

EMULATE struct emulated emulated_setzero_ps(void) { return (struct emulated){.q = {0}}; }
EMULATE struct emulated emulated_setzero_si512(void) { return (struct emulated){.q = {0}}; }

#define emulated_setr_epi32(...) ((struct emulated){.d = {__VA_ARGS__}})
#define emulated_setr_epi64(...) ((struct emulated){.q = {__VA_ARGS__}})

EMULATE struct emulated emulated_loadu_si512(const void *p)
{
    struct emulated r;
    memcpy(&r, p, sizeof(r));
    return r;
}

EMULATE struct emulated emulated_loadu_ps(const void *p) { return emulated_loadu_si512(p); }
EMULATE void emulated_storeu_ps(void *p, struct emulated a) { memcpy(p, &a, sizeof(a)); }

EMULATE struct emulated emulated_maskz_loadu_ps(__mmask16 k, const void *p)
{
    struct emulated r = emulated_setzero_ps();
    for (int i = 0; i < 16; i++) {
        if ((k >> i) & 1) {
            memcpy(&r.f[i], (const float *)p + i, sizeof(float));
        }
    }
    return r;
}

EMULATE void emulated_mask_storeu_ps(void *p, __mmask16 k, struct emulated a)
{
    for (int i = 0; i < 16; i++) {
        if ((k >> i) & 1) {
            memcpy((float *)p + i, &a.f[i], sizeof(float));
        }
    }
}

/* ---- masks ---- */

EMULATE __mmask16 emulated_cmp_ps_mask(struct emulated a, struct emulated b, int predicate)
{
    unsigned k = 0;
    for (int i = 0; i < 16; i++) {
        int unordered = a.f[i] != a.f[i] || b.f[i] != b.f[i];
        int set = predicate == _CMP_LT_OQ ? a.f[i] < b.f[i] : predicate == _CMP_UNORD_Q ? unordered : -1;
        if (set < 0) {
            __builtin_trap(); /* a predicate that is not emulated */
        }
        k |= (unsigned)set << i;
    }
    return (__mmask16)k;
}

EMULATE struct emulated emulated_movm_epi32(__mmask16 k)
{
    struct emulated r;
    for (int i = 0; i < 16; i++) {
        r.d[i] = (k >> i) & 1 ? -1 : 0;
    }
    return r;
}

EMULATE struct emulated emulated_movm_epi8(__mmask64 k)
{
    struct emulated r;
    for (int i = 0; i < 64; i++) {
        r.b[i] = (k >> i) & 1 ? -1 : 0;
    }
    return r;
}

EMULATE __mmask16 emulated_movepi32_mask(struct emulated a)
{
    unsigned k = 0;
    for (int i = 0; i < 16; i++) {
        k |= (unsigned)(a.d[i] < 0) << i;
    }
    return (__mmask16)k;
}

EMULATE __mmask64 emulated_movepi8_mask(struct emulated a)
{
    __mmask64 k = 0;
    for (int i = 0; i < 64; i++) {
        k |= (__mmask64)(a.b[i] < 0) << i;
    }
    return k;
}

EMULATE struct emulated emulated_mask_blend_ps(__mmask16 k, struct emulated a, struct emulated b)
{
    for (int i = 0; i < 16; i++) {
        a.f[i] = (k >> i) & 1 ? b.f[i] : a.f[i];
    }
    return a;
}

EMULATE struct emulated emulated_mask_sub_epi8(struct emulated s, __mmask64 k, struct emulated a, struct emulated b)
{
    for (int i = 0; i < 64; i++) {
        s.ub[i] = (k >> i) & 1 ? (uint8_t)(a.ub[i] - b.ub[i]) : s.ub[i];
    }
    return s;
}

/* ---- conversions ---- */

EMULATE_1(emulated_cvtepi32_ps, 16, f, (float)a.d[i])
EMULATE_1(emulated_cvtps_epi32, 16, d, (int32_t)(fabsf(a.f[i]) < 2147483648.0f ? lrintf(a.f[i]) : INT32_MIN))

EMULATE struct emulated emulated_cvtepi8_epi32(__m128i x)
{
    struct emulated a, r;
    a.x[0] = x;
    for (int i = 0; i < 16; i++) {
        r.d[i] = a.b[i];
    }
    return r;
}

EMULATE struct emulated emulated_cvtepu16_epi32(__m256i y)
{
    struct emulated a, r;
    a.y[0] = y;
    for (int i = 0; i < 16; i++) {
        r.d[i] = a.uw[i];
    }
    return r;
}

EMULATE __m256i emulated_cvtepi32_epi16(struct emulated a)
{
    struct emulated r;
    for (int i = 0; i < 16; i++) {
        r.uw[i] = (uint16_t)a.ud[i];
    }
    return r.y[0];
}

EMULATE __m128i emulated_cvtepi32_epi8(struct emulated a)
{
    struct emulated r;
    for (int i = 0; i < 16; i++) {
        r.ub[i] = (uint8_t)a.ud[i];
    }
    return r.x[0];
}

EMULATE struct emulated emulated_cvtph_ps(__m256i y)
{
    struct emulated a, r;
    a.y[0] = y;
    for (int i = 0; i < 16; i++) {
        r.f[i] = _cvtsh_ss(a.uw[i]);
    }
    return r;
}

EMULATE __m256i emulated_cvtps_ph(struct emulated a, int rounding)
{
    struct emulated r;
    (void)rounding; /* always to nearest */
    for (int i = 0; i < 16; i++) {
        r.uw[i] = (uint16_t)_cvtss_sh(a.f[i], _MM_FROUND_TO_NEAREST_INT);
    }
    return r.y[0];
}

/* ---- views, moves ---- */

EMULATE struct emulated emulated_castps_si512(struct emulated a) { return a; }
EMULATE struct emulated emulated_castsi512_ps(struct emulated a) { return a; }
EMULATE __m128i emulated_castsi512_si128(struct emulated a) { return a.x[0]; }
EMULATE __m256 emulated_castps512_ps256(struct emulated a) { return _mm256_castsi256_ps(a.y[0]); }
EMULATE __m256 emulated_extractf32x8_ps(struct emulated a, int k) { return _mm256_castsi256_ps(a.y[k]); }
EMULATE __m128i emulated_extracti32x4_epi32(struct emulated a, int k) { return a.x[k]; }

EMULATE struct emulated emulated_zextsi256_si512(__m256i y) { return (struct emulated){.y = {y}}; }

EMULATE struct emulated emulated_broadcast_f32x8(__m256 y)
{
    __m256i x = _mm256_castps_si256(y);
    return (struct emulated){.y = {x, x}};
}

/* What a cast leaves undefined is filled with a pattern that must not show. */
EMULATE struct emulated emulated_castsi256_si512(__m256i y)
{
    struct emulated r = emulated_set1_epi8(0x5b);
    r.y[0] = y;
    return r;
}

EMULATE struct emulated emulated_castps128_ps512(__m128 x)
{
    struct emulated r = emulated_set1_epi8(0x5b);
    r.x[0] = _mm_castps_si128(x);
    return r;
}

EMULATE struct emulated emulated_inserti64x4(struct emulated a, __m256i y, int k)
{
    a.y[k] = y;
    return a;
}

EMULATE_2(emulated_permutexvar_ps, 16, f, b.f[a.ud[i] & 15])
EMULATE_2(emulated_permutexvar_epi32, 16, ud, b.ud[a.ud[i] & 15])
EMULATE_2(emulated_permutexvar_epi64, 8, q, b.q[a.q[i] & 7])
EMULATE_2(emulated_shuffle_epi8, 64, ub, b.ub[i] & 0x80 ? 0 : a.ub[(i & 0x30) + (b.ub[i] & 15)])

EMULATE struct emulated emulated_permutex2var_ps(struct emulated a, struct emulated index, struct emulated b)
{
    struct emulated r;
    for (int i = 0; i < 16; i++) {
        r.f[i] = index.ud[i] & 16 ? b.f[index.ud[i] & 15] : a.f[index.ud[i] & 15];
    }
    return r;
}

EMULATE struct emulated emulated_shuffle_i64x2(struct emulated a, struct emulated b, int order)
{
    struct emulated r;
    r.x[0] = a.x[order & 3];
    r.x[1] = a.x[(order >> 2) & 3];
    r.x[2] = b.x[(order >> 4) & 3];
    r.x[3] = b.x[(order >> 6) & 3];
    return r;
}

/* The intrinsics by their names; at -O0 some are macros. */
#undef _mm512_abs_epi8
#define _mm512_abs_epi8 emulated_abs_epi8
#undef _mm512_add_epi16
#define _mm512_add_epi16 emulated_add_epi16
#undef _mm512_add_epi32
#define _mm512_add_epi32 emulated_add_epi32
#undef _mm512_add_epi8
#define _mm512_add_epi8 emulated_add_epi8
#undef _mm512_add_ps
#define _mm512_add_ps emulated_add_ps
#undef _mm512_and_si512
#define _mm512_and_si512 emulated_and_si512
#undef _mm512_broadcast_f32x8
#define _mm512_broadcast_f32x8 emulated_broadcast_f32x8
#undef _mm512_broadcast_i32x4
#define _mm512_broadcast_i32x4 emulated_broadcast_i32x4
#undef _mm512_castps128_ps512
#define _mm512_castps128_ps512 emulated_castps128_ps512
#undef _mm512_castps512_ps256
#define _mm512_castps512_ps256 emulated_castps512_ps256
#undef _mm512_castps_si512
#define _mm512_castps_si512 emulated_castps_si512
#undef _mm512_castsi256_si512
#define _mm512_castsi256_si512 emulated_castsi256_si512
#undef _mm512_castsi512_ps
#define _mm512_castsi512_ps emulated_castsi512_ps
#undef _mm512_castsi512_si128
#define _mm512_castsi512_si128 emulated_castsi512_si128
#undef _mm512_cmp_ps_mask
#define _mm512_cmp_ps_mask emulated_cmp_ps_mask
#undef _mm512_cvtepi32_epi16
#define _mm512_cvtepi32_epi16 emulated_cvtepi32_epi16
#undef _mm512_cvtepi32_epi8
#define _mm512_cvtepi32_epi8 emulated_cvtepi32_epi8
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32 emulated_cvtepi8_epi32
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32 emulated_cvtepu16_epi32
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps emulated_cvtph_ps
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32 emulated_cvtps_epi32
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph emulated_cvtps_ph
#undef _mm512_div_ps
#define _mm512_div_ps emulated_div_ps
#undef _mm512_dpbusd_epi32
#define _mm512_dpbusd_epi32 emulated_dpbusd_epi32
#undef _mm512_dpwssd_epi32
#define _mm512_dpwssd_epi32 emulated_dpwssd_epi32
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps emulated_extractf32x8_ps
#undef _mm512_extracti32x4_epi32
#define _mm512_extracti32x4_epi32 emulated_extracti32x4_epi32
#undef _mm512_fmadd_ps
#define _mm512_fmadd_ps emulated_fmadd_ps
#undef _mm512_fnmadd_ps
#define _mm512_fnmadd_ps emulated_fnmadd_ps
#undef _mm512_inserti64x4
#define _mm512_inserti64x4 emulated_inserti64x4
#undef _mm512_loadu_ps
#define _mm512_loadu_ps emulated_loadu_ps
#undef _mm512_loadu_si512
#define _mm512_loadu_si512 emulated_loadu_si512
#undef _mm512_madd_epi16
#define _mm512_madd_epi16 emulated_madd_epi16
#undef _mm512_maddubs_epi16
#define _mm512_maddubs_epi16 emulated_maddubs_epi16
#undef _mm512_mask3_fnmadd_ps
#define _mm512_mask3_fnmadd_ps emulated_mask3_fnmadd_ps
#undef _mm512_mask_blend_ps
#define _mm512_mask_blend_ps emulated_mask_blend_ps
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps emulated_mask_storeu_ps
#undef _mm512_mask_sub_epi8
#define _mm512_mask_sub_epi8 emulated_mask_sub_epi8
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps emulated_maskz_loadu_ps
#undef _mm512_max_epi32
#define _mm512_max_epi32 emulated_max_epi32
#undef _mm512_max_ps
#define _mm512_max_ps emulated_max_ps
#undef _mm512_movepi32_mask
#define _mm512_movepi32_mask emulated_movepi32_mask
#undef _mm512_movepi8_mask
#define _mm512_movepi8_mask emulated_movepi8_mask
#undef _mm512_movm_epi32
#define _mm512_movm_epi32 emulated_movm_epi32
#undef _mm512_movm_epi8
#define _mm512_movm_epi8 emulated_movm_epi8
#undef _mm512_mul_ps
#define _mm512_mul_ps emulated_mul_ps
#undef _mm512_or_si512
#define _mm512_or_si512 emulated_or_si512
#undef _mm512_permutex2var_ps
#define _mm512_permutex2var_ps emulated_permutex2var_ps
#undef _mm512_permutexvar_epi32
#define _mm512_permutexvar_epi32 emulated_permutexvar_epi32
#undef _mm512_permutexvar_epi64
#define _mm512_permutexvar_epi64 emulated_permutexvar_epi64
#undef _mm512_permutexvar_ps
#define _mm512_permutexvar_ps emulated_permutexvar_ps
#undef _mm512_reduce_add_epi32
#define _mm512_reduce_add_epi32 emulated_reduce_add_epi32
#undef _mm512_reduce_max_epi32
#define _mm512_reduce_max_epi32 emulated_reduce_max_epi32
#undef _mm512_set1_epi16
#define _mm512_set1_epi16 emulated_set1_epi16
#undef _mm512_set1_epi32
#define _mm512_set1_epi32 emulated_set1_epi32
#undef _mm512_set1_epi8
#define _mm512_set1_epi8 emulated_set1_epi8
#undef _mm512_set1_ps
#define _mm512_set1_ps emulated_set1_ps
#undef _mm512_setr_epi32
#define _mm512_setr_epi32 emulated_setr_epi32
#undef _mm512_setr_epi64
#define _mm512_setr_epi64 emulated_setr_epi64
#undef _mm512_setzero_ps
#define _mm512_setzero_ps emulated_setzero_ps
#undef _mm512_setzero_si512
#define _mm512_setzero_si512 emulated_setzero_si512
#undef _mm512_shuffle_epi8
#define _mm512_shuffle_epi8 emulated_shuffle_epi8
#undef _mm512_shuffle_i64x2
#define _mm512_shuffle_i64x2 emulated_shuffle_i64x2
#undef _mm512_slli_epi16
#define _mm512_slli_epi16 emulated_slli_epi16
#undef _mm512_slli_epi32
#define _mm512_slli_epi32 emulated_slli_epi32
#undef _mm512_sllv_epi16
#define _mm512_sllv_epi16 emulated_sllv_epi16
#undef _mm512_srai_epi32
#define _mm512_srai_epi32 emulated_srai_epi32
#undef _mm512_srli_epi16
#define _mm512_srli_epi16 emulated_srli_epi16
#undef _mm512_srli_epi32
#define _mm512_srli_epi32 emulated_srli_epi32
#undef _mm512_srlv_epi16
#define _mm512_srlv_epi16 emulated_srlv_epi16
#undef _mm512_storeu_ps
#define _mm512_storeu_ps emulated_storeu_ps
#undef _mm512_sub_epi16
#define _mm512_sub_epi16 emulated_sub_epi16
#undef _mm512_sub_epi32
#define _mm512_sub_epi32 emulated_sub_epi32
#undef _mm512_sub_epi8
#define _mm512_sub_epi8 emulated_sub_epi8
#undef _mm512_sub_ps
#define _mm512_sub_ps emulated_sub_ps
#undef _mm512_xor_si512
#define _mm512_xor_si512 emulated_xor_si512
#undef _mm512_zextsi256_si512
#define _mm512_zextsi256_si512 emulated_zextsi256_si512

#endif
