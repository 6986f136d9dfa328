/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a set of checkpoint files seen as one list of named tensors with checked byte ranges, whatever the file format.
 * Must not know: what a tensor is for. No tensor byte is read here. */
#ifndef SLUICE_IO_CONTAINER_H
#define SLUICE_IO_CONTAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/format.h"
#include "io/file.h"
#include "io/gguf.h"

enum container_kind { CONTAINER_SAFETENSORS, CONTAINER_GGUF };

enum { TENSOR_MAX_DIMS = 8 };

struct tensor {
    const char *name;           /* as in the file */
    const char *type_name;      /* as in the file: "BF16", "F8_E4M3", "Q4_K", "I32" */
    enum weight_format format;  /* FORMAT_NONE if no kernel reads the type */
    uint32_t n_dims;
    uint64_t dims[TENSOR_MAX_DIMS]; /* C order: dims[n_dims-1] is contiguous (GGUF's order reversed) */
    uint32_t file;              /* index into files */
    uint64_t offset, bytes;     /* absolute, inside files[file] (unless header_only) */
};

struct container {
    enum container_kind kind;
    char *path;             /* what the user named */
    char *folder;           /* where config.json, tokenizer.json would lie (the file's folder) */
    struct file *files;     /* [n_files] open */
    uint32_t n_files;
    struct tensor *tensors; /* [n_tensors] sorted by name */
    size_t n_tensors;
    struct gguf_meta meta;  /* GGUF: metadata of the first part; empty otherwise */
    bool header_only;       /* tensor data is not (all) there: only `plan` and `inspect` may go on */
    void *names;            /* private: storage of names */
};

struct container_options {
    bool allow_header_only; /* a file that ends right after its header is accepted */
    /* For --mtp-from: only shards holding a tensor for which this is true must be there (safetensors with an index);
     * NULL: all. */
    bool (*want)(void *ctx, const char *tensor_name);
    void *want_ctx;
};

/* `path`: HF folder, any safetensors shard, a GGUF file, any part of a split one, or a folder of either kind.
 * All missing, short or foreign shards are listed in one message; joined shards are recognised by name. */
int container_open(const char *path, const struct container_options *options, struct container **ret, struct error *e);
void container_close(struct container *c);

const struct tensor *container_find(const struct container *c, const char *name);

/* Path of a file that belongs to the model: MODEL.gguf.SUFFIX, or model.SUFFIX in a folder of safetensors. The caller frees; NULL:
 * no memory. */
char *container_beside(const struct container *c, const char *suffix);

/* "model-00001.safetensors: tensor NAME" for messages; returns out. */
const char *container_where(const struct container *c, const struct tensor *t, char *out, size_t out_bytes);

#endif
