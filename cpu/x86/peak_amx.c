/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: multiplying int8 and bfloat16 at full speed with AMX: four sums, two tiles of each factor, 16 rows of 64 bytes.
 * Must not know: other instruction sets. */
#include <asm/prctl.h>
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/x86/peak.h"

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, PRODUCTS = 4, XFEATURE_TILE_DATA = 18 };

/* Layout given by the processor (LDTILECFG). */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles of zeros: the units do not look at values. */
static void configure(void)
{
    struct tile_config c;
    memset(&c, 0, sizeof(c));
    c.palette = 1;
    for (int t = 0; t < TILES; t++) {
        c.row_bytes[t] = ROW_BYTES;
        c.rows[t] = ROWS;
    }
    _tile_loadconfig(&c);
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
    return 2.0 * PRODUCTS * ROWS * ROWS * ROW_BYTES * (double)rounds;
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
    return 2.0 * PRODUCTS * ROWS * ROWS * (ROW_BYTES / 2) * (double)rounds;
}

/* Linux gives tile registers to processes that ask. */
static bool tiles_granted(void) { return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILE_DATA) == 0; }

void peak_init_amx_int8(struct cpu_peak *p)
{
    if (tiles_granted()) {
        p->compute[PEAK_INT8] = int8_amx;
        p->name[PEAK_INT8] = "amx";
    }
}

void peak_init_amx_bf16(struct cpu_peak *p)
{
    if (tiles_granted()) {
        p->compute[PEAK_BF16] = bf16_amx;
        p->name[PEAK_BF16] = "amx";
    }
}
