/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: popularity of experts in a file, so that a later run begins with what this one learned. The file names the model by its
 * fingerprint and carries a checksum. Must not know: who counts, what is decided by it. */
#ifndef SLUICE_TIER_HEAT_FILE_H
#define SLUICE_TIER_HEAT_FILE_H

#include "common/error.h"
#include "src/tier/heat.h"

/* Adds the uses in the file to h, in which nothing has been used. -ENOENT (*e untouched): there is no such file. A file of
 * another model, a damaged one and what is no such file are ERROR_FORMAT by name. `fingerprint`: at most 39 characters. */
int heat_file_read(struct heat *h, const char *path, const char *fingerprint, struct error *e);

/* Appears whole or not at all. */
int heat_file_write(const struct heat *h, const char *path, const char *fingerprint, struct error *e);

#endif
