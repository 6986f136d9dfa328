/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the definition of matrix-times-row products: which element goes to which of the sixteen accumulators, and in
 * which steps. Must not know: how blocks are packed (cpu/blocks.h). Written to be read, not to be fast. */
#include <math.h>
#include <string.h>

#include "common/exact.h"
#include "common/intmath.h"
#include "cpu/blocks.h"
#include "cpu/lanes.h"
#include "cpu/ref.h"

/* ---- accumulator of element i of a row: the table of docs/numerics.md ---- */

static unsigned lane_one(size_t i) { return i % 16; }
static unsigned lane_pair(size_t i) { return (i / 2) % 16; }
static unsigned lane_quad(size_t i) { return (i / 4) % 16; }
static unsigned lane_bytes_32(size_t i) { return ((i / 32) % 2) * 8 + (i % 32) / 4; }
static unsigned lane_bytes_64(size_t i) { return ((i / 64) % 2) * 8 + (i % 32) / 4; }
static unsigned lane_bytes_128(size_t i) { return ((i / 128) % 2) * 8 + (i % 32) / 4; }
static unsigned lane_nibbles(size_t i) { return ((i / 32) % 4) * 4 + (i % 16) / 4; }
static unsigned lane_mod_64(size_t i) { return (i % 64) / 4; }

struct block_rule {
    unsigned (*lane)(size_t i);
    uint32_t step; /* elements of one exact int32 sum, at most a block */
    int offset;    /* codes are stored with it; instead of each element lanes l < 8 take it off sums of activations */
};

static struct block_rule block_rule(enum weight_format format)
{
    switch (format) {
    case FORMAT_Q8_0:
        return (struct block_rule){lane_bytes_32, 32, 0};
    case FORMAT_Q2_K:
        return (struct block_rule){lane_bytes_128, 256, 0};
    case FORMAT_Q3_K:
        return (struct block_rule){lane_bytes_128, 256, 4};
    case FORMAT_Q4_K:
    case FORMAT_Q5_K:
        return (struct block_rule){lane_bytes_64, 256, 0};
    case FORMAT_Q6_K:
        return (struct block_rule){lane_mod_64, 256, 32};
    case FORMAT_IQ4_XS:
        return (struct block_rule){lane_nibbles, 128, 0};
    case FORMAT_IQ1_S:
    case FORMAT_IQ1_M:
    case FORMAT_IQ2_XXS:
    case FORMAT_IQ2_XS:
    case FORMAT_IQ2_S:
    case FORMAT_IQ3_XXS:
    case FORMAT_IQ3_S:
        return (struct block_rule){lane_quad, 64, 0};
    default: /* Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, MXFP4 */
        return (struct block_rule){lane_nibbles, 32, 0};
    }
}

/* ---- integer blocks ---- */

/* What minima or an offset cost in a block of 256 is summed in lanes l < 8, each of two groups of 16 activations. */
static int32_t sum_of_groups(int first, int second, const int16_t bsum16[2]) { return first * bsum16[0] + second * bsum16[1]; }

/* One block of weights against its activations q. `col` is the index of the block's first element in the row. */
static void add_block(const struct block_rule *rule, const struct block_parts *w, size_t col, uint32_t elems,
                      const int8_t *q, const int16_t *bsum16, float act_scale, float acc[LANES])
{
    float scale = w->d * act_scale;
    float min_scale = -(w->dmin * act_scale);
    for (uint32_t first = 0; first < elems; first += rule->step) {
        int32_t sum[LANES] = {0}, act_sum[LANES] = {0};
        bool used[LANES] = {false};
        for (uint32_t i = first; i < first + rule->step; i++) {
            unsigned l = rule->lane(col + i);
            sum[l] += w->scale[i / 16] * (w->code[i] + rule->offset) * q[i];
            act_sum[l] += q[i];
            used[l] = true;
        }
        for (unsigned l = 0; l < LANES; l++) {
            if (!used[l]) {
                continue;
            }
            if (rule->offset != 0 && l < 8) {
                sum[l] -= rule->offset * sum_of_groups(w->scale[2 * l], w->scale[2 * l + 1], bsum16 + 2 * l);
            }
            acc[l] = fmaf(scale, (float)sum[l], acc[l]);
            if (w->has_min && elems == 32) { /* the lane's own 8 activations */
                acc[l] = fmaf(min_scale, (float)act_sum[l], acc[l]);
            } else if (w->has_min && l < 8) {
                acc[l] = fmaf(min_scale, (float)sum_of_groups(w->min[2 * l], w->min[2 * l + 1], bsum16 + 2 * l), acc[l]);
            }
        }
    }
}

void ref_matvec_blocks(const struct matvec_args *args)
{
    const struct matrix_view *w = &args->w;
    const struct act_rows *act = &args->act;
    const struct weight_format_info *info = weight_format_info(w->format);
    const struct block_rule rule = block_rule(w->format);
    const uint32_t elems = info->block_elems;
    for (uint32_t r = args->row_begin; r < args->row_end; r++) {
        const uint8_t *block = (const uint8_t *)w->data + (size_t)r * w->row_bytes;
        float acc[OPS_MAX_ROWS][LANES] = {{0}};
        for (size_t col = 0; col < w->cols; col += elems, block += info->block_bytes) {
            struct block_parts parts = {0};
            block_unpack(w->format, block, &parts);
            for (uint32_t i = 0; i < args->n; i++) {
                size_t at = i * act->stride + col;
                add_block(&rule, &parts, col, elems, act->q + at, act->bsum16 + at / 16, act->scale[at / elems], acc[i]);
            }
        }
        for (uint32_t i = 0; i < args->n; i++) {
            args->y[i * args->y_stride + r] = lanes_sum(acc[i]);
        }
    }
}

/* ---- float weights ---- */

enum { CHUNK = BLOCK_MAX_ELEMS };

void ref_matvec_float(const struct matvec_args *args)
{
    const struct matrix_view *w = &args->w;
    unsigned (*const lane)(size_t) = w->format == FORMAT_BF16 ? lane_pair : lane_one;
    for (uint32_t r = args->row_begin; r < args->row_end; r++) {
        float acc[OPS_MAX_ROWS][LANES] = {{0}};
        float weight[CHUNK];
        for (uint32_t col = 0, n; col < w->cols; col += n) {
            n = min_u32(CHUNK, w->cols - col);
            block_decode(w, r, col, n, weight);
            for (uint32_t i = 0; i < args->n; i++) {
                const float *x = args->act.x + i * args->act.stride + col;
                for (uint32_t j = 0; j < n; j++) {
                    acc[i][lane(j)] = fmaf(weight[j], x[j], acc[i][lane(j)]);
                }
            }
        }
        for (uint32_t i = 0; i < args->n; i++) {
            args->y[i * args->y_stride + r] = lanes_sum(acc[i]);
        }
    }
}

/* n codes under one scale. */
static void add_f8_block(const uint8_t *codes, float scale, const float *x, uint32_t n, float acc[LANES])
{
    float p[LANES] = {0};
    for (uint32_t j = 0; j < n; j++) {
        p[lane_pair(j)] = fmaf(half_to_float(e4m3_to_half_scaled(codes[j])), x[j], p[lane_pair(j)]);
    }
    float scale_256 = 256.0f * scale;
    for (uint32_t l = 0; l < min_u32((n + 1) / 2, LANES); l++) {
        acc[l] = fmaf(scale_256, p[l], acc[l]);
    }
}

void ref_matvec_f8_e4m3(const struct matvec_args *args)
{
    const struct matrix_view *w = &args->w;
    for (uint32_t r = args->row_begin; r < args->row_end; r++) {
        const uint8_t *codes = (const uint8_t *)w->data + (size_t)r * w->row_bytes;
        const float *scale = w->scale + (size_t)((w->row0 + r) / FORMAT_SCALE_BLOCK) * w->scale_cols;
        for (uint32_t i = 0; i < args->n; i++) {
            const float *x = args->act.x + i * args->act.stride;
            float acc[LANES] = {0};
            for (uint32_t col = 0; col < w->cols; col += FORMAT_SCALE_BLOCK) {
                uint32_t n = min_u32(FORMAT_SCALE_BLOCK, w->cols - col);
                add_f8_block(codes + col, scale[col / FORMAT_SCALE_BLOCK], x + col, n, acc);
            }
            args->y[i * args->y_stride + r] = lanes_sum(acc);
        }
    }
}

/* ---- dequantised uses ---- */

void ref_matvec_t(const struct matvec_t_args *args)
{
    const struct matrix_view *w = &args->w;
    for (uint32_t col = 0, n; col < w->cols; col += n) {
        n = min_u32(CHUNK, w->cols - col);
        float acc[CHUNK] = {0}, weight[CHUNK];
        for (uint32_t d = 0; d < w->rows; d++) {
            block_decode(w, d, col, n, weight);
            for (uint32_t j = 0; j < n; j++) {
                acc[j] = fmaf(args->x[d], weight[j], acc[j]);
            }
        }
        memcpy(args->y + col, acc, n * sizeof(float));
    }
}

void ref_dequantise(const struct dequantise_args *args)
{
    const struct matrix_view *w = &args->w;
    for (uint32_t r = args->row_begin; r < args->row_end; r++) {
        float *y = args->y + (size_t)(r - args->row_begin) * w->cols;
        for (uint32_t col = 0, n; col < w->cols; col += n) {
            n = min_u32(CHUNK, w->cols - col);
            block_decode(w, r, col, n, y + col);
        }
    }
}
