/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the weight formats at AVX-512 F, BW, DQ, VL, and the choice between them and the VNNI ones. Must not know: other
 * instruction sets. */
#include "cpu/x86/dot_avx512bw.h"
#include "cpu/x86/init.h"

#include "cpu/formats_tmpl.h"

void cpu_ops_init_avx512(struct ops *ops, const struct cpu_flags *flags)
{
    ops->isa = cpu_isa_name(CPU_AVX512);
    cpu_ops_init_vector_avx512(ops);
    if (flags->avx512_vnni) {
        cpu_ops_init_avx512_vnni(ops);
    } else {
        set_formats(ops);
    }
}
