/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the named shapes of `sluice synth`, reduced as asked. Must not know: tensors, files. */
#ifndef SLUICE_COMMANDS_SYNTH_SHAPE_H
#define SLUICE_COMMANDS_SYNTH_SHAPE_H

#include "common/error.h"
#include "src/model/shape.h"

struct synth_model {
    const char *name;      /* as in --shape */
    struct shape shape;
    double mscale;   /* of YaRN: mscale and mscale_all_dim */
    const char *pre; /* pre-tokenizer */
    const char *model_type, *architecture; /* in config.json */
};

/* UINT32_MAX: as the shape has it. */
struct synth_reduction {
    uint32_t dense, moe, experts;
    bool mtp; /* with the shape's MTP layers */
};

/* ERROR_USAGE with the known names, or when the reduced shape makes no sense. Fewer experts mean smaller groups; where the
 * groups would be too small there is one. */
int synth_model_find(const char *name, const struct synth_reduction *reduction, struct synth_model *ret, struct error *e);

#endif
