/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the table of host kernels, filled with the scalar definition first and overwritten by what the processor's
 * family has. Must not know: what a kernel does. */
#include "cpu/cpu.h"
#include "cpu/native.h"
#include "cpu/ref.h"

static void init_scalar(struct ops *ret_ops)
{
    *ret_ops = (struct ops){
        .isa = cpu_isa_name(CPU_SCALAR),
        .quantise = ref_quantise,
        .bulk_f32 = ref_bulk_f32,
        .dot16 = ref_dot16,
        .rmsnorm = ref_rmsnorm,
        .rope = ref_rope,
        .swiglu = ref_swiglu,
        .exp = ref_exp,
        .attn_segment = ref_attn_segment,
        .attn_merge = ref_attn_merge,
        .attn_softmax = ref_attn_softmax,
        .router = ref_router,
        .expert_sum = ref_expert_sum,
        .add = ref_add,
        .gemm = gemm_blas,
    };
    for (int f = 0; f < FORMAT_COUNT; f++) {
        bool blocks = weight_format_info((enum weight_format)f)->act_block != 0;
        ret_ops->matvec[f] = blocks ? ref_matvec_blocks : ref_matvec_float;
        ret_ops->matvec_f32[f] = ref_matvec_float;
        ret_ops->matvec_t[f] = ref_matvec_t;
        ret_ops->dequantise[f] = ref_dequantise;
        ret_ops->bulk[f] = blocks ? ref_bulk : NULL;
    }
    ret_ops->matvec[FORMAT_F8_E4M3] = ref_matvec_f8_e4m3;
    ret_ops->matvec_f32[FORMAT_F8_E4M3] = ref_matvec_f8_e4m3;
    for (int t = 0; t < KV_TYPE_COUNT; t++) {
        ret_ops->kv_store[t] = ref_kv_store;
        ret_ops->kv_load[t] = ref_kv_load;
    }
}

void cpu_ops_init(struct ops *ret_ops, enum cpu_isa isa, const struct cpu_flags *flags)
{
    init_scalar(ret_ops);
    ops_init_native(ret_ops, isa, flags);
}
