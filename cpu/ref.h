/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the names of the scalar kernels, the numeric definition of every operation (docs/numerics.md). Arguments are
 * described in common/ops.h. Must not know: instruction sets, threads. */
#ifndef SLUICE_CPU_REF_H
#define SLUICE_CPU_REF_H

#include "common/ops.h"

void ref_quantise(const struct quantise_args *args);
void ref_matvec_float(const struct matvec_args *args);     /* F32, F16, BF16; blocks as --activations f32 */
void ref_matvec_f8_e4m3(const struct matvec_args *args);
void ref_matvec_blocks(const struct matvec_args *args);    /* int8 activations */
void ref_matvec_t(const struct matvec_t_args *args);       /* any format */
void ref_dequantise(const struct dequantise_args *args);   /* any format */
void ref_bulk(const struct matvec_args *args);             /* any format of blocks */
void ref_bulk_f32(const struct matvec_args *args, dequantise_fn *dequantise);
float ref_dot16(const float *a, const float *b, size_t n);
void ref_rmsnorm(const struct rmsnorm_args *args);
void ref_rope(const struct rope_args *args);
void ref_swiglu(const struct swiglu_args *args);
void ref_exp(const struct exp_args *args);
void ref_kv_store(const struct kv_store_args *args);       /* any type */
void ref_kv_load(const struct kv_load_args *args);         /* any type */
void ref_attn_segment(const struct attn_segment_args *args);
void ref_attn_merge(const struct attn_merge_args *args);
void ref_attn_softmax(const struct attn_softmax_args *args);
void ref_router(const struct router_args *args);
void ref_expert_sum(const struct expert_sum_args *args);
void ref_add(const struct add_args *args);

/* cpu/blas.c */
void gemm_blas(const struct ops *ops, const struct gemm_args *args);

#endif
