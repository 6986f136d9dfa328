/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: config.json and generation_config.json of a synthetic model. Must not know: tensors, tokenizers, files. */
#ifndef SLUICE_COMMANDS_SYNTH_CONFIG_H
#define SLUICE_COMMANDS_SYNTH_CONFIG_H

#include "src/commands/synth_shape.h"

/* malloc'd texts. `fp8`: with quantization_config. */
int synth_config_text(const struct synth_model *m, bool fp8, char **ret_config, char **ret_generation, struct error *e);

#endif
