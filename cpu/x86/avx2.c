/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the templates of cpu/ at AVX2, FMA, F16C. Must not know: other instruction sets. */
#include "cpu/x86/init.h"
#include "cpu/x86/simd_avx2.h"

#include "cpu/table_tmpl.h"

void cpu_ops_init_avx2(struct ops *ops, const struct cpu_flags *flags)
{
    (void)flags;
    ops->isa = cpu_isa_name(CPU_AVX2);
    set_table(ops);
}
