/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a processor that says it has AVX-VNNI, AVX-512, that with VNNI, or that with BF16 and AMX, for a check_kernels whose
 * kernels for them were compiled against emulate_<what>.h. Linked with --wrap=cpu_detect. Must not know: kernels. */
#include "cpu/cpu.h"

void __real_cpu_detect(struct cpu_flags *ret_flags);
void __wrap_cpu_detect(struct cpu_flags *ret_flags);

void __wrap_cpu_detect(struct cpu_flags *ret_flags)
{
    __real_cpu_detect(ret_flags);
    ret_flags->EMULATED = true;
    ret_flags->avx512_vnni = ret_flags->avx512 && EMULATED_VNNI;
    ret_flags->avx512_bf16 = ret_flags->avx512 && EMULATED_AMX;
    ret_flags->amx_bf16 = ret_flags->avx512_bf16;
}
