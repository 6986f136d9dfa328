/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the names of instruction sets and their order. Must not know: how a processor is asked, kernels. */
#include <strings.h>

#include "cpu/cpu.h"

static const char *const isa_names[CPU_ISA_COUNT] = {"scalar", "avx2", "avx512"};

const char *cpu_isa_name(enum cpu_isa isa) { return isa_names[isa]; }

bool cpu_isa_by_name(const char *name, enum cpu_isa *ret_isa)
{
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        if (strcasecmp(name, isa_names[i]) == 0) {
            *ret_isa = (enum cpu_isa)i;
            return true;
        }
    }
    return false;
}

bool cpu_isa_runs(enum cpu_isa isa, const struct cpu_flags *flags)
{
    switch (isa) {
    case CPU_SCALAR:
        return true;
    case CPU_AVX2:
        return flags->avx2;
    case CPU_AVX512:
        return flags->avx512;
    default:
        return false;
    }
}

enum cpu_isa cpu_isa_best(const struct cpu_flags *flags)
{
    int isa = CPU_ISA_COUNT - 1;
    while (!cpu_isa_runs((enum cpu_isa)isa, flags)) {
        isa--;
    }
    return (enum cpu_isa)isa;
}
