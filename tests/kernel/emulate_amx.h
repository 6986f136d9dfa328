/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: plain C versions of AMX tiles and of the AVX-512 intrinsics for bfloat16, by the operation sections of Intel's manual;
 * see emulate_avx512.h. What makes the processor fault ends the program. Knows nothing of sluice.
 *
 * Arithmetic of both: input denormals are zeros, results are rounded to nearest, ties to even, and flushed. */
#ifndef SLUICE_TESTS_KERNEL_EMULATE_AMX_H
#define SLUICE_TESTS_KERNEL_EMULATE_AMX_H

#include "emulate_bulk.h"

#define __m512bh struct emulated

EMULATE float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
EMULATE float flush_fma(float a, float b, float c) { return flush(fmaf(flush(a), flush(b), flush(c))); }
EMULATE float flush_add(float a, float b) { return flush(flush(a) + flush(b)); }

EMULATE float bfloat16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* ---- AVX-512 with BF16 ---- */

EMULATE uint16_t round_bfloat16(uint32_t x)
{
    uint32_t exponent = x >> 23 & 255;
    if (exponent == 0) {
        return (uint16_t)(x >> 16 & 0x8000);
    }
    if (exponent == 255) {
        return (uint16_t)(x >> 16 | (x & 0x7fffff ? 0x40 : 0));
    }
    return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

EMULATE struct emulated emulated_cvtne2ps_pbh(struct emulated a, struct emulated b)
{
    struct emulated r;
    for (int i = 0; i < 16; i++) {
        r.uw[i] = round_bfloat16(b.ud[i]);
        r.uw[16 + i] = round_bfloat16(a.ud[i]);
    }
    return r;
}

EMULATE struct emulated emulated_dpbf16_ps(struct emulated c, struct emulated a, struct emulated b)
{
    for (int i = 0; i < 16; i++) {
        c.f[i] = flush_fma(bfloat16(a.uw[2 * i + 1]), bfloat16(b.uw[2 * i + 1]), c.f[i]);
        c.f[i] = flush_fma(bfloat16(a.uw[2 * i]), bfloat16(b.uw[2 * i]), c.f[i]);
    }
    return c;
}

/* ---- AMX ---- */

struct emulated_tile {
    union {
        uint8_t row[16][64];
        float f[16][16];
        uint16_t uw[16][32];
    };
    uint32_t rows, row_bytes; /* 0: not configured */
};

EMULATE struct emulated_tile *emulated_tiles(void)
{
    static _Thread_local struct emulated_tile tile[8];
    return tile;
}

EMULATE void fault_unless(int ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

EMULATE void emulated_tile_release(void) { memset(emulated_tiles(), 0, 8 * sizeof(struct emulated_tile)); }

EMULATE void emulated_tile_loadconfig(const void *config)
{
    const uint8_t *c = config;
    struct emulated_tile *tile = emulated_tiles();
    emulated_tile_release();
    fault_unless(c[0] == 1 && c[1] == 0);
    for (int i = 2; i < 16; i++) {
        fault_unless(c[i] == 0);
    }
    for (int t = 0; t < 16; t++) {
        uint16_t row_bytes;
        memcpy(&row_bytes, c + 16 + 2 * t, sizeof(row_bytes));
        fault_unless(row_bytes <= 64 && c[48 + t] <= 16 && (row_bytes == 0) == (c[48 + t] == 0) && (t < 8 || row_bytes == 0));
        if (t < 8) {
            tile[t].row_bytes = row_bytes;
            tile[t].rows = c[48 + t];
        }
    }
}

EMULATE void emulated_tile_loadd(int t, const void *base, size_t stride)
{
    struct emulated_tile *tile = &emulated_tiles()[t];
    fault_unless(tile->rows != 0);
    memset(tile->row, 0, sizeof(tile->row));
    for (uint32_t i = 0; i < tile->rows; i++) {
        memcpy(tile->row[i], (const uint8_t *)base + i * stride, tile->row_bytes);
    }
}

EMULATE void emulated_tile_stored(int t, void *base, size_t stride)
{
    const struct emulated_tile *tile = &emulated_tiles()[t];
    fault_unless(tile->rows != 0);
    for (uint32_t i = 0; i < tile->rows; i++) {
        memcpy((uint8_t *)base + i * stride, tile->row[i], tile->row_bytes);
    }
}

/* Sums of the even and the odd products of a row, from zero, then their sum, then the element. */
EMULATE void emulated_tile_dpbf16ps(int dest, int src1, int src2)
{
    struct emulated_tile *c = &emulated_tiles()[dest];
    const struct emulated_tile *a = &emulated_tiles()[src1], *b = &emulated_tiles()[src2];
    fault_unless(dest != src1 && dest != src2 && src1 != src2 && a->rows != 0 && b->rows != 0 && c->rows == a->rows);
    fault_unless(c->row_bytes == b->row_bytes && b->rows == a->row_bytes / 4 && a->row_bytes % 4 == 0 && b->row_bytes % 4 == 0);
    for (uint32_t m = 0; m < c->rows; m++) {
        float sum[32] = {0};
        for (uint32_t k = 0; k < a->row_bytes / 4; k++) {
            for (uint32_t n = 0; n < c->row_bytes / 4; n++) {
                sum[2 * n] = flush_fma(bfloat16(a->uw[m][2 * k]), bfloat16(b->uw[k][2 * n]), sum[2 * n]);
                sum[2 * n + 1] = flush_fma(bfloat16(a->uw[m][2 * k + 1]), bfloat16(b->uw[k][2 * n + 1]), sum[2 * n + 1]);
            }
        }
        for (uint32_t n = 0; n < c->row_bytes / 4; n++) {
            c->f[m][n] = flush_add(c->f[m][n], flush_add(sum[2 * n], sum[2 * n + 1]));
        }
    }
}

#undef _mm512_cvtne2ps_pbh
#define _mm512_cvtne2ps_pbh emulated_cvtne2ps_pbh
#undef _mm512_dpbf16_ps
#define _mm512_dpbf16_ps emulated_dpbf16_ps
#undef _tile_release
#define _tile_release emulated_tile_release
#undef _tile_loadconfig
#define _tile_loadconfig emulated_tile_loadconfig
#undef _tile_loadd
#define _tile_loadd emulated_tile_loadd
#undef _tile_stored
#define _tile_stored emulated_tile_stored
#undef _tile_dpbf16ps
#define _tile_dpbf16ps emulated_tile_dpbf16ps

#endif
