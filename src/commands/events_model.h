/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a store of experts for a model that is not there: sizes from an event file, addresses without memory. Must not know: what is
 * played through it. */
#ifndef SLUICE_COMMANDS_EVENTS_MODEL_H
#define SLUICE_COMMANDS_EVENTS_MODEL_H

#include "src/commands/events.h"

struct events_model {
    struct weights weights;
    struct file file;              /* none: experts lie in it one after the other */
    struct tensor scale;
    struct layer_refs *layers;
    struct expert_refs *experts;   /* of all layers that have some */
    struct counters counters;
    struct reader *reader;         /* owned */
    struct store *store;
};

/* Takes over `reader`, in any case. */
int events_model_init(struct events_model *m, const struct events_setting *s, uint32_t cached, struct reader *reader, struct error *e);
void events_model_deinit(struct events_model *m); /* accepts an all-zero one */

/* Where an expert lies in the file. */
void events_model_range(const struct events_model *m, struct expert_key key, uint64_t *ret_begin, uint64_t *ret_end);

void events_model_counted(const struct events_model *m, uint64_t ret[EVENTS_COUNTERS]);

#endif
