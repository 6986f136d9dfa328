/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the order in which the instruction sets of x86-64 fill a table; the only dispatch point. Must not know: what a
 * kernel does. */
#include "cpu/native.h"

#include "common/attr.h"
#include "cpu/x86/init.h"
#include "cpu/x86/peak.h"

void ops_init_native(struct ops *ops, enum cpu_isa isa, const struct cpu_flags *flags)
{
    if (isa >= CPU_AVX2) {
        cpu_ops_init_avx2(ops, flags);
        cpu_ops_init_bulk_avx2(ops);
    }
    if (isa >= CPU_AVX512) {
        cpu_ops_init_avx512(ops, flags);
        (flags->avx512_vnni ? cpu_ops_init_bulk_avx512_vnni : cpu_ops_init_bulk_avx512)(ops);
        if (flags->avx512_bf16) {
            (flags->amx_bf16 ? cpu_ops_init_bulk_amx : cpu_ops_init_bulk_avx512_bf16)(ops);
        }
    }
}

void peak_init_native(struct cpu_peak *p, enum cpu_isa isa, const struct cpu_flags *flags)
{
    const struct {
        bool there;
        void (*init)(struct cpu_peak *);
    } stronger[] = {
        {isa >= CPU_AVX2, peak_init_avx2},
        {isa >= CPU_AVX2 && flags->avx_vnni, peak_init_avx_vnni},
        {isa >= CPU_AVX512, peak_init_avx512},
        {isa >= CPU_AVX512 && flags->avx512_vnni, peak_init_avx512_vnni},
        {isa >= CPU_AVX512 && flags->avx512_bf16, peak_init_avx512_bf16},
        {isa >= CPU_AVX512 && flags->amx_int8, peak_init_amx_int8},
        {isa >= CPU_AVX512 && flags->amx_bf16, peak_init_amx_bf16},
    };
    for (size_t i = 0; i < ARRAY_LEN(stronger); i++) {
        if (stronger[i].there) {
            stronger[i].init(p);
        }
    }
}
