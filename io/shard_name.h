/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: file names of the kind PREFIX-00001-of-00003.EXT. Must not know: what is in the files. */
#ifndef SLUICE_IO_SHARD_NAME_H
#define SLUICE_IO_SHARD_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shard_name {
    size_t prefix;  /* length of PREFIX */
    int no_digits;
    uint32_t no, count;
    const char *tail; /* "-of-00003.EXT", inside the parsed name */
};

/* `name` without folder. False unless it has that form with 1 <= count. */
bool shard_name_parse(const char *name, struct shard_name *ret);

/* malloc'd "FOLDER/PREFIX-0000N-of-00003.EXT" in the style of the parsed name; NULL on no memory. */
char *shard_name_path(const char *folder, const char *name, const struct shard_name *parsed, uint32_t no);

/* True if both names belong to one set. */
bool shard_name_same_set(const char *a, const char *b);

/* Behind the last '/'. */
const char *shard_base_name(const char *path);

#endif
