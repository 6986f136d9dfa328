/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the sixteen accumulators of an exact dot product and the order of their final sum (docs/numerics.md).
 * Must not know: which elements go to which accumulator. */
#ifndef SLUICE_CPU_LANES_H
#define SLUICE_CPU_LANES_H

enum { LANES = 16 };

/* The tree: l += l+8, l += l+4, l += l+2, l += l+1. */
static inline float lanes_sum(const float acc[LANES])
{
    float t[LANES / 2];
    for (int l = 0; l < 8; l++) {
        t[l] = acc[l] + acc[l + 8];
    }
    for (int width = 4; width > 0; width /= 2) {
        for (int l = 0; l < width; l++) {
            t[l] += t[l + width];
        }
    }
    return t[0];
}

#endif
