/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the one table of weight formats, read by loader, planner, kernels and tools.
 * Must not know: how a block is decoded (cpu/ and cuda/). Layouts: docs/formats.md. */
#ifndef SLUICE_COMMON_FORMAT_H
#define SLUICE_COMMON_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum weight_format {
    FORMAT_F32,
    FORMAT_F16,
    FORMAT_BF16,
    FORMAT_F8_E4M3, /* with float32 scales per 128x128 block, kept beside the matrix */
    FORMAT_Q8_0,
    FORMAT_Q4_0,
    FORMAT_Q4_1,
    FORMAT_Q5_0,
    FORMAT_Q5_1,
    FORMAT_IQ4_NL,
    FORMAT_MXFP4,
    FORMAT_Q2_K,
    FORMAT_Q3_K,
    FORMAT_Q4_K,
    FORMAT_Q5_K,
    FORMAT_Q6_K,
    FORMAT_IQ4_XS,
    FORMAT_IQ1_S,
    FORMAT_IQ1_M,
    FORMAT_IQ2_XXS,
    FORMAT_IQ2_XS,
    FORMAT_IQ2_S,
    FORMAT_IQ3_XXS,
    FORMAT_IQ3_S,
    FORMAT_COUNT,
    FORMAT_NONE = FORMAT_COUNT, /* a tensor whose type no kernel reads (integers, F64, foreign types) */
};

enum { FORMAT_SCALE_BLOCK = 128 }; /* rows and columns of one F8_E4M3 scale */

struct weight_format_info {
    const char *name;        /* lower case, as in flags and reports: "q4_k" */
    const char *safetensors; /* dtype there, NULL if none: "BF16" */
    int ggml;                /* type id in GGUF, -1 if none */
    uint32_t block_elems;    /* weights per block; 1 for plain formats */
    uint32_t block_bytes;
    uint32_t act_block;      /* activations per int8 scale: 32 or 256; 0: meets float32 activations */
};

/* NULL for FORMAT_NONE and anything out of range. */
const struct weight_format_info *weight_format_info(enum weight_format f);

/* FORMAT_NONE if there is none. Names are compared without regard to case. */
enum weight_format weight_format_by_name(const char *name);
enum weight_format weight_format_by_safetensors(const char *dtype);
enum weight_format weight_format_by_ggml(uint32_t id);

/* Name of any ggml type id that is known, kernel or not ("TQ1_0", "NVFP4"); NULL otherwise. For messages. */
const char *ggml_type_name(uint32_t id);

/* Bytes of a row of `cols` weights; false if cols is 0, no multiple of the block, or the product overflows. */
bool weight_row_bytes(enum weight_format f, uint64_t cols, uint64_t *ret_bytes);

#ifdef __cplusplus
}
#endif

#endif
