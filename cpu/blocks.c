/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: one unpack function per block format, and decoding to float32. Must not know: activations, lanes. */
#include "cpu/blocks.h"

#include <string.h>

#include "common/exact.h"
#include "cpu/iq_grids.h"

static uint16_t load_u16(const uint8_t *p)
{
    uint16_t x;
    memcpy(&x, p, sizeof(x));
    return x;
}

static uint32_t load_u32(const uint8_t *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof(x));
    return x;
}

static float load_half(const uint8_t *p) { return half_to_float(load_u16(p)); }

/* ---- blocks of 32 ---- */

static void set_unit_scales(struct block_parts *p)
{
    memset(p->scale, 1, 2);
    memset(p->min, 1, 2);
}

/* Low nibbles are weights 0-15, high nibbles 16-31. */
static uint8_t nibble_of(const uint8_t *q, unsigned i) { return (q[i % 16] >> 4 * (i / 16)) & 15; }

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void unpack_q8_0(const uint8_t *b, struct block_parts *p)
{
    set_unit_scales(p);
    p->d = load_half(b);
    memcpy(p->code, b + 2, 32);
}

static void unpack_q4_0(const uint8_t *b, struct block_parts *p)
{
    set_unit_scales(p);
    p->d = load_half(b);
    for (unsigned i = 0; i < 32; i++) {
        p->code[i] = (int8_t)(nibble_of(b + 2, i) - 8);
    }
}

static void unpack_q4_1(const uint8_t *b, struct block_parts *p)
{
    set_unit_scales(p);
    p->d = load_half(b);
    p->dmin = -load_half(b + 2);
    p->has_min = true;
    for (unsigned i = 0; i < 32; i++) {
        p->code[i] = (int8_t)nibble_of(b + 4, i);
    }
}

static uint8_t five_bits(const uint8_t *qh, const uint8_t *q, unsigned i)
{
    return (uint8_t)(nibble_of(q, i) | ((load_u32(qh) >> i) & 1) << 4);
}

static void unpack_q5_0(const uint8_t *b, struct block_parts *p)
{
    set_unit_scales(p);
    p->d = load_half(b);
    for (unsigned i = 0; i < 32; i++) {
        p->code[i] = (int8_t)(five_bits(b + 2, b + 6, i) - 16);
    }
}

static void unpack_q5_1(const uint8_t *b, struct block_parts *p)
{
    set_unit_scales(p);
    p->d = load_half(b);
    p->dmin = -load_half(b + 2);
    p->has_min = true;
    for (unsigned i = 0; i < 32; i++) {
        p->code[i] = (int8_t)five_bits(b + 4, b + 8, i);
    }
}

static void unpack_iq4_nl(const uint8_t *b, struct block_parts *p)
{
    set_unit_scales(p);
    p->d = load_half(b);
    for (unsigned i = 0; i < 32; i++) {
        p->code[i] = iq4_values[nibble_of(b + 2, i)];
    }
}

static void unpack_mxfp4(const uint8_t *b, struct block_parts *p)
{
    set_unit_scales(p);
    /* 2^(e-128): subnormal for the two smallest exponents. */
    p->d = float_from_bits(b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23);
    for (unsigned i = 0; i < 32; i++) {
        p->code[i] = mxfp4_values[nibble_of(b + 1, i)];
    }
}

/* ---- K blocks of 256 ---- */

/* 64 bytes of 2-bit codes: byte k of each half holds weights k, k+32, k+64, k+96 of the half. */
static uint8_t two_bits(const uint8_t *q, unsigned i) { return (q[32 * (i / 128) + i % 32] >> 2 * ((i % 128) / 32)) & 3; }

static void unpack_q2_k(const uint8_t *b, struct block_parts *p)
{
    p->d = load_half(b + 80);
    p->dmin = load_half(b + 82);
    p->has_min = true;
    for (unsigned g = 0; g < 16; g++) {
        p->scale[g] = b[g] & 15;
        p->min[g] = b[g] >> 4;
    }
    for (unsigned i = 0; i < 256; i++) {
        p->code[i] = (int8_t)two_bits(b + 16, i);
    }
}

static void unpack_q3_k(const uint8_t *b, struct block_parts *p)
{
    const uint8_t *hmask = b, *q = b + 32, *scales = b + 96;
    p->d = load_half(b + 108);
    for (unsigned g = 0; g < 16; g++) {
        int lo = (scales[g % 8] >> 4 * (g / 8)) & 15;
        int hi = (scales[8 + g % 4] >> 2 * (g / 4)) & 3;
        p->scale[g] = (int8_t)((lo | hi << 4) - 32);
    }
    for (unsigned i = 0; i < 256; i++) {
        int high = (hmask[i % 32] >> (i / 32)) & 1;
        p->code[i] = (int8_t)(two_bits(q, i) + 4 * high - 4);
    }
}

/* 8 scales and 8 minima of 6 bits in 12 bytes, each for 32 weights. */
static void unpack_six_bit_scales(const uint8_t *s, struct block_parts *p)
{
    for (unsigned j = 0; j < 8; j++) {
        int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        int min = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
        memset(p->scale + 2 * j, scale, 2);
        memset(p->min + 2 * j, min, 2);
    }
}

/* Nibbles of 32 bytes: low ones are 32 weights, high ones the next 32. */
static uint8_t nibble_of_64(const uint8_t *q, unsigned i) { return (q[32 * (i / 64) + i % 32] >> 4 * ((i / 32) % 2)) & 15; }

static void unpack_q4_k(const uint8_t *b, struct block_parts *p)
{
    p->d = load_half(b);
    p->dmin = load_half(b + 2);
    p->has_min = true;
    unpack_six_bit_scales(b + 4, p);
    for (unsigned i = 0; i < 256; i++) {
        p->code[i] = (int8_t)nibble_of_64(b + 16, i);
    }
}

static void unpack_q5_k(const uint8_t *b, struct block_parts *p)
{
    const uint8_t *qh = b + 16;
    p->d = load_half(b);
    p->dmin = load_half(b + 2);
    p->has_min = true;
    unpack_six_bit_scales(b + 4, p);
    for (unsigned i = 0; i < 256; i++) {
        p->code[i] = (int8_t)(nibble_of_64(b + 48, i) | ((qh[i % 32] >> (i / 32)) & 1) << 4);
    }
}

static void unpack_q6_k(const uint8_t *b, struct block_parts *p)
{
    p->d = load_half(b + 208);
    memcpy(p->scale, b + 192, 16);
    for (unsigned i = 0; i < 256; i++) {
        unsigned h = i / 128, r = i % 128;
        int lo = (b[64 * h + r % 64] >> 4 * (r / 64)) & 15;
        int hi = (b[128 + 32 * h + r % 32] >> 2 * (r / 32)) & 3;
        p->code[i] = (int8_t)((lo | hi << 4) - 32);
    }
}

static void unpack_iq4_xs(const uint8_t *b, struct block_parts *p)
{
    unsigned high = load_u16(b + 2);
    p->d = load_half(b);
    for (unsigned g = 0; g < 8; g++) {
        int low = (b[4 + g / 2] >> 4 * (g % 2)) & 15;
        memset(p->scale + 2 * g, (low | (int)((high >> 2 * g) & 3) << 4) - 32, 2);
        for (unsigned i = 0; i < 32; i++) {
            p->code[32 * g + i] = iq4_values[nibble_of(b + 8 + 16 * g, i)];
        }
    }
}

/* ---- lattice blocks of 256; scales are the odd integers 2s+1 ---- */

/* x in each byte of a word. */
#define EACH_BYTE(x) (UINT64_C(0x0101010101010101) * (x))

/* 7-bit sign index to 8 sign bits: bit 7 is the parity of the others. */
static uint8_t signs_of(unsigned index) { return (uint8_t)(index | (unsigned)__builtin_parity(index) << 7); }

/* code[j] = number j of the grid row, negated where bit j of signs is set. Grid numbers are 1..127, eight to a word: bulk
 * products come here for whole chunks. */
static void put_signed(int8_t *code, uint64_t grid, unsigned signs, unsigned count)
{
    uint64_t bits = ((uint64_t)(signs & 255) * EACH_BYTE(1)) & UINT64_C(0x8040201008040201);
    uint64_t mask = (((bits + EACH_BYTE(0x7f)) & EACH_BYTE(0x80)) >> 7) * 255; /* 255 where there is a bit */
    uint64_t value = (grid ^ mask) + (mask & EACH_BYTE(1));
    memcpy(code, &value, count);
}

static void unpack_iq2_xxs(const uint8_t *b, struct block_parts *p)
{
    p->d = load_half(b) * 0.125f;
    for (unsigned g = 0; g < 8; g++) {
        const uint8_t *rows = b + 2 + 8 * g;
        uint32_t bits = load_u32(rows + 4);
        memset(p->scale + 2 * g, (int)(2 * (bits >> 28) + 1), 2);
        for (unsigned j = 0; j < 4; j++) {
            put_signed(p->code + 32 * g + 8 * j, iq2_xxs_grid[rows[j]], signs_of((bits >> 7 * j) & 127), 8);
        }
    }
}

static void unpack_nibble_scales(const uint8_t *s, struct block_parts *p)
{
    for (unsigned g = 0; g < 16; g++) {
        p->scale[g] = (int8_t)(2 * ((s[g / 2] >> 4 * (g % 2)) & 15) + 1);
    }
}

static void unpack_iq2_xs(const uint8_t *b, struct block_parts *p)
{
    p->d = load_half(b) * 0.125f;
    unpack_nibble_scales(b + 66, p);
    for (unsigned g = 0; g < 32; g++) {
        unsigned q = load_u16(b + 2 + 2 * g);
        put_signed(p->code + 8 * g, iq2_xs_grid[q & 511], signs_of(q >> 9), 8);
    }
}

static void unpack_iq2_s(const uint8_t *b, struct block_parts *p)
{
    const uint8_t *ql = b + 2, *signs = b + 34, *qh = b + 66;
    p->d = load_half(b) * 0.125f;
    unpack_nibble_scales(b + 74, p);
    for (unsigned g = 0; g < 32; g++) {
        unsigned row = ql[g] | (unsigned)((qh[g / 4] >> 2 * (g % 4)) & 3) << 8;
        put_signed(p->code + 8 * g, iq2_s_grid[row], signs[g], 8);
    }
}

static void unpack_iq3_xxs(const uint8_t *b, struct block_parts *p)
{
    p->d = load_half(b) * 0.25f;
    for (unsigned g = 0; g < 8; g++) {
        const uint8_t *rows = b + 2 + 8 * g;
        uint32_t bits = load_u32(b + 66 + 4 * g);
        memset(p->scale + 2 * g, (int)(2 * (bits >> 28) + 1), 2);
        for (unsigned j = 0; j < 8; j++) {
            unsigned signs = signs_of((bits >> 7 * (j / 2)) & 127) >> 4 * (j % 2);
            put_signed(p->code + 32 * g + 4 * j, iq3_xxs_grid[rows[j]], signs, 4);
        }
    }
}

static void unpack_iq3_s(const uint8_t *b, struct block_parts *p)
{
    const uint8_t *ql = b + 2, *qh = b + 66, *signs = b + 74, *scales = b + 106;
    p->d = load_half(b);
    for (unsigned k = 0; k < 8; k++) {
        memset(p->scale + 2 * k, 2 * ((scales[k / 2] >> 4 * (k % 2)) & 15) + 1, 2);
    }
    for (unsigned g = 0; g < 64; g++) {
        unsigned row = ql[g] | (unsigned)((qh[g / 8] >> (g % 8)) & 1) << 8;
        put_signed(p->code + 4 * g, iq3_s_grid[row], (unsigned)signs[g / 2] >> 4 * (g % 2), 4);
    }
}

/* code[j] = 8 * number +- 1, the 1/8 being in d. The row has 8 * number + 9 (1, 9 or 17): no byte borrows from the next. */
static void put_shifted(int8_t *code, uint64_t row, bool down)
{
    uint64_t value = ((row | EACH_BYTE(0x80)) - (down ? EACH_BYTE(10) : EACH_BYTE(8))) ^ EACH_BYTE(0x80);
    memcpy(code, &value, 8);
}

static void unpack_iq1_s(const uint8_t *b, struct block_parts *p)
{
    p->d = load_half(b) * 0.125f;
    for (unsigned k = 0; k < 8; k++) {
        unsigned h = load_u16(b + 34 + 2 * k);
        memset(p->scale + 2 * k, (int)(2 * ((h >> 12) & 7) + 1), 2);
        for (unsigned j = 0; j < 4; j++) {
            unsigned row = b[2 + 4 * k + j] | ((h >> 3 * j) & 7) << 8;
            put_shifted(p->code + 32 * k + 8 * j, iq1_raised[row], (h >> 15) & 1);
        }
    }
}

static void unpack_iq1_m(const uint8_t *b, struct block_parts *p)
{
    const uint8_t *ql = b, *qh = b + 32, *c = b + 48;
    unsigned d = 0;
    for (unsigned k = 0; k < 4; k++) {
        d |= (unsigned)(load_u16(c + 2 * k) >> 12) << 4 * k;
    }
    p->d = half_to_float((uint16_t)d) * 0.125f;
    for (unsigned k = 0; k < 16; k++) {
        p->scale[k] = (int8_t)(2 * ((load_u16(c + 2 * (k / 4)) >> 3 * (k % 4)) & 7) + 1);
    }
    for (unsigned g = 0; g < 32; g++) {
        unsigned nibble = (qh[g / 2] >> 4 * (g % 2)) & 15;
        put_shifted(p->code + 8 * g, iq1_raised[ql[g] | (nibble & 7) << 8], (nibble & 8) != 0);
    }
}

static void (*const unpackers[FORMAT_COUNT])(const uint8_t *, struct block_parts *) = {
    [FORMAT_Q8_0] = unpack_q8_0,       [FORMAT_Q4_0] = unpack_q4_0,     [FORMAT_Q4_1] = unpack_q4_1,
    [FORMAT_Q5_0] = unpack_q5_0,       [FORMAT_Q5_1] = unpack_q5_1,     [FORMAT_IQ4_NL] = unpack_iq4_nl,
    [FORMAT_MXFP4] = unpack_mxfp4,     [FORMAT_Q2_K] = unpack_q2_k,     [FORMAT_Q3_K] = unpack_q3_k,
    [FORMAT_Q4_K] = unpack_q4_k,       [FORMAT_Q5_K] = unpack_q5_k,     [FORMAT_Q6_K] = unpack_q6_k,
    [FORMAT_IQ4_XS] = unpack_iq4_xs,   [FORMAT_IQ1_S] = unpack_iq1_s,   [FORMAT_IQ1_M] = unpack_iq1_m,
    [FORMAT_IQ2_XXS] = unpack_iq2_xxs, [FORMAT_IQ2_XS] = unpack_iq2_xs, [FORMAT_IQ2_S] = unpack_iq2_s,
    [FORMAT_IQ3_XXS] = unpack_iq3_xxs, [FORMAT_IQ3_S] = unpack_iq3_s,
};

void block_unpack(enum weight_format format, const uint8_t *block, struct block_parts *ret_parts)
{
    ret_parts->has_min = false;
    unpackers[format](block, ret_parts);
}

/* ---- to float32 ---- */

static void decode_block(enum weight_format format, const uint8_t *block, uint32_t elems, float *y)
{
    struct block_parts p;
    block_unpack(format, block, &p);
    for (uint32_t i = 0; i < elems; i++) {
        float scale = p.d * (float)p.scale[i / 16];
        float value = scale * (float)p.code[i];
        y[i] = p.has_min ? value - p.dmin * (float)p.min[i / 16] : value;
    }
}

static void decode_e4m3(const struct matrix_view *w, uint32_t row, uint32_t col, uint32_t n, const uint8_t *codes,
                        float *y)
{
    const float *scale = w->scale + (size_t)((w->row0 + row) / FORMAT_SCALE_BLOCK) * w->scale_cols;
    for (uint32_t i = 0; i < n; i++) {
        y[i] = e4m3_to_float(codes[i]) * scale[(col + i) / FORMAT_SCALE_BLOCK];
    }
}

void block_decode(const struct matrix_view *w, uint32_t row, uint32_t col, uint32_t n, float *ret_y)
{
    const struct weight_format_info *info = weight_format_info(w->format);
    const uint8_t *data =
        (const uint8_t *)w->data + (size_t)row * w->row_bytes + (size_t)(col / info->block_elems) * info->block_bytes;
    switch (w->format) {
    case FORMAT_F32:
        memcpy(ret_y, data, n * sizeof(float));
        return;
    case FORMAT_F16:
        for (uint32_t i = 0; i < n; i++) {
            ret_y[i] = load_half(data + 2 * (size_t)i);
        }
        return;
    case FORMAT_BF16:
        for (uint32_t i = 0; i < n; i++) {
            ret_y[i] = bf16_to_float(load_u16(data + 2 * (size_t)i));
        }
        return;
    case FORMAT_F8_E4M3:
        decode_e4m3(w, row, col, n, data, ret_y);
        return;
    default:
        for (uint32_t i = 0; i < n; i += info->block_elems, data += info->block_bytes) {
            decode_block(w->format, data, info->block_elems, ret_y + i);
        }
    }
}
