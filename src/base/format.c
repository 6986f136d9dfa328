/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the table of weight formats. Must not know: how a block is decoded. */
#include "common/format.h"

#include <string.h>
#include <strings.h>

#include "common/attr.h"
#include "common/intmath.h"

static const struct weight_format_info formats[FORMAT_COUNT] = {
    /*                   name       safetensors ggml elems bytes act_block */
    [FORMAT_F32]     = { "f32",     "F32",      0,   1,    4,    0 },
    [FORMAT_F16]     = { "f16",     "F16",      1,   1,    2,    0 },
    [FORMAT_BF16]    = { "bf16",    "BF16",     30,  1,    2,    0 },
    [FORMAT_F8_E4M3] = { "f8_e4m3", "F8_E4M3",  -1,  1,    1,    0 },
    [FORMAT_Q8_0]    = { "q8_0",    NULL,       8,   32,   34,   32 },
    [FORMAT_Q4_0]    = { "q4_0",    NULL,       2,   32,   18,   32 },
    [FORMAT_Q4_1]    = { "q4_1",    NULL,       3,   32,   20,   32 },
    [FORMAT_Q5_0]    = { "q5_0",    NULL,       6,   32,   22,   32 },
    [FORMAT_Q5_1]    = { "q5_1",    NULL,       7,   32,   24,   32 },
    [FORMAT_IQ4_NL]  = { "iq4_nl",  NULL,       20,  32,   18,   32 },
    [FORMAT_MXFP4]   = { "mxfp4",   NULL,       39,  32,   17,   32 },
    [FORMAT_Q2_K]    = { "q2_k",    NULL,       10,  256,  84,   256 },
    [FORMAT_Q3_K]    = { "q3_k",    NULL,       11,  256,  110,  256 },
    [FORMAT_Q4_K]    = { "q4_k",    NULL,       12,  256,  144,  256 },
    [FORMAT_Q5_K]    = { "q5_k",    NULL,       13,  256,  176,  256 },
    [FORMAT_Q6_K]    = { "q6_k",    NULL,       14,  256,  210,  256 },
    [FORMAT_IQ4_XS]  = { "iq4_xs",  NULL,       23,  256,  136,  256 },
    [FORMAT_IQ1_S]   = { "iq1_s",   NULL,       19,  256,  50,   256 },
    [FORMAT_IQ1_M]   = { "iq1_m",   NULL,       29,  256,  56,   256 },
    [FORMAT_IQ2_XXS] = { "iq2_xxs", NULL,       16,  256,  66,   256 },
    [FORMAT_IQ2_XS]  = { "iq2_xs",  NULL,       17,  256,  74,   256 },
    [FORMAT_IQ2_S]   = { "iq2_s",   NULL,       22,  256,  82,   256 },
    [FORMAT_IQ3_XXS] = { "iq3_xxs", NULL,       18,  256,  98,   256 },
    [FORMAT_IQ3_S]   = { "iq3_s",   NULL,       21,  256,  110,  256 },
};

/* Every type id a GGUF file may carry; ids 4, 5, 31-33 and 36-38 were removed. */
static const char *const ggml_names[] = {
    [0] = "F32",      [1] = "F16",      [2] = "Q4_0",     [3] = "Q4_1",   [6] = "Q5_0",    [7] = "Q5_1",
    [8] = "Q8_0",     [9] = "Q8_1",     [10] = "Q2_K",    [11] = "Q3_K",  [12] = "Q4_K",   [13] = "Q5_K",
    [14] = "Q6_K",    [15] = "Q8_K",    [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S",
    [20] = "IQ4_NL",  [21] = "IQ3_S",   [22] = "IQ2_S",   [23] = "IQ4_XS", [24] = "I8",     [25] = "I16",
    [26] = "I32",     [27] = "I64",     [28] = "F64",     [29] = "IQ1_M", [30] = "BF16",   [34] = "TQ1_0",
    [35] = "TQ2_0",   [39] = "MXFP4",   [40] = "NVFP4",   [41] = "Q1_0",  [42] = "Q2_0",
};

const struct weight_format_info *weight_format_info(enum weight_format f)
{
    return (unsigned)f < FORMAT_COUNT ? &formats[f] : NULL;
}

enum weight_format weight_format_by_name(const char *name)
{
    for (unsigned f = 0; f < FORMAT_COUNT; f++) {
        if (strcasecmp(name, formats[f].name) == 0) {
            return (enum weight_format)f;
        }
    }
    return FORMAT_NONE;
}

enum weight_format weight_format_by_safetensors(const char *dtype)
{
    for (unsigned f = 0; f < FORMAT_COUNT; f++) {
        if (formats[f].safetensors != NULL && strcasecmp(dtype, formats[f].safetensors) == 0) {
            return (enum weight_format)f;
        }
    }
    return FORMAT_NONE;
}

enum weight_format weight_format_by_ggml(uint32_t id)
{
    for (unsigned f = 0; f < FORMAT_COUNT; f++) {
        if (formats[f].ggml >= 0 && (uint32_t)formats[f].ggml == id) {
            return (enum weight_format)f;
        }
    }
    return FORMAT_NONE;
}

const char *ggml_type_name(uint32_t id) { return id < ARRAY_LEN(ggml_names) ? ggml_names[id] : NULL; }

bool weight_row_bytes(enum weight_format f, uint64_t cols, uint64_t *ret_bytes)
{
    const struct weight_format_info *info = weight_format_info(f);
    if (info == NULL || cols == 0 || cols % info->block_elems != 0) {
        return false;
    }
    return mul_u64(cols / info->block_elems, info->block_bytes, ret_bytes);
}
