/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the definition of the operations on activation rows. Must not know: weights, caches, the router. */
#include <math.h>
#include <string.h>

#include "common/exact.h"
#include "cpu/lanes.h"
#include "cpu/ref.h"

/* int8 codes of one block; returns its scale. */
static float quantise_block(const float *x, int8_t *q, uint32_t n)
{
    float amax = 0.0f;
    bool finite = true;
    for (uint32_t i = 0; i < n; i++) {
        finite = finite && isfinite(x[i]);
        amax = fmaxf(amax, fabsf(x[i]));
    }
    if (!finite || amax < 0x1p-100f) {
        memset(q, 0, n);
        return finite ? 0.0f : NAN;
    }
    float inverse = 127.0f / amax;
    for (uint32_t i = 0; i < n; i++) {
        q[i] = (int8_t)rintf(x[i] * inverse); /* at most 127: x * inverse is within two roundings of it */
    }
    return amax / 127.0f;
}

void ref_quantise(const struct quantise_args *args)
{
    for (uint32_t i = 0; i < args->n; i++) {
        for (uint32_t col = 0; col < args->cols; col += args->block) {
            size_t at = i * args->stride + col;
            args->scale[at / args->block] = quantise_block(args->x + at, args->q + at, args->block);
        }
        for (uint32_t col = 0; col < args->cols; col += 16) {
            size_t at = i * args->stride + col;
            int sum = 0;
            for (uint32_t j = 0; j < 16; j++) {
                sum += args->q[at + j];
            }
            args->bsum16[at / 16] = (int16_t)sum;
        }
    }
}

float ref_dot16(const float *a, const float *b, size_t n)
{
    float acc[LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        acc[i % LANES] = fmaf(a[i], b[i], acc[i % LANES]);
    }
    return lanes_sum(acc);
}

void ref_rmsnorm(const struct rmsnorm_args *args)
{
    for (uint32_t i = 0; i < args->n; i++) {
        const float *x = args->x + i * args->x_stride;
        float *y = args->y + i * args->y_stride;
        float r = 1.0f / sqrtf(ref_dot16(x, x, args->cols) / (float)args->cols + args->eps);
        for (uint32_t c = 0; c < args->cols; c++) {
            y[c] = (x[c] * r) * args->w[c];
        }
    }
}

void ref_rope(const struct rope_args *args)
{
    uint32_t half = args->dim / 2;
    for (uint32_t h = 0; h < args->heads; h++) {
        float *x = args->x + h * args->head_stride;
        for (uint32_t j = 0; j < half; j++) {
            float cosine = args->cos_sin[2 * j], sine = args->cos_sin[2 * j + 1];
            float *first = x + (args->half_split ? j : 2 * j);
            float *second = args->half_split ? first + half : first + 1;
            float a = *first, b = *second;
            *first = a * cosine - b * sine;
            *second = a * sine + b * cosine;
        }
    }
}

void ref_swiglu(const struct swiglu_args *args)
{
    for (size_t i = 0; i < args->n; i++) {
        float g = args->gate[i];
        args->y[i] = (g * sigmoid_exact(g)) * args->up[i];
    }
}

void ref_exp(const struct exp_args *args)
{
    for (size_t i = 0; i < args->n; i++) {
        args->y[i] = exp_exact((args->x[i] - args->minus) / args->over);
    }
}

void ref_expert_sum(const struct expert_sum_args *args)
{
    for (uint32_t c = 0; c < args->cols; c++) {
        float sum = 0.0f;
        for (uint32_t i = 0; i < args->k; i++) {
            sum = fmaf(args->w[i], args->e[i * args->e_stride + c], sum);
        }
        if (args->shared != NULL) {
            sum += args->shared[c];
        }
        args->y[c] = sum + args->residual[c];
    }
}

void ref_add(const struct add_args *args)
{
    for (size_t i = 0; i < args->n; i++) {
        args->y[i] += args->x[i];
    }
}
