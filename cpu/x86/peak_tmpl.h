/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the loop that multiplies at full speed, for each instruction set's own step. Twelve sums in variables of their own,
 * never in memory: more than latency times units, fewer than registers. Must not know: instructions. */
#ifndef SLUICE_CPU_X86_PEAK_TMPL_H
#define SLUICE_CPU_X86_PEAK_TMPL_H

#include "cpu/x86/peak.h"

#define PEAK_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
enum { PEAK_SUMS = 12 };

/* double NAME(uint64_t rounds) with sum = STEP(sum, a), of OPERATIONS each, and `a` of type FACTOR. The empty asm makes `a`
 * unknown each time, so that products neither leave the loop nor are shared. */
#define PEAK_FUNCTION(NAME, SUM, ZERO, FACTOR, VALUE, STEP, OPERATIONS)         \
    static double NAME(uint64_t rounds)                                         \
    {                                                                           \
        FACTOR a = VALUE;                                                       \
        SUM s0 = ZERO, s1 = ZERO, s2 = ZERO, s3 = ZERO, s4 = ZERO, s5 = ZERO;   \
        SUM s6 = ZERO, s7 = ZERO, s8 = ZERO, s9 = ZERO, s10 = ZERO, s11 = ZERO; \
        for (uint64_t i = 0; i < rounds; i++) {                                 \
            PEAK_EACH(PEAK_STEP_##STEP)                                         \
        }                                                                       \
        PEAK_EACH(PEAK_KEEP)                                                    \
        return (double)PEAK_SUMS * (OPERATIONS) * (double)rounds;               \
    }

#define PEAK_HIDE(a) __asm__ volatile("" : "+v"(a))
#define PEAK_KEEP(k) __asm__ volatile("" : : "v"(s##k));

#endif
