/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the files of a model that is being written: their headers, which tensor lies where, and writing them: tensor data is
 * made in pieces, in parallel, straight to its place. Files are PATH.part until all are complete.
 * Must not know: where the data comes from, metadata. */
#ifndef SLUICE_COMMANDS_OUTPUT_H
#define SLUICE_COMMANDS_OUTPUT_H

#include "common/error.h"
#include "src/base/str.h"
#include "src/commands/tensor_list.h"

enum { OUTPUT_PIECE = 4 << 20 }; /* most bytes of a piece */

struct output_file {
    char *path;
    struct str header; /* everything before the data */
    uint64_t bytes;    /* header and data */
    size_t first, end; /* tensors, as in the list */
};

struct output {
    struct output_file *files; /* [n] */
    uint32_t n;
    struct tensor_list *list;  /* borrowed; file and offset of its entries are set here */
};

struct gguf_writer;

/* Cuts the list into files of at most `limit` bytes of data (0: one file). `add_keys` gives the keys of the first one. Several
 * files are named PATH with -0000N-of-0000M before .gguf. */
int output_init_gguf(struct output *o, const char *path, uint64_t limit, struct tensor_list *list,
                     void (*add_keys)(void *ctx, struct gguf_writer *w), void *ctx, struct error *e);

/* Shards model-0000N-of-0000M.safetensors in `folder`, and the text of their index. */
int output_init_hf(struct output *o, const char *folder, uint64_t limit, struct tensor_list *list, struct str *index, struct error *e);
void output_deinit(struct output *o);

uint64_t output_bytes(const struct output *o);

/* A part of one tensor: `bytes` from `at` on, a multiple of its grain. */
struct output_piece {
    size_t tensor;
    uint64_t at;
    size_t bytes;
};

/* Everything before this is on the disk. */
struct output_place {
    size_t tensor;
    uint64_t at;
};

struct output_job {
    /* Fills a piece, in any worker of 0..output_workers()-1; the same bytes whoever does it and when. */
    int (*make)(void *ctx, const struct output_piece *piece, void *out, uint32_t worker, struct error *e);
    /* After some hundred MiB, and after each file; may be NULL. */
    int (*checkpoint)(void *ctx, const struct output_place *done, struct error *e);
    void *ctx;
    uint32_t workers;
    const volatile int *cancel;
    bool header_only;          /* files end after their headers */
    bool keep;                 /* the parts stay after an interruption or a failure of the system: to go on later */
    struct output_place start; /* resumes: parts before it are there */
    bool resume;
};

/* Writes everything; the files appear together at the end. Nothing is left behind on failure unless `keep`. */
int output_write(const struct output *o, const struct output_job *job, struct error *e);

/* Calls make for every piece without writing: `out` is NULL. */
int output_visit(const struct output *o, const struct output_job *job, struct error *e);

/* Workers that keep a drive and all cores busy: while some wait for the drive the others compute. */
int output_workers(uint32_t *ret, struct error *e);

/* Nothing may be there yet but an empty file, unless `force`. */
int output_check_free(const char *path, bool force, struct error *e);

/* Refuses what the file system has no room for. */
int output_check_space(const char *path, uint64_t bytes, struct error *e);

#endif
