/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a container while its files are gathered, and the list of what is wrong with them: every bad file is noted, and
 * all are told in one message. Private to container*.c, gguf_set.c, safetensors_set.c, mirror.c. */
#ifndef SLUICE_IO_CONTAINER_BUILD_H
#define SLUICE_IO_CONTAINER_BUILD_H

#include "io/container.h"
#include "src/base/str.h"

struct container_build {
    struct container *c;
    const struct container_options *options;
    uint32_t expected;  /* files the set has */
    size_t cap_tensors;
    struct str problems; /* "a.gguf: ...; b.gguf to d.gguf (3 files): missing" */
    uint32_t n_problems; /* bad files */
    char *run_first, *run_last; /* consecutive missing files, not in the list yet */
    uint32_t run;
    struct error *e;
};

/* Room for `expected` files. */
int container_build_init(struct container_build *b, struct container *c, const struct container_options *options, uint32_t expected,
                         struct error *e);
void container_build_deinit(struct container_build *b);

/* Opens a file and appends it to c->files. 1: it is there; 0: noted as missing or unusable; negative: out of memory. */
int container_build_open(struct container_build *b, const char *path);

/* Notes what is wrong with one file. */
void container_build_problem(struct container_build *b, const char *path, const char *fmt, ...) ATTR_PRINTF(3, 4);
/* The same from the error of a header parser, which may begin with the path. Passes ENOMEM on. */
int container_build_failed(struct container_build *b, const char *path, const struct error *failed);

int container_build_tensor(struct container_build *b, const struct tensor *t);

/* Gives a block that names point into to the container; once for each file opened. */
void container_build_keep(struct container_build *b, void *block);

/* Checks the tensors from `first` on, which lie in the file opened last, against its size: a problem is noted, or the
 * container is marked header_only where that is allowed. */
void container_build_check_ranges(struct container_build *b, size_t first, uint64_t data_start, uint64_t data_end);

/* 0 if no problem was noted, else the one error that lists them. */
int container_build_verdict(struct container_build *b);

/* Fill c, whose path is set. safetensors: file NULL means the folder. */
int gguf_set_open(struct container *c, const char *path, const struct container_options *options, struct error *e);
int safetensors_set_open(struct container *c, const char *folder, const char *file, const struct container_options *options,
                         struct error *e);

/* Moves one name of each set (a file that belongs to none is its own) to the front of names; returns how many. */
size_t container_sets(char **names, size_t n);

#endif
