/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: probe_drive.h. Must not know: models. */
#include "src/run/probe_drive.h"

#include <stdio.h>
#include <string.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "io/reader.h"
#include "src/base/alloc.h"

enum { SMALLEST_FILE = 64 << 20, SLICES = 3 }; /* samples of each way */

static const struct way {
    uint32_t depth, chunk;
} ways[] = {{1, 4 << 20}, {4, 4 << 20}, {16, 1 << 20}, {16, 4 << 20}};

struct drive {
    const struct drive_options *o;
    struct file file;
    struct reader *reader;
    struct buffer buffer;
    uint64_t next; /* offset of the next read: each way goes on where the last one stopped, around the end */
};

static int submit(struct drive *d, const struct way *w, uint64_t slot)
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
static int sample(struct drive *d, const struct way *w, double seconds, double *ret_rate, struct error *e)
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

static int measure_way(struct drive *d, const struct way *w, struct rate *ret, struct error *e)
{
    const struct reader_options o = {.depth = w->depth, .chunk = w->chunk, .direct = true};
    double samples[SLICES];
    int code = reader_create(&o, &d->reader, e);
    for (uint32_t i = 0; code == 0 && i < SLICES; i++) {
        code = sample(d, w, d->o->seconds / (SLICES * ARRAY_LEN(ways)), &samples[i], e);
    }
    if (code == 0 && reader_refused(d->reader, READER_DIRECT) == 0) {
        *ret = rate_of(samples, SLICES);
    }
    reader_destroy(d->reader);
    d->reader = NULL;
    return code;
}

int probe_drive(const struct drive_options *o, struct rate *ret, char *why, size_t why_bytes, struct error *e)
{
    struct drive d = {.o = o};
    struct rate best = {0};
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
        code = buffer_init(&d.buffer, NULL, PURPOSE_STAGING, (size_t)ways[ARRAY_LEN(ways) - 1].depth * ways[ARRAY_LEN(ways) - 1].chunk, e);
        for (size_t i = 0; code == 0 && i < ARRAY_LEN(ways); i++) {
            struct rate found = {0};
            code = measure_way(&d, &ways[i], &found, e);
            best = found.best > best.best ? found : best;
        }
        if (code == 0 && best.best == 0) {
            snprintf(why, why_bytes, "O_DIRECT reads are refused");
        }
    }
    buffer_deinit(&d.buffer);
    file_close(&d.file);
    if (code == 0) {
        *ret = best;
    }
    return code;
}
