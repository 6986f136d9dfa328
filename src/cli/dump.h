/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: writing arrays of 32-bit values as a safetensors file, row by row in any order, under a temporary name until it is
 * complete. Must not know: what the arrays mean. */
#ifndef SLUICE_CLI_DUMP_H
#define SLUICE_CLI_DUMP_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice/sluice.h"

struct dump_array {
    char name[40];
    bool integers; /* I32, else F32 */
    uint64_t rows, cols;
    uint64_t offset; /* filled by dump_create: within the data */
};

struct dump;

/* Arrays are copied. A target that exists and is no regular file (a device) is written as it is. `reserve`: take the
 * space now, so that a full disk is known before the work is done. */
int dump_create(const char *path, const struct dump_array *arrays, uint32_t n, bool reserve, struct dump **ret, struct sluice_error *e);
/* values: [cols]. The first failure is kept for dump_check and dump_commit. */
void dump_row(struct dump *d, uint32_t array, uint64_t row, const void *values);
int dump_check(const struct dump *d, struct sluice_error *e);
/* The last array turned out shorter. */
void dump_shorten(struct dump *d, uint64_t rows);
/* Gives the file its name. */
int dump_commit(struct dump *d, struct sluice_error *e);
/* Accepts NULL; what was not committed is removed. */
void dump_destroy(struct dump *d);

#endif
