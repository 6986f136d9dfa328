/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: bulk products in bfloat16 on AMX, for all formats but float32. Must not know: other instruction sets.
 *
 * Integer formats too: 16 x 16 outputs by 32 columns take 16 cycles of the tile units in bfloat16, and in int8 as well, since
 * a block of 32 fills half of a tile; but int8 sums have to leave the tiles after each block or group of 32 for their scales:
 * 16 cycles to store them, and conversion, scaling and two accesses to y for 16 registers, 40 cycles more. */
#include "cpu/x86/bulk_avx512_bf16.h"
#include "cpu/x86/init.h"
#include "cpu/x86/tile.h"

#include "cpu/bulk_bf16.h"

enum { BF16_TILE_ROWS = TILE_ROWS, BF16_BLOCK_ROWS = 2 * TILE_ROWS };

SIMD_INLINE void bf16_begin(void) { tile_configure(); }
SIMD_INLINE void bf16_end(void) { _tile_release(); }

/* Tiles 0 to 3: outputs of 16 or (two) 32 activation rows by 32 weight rows; 4, 5: activations; 6, 7: weights. */
SIMD_INLINE void bf16_tiles(const struct bf16_panel p[BF16_PANELS], uint32_t steps, const uint16_t *x, bool two, float *y, size_t y_stride)
{
    const size_t x_bytes = BF16_COLS * sizeof(*x), y_bytes = y_stride * sizeof(*y);
    const uint16_t *x1 = x + (size_t)TILE_ROWS * BF16_COLS;
    float *y1 = y + TILE_ROWS * y_stride;
    _tile_loadd(0, y, y_bytes);
    _tile_loadd(1, y + BULK_LANES, y_bytes);
    if (two) {
        _tile_loadd(2, y1, y_bytes);
        _tile_loadd(3, y1 + BULK_LANES, y_bytes);
    }
    for (uint32_t s = 0; s < steps; s++) {
        _tile_loadd(6, p[0].w[s * TILE_ROWS], TILE_ROW_BYTES);
        _tile_loadd(7, p[1].w[s * TILE_ROWS], TILE_ROW_BYTES);
        _tile_loadd(4, x + (size_t)s * BF16_STEP, x_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (two) {
            _tile_loadd(5, x1 + (size_t)s * BF16_STEP, x_bytes);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, y, y_bytes);
    _tile_stored(1, y + BULK_LANES, y_bytes);
    if (two) {
        _tile_stored(2, y1, y_bytes);
        _tile_stored(3, y1 + BULK_LANES, y_bytes);
    }
}

static void bf16_multiply(const struct bf16_panel p[BF16_PANELS], uint32_t steps, const uint16_t *x, uint32_t rows, float *y, size_t y_stride)
{
    tile_written(p);
    tile_written(x);
    tile_written(y);
    if (rows > TILE_ROWS) {
        bf16_tiles(p, steps, x, true, y, y_stride);
    } else {
        bf16_tiles(p, steps, x, false, y, y_stride);
    }
}

#include "cpu/bulk_bf16_tmpl.h"

void cpu_ops_init_bulk_amx(struct ops *ops)
{
    ops->bf16_units = "amx";
    for (int f = 0; f < FORMAT_COUNT; f++) {
        ops->bulk_bf16[f] = f == FORMAT_F32 ? NULL : bulk_bf16;
    }
}
