/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the tensors a checkpoint of a shape has, in the order of its files: names, roles, dimensions, formats, places. What
 * `synth` fills with numbers and `convert` with those of another checkpoint. Must not know: bytes, metadata. */
#ifndef SLUICE_COMMANDS_TENSOR_LIST_H
#define SLUICE_COMMANDS_TENSOR_LIST_H

#include "common/error.h"
#include "src/model/names.h"
#include "src/model/shape.h"

enum tensor_form {
    FORM_GGUF, /* experts stacked, attn_k_b and attn_v_b, vectors and router F32 */
    FORM_HF,   /* as DeepSeek-V3 was published: one tensor an expert, kv_b_proj, scales beside FP8, the rest BF16 */
};

struct tensor_entry {
    char name[NAME_BYTES];
    enum role role;
    uint32_t layer, expert;
    bool scales; /* FP8 scales of the matrix before it */
    enum weight_format format;
    uint64_t dims[3]; /* C order */
    uint32_t n_dims;
    uint64_t bytes, grain; /* grain: bytes of a row, or of the smallest part that can be made alone */
    uint32_t file;         /* index of the file, and where the data starts in it: output.h fills them */
    uint64_t offset;
};

struct tensor_list {
    struct tensor_entry *items; /* [n], malloc'd */
    size_t n, cap;
    uint64_t bytes;
    uint32_t fallbacks; /* matrices whose rows did not fit the format asked for */
};

struct tensor_formats {
    enum weight_format experts, dense; /* dense: all other matrices but router and, beside FP8, embedding, head, eh_proj */
};

int tensor_list_build(struct tensor_list *ret, const struct shape *s, enum tensor_form form, const struct tensor_formats *formats,
                      struct error *e);
void tensor_list_deinit(struct tensor_list *l);

#endif
