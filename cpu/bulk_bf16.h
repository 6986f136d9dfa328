/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the layout of weights and activations in bfloat16, what cpu/bulk_bf16_tmpl.h and the units that multiply them have to
 * agree on: that of AMX tiles. Must not know: instruction sets. */
#ifndef SLUICE_CPU_BULK_BF16_H
#define SLUICE_CPU_BULK_BF16_H

#include <stdint.h>

#include "cpu/bulk_kind.h"

enum {
    BF16_COLS = 256, /* most columns of a panel */
    BF16_ROWS = 512, /* activation rows that meet all panels before the next ones do: 256 KiB, and unpacking costs little */
    BF16_STEP = 32,  /* columns of a tile */
    BF16_PANELS = 2, /* that share a load of activations */
    BF16_LANES = BF16_PANELS * BULK_LANES,
};

struct bf16_panel {
    uint16_t w[BF16_COLS / 2][BULK_LANES][2]; /* two columns of sixteen weight rows */
};

struct bf16_rows {
    uint16_t x[BF16_ROWS][BF16_COLS];
};

#endif
