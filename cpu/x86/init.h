/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the names by which the table of operations reaches the kernels of each x86 instruction set. Must not know: what
 * they do. Each overwrites slots of a table that is already filled; the caller has checked the flags. */
#ifndef SLUICE_CPU_X86_INIT_H
#define SLUICE_CPU_X86_INIT_H

#include "cpu/cpu.h"

void cpu_ops_init_avx2(struct ops *ops, const struct cpu_flags *flags);
void cpu_ops_init_avx512(struct ops *ops, const struct cpu_flags *flags);

void cpu_ops_init_bulk_avx2(struct ops *ops);
void cpu_ops_init_bulk_avx512(struct ops *ops);
void cpu_ops_init_bulk_avx512_vnni(struct ops *ops);
void cpu_ops_init_bulk_avx512_bf16(struct ops *ops);
void cpu_ops_init_bulk_amx(struct ops *ops); /* needs AVX-512 with BF16 as well */

/* For the first two alone: what is no weight format, and weight formats on processors that have VNNI as well. */
void cpu_ops_init_vector_avx2(struct ops *ops);
void cpu_ops_init_avx_vnni(struct ops *ops);
void cpu_ops_init_vector_avx512(struct ops *ops);
void cpu_ops_init_avx512_vnni(struct ops *ops);

#endif
