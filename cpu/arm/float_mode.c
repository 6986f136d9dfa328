/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the rounding and denormal mode of a thread (docs/numerics.md, Types) on aarch64. Must not know: who runs in it. */
#include <stdint.h>

#include "cpu/cpu.h"

/* Bits of FPCR (Arm Architecture Reference Manual, C5.2.8) that change results. All 0: to nearest, ties to even; denormals
 * are numbers in float16 too; a NaN keeps its bits. */
static const uint64_t mode_bits = (1u << 19) /* FZ16 */ | (3u << 22) /* RMode */ | (1u << 24) /* FZ */ | (1u << 25) /* DN */;

static uint64_t fpcr(void)
{
    uint64_t r;
    __asm__ volatile("mrs %0, fpcr" : "=r"(r));
    return r;
}

void cpu_float_mode_set(void) { __asm__ volatile("msr fpcr, %0" : : "r"(fpcr() & ~mode_bits)); }

bool cpu_float_mode_ok(void) { return (fpcr() & mode_bits) == 0; }
