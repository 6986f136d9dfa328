/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the decoding of weights from their file layout (docs/formats.md), shared by the scalar kernels and the slow
 * paths of the others. Must not know: activations, lanes, instruction sets. */
#ifndef SLUICE_CPU_BLOCKS_H
#define SLUICE_CPU_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/view.h"

enum { BLOCK_MAX_ELEMS = 256 };

/* One quantised block taken apart. Weight i is (d * scale[i/16]) * code[i], minus dmin * min[i/16] if has_min; each
 * product is rounded. Constants of a format (1/8 of IQ2, the 2^-128 of MXFP4) are in d. */
struct block_parts {
    float d, dmin;
    bool has_min;
    int8_t code[BLOCK_MAX_ELEMS];
    int8_t scale[BLOCK_MAX_ELEMS / 16]; /* 1 in blocks of 32 */
    uint8_t min[BLOCK_MAX_ELEMS / 16];  /* 1 in blocks of 32; unset without has_min */
};

/* `block` is one whole block of a format that has blocks. */
void block_unpack(enum weight_format format, const uint8_t *block, struct block_parts *ret_parts);

/* w(row, col .. col+n-1) as float32, any format; col is a multiple of 256, n <= 256, whole blocks. */
void block_decode(const struct matrix_view *w, uint32_t row, uint32_t col, uint32_t n, float *ret_y);

#endif
