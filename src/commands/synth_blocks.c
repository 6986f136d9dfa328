/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: random blocks: all bytes at random, then the fields that set the magnitude. Must not know: tensors. */
#include "src/commands/synth_blocks.h"

#include <math.h>
#include <string.h>

#include "common/attr.h"
#include "common/exact.h"
#include "common/intmath.h"

enum scale_kind { SCALE_FLOAT, SCALE_HALF, SCALE_EXPONENT, SCALE_NIBBLES, SCALE_BESIDE };
enum sub_scales { SUB_FREE, SUB_NIBBLES, SUB_SIX_BITS }; /* how sub-block scales and minima are made equal */

/* Where a block keeps its magnitude (docs/formats.md). `minimum` times the scale goes into the second half, so that the
 * weights have mean 0; with sub-block scales that holds where scale and minimum codes are equal. */
static const struct rule {
    enum scale_kind kind;
    uint16_t scale_at, minimum_at, sub_at;
    float minimum;
    enum sub_scales sub;
} rules[FORMAT_COUNT] = {
    [FORMAT_F32] = {.kind = SCALE_FLOAT},
    [FORMAT_F16] = {.kind = SCALE_FLOAT},
    [FORMAT_BF16] = {.kind = SCALE_FLOAT},
    [FORMAT_F8_E4M3] = {.kind = SCALE_BESIDE},
    [FORMAT_Q8_0] = {.kind = SCALE_HALF},
    [FORMAT_Q4_0] = {.kind = SCALE_HALF},
    [FORMAT_Q4_1] = {.kind = SCALE_HALF, .minimum_at = 2, .minimum = -7.5f},
    [FORMAT_Q5_0] = {.kind = SCALE_HALF},
    [FORMAT_Q5_1] = {.kind = SCALE_HALF, .minimum_at = 2, .minimum = -15.5f},
    [FORMAT_IQ4_NL] = {.kind = SCALE_HALF},
    [FORMAT_MXFP4] = {.kind = SCALE_EXPONENT},
    [FORMAT_Q2_K] = {.kind = SCALE_HALF, .scale_at = 80, .minimum_at = 82, .minimum = 1.5f, .sub = SUB_NIBBLES},
    [FORMAT_Q3_K] = {.kind = SCALE_HALF, .scale_at = 108},
    [FORMAT_Q4_K] = {.kind = SCALE_HALF, .minimum_at = 2, .minimum = 7.5f, .sub = SUB_SIX_BITS, .sub_at = 4},
    [FORMAT_Q5_K] = {.kind = SCALE_HALF, .minimum_at = 2, .minimum = 15.5f, .sub = SUB_SIX_BITS, .sub_at = 4},
    [FORMAT_Q6_K] = {.kind = SCALE_HALF, .scale_at = 208},
    [FORMAT_IQ4_XS] = {.kind = SCALE_HALF},
    [FORMAT_IQ1_S] = {.kind = SCALE_HALF},
    [FORMAT_IQ1_M] = {.kind = SCALE_NIBBLES, .scale_at = 48},
    [FORMAT_IQ2_XXS] = {.kind = SCALE_HALF},
    [FORMAT_IQ2_XS] = {.kind = SCALE_HALF},
    [FORMAT_IQ2_S] = {.kind = SCALE_HALF},
    [FORMAT_IQ3_XXS] = {.kind = SCALE_HALF},
    [FORMAT_IQ3_S] = {.kind = SCALE_HALF},
};

/* Finaliser of a 64-bit counter: every input bit reaches every output bit. */
static inline uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint64_t random_at(uint64_t seed, uint64_t index) { return mix(seed + index * UINT64_C(0x9e3779b97f4a7c15)); }

uint64_t synth_seed(uint64_t seed, uint64_t index) { return mix(random_at(seed, index + 1)); }

static void random_bytes(uint64_t seed, unsigned char *out, size_t bytes)
{
    size_t words = bytes / 8;
    for (size_t i = 0; i < words; i++) {
        uint64_t r = random_at(seed, i);
        memcpy(out + 8 * i, &r, 8);
    }
    uint64_t r = random_at(seed, words);
    memcpy(out + 8 * words, &r, bytes % 8);
}

/* Near enough to normal: four uniform numbers; the constant makes the deviation 1. */
static float random_normal(uint64_t r)
{
    int32_t sum = (int32_t)(r & 0xffff) + (int32_t)(r >> 16 & 0xffff) + (int32_t)(r >> 32 & 0xffff) + (int32_t)(r >> 48) - 2 * 65535;
    return (float)sum * (1.0f / 37837.2f);
}

static void fill_floats(const struct synth_filler *f, uint64_t seed, unsigned char *out, size_t bytes)
{
    size_t n = bytes / 4;
    for (size_t i = 0; i < n; i++) {
        float x = random_normal(random_at(seed, i)) * f->scale;
        memcpy(out + 4 * i, &x, 4);
    }
}

/* A sample of numbers of deviation f->scale with their negatives: drawing from it is several times faster than making each
 * number, and the mean is 0. */
static void make_halves(struct synth_filler *f)
{
    enum { N = SYNTH_HALVES / 2 };
    float sample[N];
    double squares = 0;
    for (uint32_t i = 0; i < N; i++) {
        sample[i] = random_normal(random_at(1, i));
        squares += (double)sample[i] * sample[i];
    }
    float scale = (float)(f->scale / sqrt(squares / N));
    for (uint32_t i = 0; i < N; i++) {
        float x = sample[i] * scale;
        f->half[i] = f->format == FORMAT_F16 ? float_to_half(x) : float_to_bf16(x);
        f->half[N + i] = f->half[i] ^ 0x8000;
    }
}

static void fill_halves(const struct synth_filler *f, uint64_t seed, unsigned char *out, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t r = random_at(seed, at / 8);
        uint16_t four[4];
        for (uint32_t k = 0; k < 4; k++) {
            four[k] = f->half[(r >> 16 * k) % SYNTH_HALVES];
        }
        memcpy(out + at, four, min_u64(8, bytes - at));
    }
}

/* Any code but NaN: 0x7f and 0xff lose their lowest bit. */
static void fill_codes(uint64_t seed, unsigned char *out, size_t bytes)
{
    const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f), one = UINT64_C(0x0101010101010101);
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t r = random_at(seed, i / 8);
        r ^= ((r & low) + one) >> 7 & one;
        memcpy(out + i, &r, min_u64(8, bytes - i));
    }
}

/* The layout of Q4_K: 8 scales and 8 minima of 6 bits in 12 bytes; here minimum = scale, 32..63. */
static void equal_six_bits(unsigned char *s)
{
    unsigned char code[8];
    for (int j = 0; j < 8; j++) {
        code[j] = 32 | (s[j] & 31);
    }
    for (int j = 0; j < 4; j++) {
        unsigned char high = (unsigned char)(code[j + 4] >> 4 << 6);
        s[j] = s[j + 4] = (unsigned char)(code[j] | high);
        s[j + 8] = (unsigned char)((code[j + 4] & 15) | code[j + 4] << 4);
    }
}

static void equal_nibbles(unsigned char *s)
{
    for (int j = 0; j < 16; j++) {
        unsigned char code = 8 | (s[j] & 7);
        s[j] = (unsigned char)(code | code << 4);
    }
}

static void set_half(unsigned char *block, size_t at, float value)
{
    uint16_t half = float_to_half(value);
    memcpy(block + at, &half, 2);
}

static void set_scale(const struct rule *rule, unsigned char *block, float scale)
{
    if (rule->sub == SUB_SIX_BITS) {
        equal_six_bits(block + rule->sub_at);
    } else if (rule->sub == SUB_NIBBLES) {
        equal_nibbles(block + rule->sub_at);
    }
    if (rule->kind == SCALE_EXPONENT) {
        block[rule->scale_at] = (unsigned char)(128 + (int)lrintf(log2f(scale)));
    } else if (rule->kind == SCALE_NIBBLES) {
        uint16_t half = float_to_half(scale);
        for (int i = 0; i < 4; i++) { /* four bits of it on top of each of four 16-bit words */
            unsigned char *top = block + rule->scale_at + 2 * i + 1;
            *top = (unsigned char)((*top & 15) | (half >> 4 * i & 15) << 4);
        }
    } else {
        set_half(block, rule->scale_at, scale);
        if (rule->minimum != 0.0f) {
            set_half(block, rule->minimum_at, scale * rule->minimum);
        }
    }
}

void synth_filler_fill(const struct synth_filler *f, uint64_t seed, void *out, size_t bytes)
{
    const struct rule *rule = &rules[f->format];
    if (f->format == FORMAT_F32) {
        fill_floats(f, seed, out, bytes);
        return;
    }
    if (rule->kind == SCALE_FLOAT) {
        fill_halves(f, seed, out, bytes);
        return;
    }
    if (rule->kind == SCALE_BESIDE) {
        fill_codes(seed, out, bytes);
        return;
    }
    random_bytes(seed, out, bytes);
    size_t width = weight_format_info(f->format)->block_bytes;
    for (size_t at = 0; at + width <= bytes; at += width) {
        set_scale(rule, (unsigned char *)out + at, f->scale);
    }
}

void synth_filler_init(struct synth_filler *f, enum weight_format format, float deviation, const struct ops *ops)
{
    enum { BLOCKS = 32, MAX_BLOCK_BYTES = 256, MAX_BLOCK_ELEMS = 256 };
    const struct weight_format_info *info = weight_format_info(format);
    *f = (struct synth_filler){.format = format, .scale = rules[format].kind == SCALE_FLOAT ? deviation : 1.0f};
    if (format == FORMAT_F16 || format == FORMAT_BF16) {
        make_halves(f);
    }
    if (info->block_elems == 1) {
        return;
    }
    unsigned char blocks[BLOCKS * MAX_BLOCK_BYTES];
    float values[BLOCKS * MAX_BLOCK_ELEMS];
    synth_filler_fill(f, 1, blocks, BLOCKS * (size_t)info->block_bytes);
    struct dequantise_args a = {
        .w = {.data = blocks, .row_bytes = BLOCKS * (size_t)info->block_bytes, .rows = 1, .cols = BLOCKS * info->block_elems, .format = format},
        .y = values, .row_begin = 0, .row_end = 1};
    ops->dequantise[format](&a);
    double squares = 0;
    for (uint32_t i = 0; i < a.w.cols; i++) {
        squares += (double)values[i] * values[i];
    }
    f->scale = (float)(deviation / sqrt(squares / a.w.cols));
}

void synth_fp8_scales(uint64_t seed, float deviation, float *out, size_t n)
{
    double squares = 0; /* of the codes: each is as likely as any other, NaN became its neighbour */
    for (uint32_t code = 0; code < 128; code++) {
        double x = (double)e4m3_to_float((uint8_t)min_u32(code, 126));
        squares += x * x;
    }
    float base = (float)(deviation / sqrt(squares / 128 * (1 + 1.0 / 48))); /* 1/48: variance of the factor below */
    for (size_t i = 0; i < n; i++) {
        out[i] = base * (0.75f + 0.5f * (float)(random_at(seed, i) >> 40) * 0x1p-24f);
    }
}

void synth_normals(uint64_t seed, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = random_normal(random_at(seed, i));
    }
}
