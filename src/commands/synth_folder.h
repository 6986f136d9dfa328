/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: writing a synthetic model as a Hugging Face folder that appears when it is complete. Must not know: block layouts. */
#ifndef SLUICE_COMMANDS_SYNTH_FOLDER_H
#define SLUICE_COMMANDS_SYNTH_FOLDER_H

#include "src/commands/output.h"
#include "src/commands/synth_vocabulary.h"

/* `path`: a new folder or an empty one. Shards have at most 5 GB. */
int synth_folder_write(const char *path, const struct synth_model *m, const struct synth_vocabulary *v, struct tensor_list *list,
                       const struct output_job *job, struct error *e);

#endif
