/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: an open file for reading - size, identity, alignment facts - and whole small files. Must not know: what is in it. */
#ifndef SLUICE_IO_FILE_H
#define SLUICE_IO_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

struct file {
    char *path; /* as shown to users */
    int fd;     /* buffered descriptor, O_CLOEXEC */
    int direct_fd; /* O_DIRECT descriptor, -1 if refused */
    int direct_errno; /* why it was refused; 0 */
    uint64_t size;
    uint64_t device, inode;
    int64_t changed_ns; /* when its bytes were changed last, as it was opened */
    uint32_t direct_align; /* bytes offset, length and address must be multiples of */
    struct file *copies;   /* [n_copies] the same bytes in other places (mirror.h), closed with it; NULL: there are none */
    uint32_t n_copies;
};

/* Regular files only. Errors name the path. */
int file_open(const char *path, struct file *ret, struct error *e);
void file_close(struct file *f); /* accepts an all-zero or closed file */

/* 0, or what happened to the file since it was opened: -ENODATA: it is shorter, -ESTALE: its bytes were changed, or may have been, -errno
 * of the system. What was read from it is not what the header describes. */
int file_changed(const struct file *f);

/* Reads exactly `bytes` at `offset`, buffered; short file or EIO is an error naming path, offset, wanted and found. */
int file_read_at(const struct file *f, uint64_t offset, void *data, size_t bytes, struct error *e);

/* A whole small file (config.json, tokenizer.json), NUL-terminated; larger than `limit` is an error. Caller frees. */
int file_read_all(const char *path, size_t limit, char **ret_data, size_t *ret_bytes, struct error *e);

/* Writes to PATH.tmp in the same folder, fsyncs and renames: the old file stays whole on any failure. */
int file_write_all(const char *path, const void *data, size_t bytes, struct error *e);

bool file_is_folder(const char *path);
bool file_exists(const char *path);

/* Names of entries of a folder with this suffix, sorted, malloc'd array of malloc'd strings. */
int file_list_folder(const char *path, const char *suffix, char ***ret_names, size_t *ret_n, struct error *e);

void file_free_list(char **names, size_t n);

bool file_has_suffix(const char *name, const char *suffix);

/* malloc'd "folder/name". NULL on no memory. */
char *file_join(const char *folder, const char *name);

#endif
