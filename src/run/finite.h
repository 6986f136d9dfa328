/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: whether numbers are finite, at the speed of memory: sixteen sums side by side. Must not know: whose they are. */
#ifndef SLUICE_RUN_FINITE_H
#define SLUICE_RUN_FINITE_H

#include <stdbool.h>
#include <stddef.h>

static inline bool all_finite(const float *x, size_t n)
{
    float sum[16] = {0.0f}, all = 0.0f; /* of x * 0: 0, or NaN if x is not finite */
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (size_t l = 0; l < 16; l++) {
            sum[l] += x[i + l] * 0.0f;
        }
    }
    for (; i < n; i++) {
        all += x[i] * 0.0f;
    }
    for (size_t l = 0; l < 16; l++) {
        all += sum[l];
    }
    return all == 0.0f;
}

#endif
