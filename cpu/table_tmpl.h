/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/simd_<isa>.h. Owns: the functions of one instruction set and their entry into the table of
 * operations. Must not know: the processor. */
#ifndef SLUICE_CPU_TABLE_TMPL_H
#define SLUICE_CPU_TABLE_TMPL_H

#include "cpu/attention_tmpl.h"

static void set_table(struct ops *ops)
{
    ops->quantise = quantise;
    ops->dot16 = dot16;
    ops->rmsnorm = rmsnorm;
    ops->rope = rope;
    ops->swiglu = swiglu;
    ops->exp = exp_all;
    ops->kv_store[KV_F32] = kv_store_f32;
    ops->kv_store[KV_BF16] = kv_store_bf16;
    ops->kv_store[KV_F16] = kv_store_f16;
    ops->kv_store[KV_Q8_0] = kv_store_q8_0;
    ops->kv_load[KV_F32] = kv_load_f32;
    ops->kv_load[KV_BF16] = kv_load_bf16;
    ops->kv_load[KV_F16] = kv_load_f16;
    ops->kv_load[KV_Q8_0] = kv_load_q8_0;
    ops->attn_segment = attn_segment;
    ops->attn_merge = attn_merge;
    ops->attn_softmax = attn_softmax;
    ops->expert_sum = expert_sum;
    ops->add = add;
}

#endif
