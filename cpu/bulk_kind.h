/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the kinds of integer panels of bulk products, what the templates and the instruction sets have to agree on.
 * Must not know: instruction sets. Each format is of one kind: bulk_table_tmpl.h. */
#ifndef SLUICE_CPU_BULK_KIND_H
#define SLUICE_CPU_BULK_KIND_H

#include <stdbool.h>
#include <stdint.h>

enum {
    BULK_LANES = 16,      /* weight rows of a panel */
    BULK_COLS = 1024,     /* most columns of a panel */
    BULK_ROW_BLOCK = 128, /* activation rows that meet all panels before the next ones do */
};

enum bulk_sum { /* what sums of activations are needed for */
    BULK_SUM_NONE,
    BULK_SUM_OFFSET, /* codes are above their values: the integer sum is lowered */
    BULK_SUM_MIN,    /* a minimum per group: a second float step */
};

/* How the codes of a format are multiplied; all constants. */
struct bulk_kind {
    uint32_t block; /* columns of a float step: 32 or 256 */
    uint32_t group; /* columns of an integer scale: 16 or 32; blocks of 32 are one group without scale */
    uint32_t run;   /* lines whose products with |activation| <= 127 add up within int16 */
    enum bulk_sum sum;
    bool is_signed; /* codes are signed bytes */
};

/* Sixteen weight rows. A line of codes is 16 rows x 4 columns. Entry g of scale belongs to the columns of group g, entry
 * p of by_sum to the groups 2p and 2p+1, entry b of the others to block b. */
struct bulk_panel {
    uint8_t code[BULK_COLS / 4][64];
    uint8_t scale[BULK_COLS / 16][64];         /* [16] as bulk_widen takes them */
    uint8_t by_sum[BULK_COLS / 32][64];        /* [16, 2] int16 factors of the groups' activation sums */
    int32_t start[BULK_COLS / 32][BULK_LANES]; /* signed codes: where the integer sum starts */
    float d[BULK_COLS / 32][BULK_LANES];
    float min[BULK_COLS / 32][BULK_LANES];     /* times activation scale and sum, added */
    int32_t offset;                            /* of all codes; blocks of 32 with BULK_SUM_OFFSET */
};

#endif
