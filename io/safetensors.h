/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: safetensors headers and index files, from bytes (fuzzed) and from files.
 * Format: docs/formats.md. Must not know: tensor roles, which files a set has. */
#ifndef SLUICE_IO_SAFETENSORS_H
#define SLUICE_IO_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/format.h"

enum { SAFETENSORS_MAX_DIMS = 8, SAFETENSORS_MAX_HEADER = 100000000 };

struct safetensors_tensor {
    const char *name;           /* NUL-terminated, no control characters */
    const char *dtype;          /* static: "BF16" */
    uint64_t dims[SAFETENSORS_MAX_DIMS]; /* C order; a 0 makes an empty tensor */
    uint32_t n_dims;
    uint64_t begin, end;        /* relative to the data buffer */
};

struct safetensors_header {
    struct safetensors_tensor *tensors; /* [n_tensors] by rising begin: they cover [0, data_bytes) without hole or overlap */
    size_t n_tensors;
    uint64_t data_start; /* absolute; set by safetensors_read_header */
    uint64_t data_bytes;
    char *text;          /* the header itself, where the names lie */
};

/* Parses the JSON text in place; the names stay in it, and *ret owns it (malloc'd) after success, nobody but the caller
 * after an error. Errors do not name the file. Whether the file has data_bytes is the caller's to check. */
int safetensors_parse(char *text, size_t bytes, struct safetensors_header *ret, struct error *e);

struct file;
int safetensors_read_header(const struct file *file, struct safetensors_header *ret, struct error *e);
void safetensors_header_deinit(struct safetensors_header *h); /* accepts an all-zero one */

/* Bits of one element; 0 for an unknown dtype. */
unsigned safetensors_dtype_bits(const char *dtype);

struct safetensors_index_entry {
    const char *name;
    uint32_t shard;
};

/* model.safetensors.index.json. */
struct safetensors_index {
    struct safetensors_index_entry *entries; /* [n_entries] by name */
    size_t n_entries;
    const char **shards; /* [n_shards] file names, sorted; no separators in them */
    uint32_t n_shards;
    char *text;
};

/* As safetensors_parse. */
int safetensors_index_parse(char *text, size_t bytes, struct safetensors_index *ret, struct error *e);
int safetensors_index_read(const char *path, struct safetensors_index *ret, struct error *e);
void safetensors_index_deinit(struct safetensors_index *x);
/* NULL if the index does not list it. */
const struct safetensors_index_entry *safetensors_index_find(const struct safetensors_index *x, const char *name);

#endif
