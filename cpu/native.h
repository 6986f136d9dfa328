/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what a processor family adds to the scalar definition. The build compiles one implementation, cpu/x86 or
 * cpu/arm, which also holds cpu_detect and the float mode of cpu.h. Must not know: what a kernel does. */
#ifndef SLUICE_CPU_NATIVE_H
#define SLUICE_CPU_NATIVE_H

#include "cpu/cpu.h"

/* Overwrites slots of a table that is already filled, weakest instruction set to strongest, up to `isa`. */
void ops_init_native(struct ops *ops, enum cpu_isa isa, const struct cpu_flags *flags);
void peak_init_native(struct cpu_peak *p, enum cpu_isa isa, const struct cpu_flags *flags);

#endif
