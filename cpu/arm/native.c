/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what an aarch64 processor adds to the scalar definition: nothing. Must not know: kernels. */
#include "cpu/native.h"

#include <string.h>

void cpu_detect(struct cpu_flags *ret_flags) { memset(ret_flags, 0, sizeof(*ret_flags)); }

void ops_init_native(struct ops *ops, enum cpu_isa isa, const struct cpu_flags *flags)
{
    (void)ops;
    (void)isa;
    (void)flags;
}

void peak_init_native(struct cpu_peak *p, enum cpu_isa isa, const struct cpu_flags *flags)
{
    (void)p;
    (void)isa;
    (void)flags;
}
