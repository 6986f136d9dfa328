/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: copies of a model's files in other folders: opened, compared, hung onto the files they are copies of. Must not know: when a
 * copy is read (read_copies.h). */
#ifndef SLUICE_IO_MIRROR_H
#define SLUICE_IO_MIRROR_H

#include <stdint.h>

#include "common/error.h"

struct container;

enum { MIRRORS_MAX = 7 }; /* with the model itself READER_COPIES_MAX */

/* `folders`: "DIR[,DIR]". Each must hold a file of the same name and size for every file of c, with the same header and, in places
 * spread over the file, the same weights; else ERROR_FORMAT or ERROR_USAGE lists what is wrong, and c is to be closed. */
int mirror_open(struct container *c, const char *folders, struct error *e);

/* Writes "mirror DIR: ..." where number i of c lies on the device of the model, which makes nothing faster; else "". */
void mirror_note(const struct container *c, uint32_t i, char *out, uint32_t out_bytes);

#endif
