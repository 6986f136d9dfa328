/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: vector operations and attention at AVX-512 F, BW, DQ, VL. Must not know: other instruction sets. */
#include "cpu/x86/init.h"
#include "cpu/x86/simd_avx512.h"

#include "cpu/table_tmpl.h"

void cpu_ops_init_vector_avx512(struct ops *ops) { set_table(ops); }
