/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the loops of the four formats. Must not know: tensors, files. */
#include "src/commands/convert_encode.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common/exact.h"

enum { Q8_ELEMS = 32, Q8_BYTES = 34 };

bool convert_encodes(enum weight_format f) { return f == FORMAT_F32 || f == FORMAT_BF16 || f == FORMAT_F16 || f == FORMAT_Q8_0; }

static bool half_finite(uint16_t h) { return (h & 0x7c00) != 0x7c00; }

static bool encode_f16(const float *x, size_t n, unsigned char *out)
{
    bool fits = true;
    for (size_t i = 0; i < n; i++) {
        uint16_t h = float_to_half(x[i]);
        fits = fits && half_finite(h);
        memcpy(out + 2 * i, &h, 2);
    }
    return fits;
}

static void encode_bf16(const float *x, size_t n, unsigned char *out)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h = float_to_bf16(x[i]);
        memcpy(out + 2 * i, &h, 2);
    }
}

static bool encode_q8_block(const float *x, unsigned char *out)
{
    float amax = 0;
    for (int i = 0; i < Q8_ELEMS; i++) {
        float a = fabsf(x[i]);
        amax = a > amax ? a : amax;
    }
    float d = amax / 127.0f, inverse = d >= 0x1p-126f ? 1.0f / d : 0.0f;
    uint16_t half = float_to_half(d);
    memcpy(out, &half, 2);
    for (int i = 0; i < Q8_ELEMS; i++) { /* |scaled| is at most 127 and a little: its fraction is exact */
        float scaled = x[i] * inverse;
        int whole = (int)scaled;
        float rest = scaled - (float)whole;
        out[2 + i] = (unsigned char)(whole + (rest >= 0.5f) - (rest <= -0.5f));
    }
    return half_finite(half);
}

bool convert_encode(enum weight_format format, const float *values, size_t n, void *out)
{
    bool fits = true;
    if (format == FORMAT_F32) {
        memcpy(out, values, n * sizeof(*values));
    } else if (format == FORMAT_BF16) {
        encode_bf16(values, n, out);
    } else if (format == FORMAT_F16) {
        fits = encode_f16(values, n, out);
    } else {
        for (size_t i = 0; i < n / Q8_ELEMS; i++) {
            fits = encode_q8_block(values + i * Q8_ELEMS, (unsigned char *)out + i * Q8_BYTES) && fits;
        }
    }
    return fits;
}

float convert_tolerance(enum weight_format format, float value, float block_max)
{
    float a = fabsf(value);
    return format == FORMAT_F32    ? 0
           : format == FORMAT_BF16 ? a * 0x1p-8f
           : format == FORMAT_F16  ? fmaxf(a * 0x1p-11f, 0x1p-25f)
                                   : block_max * (0.5f / 127 + 0x1p-11f) + 127 * 0x1p-25f; /* half a step, and the rounding of d */
}
