/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/simd_<isa>.h and its integer dot products. Owns: the functions of weight formats of one instruction
 * set and their entry into the table of operations. Must not know: the processor. */
#ifndef SLUICE_CPU_FORMATS_TMPL_H
#define SLUICE_CPU_FORMATS_TMPL_H

#include "cpu/float_tmpl.h"
#include "cpu/kquant_tmpl.h"
#include "cpu/lattice_tmpl.h"
#include "cpu/nibble_tmpl.h"

#define DEQUANTISED_OPS(name)                                                                                        \
    static void matvec_t_##name(const struct matvec_t_args *a) { matvec_t_pieces(a, piece_##name); }                 \
    static void dequantise_##name(const struct dequantise_args *a) { dequantise_pieces(a, piece_##name); }

/* A format that has matvec_<name> of its own, and blocks. */
#define PIECE_OPS(name)                                                                                              \
    static void matvec_f32_##name(const struct matvec_args *a) { matvec_pieces(a, piece_##name); }                   \
    DEQUANTISED_OPS(name)

/* A format of blocks, `blocks` of which make a step; see matvec_blocks for `rows`. */
#define BLOCK_OPS(name, blocks, elems, bytes, rows)                                                                  \
    static void matvec_##name(const struct matvec_args *a)                                                           \
    {                                                                                                                \
        matvec_blocks(a, step_##name, blocks, elems, bytes, rows);                                                   \
    }                                                                                                                \
    PIECE_OPS(name)

DEQUANTISED_OPS(f32)
DEQUANTISED_OPS(f16)
DEQUANTISED_OPS(bf16)
DEQUANTISED_OPS(f8_e4m3)
BLOCK_OPS(q8_0, BLOCKS_PER_STEP, 32, 34, 2)
BLOCK_OPS(q4_0, BLOCKS_PER_STEP, 32, 18, 4)
BLOCK_OPS(q4_1, BLOCKS_PER_STEP, 32, 20, 4)
BLOCK_OPS(q5_0, BLOCKS_PER_STEP, 32, 22, 4)
BLOCK_OPS(q5_1, BLOCKS_PER_STEP, 32, 24, 4)
BLOCK_OPS(iq4_nl, BLOCKS_PER_STEP, 32, 18, 4)
BLOCK_OPS(mxfp4, BLOCKS_PER_STEP, 32, 17, 4)
BLOCK_OPS(q2_k, 1, 256, 84, 2)
BLOCK_OPS(q3_k, 1, 256, 110, 2)
BLOCK_OPS(q4_k, 1, 256, 144, 2)
BLOCK_OPS(q5_k, 1, 256, 176, 2)
BLOCK_OPS(q6_k, 1, 256, 210, 2)
BLOCK_OPS(iq4_xs, 1, 256, 136, 4)
PIECE_OPS(iq1_s)
PIECE_OPS(iq1_m)
PIECE_OPS(iq2_xxs)
PIECE_OPS(iq2_xs)
PIECE_OPS(iq2_s)
PIECE_OPS(iq3_xxs)
PIECE_OPS(iq3_s)

/* Float formats meet float activations in both slots. */
#define SET_FORMAT(ops, format, name, f32_name)                                                                      \
    do {                                                                                                             \
        (ops)->matvec[format] = matvec_##name;                                                                       \
        (ops)->matvec_f32[format] = f32_name;                                                                        \
        (ops)->matvec_t[format] = matvec_t_##name;                                                                   \
        (ops)->dequantise[format] = dequantise_##name;                                                               \
    } while (0)

static void set_formats(struct ops *ops)
{
    SET_FORMAT(ops, FORMAT_F32, f32, matvec_f32);
    SET_FORMAT(ops, FORMAT_F16, f16, matvec_f16);
    SET_FORMAT(ops, FORMAT_BF16, bf16, matvec_bf16);
    SET_FORMAT(ops, FORMAT_F8_E4M3, f8_e4m3, matvec_f8_e4m3);
    SET_FORMAT(ops, FORMAT_Q8_0, q8_0, matvec_f32_q8_0);
    SET_FORMAT(ops, FORMAT_Q4_0, q4_0, matvec_f32_q4_0);
    SET_FORMAT(ops, FORMAT_Q4_1, q4_1, matvec_f32_q4_1);
    SET_FORMAT(ops, FORMAT_Q5_0, q5_0, matvec_f32_q5_0);
    SET_FORMAT(ops, FORMAT_Q5_1, q5_1, matvec_f32_q5_1);
    SET_FORMAT(ops, FORMAT_IQ4_NL, iq4_nl, matvec_f32_iq4_nl);
    SET_FORMAT(ops, FORMAT_MXFP4, mxfp4, matvec_f32_mxfp4);
    SET_FORMAT(ops, FORMAT_Q2_K, q2_k, matvec_f32_q2_k);
    SET_FORMAT(ops, FORMAT_Q3_K, q3_k, matvec_f32_q3_k);
    SET_FORMAT(ops, FORMAT_Q4_K, q4_k, matvec_f32_q4_k);
    SET_FORMAT(ops, FORMAT_Q5_K, q5_k, matvec_f32_q5_k);
    SET_FORMAT(ops, FORMAT_Q6_K, q6_k, matvec_f32_q6_k);
    SET_FORMAT(ops, FORMAT_IQ4_XS, iq4_xs, matvec_f32_iq4_xs);
    SET_FORMAT(ops, FORMAT_IQ1_S, iq1_s, matvec_f32_iq1_s);
    SET_FORMAT(ops, FORMAT_IQ1_M, iq1_m, matvec_f32_iq1_m);
    SET_FORMAT(ops, FORMAT_IQ2_XXS, iq2_xxs, matvec_f32_iq2_xxs);
    SET_FORMAT(ops, FORMAT_IQ2_XS, iq2_xs, matvec_f32_iq2_xs);
    SET_FORMAT(ops, FORMAT_IQ2_S, iq2_s, matvec_f32_iq2_s);
    SET_FORMAT(ops, FORMAT_IQ3_XXS, iq3_xxs, matvec_f32_iq3_xxs);
    SET_FORMAT(ops, FORMAT_IQ3_S, iq3_s, matvec_f32_iq3_s);
}

#endif
