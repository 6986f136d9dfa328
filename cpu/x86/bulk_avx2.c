/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the bulk templates of cpu/ at AVX2, FMA, F16C. Must not know: other instruction sets. */
#include "cpu/x86/init.h"
#include "cpu/x86/bulk_avx2.h"

#include "cpu/bulk_table_tmpl.h"

void cpu_ops_init_bulk_avx2(struct ops *ops) { set_bulk_table(ops); }
