/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: popularity of experts in a file, with what predictors learned, so that a later run begins with what this one learned. The file
 * names the model by a fingerprint of its main layers and carries a checksum. Must not know: who counts, what is decided by it, what is
 * in the part of the predictors. */
#ifndef SLUICE_TIER_HEAT_FILE_H
#define SLUICE_TIER_HEAT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum { HEAT_MTP_MOST = 8, HEAT_LEARNED_MOST = 64 << 20 }; /* MTP layers of a file; bytes of its learned part */

/* Of which model a file is to be. */
struct heat_model {
    const char *fingerprint; /* of the main layers; at most 39 characters */
    const char *all;         /* of all layers: files of version 1 carry it */
    uint32_t layers, mtp_layers, experts; /* mtp_layers: 0: there is none, or it is not used */
};

struct heat_file {
    uint32_t mtp_layers;    /* whose uses are there; 0: not counted yet */
    float *uses;            /* [layers + mtp_layers][experts] finite, not below 0 */
    unsigned char *learned; /* [learned_bytes] or NULL: nothing */
    size_t learned_bytes;
};

/* -ENOENT (*e untouched): there is no such file. A file of another model, a damaged one and what is no such file are ERROR_FORMAT by
 * name. *ret is the caller's, for heat_file_deinit. */
int heat_file_read(const char *path, const struct heat_model *m, struct heat_file *ret, struct error *e);
void heat_file_deinit(struct heat_file *f); /* accepts an all-zero one */

/* Appears whole or not at all. */
int heat_file_write(const char *path, const struct heat_model *m, const struct heat_file *f, struct error *e);

#endif
