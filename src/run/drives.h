/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what is told about the drives while a model is open: bytes from each copy of the model, reads that another copy made good,
 * drives that have become slow; and how much is read at a time.
 * Must not know: how bytes are read. */
#ifndef SLUICE_RUN_DRIVES_H
#define SLUICE_RUN_DRIVES_H

#include "common/error.h"
#include "io/reader.h"

struct engine;
struct machine;

struct drives {
    uint32_t depth;                            /* reads in flight for each copy, bytes of each, and who says so: "default", "profile" */
    uint64_t chunk;
    const char *source;
    uint32_t n;                                /* copies, the model itself included */
    struct counter *bytes[READER_COPIES_MAX], *failed, *slow;
    struct reader_load told;                   /* of the reader that is watched: what was counted */
    uint64_t failed_told[READER_COPIES_MAX], slow_told[READER_COPIES_MAX];
    bool announced[READER_COPIES_MAX];
};

/* As a profile has recorded what the drive needs for its rate; else 32 reads of 1 MiB. */
void drives_depth(struct drives *d, const struct machine *described);

/* Reads in flight of a reader: so many for each copy. */
uint32_t drives_flights(const struct drives *d);

/* Counters, and one line for each copy that lies where the model lies. -ENOSPC: no room for counters. */
int drives_init(struct engine *g, struct error *e);

/* Counts what `reader` has read since create, or since the last call, and announces the first failure of each copy and each time that its drive became
 * slow. */
void drives_watch(struct engine *g, struct reader *reader);

/* The same for the last time, before `reader` is destroyed. */
void drives_finish(struct engine *g, struct reader *reader);

#endif
