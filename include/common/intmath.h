/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: checked and rounding integer arithmetic. Knows nothing else. */
#ifndef SLUICE_COMMON_INTMATH_H
#define SLUICE_COMMON_INTMATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* false on overflow, *ret untouched. */
static inline bool mul_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
    if (a != 0 && b > UINT64_MAX / a) {
        return false;
    }
    *ret = a * b;
    return true;
}

static inline bool add_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
    if (b > UINT64_MAX - a) {
        return false;
    }
    *ret = a + b;
    return true;
}

static inline uint64_t ceil_div_u64(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

/* `align` is a power of two; the caller has excluded overflow. */
static inline uint64_t align_up_u64(uint64_t a, uint64_t align) { return (a + align - 1) & ~(align - 1); }
static inline uint64_t align_down_u64(uint64_t a, uint64_t align) { return a & ~(align - 1); }

static inline uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

#endif
