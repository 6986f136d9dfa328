/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the definition of bulk products: exact integer sums and one order of float steps per output, rising columns, so
 * that it is the same in every cut and on every instruction set. Must not know: how blocks are packed (cpu/blocks.h). */
#include <math.h>
#include <string.h>

#include "common/intmath.h"
#include "cpu/blocks.h"
#include "cpu/ref.h"

/* y after one block of `elems` weights against their activations q. */
static float block_step(const struct block_parts *w, uint32_t elems, const int8_t *q, const int16_t *bsum16, float act_scale, float y)
{
    int32_t sum = 0, min_sum = 0;
    for (uint32_t i = 0; i < elems; i++) {
        sum += w->scale[i / 16] * w->code[i] * q[i];
    }
    y = fmaf(w->d * act_scale, (float)sum, y);
    if (w->has_min) {
        for (uint32_t g = 0; g < elems / 16; g++) {
            min_sum += w->min[g] * bsum16[g];
        }
        y = fmaf(-(w->dmin * act_scale), (float)min_sum, y);
    }
    return y;
}

void ref_bulk(const struct matvec_args *args)
{
    const struct matrix_view *w = &args->w;
    const struct act_rows *act = &args->act;
    const struct weight_format_info *info = weight_format_info(w->format);
    for (uint32_t r = args->row_begin; r < args->row_end; r++) {
        const uint8_t *block = (const uint8_t *)w->data + (size_t)r * w->row_bytes;
        for (uint32_t i = 0; i < args->n; i++) {
            args->y[i * args->y_stride + r] = 0.0f;
        }
        for (size_t col = 0; col < w->cols; col += info->block_elems, block += info->block_bytes) {
            struct block_parts parts = {0};
            block_unpack(w->format, block, &parts);
            for (uint32_t i = 0; i < args->n; i++) {
                size_t at = i * act->stride + col;
                float *y = &args->y[i * args->y_stride + r];
                *y = block_step(&parts, info->block_elems, act->q + at, act->bsum16 + at / 16, act->scale[at / info->block_elems], *y);
            }
        }
    }
}

void ref_bulk_f32(const struct matvec_args *args, dequantise_fn *dequantise)
{
    enum { CHUNK = BULK_F32_COLS };
    const struct matrix_view *w = &args->w;
    (void)dequantise;
    for (uint32_t r = args->row_begin; r < args->row_end; r++) {
        for (uint32_t i = 0; i < args->n; i++) {
            args->y[i * args->y_stride + r] = 0.0f;
        }
        for (uint32_t col = 0, n; col < w->cols; col += n) {
            float weight[CHUNK];
            n = min_u32(CHUNK, w->cols - col);
            block_decode(w, r, col, n, weight);
            for (uint32_t i = 0; i < args->n; i++) {
                const float *x = args->act.x + i * args->act.stride + col;
                float sum = 0.0f;
                for (uint32_t j = 0; j < n; j++) {
                    sum = fmaf(weight[j], x[j], sum);
                }
                args->y[i * args->y_stride + r] += sum;
            }
        }
    }
}
