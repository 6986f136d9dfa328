/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the file of --heat: what an engine takes from it when it opens, and what it keeps in it when it closes. Must not know: how experts
 * are counted, what predictors learn. */
#ifndef SLUICE_RUN_HEATS_H
#define SLUICE_RUN_HEATS_H

#include "common/error.h"

struct engine;

/* Gives the store and the predictors what the file has for them. A new file is written at once: a path that cannot be written is told
 * before an hour of work. Nothing without --heat. Errors as of heat_file_read, heat_file_write. */
int heats_open(struct engine *g, struct error *e);

/* Writes what the engine has learned. What it has no part of - the MTP layer's popularity without that layer, predictors without
 * prefetch - stays as the file has it. A failure is announced. */
void heats_close(struct engine *g);

#endif
