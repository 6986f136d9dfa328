/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the weight formats at AVX2 with the 256-bit VNNI of client processors. Must not know: other instruction sets. */
#include "cpu/x86/dot_avx_vnni.h"
#include "cpu/x86/init.h"

#include "cpu/formats_tmpl.h"

void cpu_ops_init_avx_vnni(struct ops *ops) { set_formats(ops); }
