/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: multiplying int8 and bfloat16 at full speed with AMX: four sums, two tiles of each factor, 16 rows of 64 bytes.
 * Must not know: other instruction sets. */
#include "cpu/x86/peak.h"
#include "cpu/x86/tile.h"

enum { PRODUCTS = 4 };

/* Tiles of zeros: the units do not look at values. */
static void configure(void)
{
    tile_configure();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
}

static double int8_amx(uint64_t rounds)
{
    configure();
    for (uint64_t i = 0; i < rounds; i++) {
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    _tile_release();
    return 2.0 * PRODUCTS * TILE_ROWS * TILE_ROWS * TILE_ROW_BYTES * (double)rounds;
}

static double bf16_amx(uint64_t rounds)
{
    configure();
    for (uint64_t i = 0; i < rounds; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return 2.0 * PRODUCTS * TILE_ROWS * TILE_ROWS * (TILE_ROW_BYTES / 2) * (double)rounds;
}

void peak_init_amx_int8(struct cpu_peak *p)
{
    p->compute[PEAK_INT8] = int8_amx;
    p->name[PEAK_INT8] = "amx";
}

void peak_init_amx_bf16(struct cpu_peak *p)
{
    p->compute[PEAK_BF16] = bf16_amx;
    p->name[PEAK_BF16] = "amx";
}
