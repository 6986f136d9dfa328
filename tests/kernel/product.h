/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a random matrix product for the kernel checks, and what doubles say of its result. Must not know: kernels. */
#ifndef SLUICE_TESTS_KERNEL_PRODUCT_H
#define SLUICE_TESTS_KERNEL_PRODUCT_H

#include "tests/kernel/check.h"

struct product {
    struct matvec_args args; /* y is not set */
    uint32_t block;          /* activations per int8 scale; 0 if not quantised */
    bool ordinary;           /* no odd values anywhere: doubles can tell whether it is right */
};

/* rows x cols weights and n activation rows in the case's buffers; some of the rows are asked for. Sets c->shape. */
struct product product_random(struct check *c, enum weight_format format, uint32_t rows, uint32_t cols, uint32_t n, bool quantised);

/* Makes the int8 form of the activations in blocks of p->block. */
void product_quantise(struct check *c, struct product *p);

/* y [n, y_stride] against sums in double of dequantised weights, which finds an error that all instruction sets share: each within
 * `relative` of the sum of sizes, and `absolute`. */
bool product_near_doubles(struct check *c, const struct product *p, const float *y, double relative, double absolute);

#endif
