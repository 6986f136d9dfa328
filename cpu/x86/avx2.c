/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the weight formats at AVX2, FMA, F16C, and the choice between them and the VNNI ones. Must not know: other
 * instruction sets. */
#include "cpu/x86/dot_avx2.h"
#include "cpu/x86/init.h"

#include "cpu/formats_tmpl.h"

void cpu_ops_init_avx2(struct ops *ops, const struct cpu_flags *flags)
{
    ops->isa = cpu_isa_name(CPU_AVX2);
    cpu_ops_init_vector_avx2(ops);
    if (flags->avx_vnni) {
        cpu_ops_init_avx_vnni(ops);
    } else {
        set_formats(ops);
    }
}
