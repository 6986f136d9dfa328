/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: float32 rounded once to F32, BF16, F16 or Q8_0. Must not know: tensors, files. */
#ifndef SLUICE_COMMANDS_CONVERT_ENCODE_H
#define SLUICE_COMMANDS_CONVERT_ENCODE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/format.h"

bool convert_encodes(enum weight_format format);

/* n values, whole blocks, to the bytes of the format. False if a value (or a block's scale) is too large for a half: `out` is
 * then not to be used. Q8_0 follows ggml: d = max|x| / 127, q = x * (1 / d) rounded, halves away from 0, d stored as a half. */
bool convert_encode(enum weight_format format, const float *values, size_t n, void *out);

/* How far a stored value may be from x; `block_max`: the largest |x| of its block. */
float convert_tolerance(enum weight_format format, float value, float block_max);

#endif
