/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: vector operations and attention at AVX2, FMA, F16C. Must not know: other instruction sets. */
#include "cpu/x86/init.h"
#include "cpu/x86/simd_avx2.h"

#include "cpu/table_tmpl.h"

void cpu_ops_init_vector_avx2(struct ops *ops) { set_table(ops); }
