/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: random weight matrices in any format for the kernel checks. Must not know: kernels. */
#ifndef SLUICE_TESTS_KERNEL_WEIGHTS_H
#define SLUICE_TESTS_KERNEL_WEIGHTS_H

#include "tests/kernel/check.h"

/* rows x cols weights in the case's buffers. Ordinary ones are finite with scales near 1; wild ones are any bytes. */
struct matrix_view weights_random(struct check *c, enum weight_format format, uint32_t rows, uint32_t cols, bool wild);

/* A row length for the format, mostly short, ragged where the format allows it; 0 now and then. */
uint32_t weights_random_cols(struct check *c, enum weight_format format);

#endif
