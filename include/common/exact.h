/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: exp, sigmoid and the half, bfloat16 and e4m3 conversions, to the bit (docs/numerics.md), for C11, C++ and CUDA.
 * Must not know: vectors, blocks, operations.
 *
 * Every fmaf below is one rounding; nothing else may be contracted (-ffp-contract=off, --fmad=false). Vector versions
 * in cpu/ and cuda/ repeat the same steps with the constants named here. */
#ifndef SLUICE_COMMON_EXACT_H
#define SLUICE_COMMON_EXACT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common/attr.h"

/* ---- exp ----
 * t = fma(x, LOG2E, SHIFT); n = t - SHIFT (nearest integer, ties to even); r = fma(n, -LN2_HI, x); r = fma(n, -LN2_LO, r);
 * p = C6; p = fma(p, r, C5) ... C2; p = fma(p, r, 1); p = fma(p, r, 1); result = p with n added to its exponent field.
 * x < EXP_MIN gives +0, x > EXP_MAX gives +inf, NaN stays NaN. Between them the result is normal: n is -126..128, and
 * with n = 128 p is below 1, so the addition to the exponent never overflows. n sits in the low bits of t, so the
 * addition is bits(p) + (bits(t) << 23). C2..C6 interpolate (e^r - 1 - r)/r^2 at the 5 Chebyshev nodes of |r| <= ln2/2;
 * the error is below 1 ulp over the whole range (tests/unit/cpu). */
#define EXACT_EXP_MIN (-87.0f)
#define EXACT_EXP_MAX 0x1.62e42ep+6f /* 88.7228317: largest x whose exp is finite */
#define EXACT_EXP_LOG2E 0x1.715476p+0f
#define EXACT_EXP_SHIFT 0x1.8p+23f
#define EXACT_EXP_LN2_HI 0x1.63p-1f /* 9 bits: n * LN2_HI is exact */
#define EXACT_EXP_LN2_LO (-0x1.bd0106p-13f)
#define EXACT_EXP_C2 0x1.000000p-1f
#define EXACT_EXP_C3 0x1.5554dcp-3f
#define EXACT_EXP_C4 0x1.55551ap-5f
#define EXACT_EXP_C5 0x1.120b6ep-7f
#define EXACT_EXP_C6 0x1.6d110ap-10f

ATTR_HOST_DEVICE static inline uint32_t float_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    return u;
}

ATTR_HOST_DEVICE static inline float float_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

ATTR_HOST_DEVICE static inline float exp_exact(float x)
{
    if (x != x) {
        return x;
    }
    if (x < EXACT_EXP_MIN) {
        return 0.0f;
    }
    if (x > EXACT_EXP_MAX) {
        return float_from_bits(0x7f800000u);
    }
    float t = fmaf(x, EXACT_EXP_LOG2E, EXACT_EXP_SHIFT);
    float n = t - EXACT_EXP_SHIFT;
    float r = fmaf(n, -EXACT_EXP_LN2_HI, x);
    r = fmaf(n, -EXACT_EXP_LN2_LO, r);
    float p = EXACT_EXP_C6;
    p = fmaf(p, r, EXACT_EXP_C5);
    p = fmaf(p, r, EXACT_EXP_C4);
    p = fmaf(p, r, EXACT_EXP_C3);
    p = fmaf(p, r, EXACT_EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return float_from_bits(float_bits(p) + (float_bits(t) << 23));
}

/* 1 / (1 + exp(-x)); exactly 0.5 at 0. */
ATTR_HOST_DEVICE static inline float sigmoid_exact(float x) { return 1.0f / (1.0f + exp_exact(-x)); }

/* ---- half ---- */

ATTR_HOST_DEVICE static inline float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t magnitude = h & 0x7fffu;
    if (magnitude < 0x0400u) { /* zero and subnormals: m * 2^-24 */
        return float_from_bits(sign | float_bits((float)magnitude * 0x1p-24f));
    }
    if (magnitude >= 0x7c00u) { /* infinity and NaN keep their payload */
        return float_from_bits(sign | 0x7f800000u | (magnitude & 0x03ffu) << 13);
    }
    return float_from_bits(sign | ((magnitude << 13) + (112u << 23)));
}

/* Nearest, ties to even; above 65519.99 infinity; any NaN becomes 0x7e00 with the sign kept. */
ATTR_HOST_DEVICE static inline uint16_t float_to_half(float x)
{
    uint32_t bits = float_bits(x);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (magnitude >= 0x477ff000u) { /* 65520, halfway to the next power of two */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 0.5 rounds to multiples of 2^-24 */
        return (uint16_t)(sign | (float_bits(float_from_bits(magnitude) + 0.5f) - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0x0fffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - (112u << 23)) >> 13));
}

/* ---- bfloat16 ---- */

ATTR_HOST_DEVICE static inline float bf16_to_float(uint16_t h) { return float_from_bits((uint32_t)h << 16); }

/* Nearest, ties to even; any NaN becomes 0x7fc0 with the sign kept. */
ATTR_HOST_DEVICE static inline uint16_t float_to_bf16(float x)
{
    uint32_t bits = float_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(((bits >> 16) & 0x8000u) | 0x7fc0u);
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* ---- FP8 E4M3 (no infinities, bias 7; 0x7f and 0xff are NaN) ---- */

/* The half whose value is 2^-8 times that of the code: exact for every finite code (NaN codes read as 480/256). */
ATTR_HOST_DEVICE static inline uint16_t e4m3_to_half_scaled(uint8_t code)
{
    return (uint16_t)((code & 0x80u) << 8 | (code & 0x7fu) << 7);
}

ATTR_HOST_DEVICE static inline float e4m3_to_float(uint8_t code)
{
    if ((code & 0x7fu) == 0x7fu) {
        return float_from_bits((uint32_t)(code & 0x80u) << 24 | 0x7fc00000u);
    }
    return 256.0f * half_to_float(e4m3_to_half_scaled(code));
}

#endif
