/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a processor that says it has AVX-512, for a check_kernels whose AVX-512 kernels were compiled against
 * emulate_avx512.h. Linked with --wrap=cpu_detect. Must not know: kernels. */
#include "cpu/cpu.h"

void __real_cpu_detect(struct cpu_flags *ret_flags);
void __wrap_cpu_detect(struct cpu_flags *ret_flags);

void __wrap_cpu_detect(struct cpu_flags *ret_flags)
{
    __real_cpu_detect(ret_flags);
    ret_flags->avx512 = true;
    ret_flags->avx512_vnni = EMULATED_VNNI;
}
