/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading of tests/data/spec/<name>.json, blocks with the values they decode to. Knows nothing of kernels. */
#ifndef SLUICE_TESTS_SPEC_DATA_H
#define SLUICE_TESTS_SPEC_DATA_H

#include <stddef.h>
#include <stdint.h>

/* One entry of a file: `blocks` of some format and the float32 values they stand for. */
struct spec_blocks {
    const char *name; /* as in format tables, upper case */
    uint8_t *bytes;   /* [bytes_len] */
    float *values;    /* [values_len] */
    size_t bytes_len, values_len;
};

/* Calls `check` for every entry; aborts the test if the file is not as expected. Returns the number of entries. */
size_t spec_data_each(const char *path, void (*check)(const struct spec_blocks *entry, void *user), void *user);

#endif
