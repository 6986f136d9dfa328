/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the table behind fingerprints.h, for the two files that fill it and search it. Must not know: how it is stored in a file. */
#ifndef SLUICE_TIER_FINGERPRINTS_TABLE_H
#define SLUICE_TIER_FINGERPRINTS_TABLE_H

#include <stdbool.h>

#include "src/tier/fingerprints.h"

/* Of one part of a tensor. */
struct fingerprint {
    const struct file *file;
    uint64_t offset; /* in the file */
    uint64_t value;
    uint32_t part;
    uint32_t source; /* index */
    bool stacked;    /* `part` is an expert */
};

struct fingerprint_source {
    char *path;   /* of the file with fingerprints; owned */
    bool changed; /* a file of the model has another time of change than it had then */
};

struct fingerprints {
    struct fingerprint *ranges; /* [n] by file and offset */
    size_t n;
    struct fingerprint_source *sources; /* [n_sources], of which room for one a container */
    uint32_t n_sources;
};

/* Adds the ranges of c from the text of its file, which is the source added last; there is room for them. Not sorted. */
int fingerprints_parse(struct fingerprints *f, const struct container *c, const char *text, size_t len, struct error *e);

void fingerprints_sort(struct fingerprints *f);

#endif
