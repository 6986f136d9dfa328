/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the bulk templates of cpu/ at AVX-512 F, BW, DQ, VL. Must not know: other instruction sets. */
#include "cpu/x86/init.h"
#include "cpu/x86/dot_avx512bw.h"

#include "cpu/x86/bulk_avx512.h"

#include "cpu/x86/bulk_words_tmpl.h"

#include "cpu/bulk_table_tmpl.h"

void cpu_ops_init_bulk_avx512(struct ops *ops) { set_bulk_table(ops); }
