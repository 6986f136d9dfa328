/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: writing a file so that it appears whole or not at all: PATH.tmp, buffered, fsync, rename.
 * Must not know: what is written. */
#ifndef SLUICE_IO_FILE_WRITE_H
#define SLUICE_IO_FILE_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct file_writer {
    char *path, *tmp; /* tmp: NULL once finished or aborted */
    int fd;
    char *buffer;
    size_t used;
    uint64_t size; /* bytes appended so far */
};

/* Truncates PATH.tmp. On failure *w is safe to abort. */
int file_writer_init(struct file_writer *w, const char *path, struct error *e);

int file_writer_append(struct file_writer *w, const void *data, size_t bytes, struct error *e);
int file_writer_zeros(struct file_writer *w, uint64_t bytes, struct error *e);

/* Flushes, fsyncs and renames. On failure PATH is as it was and PATH.tmp is gone. */
int file_writer_finish(struct file_writer *w, struct error *e);

/* Removes PATH.tmp of an unfinished file and frees; call it always, also after finish. */
void file_writer_deinit(struct file_writer *w);

#endif
