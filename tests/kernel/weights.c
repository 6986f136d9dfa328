/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: random weight matrices in any format for the kernel checks. Must not know: kernels. */
#include "tests/kernel/weights.h"

#include <math.h>
#include <string.h>

#include "common/attr.h"
#include "common/intmath.h"

/* Where the half scales of a block are. */
static const struct {
    enum weight_format format;
    uint8_t count, at[2];
} scale_fields[] = {
    {FORMAT_Q8_0, 1, {0}},     {FORMAT_Q4_0, 1, {0}},     {FORMAT_Q4_1, 2, {0, 2}},   {FORMAT_Q5_0, 1, {0}},
    {FORMAT_Q5_1, 2, {0, 2}},  {FORMAT_IQ4_NL, 1, {0}},   {FORMAT_Q2_K, 2, {80, 82}}, {FORMAT_Q3_K, 1, {108}},
    {FORMAT_Q4_K, 2, {0, 2}},  {FORMAT_Q5_K, 2, {0, 2}},  {FORMAT_Q6_K, 1, {208}},    {FORMAT_IQ4_XS, 1, {0}},
    {FORMAT_IQ1_S, 1, {0}},    {FORMAT_IQ2_XXS, 1, {0}},  {FORMAT_IQ2_XS, 1, {0}},    {FORMAT_IQ2_S, 1, {0}},
    {FORMAT_IQ3_XXS, 1, {0}},  {FORMAT_IQ3_S, 1, {0}},
};

/* 2^-10 .. 2 with either sign. */
static uint16_t ordinary_half(struct check *c)
{
    return (uint16_t)((check_random(c) & 0x83ff) | (5 + check_below(c, 11)) << 10);
}

/* 2^-27 .. 2^13. */
static uint16_t ordinary_bf16(struct check *c)
{
    return (uint16_t)((check_random(c) & 0x807f) | (100 + check_below(c, 40)) << 7);
}

static void store_half(uint8_t *p, uint16_t h) { memcpy(p, &h, sizeof(h)); }

static void tame_block(struct check *c, enum weight_format format, uint8_t *block)
{
    if (format == FORMAT_MXFP4) {
        block[0] = (uint8_t)(115 + check_below(c, 20));
    } else if (format == FORMAT_IQ1_M) {
        uint16_t d = ordinary_half(c);
        for (int k = 0; k < 4; k++) {
            uint8_t *high = block + 48 + 2 * k + 1;
            *high = (uint8_t)((*high & 15) | ((d >> 4 * k) & 15) << 4);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(scale_fields); i++) {
        for (int k = 0; scale_fields[i].format == format && k < scale_fields[i].count; k++) {
            store_half(block + scale_fields[i].at[k], ordinary_half(c));
        }
    }
}

static void tame_row(struct check *c, enum weight_format format, uint8_t *row, uint32_t cols)
{
    const struct weight_format_info *info = weight_format_info(format);
    for (uint32_t i = 0; i < cols; i += info->block_elems, row += info->block_bytes) {
        if (format == FORMAT_F32) {
            float x = check_float(c);
            memcpy(row, &x, sizeof(x));
        } else if (format == FORMAT_F16) {
            store_half(row, ordinary_half(c));
        } else if (format == FORMAT_BF16) {
            store_half(row, ordinary_bf16(c));
        } else if (format == FORMAT_F8_E4M3) {
            *row = (*row & 127) == 127 ? 0x38 : *row;
        } else {
            tame_block(c, format, row);
        }
    }
}

struct matrix_view weights_random(struct check *c, enum weight_format format, uint32_t rows, uint32_t cols, bool wild)
{
    const struct weight_format_info *info = weight_format_info(format);
    struct matrix_view w = {.rows = rows, .cols = cols, .format = format};
    size_t exact = (size_t)(cols / info->block_elems) * info->block_bytes;
    w.row_bytes = exact + (check_one_in(c, 4) ? check_below(c, 9) : 0);
    /* The last row ends where the buffer ends, whatever lies between rows. */
    size_t bytes = rows == 0 ? 0 : (rows - 1) * w.row_bytes + exact;
    uint8_t *data = check_bytes(c, bytes);
    check_fill_bytes(c, data, bytes);
    for (uint32_t r = 0; !wild && r < rows; r++) {
        tame_row(c, format, data + r * w.row_bytes, cols);
    }
    w.data = data;
    if (format == FORMAT_F8_E4M3) {
        w.row0 = check_below(c, 300);
        w.scale_cols = (cols + FORMAT_SCALE_BLOCK - 1) / FORMAT_SCALE_BLOCK;
        w.scale = check_floats(c, (size_t)ceil_div_u64(w.row0 + rows, FORMAT_SCALE_BLOCK) * w.scale_cols);
    }
    return w;
}

uint32_t weights_random_cols(struct check *c, enum weight_format format)
{
    uint32_t block = weight_format_info(format)->block_elems;
    if (check_one_in(c, 40)) {
        return 0;
    }
    if (block == 1) {
        return 1 + check_below(c, check_one_in(c, 2) ? 40 : 600);
    }
    return block * (1 + check_below(c, block == 32 ? 14 : 5));
}
