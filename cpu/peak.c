/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: loops that only read memory or only multiply, for processors without vector units. Must not know: clocks,
 * threads. */
#include "cpu/native.h"

enum { LANES = 16 };

static void read_scalar(const void *data, size_t bytes, uint32_t streams)
{
    size_t part = bytes / streams;
    uint64_t sum[4] = {0};
    for (size_t i = 0; i < part; i += PEAK_READ_STEP) {
        for (uint32_t s = 0; s < streams; s++) {
            const uint64_t *at = (const uint64_t *)((const char *)data + s * part + i);
            for (size_t k = 0; k < PEAK_READ_STEP / sizeof(*at); k += 4) {
                for (size_t j = 0; j < 4; j++) {
                    sum[j] ^= at[k + j];
                }
            }
        }
    }
    for (size_t j = 0; j < 4; j++) {
        __asm__ volatile("" : : "r"(sum[j]));
    }
}

/* The memory clobber makes both factors unknown in every round, so that no product is taken out of the loop. */
static double fma_scalar(uint64_t rounds)
{
    float a[LANES], sum[LANES] = {0};
    for (int k = 0; k < LANES; k++) {
        a[k] = 0.5f;
    }
    for (uint64_t i = 0; i < rounds; i++) {
        __asm__ volatile("" : : "r"(a), "r"(sum) : "memory");
        for (int k = 0; k < LANES; k++) {
            sum[k] += a[k] * a[k];
        }
    }
    __asm__ volatile("" : : "r"(sum) : "memory");
    return 2.0 * LANES * (double)rounds;
}

static double int8_scalar(uint64_t rounds)
{
    int8_t a[LANES];
    int32_t sum[LANES] = {0};
    for (int k = 0; k < LANES; k++) {
        a[k] = 3;
    }
    for (uint64_t i = 0; i < rounds; i++) {
        __asm__ volatile("" : : "r"(a), "r"(sum) : "memory");
        for (int k = 0; k < LANES; k++) {
            sum[k] = (int32_t)((uint32_t)sum[k] + (uint32_t)(a[k] * a[k]));
        }
    }
    __asm__ volatile("" : : "r"(sum) : "memory");
    return 2.0 * LANES * (double)rounds;
}

void cpu_peak_init(struct cpu_peak *ret_peak, enum cpu_isa isa, const struct cpu_flags *flags)
{
    *ret_peak = (struct cpu_peak){
        .read = read_scalar,
        .compute = {[PEAK_FMA] = fma_scalar, [PEAK_INT8] = int8_scalar},
        .name = {[PEAK_FMA] = "scalar", [PEAK_INT8] = "scalar"},
    };
    peak_init_native(ret_peak, isa, flags);
}
