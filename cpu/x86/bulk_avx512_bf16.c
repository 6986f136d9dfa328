/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: bulk products in bfloat16 on AVX-512 with BF16, for formats that are floats. Must not know: other instruction sets. */
#include "cpu/x86/bulk_avx512_bf16.h"
#include "cpu/x86/init.h"

#include "cpu/bulk_bf16.h"

enum { BF16_TILE_ROWS = 8, BF16_BLOCK_ROWS = 8 };

SIMD_INLINE void bf16_begin(void) {}
SIMD_INLINE void bf16_end(void) {}

SIMD_INLINE struct vf bf16_dot(struct vf sum, struct vi w, struct vi x)
{
    __m512bh a, b;
    memcpy(&a, &w, sizeof(a));
    memcpy(&b, &x, sizeof(b));
    return (struct vf){_mm512_dpbf16_ps(sum.v, a, b)};
}

static void bf16_multiply(const struct bf16_panel p[BF16_PANELS], uint32_t steps, const uint16_t *x, uint32_t rows, float *y, size_t y_stride)
{
    struct vf low[BF16_BLOCK_ROWS], high[BF16_BLOCK_ROWS];
    (void)rows; /* those of the tile cost nothing */
    SIMD_UNROLL
    for (uint32_t i = 0; i < BF16_BLOCK_ROWS; i++) {
        low[i] = vf_load(y + i * y_stride);
        high[i] = vf_load(y + i * y_stride + BULK_LANES);
    }
    for (uint32_t k = 0; k < steps * (BF16_STEP / 2); k++) {
        struct vi w0 = vi_load(p[0].w[k]), w1 = vi_load(p[1].w[k]);
        SIMD_UNROLL
        for (uint32_t i = 0; i < BF16_BLOCK_ROWS; i++) {
            struct vi pair = bulk_broadcast(x + (size_t)i * BF16_COLS + 2 * k);
            low[i] = bf16_dot(low[i], w0, pair);
            high[i] = bf16_dot(high[i], w1, pair);
        }
    }
    SIMD_UNROLL
    for (uint32_t i = 0; i < BF16_BLOCK_ROWS; i++) {
        vf_store(y + i * y_stride, low[i]);
        vf_store(y + i * y_stride + BULK_LANES, high[i]);
    }
}

#include "cpu/bulk_bf16_tmpl.h"

void cpu_ops_init_bulk_avx512_bf16(struct ops *ops)
{
    ops->bf16_units = "avx512-bf16";
    ops->bulk_bf16[FORMAT_F16] = bulk_bf16;
    ops->bulk_bf16[FORMAT_BF16] = bulk_bf16;
    ops->bulk_bf16[FORMAT_F8_E4M3] = bulk_bf16;
}
