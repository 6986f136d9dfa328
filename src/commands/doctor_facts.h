/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: looking at one side of the machine after the other, as findings. Must not know: how findings are shown. */
#ifndef SLUICE_COMMANDS_DOCTOR_FACTS_H
#define SLUICE_COMMANDS_DOCTOR_FACTS_H

#include "src/base/numa.h"
#include "src/commands/findings.h"
#include "src/place/machine.h"

/* `root` is put before /proc and /sys: recorded trees in tests. */
void doctor_processor(struct findings *f);
void doctor_cores(const char *root, const struct machine *m, const struct topology *t, struct findings *f);
void doctor_memory(const char *root, const struct machine *m, struct findings *f);
void doctor_nodes(const char *root, const struct topology *t, struct findings *f);
void doctor_pages(const char *root, struct findings *f);
void doctor_libraries(struct findings *f);
void doctor_uring(struct findings *f);
void doctor_gpu(const char *root, struct findings *f);
/* A file of the model, or NULL. */
void doctor_files(const char *root, const char *path, struct findings *f);
/* The rates of a measured machine. */
void doctor_rates(const struct machine *m, const char *drive, struct findings *f);

#endif
