/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a file of known size that is written at any place by several threads, past the page cache where the file system
 * allows, as PATH.part until it is published. Must not know: what is written. */
#ifndef SLUICE_IO_FILE_PART_H
#define SLUICE_IO_FILE_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum { FILE_PART_ALIGN = 4096 }; /* data whose address and offset agree modulo this is written without a copy */

struct file_part {
    char *path, *part;
    int fd, direct_fd; /* direct_fd -1: refused, everything goes through the page cache */
    uint64_t bytes;
};

/* Creates PATH.part with this size and reserves the space, so that a full disk shows before the first byte is written. With
 * `resume` a PATH.part of exactly this size is kept as it is; ERROR_FORMAT if there is another. */
int file_part_open(struct file_part *f, const char *path, uint64_t bytes, bool resume, struct error *e);

/* Thread-safe; ranges do not overlap and end within the size. */
int file_part_write(const struct file_part *f, uint64_t offset, const void *data, size_t bytes, struct error *e);

/* Everything written so far is on the disk. */
int file_part_sync(const struct file_part *f, struct error *e);

/* PATH.part stays. Accepts an all-zero or closed one. */
void file_part_close(struct file_part *f);

/* After the last file of a set is synced: PATH.part becomes PATH. */
int file_part_publish(const char *path, struct error *e);

/* Removes PATH.part if it is there. */
void file_part_remove(const char *path);

/* malloc'd "PATH.part"; NULL: no memory. */
char *file_part_name(const char *path);

#endif
