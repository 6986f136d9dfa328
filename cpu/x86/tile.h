/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the configuration of AMX tiles, always eight of 16 rows of 64 bytes. Must not know: what is in them. */
#ifndef SLUICE_CPU_X86_TILE_H
#define SLUICE_CPU_X86_TILE_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum { TILES = 8, TILE_ROWS = 16, TILE_ROW_BYTES = 64 };

/* Layout given by the processor (LDTILECFG). */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* What was written at p is in memory: gcc 12 does not know that tile instructions read it, and drops the writes. */
static inline void tile_written(const void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

static inline void tile_configure(void)
{
    struct tile_config c;
    memset(&c, 0, sizeof(c));
    c.palette = 1;
    for (int t = 0; t < TILES; t++) {
        c.row_bytes[t] = TILE_ROW_BYTES;
        c.rows[t] = TILE_ROWS;
    }
    tile_written(&c);
    _tile_loadconfig(&c);
}

#endif
