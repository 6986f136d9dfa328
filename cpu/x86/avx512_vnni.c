/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the weight formats at AVX-512 with VNNI. Must not know: other instruction sets. */
#include "cpu/x86/dot_avx512vnni.h"
#include "cpu/x86/init.h"

#include "cpu/formats_tmpl.h"

void cpu_ops_init_avx512_vnni(struct ops *ops) { set_formats(ops); }
