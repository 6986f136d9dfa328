/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: probe_drive.h. Must not know: models. */
#include "src/run/probe_drive.h"

#include <stdio.h>
#include <string.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "io/reader.h"
#include "src/base/alloc.h"

enum {
    SMALLEST_FILE = 64 << 20,
    SLICES = 3, /* samples of each way */
    DEPTHS = 4,
    CHUNKS = 4,
    WAYS = DEPTHS * CHUNKS,
    LEAST_DEPTH = 8, /* each of the next is twice the one before */
    LEAST_CHUNK = 256 << 10,
    MOST_BYTES = (LEAST_DEPTH << (DEPTHS - 1)) * (LEAST_CHUNK << (CHUNKS - 1)),
};

#define ENOUGH 0.97

struct drive {
    const struct drive_options *o;
    struct file file;
    struct reader *reader;
    struct buffer buffer;
    uint64_t next; /* offset of the next read: each way goes on where the last one stopped, around the end */
};

static int submit(struct drive *d, const struct drive_way *w, uint64_t slot)
{
    if (d->next + w->chunk > d->file.size) {
        d->next = 0;
    }
    const struct read_request q = {
        .file = &d->file, .offset = d->next, .bytes = w->chunk, .data = (char *)d->buffer.data + slot * w->chunk, .tag = slot};
    d->next += w->chunk;
    return reader_submit(d->reader, &q);
}

/* Keeps `depth` reads in flight for `seconds`; *ret_bytes per second between the first and the last. */
static int sample(struct drive *d, const struct drive_way *w, double seconds, double *ret_rate, struct error *e)
{
    uint64_t start = clock_now_ns(&d->o->clock), bytes = 0;
    uint32_t open = 0;
    int code = 0;
    while (code == 0 && open < w->depth) {
        code = submit(d, w, open);
        open += code == 0;
    }
    while (open > 0) {
        struct read_result got;
        if (reader_collect(d->reader, &got, -1) != 1) {
            continue;
        }
        open--;
        bytes += got.bytes;
        code = code < 0 ? code : got.status;
        if (code == 0 && d->o->cancel != NULL && atomic_load_explicit(d->o->cancel, memory_order_relaxed) != 0) {
            code = error_set(e, ERROR_INTERRUPTED, "interrupted");
        }
        if (code == 0 && clock_seconds_since(&d->o->clock, start) < seconds) {
            code = submit(d, w, got.tag);
            open += code == 0;
        }
    }
    double spent = clock_seconds_since(&d->o->clock, start);
    *ret_rate = spent > 0 ? (double)bytes / spent : 0;
    return code < 0 && code != ERROR_INTERRUPTED ? error_set(e, code, "%s: %s while its drive was measured", d->o->path, strerror(-code)) : code;
}

static int measure_way(struct drive *d, struct drive_way *w, struct error *e)
{
    const struct reader_options o = {.depth = w->depth, .chunk = w->chunk, .direct = true};
    double samples[SLICES];
    int code = reader_create(&o, &d->reader, e);
    for (uint32_t i = 0; code == 0 && i < SLICES; i++) {
        code = sample(d, w, d->o->seconds / (SLICES * WAYS), &samples[i], e);
    }
    if (code == 0 && reader_refused(d->reader, READER_DIRECT) == 0) {
        w->rate = rate_of(samples, SLICES);
    }
    reader_destroy(d->reader);
    d->reader = NULL;
    return code;
}

const struct drive_way *drive_way_choose(const struct drive_way *ways, size_t n)
{
    double best = 0;
    for (size_t i = 0; i < n; i++) {
        best = ways[i].rate.best > best ? ways[i].rate.best : best;
    }
    size_t i = 0;
    while (i + 1 < n && ways[i].rate.best < ENOUGH * best) {
        i++;
    }
    return &ways[i];
}

static int measure_ways(struct drive *d, struct drive_way *ret, struct error *e)
{
    struct drive_way ways[WAYS] = {0};
    int code = buffer_init(&d->buffer, NULL, PURPOSE_STAGING, MOST_BYTES, e);
    for (uint32_t i = 0; code == 0 && i < WAYS; i++) {
        ways[i].depth = LEAST_DEPTH << i / CHUNKS;
        ways[i].chunk = (uint32_t)LEAST_CHUNK << i % CHUNKS;
        code = measure_way(d, &ways[i], e);
        ret->rate = ways[i].rate.best > ret->rate.best ? ways[i].rate : ret->rate;
    }
    if (code == 0 && ret->rate.best > 0) {
        const struct drive_way *enough = drive_way_choose(ways, WAYS);
        ret->depth = enough->depth;
        ret->chunk = enough->chunk;
    }
    return code;
}

int probe_drive(const struct drive_options *o, struct drive_way *ret, char *why, size_t why_bytes, struct error *e)
{
    struct drive d = {.o = o};
    struct drive_way found = {0};
    int code = file_open(o->path, &d.file, e);
    if (code < 0) {
        return code;
    }
    why[0] = '\0';
    if (d.file.size < SMALLEST_FILE) {
        snprintf(why, why_bytes, "the file is too small to tell");
    } else if (d.file.direct_fd < 0) {
        snprintf(why, why_bytes, "O_DIRECT is refused (%s)", strerror(d.file.direct_errno));
    } else {
        code = measure_ways(&d, &found, e);
        if (code == 0 && found.rate.best == 0) {
            snprintf(why, why_bytes, "O_DIRECT reads are refused");
        }
    }
    buffer_deinit(&d.buffer);
    file_close(&d.file);
    if (code == 0) {
        *ret = found;
    }
    return code;
}
