/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the names by which struct cpu_peak (cpu.h) reaches the loops of each instruction set. Must not know: clocks,
 * threads. Each overwrites slots of a table that is already filled; the caller has checked the flags. */
#ifndef SLUICE_CPU_X86_PEAK_H
#define SLUICE_CPU_X86_PEAK_H

#include "cpu/cpu.h"

void peak_init_avx2(struct cpu_peak *p);
void peak_init_avx_vnni(struct cpu_peak *p);
void peak_init_avx512(struct cpu_peak *p);
void peak_init_avx512_vnni(struct cpu_peak *p);
void peak_init_avx512_bf16(struct cpu_peak *p);
void peak_init_amx_int8(struct cpu_peak *p);
void peak_init_amx_bf16(struct cpu_peak *p);

#endif
