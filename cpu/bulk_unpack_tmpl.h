/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/bulk_<isa>.h. Owns: unpacking sixteen weight rows to a panel of integer codes, format by format.
 * Must not know: activations. Bytes are transposed first, four of a row to a lane, so that everything else is done for all
 * rows at once. Layouts: docs/formats.md. */
#ifndef SLUICE_CPU_BULK_UNPACK_TMPL_H
#define SLUICE_CPU_BULK_UNPACK_TMPL_H

#include "cpu/blocks.h"
#include "cpu/bulk_rows_tmpl.h"
#include "cpu/bulk_tmpl.h"

/* Half floats of 16 rows, times a power of two. */
SIMD_INLINE void bulk_halves(const uint8_t *p, size_t row_bytes, float factor, float y[BULK_LANES])
{
    SIMD_UNROLL
    for (size_t i = 0; i < BULK_LANES; i += 4) {
        v4_store(y + i, v4_halves(p + i * row_bytes, row_bytes));
    }
    vf_store(y, vf_mul(vf_load(y), vf_set1(factor)));
}

SIMD_INLINE struct vi low_nibbles(struct vi x) { return vi_and(x, vi_set1_8(15)); }
SIMD_INLINE struct vi high_nibbles(struct vi x) { return vi_and(vi_shr16(x, 4), vi_set1_8(15)); }

/* ---- blocks of 32 ---- */

static const int8_t bulk_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
enum { BULK_MXFP4_OFFSET = 12 };
static const int8_t bulk_mxfp4_raised[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

static const struct bulk_kind bulk_signed_32 = {.block = 32, .group = 32, .run = 1, .sum = BULK_SUM_NONE, .is_signed = true};

SIMD_INLINE BULK_UNPACK(bulk_unpack_q8_0)
{
    for (uint32_t b = 0; b < blocks; b++, w += 34) {
        bulk_halves(w, row_bytes, 1.0f, ret->d[b]);
        SIMD_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            struct vi line[4];
            bulk_transpose(w + 2 + 16 * h, row_bytes, line);
            SIMD_UNROLL
            for (uint32_t q = 0; q < 4; q++) {
                bulk_store_signed(ret->code[8 * b + 4 * h + q], line[q]);
            }
        }
        bulk_finish_signed(bulk_signed_32, b, ret);
    }
}

/* 16 bytes of nibbles at p: low ones are columns 0-15 of a block, high ones 16-31. */
SIMD_INLINE void bulk_nibbles(const uint8_t *p, size_t row_bytes, const int8_t *table, uint8_t (*line)[64])
{
    struct vi raw[4];
    bulk_transpose(p, row_bytes, raw);
    SIMD_UNROLL
    for (uint32_t q = 0; q < 4; q++) {
        struct vi low = low_nibbles(raw[q]), high = high_nibbles(raw[q]);
        vi_store(line[q], table ? vi_lookup(table, low) : low);
        vi_store(line[4 + q], table ? vi_lookup(table, high) : high);
    }
}

SIMD_INLINE BULK_UNPACK(bulk_unpack_q4_0)
{
    ret->offset = 8;
    for (uint32_t b = 0; b < blocks; b++, w += 18) {
        bulk_halves(w, row_bytes, 1.0f, ret->d[b]);
        bulk_nibbles(w + 2, row_bytes, NULL, ret->code + 8 * b);
    }
}

SIMD_INLINE BULK_UNPACK(bulk_unpack_q4_1)
{
    for (uint32_t b = 0; b < blocks; b++, w += 20) {
        bulk_halves(w, row_bytes, 1.0f, ret->d[b]);
        bulk_halves(w + 2, row_bytes, 1.0f, ret->min[b]);
        bulk_nibbles(w + 4, row_bytes, NULL, ret->code + 8 * b);
    }
}

SIMD_INLINE BULK_UNPACK(bulk_unpack_mxfp4)
{
    ret->offset = BULK_MXFP4_OFFSET;
    for (uint32_t b = 0; b < blocks; b++, w += 17) {
        SIMD_UNROLL
        for (size_t i = 0; i < BULK_LANES; i += 4) {
            v4_store(ret->d[b] + i, v4_e8m0(w + i * row_bytes, row_bytes));
        }
        bulk_nibbles(w + 1, row_bytes, bulk_mxfp4_raised, ret->code + 8 * b);
    }
}

SIMD_INLINE BULK_UNPACK(bulk_unpack_iq4_nl)
{
    for (uint32_t b = 0; b < blocks; b++, w += 18) {
        bulk_halves(w, row_bytes, 1.0f, ret->d[b]);
        bulk_nibbles(w + 2, row_bytes, bulk_iq4_values, ret->code + 8 * b);
        bulk_resign(ret->code + 8 * b, 8);
        bulk_finish_signed(bulk_signed_32, b, ret);
    }
}

/* Bit 4 of the codes of a block: bit i of 32 bits belongs to column i. */
SIMD_INLINE void bulk_fifth_bits(const uint8_t *p, size_t row_bytes, uint8_t (*line)[64])
{
    uint32_t bits[BULK_LANES];
    for (size_t j = 0; j < BULK_LANES; j++) {
        bits[j] = load_u32(p + j * row_bytes);
    }
    struct vi all = vi_load(bits), one = vi_set1_32(0x10);
    SIMD_UNROLL
    for (int q = 0; q < 8; q++) { /* four bits of a lane to bit 4 of its four bytes */
        struct vi four = vi_shr32(all, 4 * q);
        struct vi b = vi_and(vi_shl32(four, 4), one);
        b = vi_or(b, vi_and(vi_shl32(four, 11), vi_shl32(one, 8)));
        b = vi_or(b, vi_and(vi_shl32(four, 18), vi_shl32(one, 16)));
        b = vi_or(b, vi_and(vi_shl32(four, 25), vi_shl32(one, 24)));
        vi_store(line[q], vi_or(vi_load(line[q]), b));
    }
}

SIMD_INLINE BULK_UNPACK(bulk_unpack_q5_0)
{
    ret->offset = 16;
    for (uint32_t b = 0; b < blocks; b++, w += 22) {
        bulk_halves(w, row_bytes, 1.0f, ret->d[b]);
        bulk_nibbles(w + 6, row_bytes, NULL, ret->code + 8 * b);
        bulk_fifth_bits(w + 2, row_bytes, ret->code + 8 * b);
    }
}

SIMD_INLINE BULK_UNPACK(bulk_unpack_q5_1)
{
    for (uint32_t b = 0; b < blocks; b++, w += 24) {
        bulk_halves(w, row_bytes, 1.0f, ret->d[b]);
        bulk_halves(w + 2, row_bytes, 1.0f, ret->min[b]);
        bulk_nibbles(w + 8, row_bytes, NULL, ret->code + 8 * b);
        bulk_fifth_bits(w + 4, row_bytes, ret->code + 8 * b);
    }
}

/* ---- blocks of 256: scales ---- */

/* Sixteen signed scales, four to a lane, for groups of 16; with `offset`, what activation sums are multiplied by. */
SIMD_INLINE void bulk_scales_16(const struct vi scale[4], int offset_shift, uint32_t b, struct bulk_panel *ret)
{
    SIMD_UNROLL
    for (uint32_t h = 0; h < 4; h++) {
        SIMD_UNROLL
        for (int j = 0; j < 4; j++) {
            vi_store(ret->scale[16 * b + 4 * h + (uint32_t)j], bulk_scale(scale[h], j));
        }
        vi_store(ret->by_sum[8 * b + 2 * h], vi_shl16(vi_byte_pair(scale[h], 0, 1), offset_shift));
        vi_store(ret->by_sum[8 * b + 2 * h + 1], vi_shl16(vi_byte_pair(scale[h], 2, 3), offset_shift));
    }
}

/* 8 scales and 8 minima of 6 bits in 12 bytes at p, where 16 can be read. */
SIMD_INLINE void bulk_six_bit_scales(const uint8_t *p, size_t row_bytes, uint32_t b, struct bulk_panel *ret)
{
    struct vi raw[4], scale[2], min[2], six = vi_set1_8(0x3f), two = vi_set1_8(0x30);
    bulk_transpose(p, row_bytes, raw);
    scale[0] = vi_and(raw[0], six);
    min[0] = vi_and(raw[1], six);
    scale[1] = vi_or(low_nibbles(raw[2]), vi_and(vi_shr16(raw[0], 2), two));
    min[1] = vi_or(high_nibbles(raw[2]), vi_and(vi_shr16(raw[1], 2), two));
    SIMD_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        SIMD_UNROLL
        for (int j = 0; j < 4; j++) {
            vi_store(ret->scale[8 * b + 4 * h + (uint32_t)j], bulk_scale(scale[h], j));
        }
        vi_store(ret->by_sum[4 * b + 2 * h], vi_byte_pair(min[h], 0, 1));
        vi_store(ret->by_sum[4 * b + 2 * h + 1], vi_byte_pair(min[h], 2, 3));
    }
}

/* ---- Q4_K, Q5_K: 32 bytes hold 64 columns ---- */

SIMD_INLINE BULK_UNPACK(bulk_unpack_q4_k)
{
    for (uint32_t b = 0; b < blocks; b++, w += 144) {
        bulk_halves(w, row_bytes, 1.0f, ret->d[b]);
        bulk_halves(w + 2, row_bytes, -1.0f, ret->min[b]);
        bulk_six_bit_scales(w + 4, row_bytes, b, ret);
        for (uint32_t h = 0; h < 8; h++) {
            struct vi raw[4];
            uint8_t(*line)[64] = ret->code + 64 * b + 16 * (h / 2) + 4 * (h % 2);
            bulk_transpose(w + 16 + 16 * h, row_bytes, raw);
            SIMD_UNROLL
            for (uint32_t q = 0; q < 4; q++) {
                vi_store(line[q], low_nibbles(raw[q]));
                vi_store(line[8 + q], high_nibbles(raw[q]));
            }
        }
    }
}

SIMD_INLINE BULK_UNPACK(bulk_unpack_q5_k)
{
    struct vi bit = vi_set1_8(16), one = vi_set1_8(1);
    for (uint32_t b = 0; b < blocks; b++, w += 176) {
        bulk_halves(w, row_bytes, 1.0f, ret->d[b]);
        bulk_halves(w + 2, row_bytes, -1.0f, ret->min[b]);
        bulk_six_bit_scales(w + 4, row_bytes, b, ret);
        for (uint32_t half = 0; half < 2; half++) {
            struct vi fifth[4]; /* bit k of a byte: columns 32 k + 16 half + its number */
            bulk_transpose(w + 16 + 16 * half, row_bytes, fifth);
            for (uint32_t g = 0; g < 4; g++) {
                struct vi raw[4];
                uint8_t(*line)[64] = ret->code + 64 * b + 16 * g + 4 * half;
                bulk_transpose(w + 48 + 32 * g + 16 * half, row_bytes, raw);
                SIMD_UNROLL
                for (uint32_t q = 0; q < 4; q++) {
                    struct vi low = vi_shl16(vi_and(fifth[q], one), 4), high = vi_and(vi_shl16(fifth[q], 3), bit);
                    vi_store(line[q], vi_or(low_nibbles(raw[q]), low));
                    vi_store(line[8 + q], vi_or(high_nibbles(raw[q]), high));
                    fifth[q] = vi_shr16(fifth[q], 2);
                }
            }
        }
    }
}

/* ---- Q2_K, Q3_K: byte i of 32 holds columns i, i+32, i+64, i+96 of a half ---- */

SIMD_INLINE BULK_UNPACK(bulk_unpack_q2_k)
{
    struct vi three = vi_set1_8(3);
    for (uint32_t b = 0; b < blocks; b++, w += 84) {
        struct vi raw[4], scale[4];
        bulk_halves(w + 80, row_bytes, 1.0f, ret->d[b]);
        bulk_halves(w + 82, row_bytes, -1.0f, ret->min[b]);
        bulk_transpose(w, row_bytes, raw);
        SIMD_UNROLL
        for (uint32_t h = 0; h < 4; h++) {
            scale[h] = low_nibbles(raw[h]);
            raw[h] = high_nibbles(raw[h]);
        }
        bulk_scales_16(scale, 0, b, ret);
        SIMD_UNROLL
        for (uint32_t h = 0; h < 4; h++) { /* minima in place of the scales */
            vi_store(ret->by_sum[8 * b + 2 * h], vi_byte_pair(raw[h], 0, 1));
            vi_store(ret->by_sum[8 * b + 2 * h + 1], vi_byte_pair(raw[h], 2, 3));
        }
        for (uint32_t h = 0; h < 4; h++) {
            uint8_t(*line)[64] = ret->code + 64 * b + 32 * (h / 2) + 4 * (h % 2);
            bulk_transpose(w + 16 + 16 * h, row_bytes, raw);
            SIMD_UNROLL
            for (uint32_t q = 0; q < 4; q++) {
                vi_store(line[q], vi_and(raw[q], three));
                vi_store(line[8 + q], vi_and(vi_shr16(raw[q], 2), three));
                vi_store(line[16 + q], vi_and(vi_shr16(raw[q], 4), three));
                vi_store(line[24 + q], vi_and(vi_shr16(raw[q], 6), three));
            }
        }
    }
}

/* 16 scales of 6 bits, 32 above their value, in the last 12 of 16 bytes... at p the first two bytes are not theirs. */
SIMD_INLINE void bulk_q3_k_scales(const uint8_t *p, size_t row_bytes, uint32_t b, struct bulk_panel *ret)
{
    struct vi raw[4], s[3], scale[4], high = vi_set1_8(0x30), raised = vi_set1_8(32);
    bulk_transpose(p, row_bytes, raw);
    SIMD_UNROLL
    for (int i = 0; i < 3; i++) {
        s[i] = vi_or(vi_shr32(raw[i], 16), vi_shl32(raw[i + 1], 16));
    }
    scale[0] = vi_or(low_nibbles(s[0]), vi_and(vi_shl16(s[2], 4), high));
    scale[1] = vi_or(low_nibbles(s[1]), vi_and(vi_shl16(s[2], 2), high));
    scale[2] = vi_or(high_nibbles(s[0]), vi_and(s[2], high));
    scale[3] = vi_or(high_nibbles(s[1]), vi_and(vi_shr16(s[2], 2), high));
    SIMD_UNROLL
    for (int i = 0; i < 4; i++) {
        scale[i] = vi_sub8(scale[i], raised);
    }
    bulk_scales_16(scale, 2, b, ret);
}

SIMD_INLINE BULK_UNPACK(bulk_unpack_q3_k)
{
    struct vi three = vi_set1_8(3), four = vi_set1_8(4), one = vi_set1_8(1);
    for (uint32_t b = 0; b < blocks; b++, w += 110) {
        bulk_halves(w + 108, row_bytes, 1.0f, ret->d[b]);
        bulk_q3_k_scales(w + 94, row_bytes, b, ret);
        for (uint32_t half = 0; half < 2; half++) {
            struct vi third[4]; /* bit k of a byte: columns 32 k + 16 half + its number */
            bulk_transpose(w + 16 * half, row_bytes, third);
            for (uint32_t g = 0; g < 2; g++) {
                struct vi raw[4];
                uint8_t(*line)[64] = ret->code + 64 * b + 32 * g + 4 * half;
                bulk_transpose(w + 32 + 32 * g + 16 * half, row_bytes, raw);
                SIMD_UNROLL
                for (uint32_t q = 0; q < 4; q++) {
                    struct vi high = third[q];
                    vi_store(line[q], vi_or(vi_and(raw[q], three), vi_shl16(vi_and(high, one), 2)));
                    vi_store(line[8 + q], vi_or(vi_and(vi_shr16(raw[q], 2), three), vi_and(vi_shl16(high, 1), four)));
                    vi_store(line[16 + q], vi_or(vi_and(vi_shr16(raw[q], 4), three), vi_and(high, four)));
                    vi_store(line[24 + q], vi_or(vi_and(vi_shr16(raw[q], 6), three), vi_and(vi_shr16(high, 1), four)));
                    third[q] = vi_shr16(high, 4);
                }
            }
        }
    }
}

/* ---- Q6_K ---- */

SIMD_INLINE BULK_UNPACK(bulk_unpack_q6_k)
{
    struct vi high = vi_set1_8(0x30);
    for (uint32_t b = 0; b < blocks; b++, w += 210) {
        struct vi scale[4];
        bulk_halves(w + 208, row_bytes, 1.0f, ret->d[b]);
        bulk_transpose(w + 192, row_bytes, scale);
        bulk_scales_16(scale, 5, b, ret);
        for (uint32_t h = 0; h < 4; h++) { /* 16 bytes of pairs of high bits: columns 128 (h/2) + 16 (h%2) + 32 k */
            struct vi pairs[4], raw0[4], raw1[4];
            const uint8_t *low = w + 64 * (h / 2) + 16 * (h % 2);
            uint8_t(*line)[64] = ret->code + 64 * b + 32 * (h / 2) + 4 * (h % 2);
            bulk_transpose(w + 128 + 16 * h, row_bytes, pairs);
            bulk_transpose(low, row_bytes, raw0);
            bulk_transpose(low + 32, row_bytes, raw1);
            SIMD_UNROLL
            for (uint32_t q = 0; q < 4; q++) {
                vi_store(line[q], vi_or(low_nibbles(raw0[q]), vi_and(vi_shl16(pairs[q], 4), high)));
                vi_store(line[8 + q], vi_or(low_nibbles(raw1[q]), vi_and(vi_shl16(pairs[q], 2), high)));
                vi_store(line[16 + q], vi_or(high_nibbles(raw0[q]), vi_and(pairs[q], high)));
                vi_store(line[24 + q], vi_or(high_nibbles(raw1[q]), vi_and(vi_shr16(pairs[q], 2), high)));
            }
        }
    }
}

/* ---- signed codes in blocks of 256: IQ4_XS, and lattice types by way of their rows ---- */

static const struct bulk_kind bulk_signed_256 = {.block = 256, .group = 16, .run = 1, .sum = BULK_SUM_NONE, .is_signed = true};

SIMD_INLINE BULK_UNPACK(bulk_unpack_iq4_xs)
{
    for (uint32_t b = 0; b < blocks; b++, w += 136) {
        struct vi raw[4], scale[4];
        bulk_halves(w, row_bytes, 1.0f, ret->d[b]);
        bulk_transpose(w, row_bytes, raw); /* lane: d, 8 x 2 high bits; 8 nibbles */
        SIMD_UNROLL
        for (int h = 0; h < 4; h++) { /* groups 2h and 2h+1 of 32, each for two of 16 */
            struct vi low = vi_shr32(raw[1], 8 * h), high = vi_shr32(raw[0], 16 + 4 * h);
            struct vi s0 = vi_or(vi_and(low, vi_set1_32(15)), vi_and(vi_shl32(high, 4), vi_set1_32(0x30)));
            struct vi s1 = vi_or(vi_and(vi_shl32(low, 12), vi_set1_32(0xf0000)), vi_and(vi_shl32(high, 18), vi_set1_32(0x300000)));
            struct vi both = vi_or(s0, s1);
            scale[h] = vi_sub8(vi_or(both, vi_shl32(both, 8)), vi_set1_8(32));
        }
        bulk_scales_16(scale, 7, b, ret);
        for (uint32_t g = 0; g < 8; g++) {
            bulk_nibbles(w + 8 + 16 * g, row_bytes, bulk_iq4_values, ret->code + 64 * b + 8 * g);
        }
        bulk_resign(ret->code + 64 * b, 64);
        bulk_finish_signed(bulk_signed_256, b, ret);
    }
}

/* Blocks that are unpacked row by row. */
static void bulk_unpack_rows(enum weight_format format, uint32_t block_bytes, const uint8_t *w, size_t row_bytes, uint32_t blocks, struct bulk_panel *ret)
{
    int8_t code[BULK_LANES][256], scales[BULK_LANES][16];
    for (uint32_t b = 0; b < blocks; b++, w += block_bytes) {
        struct vi lines[4];
        for (size_t j = 0; j < BULK_LANES; j++) {
            struct block_parts parts;
            block_unpack(format, w + j * row_bytes, &parts);
            memcpy(code[j], parts.code, 256);
            memcpy(scales[j], parts.scale, 16);
            ret->d[b][j] = parts.d;
        }
        bulk_transpose((const uint8_t *)scales, 16, lines);
        bulk_scales_16(lines, 7, b, ret);
        for (uint32_t h = 0; h < 16; h++) {
            bulk_transpose((const uint8_t *)code + 16 * h, 256, lines);
            SIMD_UNROLL
            for (uint32_t q = 0; q < 4; q++) {
                bulk_store_signed(ret->code[64 * b + 4 * h + q], lines[q]);
            }
        }
        bulk_finish_signed(bulk_signed_256, b, ret);
    }
}

#endif
