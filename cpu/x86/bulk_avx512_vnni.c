/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the bulk templates of cpu/ at AVX-512 with VNNI. Must not know: other instruction sets. */
#include "cpu/x86/init.h"
#include "cpu/x86/dot_avx512vnni.h"

#include "cpu/x86/bulk_avx512.h"

#include "cpu/x86/bulk_vnni_tmpl.h"

#include "cpu/bulk_table_tmpl.h"

void cpu_ops_init_bulk_avx512_vnni(struct ops *ops) { set_bulk_table(ops); }
