/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what to do about a path that is not there. Must not know: models. */
#ifndef SLUICE_MODEL_PATH_HINT_H
#define SLUICE_MODEL_PATH_HINT_H

#include "common/error.h"

/* Adds to the stored text, which names the path: the nearest name in the last folder of it that is there, or that folder. Nothing
 * where all of the path is there. Returns code. */
int path_hint(const char *path, int code, struct error *e);

#endif
