/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: experts on their way from a file into a slot: the reads of each, what has arrived, what failed and how that is told; FP8
 * codes are checked when an expert arrives for the first time. Must not know: why it is read, who waits, what leaves a slot for it. */
#ifndef SLUICE_TIER_FETCH_H
#define SLUICE_TIER_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "io/reader.h"
#include "src/tier/expert_slots.h"
#include "src/tier/key.h"

/* One expert under way. */
struct fetch_flight {
    struct expert_key key;
    uint32_t left;      /* reads not collected; 0: none is under way */
    int status;         /* first failure */
    int failed_read;    /* its number */
    uint64_t failed_at; /* byte of the file */
    const struct file *failed; /* the copy that was read there */
};

struct fetch {
    struct reader *reader;             /* borrowed */
    const struct expert_slots *slots;  /* borrowed */
    const struct fingerprints *fingerprints; /* borrowed, or NULL */
    struct fetch_flight *flights;      /* [slots->n] by slot */
    uint32_t *seen;                    /* [ceil(experts / 32)] bit mask: was checked */
    uint32_t under_way;                /* experts */
    uint32_t open, most;               /* reads not collected, and how many the reader takes */
};

/* `requests`: what the reader was created with. `fingerprints`, or NULL: what arrives for the first time is compared with them. */
int fetch_init(struct fetch *f, struct reader *reader, uint32_t requests, const struct expert_slots *slots, const struct fingerprints *fingerprints, struct error *e);

/* Waits for what is under way. */
void fetch_deinit(struct fetch *f);

/* Whether fetch_start will take one more. */
bool fetch_has_room(const struct fetch *f);

/* Begins to read `key` into `slot`, into which nothing is under way; there must be room. The expert arrives in any case. */
void fetch_start(struct fetch *f, struct expert_key key, uint32_t slot, enum read_priority priority);

/* What is not yet with the drive is not read; the expert arrives with -ECANCELED, or whole if all of it was. */
void fetch_cancel(struct fetch *f, uint32_t slot);

/* It is wanted now: what is not yet with the drive is read before what is only predicted. */
void fetch_raise(struct fetch *f, uint32_t slot);

struct fetch_arrival {
    struct expert_key key;
    uint32_t slot;
    int status; /* 0: all of it is there and sound; else the slot holds nothing */
};

/* The next expert whose reads have ended; waits up to timeout_ms (-1: for ever). 1: *ret filled; 0: none. A failure (not a
 * cancellation) is told in *e by file, tensor, layer, expert and byte. */
int fetch_collect(struct fetch *f, int timeout_ms, struct fetch_arrival *ret, struct error *e);

#endif
