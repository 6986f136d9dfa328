/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the rounding and denormal mode of a thread (docs/numerics.md, Types). Must not know: who runs in it. */
#include <immintrin.h>

#include "cpu/cpu.h"

enum {
    MODE_DAZ = 0x0040,
    MODE_ROUNDING = 0x6000, /* 0: nearest, ties to even */
    MODE_FTZ = 0x8000,
    MODE_MASK = MODE_DAZ | MODE_ROUNDING | MODE_FTZ,
};

void cpu_float_mode_set(void) { _mm_setcsr(_mm_getcsr() & ~(unsigned)MODE_MASK); }

bool cpu_float_mode_ok(void) { return (_mm_getcsr() & MODE_MASK) == 0; }
