/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the tensors of a synthetic GGUF file in file order: names, dimensions, formats, what fills them.
 * Must not know: bytes, files. */
#ifndef SLUICE_COMMANDS_SYNTH_TENSORS_H
#define SLUICE_COMMANDS_SYNTH_TENSORS_H

#include "src/commands/synth_shape.h"
#include "src/model/names.h"

enum synth_content { SYNTH_ONES, SYNTH_BIAS, SYNTH_RANDOM };

struct synth_tensor {
    char name[NAME_BYTES];
    enum weight_format format;
    uint64_t dims[3]; /* C order */
    uint32_t n_dims;
    uint64_t bytes;
    enum synth_content content;
    float deviation; /* SYNTH_RANDOM */
};

struct synth_list {
    struct synth_tensor *items; /* [n], malloc'd */
    size_t n, cap;
    uint64_t bytes;
    uint32_t fallbacks; /* tensors whose rows did not fit the format asked for */
};

struct synth_formats {
    enum weight_format experts, dense;
};

int synth_list_build(struct synth_list *ret, const struct synth_model *m, const struct synth_formats *formats, struct error *e);
void synth_list_deinit(struct synth_list *l);

#endif
