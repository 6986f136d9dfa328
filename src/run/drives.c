/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: drives.h. Must not know: how bytes are read. */
#include "src/run/drives.h"

#include <errno.h>
#include <string.h>

#include "common/intmath.h"
#include "io/mirror.h"
#include "src/run/engine.h"

enum { READ_DEPTH = 32, READ_CHUNK = 1 << 20 }; /* what drives known so far need to reach their rate */

_Static_assert((int)MACHINE_DEPTH_MAX <= (int)READER_DEPTH_MAX, "a profile cannot ask for more than a reader takes");
_Static_assert((int)MIRRORS_MAX + 1 == (int)READER_COPIES_MAX, "each mirror is a copy that a reader knows");

void drives_depth(struct drives *d, const struct machine *described)
{
    bool recorded = described->nvme_depth > 0 && described->nvme_chunk > 0;
    d->depth = recorded ? described->nvme_depth : READ_DEPTH;
    d->chunk = recorded ? described->nvme_chunk : READ_CHUNK;
    d->source = recorded ? "profile" : "default";
}

uint32_t drives_flights(const struct drives *d) { return min_u32(d->depth * max_u32(d->n, 1), READER_DEPTH_MAX); }

int drives_init(struct engine *g, struct error *e)
{
    static const char *const names[READER_COPIES_MAX] = {"drive.copy.0.bytes", "drive.copy.1.bytes", "drive.copy.2.bytes", "drive.copy.3.bytes",
                                                         "drive.copy.4.bytes", "drive.copy.5.bytes", "drive.copy.6.bytes", "drive.copy.7.bytes"};
    const struct container *c = g->weights->containers[0];
    struct drives *d = &g->drives;
    d->n = 1 + c->files[0].n_copies;
    d->failed = counters_register(&g->counters, "drive.failed", "reads that failed and were made good by another copy of the model");
    d->slow = counters_register(&g->counters, "drive.slow", "times that a drive brought less than half of what it had brought before");
    bool whole = d->failed != NULL && d->slow != NULL;
    for (uint32_t i = 0; i < d->n; i++) {
        d->bytes[i] = counters_register(&g->counters, names[i], "bytes of weights read from this copy of the model; 0: the model itself");
        whole = whole && d->bytes[i] != NULL;
    }
    for (uint32_t i = 0; i + 1 < d->n; i++) {
        char note[400];
        mirror_note(c, i, note, sizeof(note));
        if (note[0] != '\0') {
            log_print(&g->log, LOG_NOTICE, "%s", note);
        }
    }
    return whole ? 0 : error_set(e, -ENOSPC, "the table of counters is full");
}

static void count_failures(struct engine *g, struct reader *reader, uint32_t copy)
{
    struct drives *d = &g->drives;
    struct reader_fault fault = reader_fault(reader, copy);
    counter_add(d->failed, fault.n - d->failed_told[copy]);
    d->failed_told[copy] = fault.n;
    if (fault.n > 0 && !d->announced[copy]) {
        d->announced[copy] = true;
        engine_step_down(g, "drive", "%s: reading at byte %llu failed: %s; such reads go on with another copy of the model", fault.file->path,
                         (unsigned long long)fault.offset, reader_status_text(fault.status));
    }
}

static void count_slowness(struct engine *g, struct reader *reader, uint32_t copy)
{
    struct drives *d = &g->drives;
    const struct file *own = &g->weights->containers[0]->files[0];
    struct reader_slowness s = reader_slowness(reader, copy);
    if (s.n > d->slow_told[copy]) {
        counter_add(d->slow, s.n - d->slow_told[copy]);
        d->slow_told[copy] = s.n;
        log_print(&g->log, LOG_NOTICE, "drive of %s: %.2f GB/s, %.2f GB/s before; hot, failing, or others use it: `sluice doctor -m` shows its temperature",
                  copy == 0 ? own->path : own->copies[copy - 1].path, 1e-9 * s.rate, 1e-9 * s.usual);
    }
}

void drives_watch(struct engine *g, struct reader *reader)
{
    struct drives *d = &g->drives;
    struct reader_load now = reader_load(reader);
    for (uint32_t i = 0; i < d->n; i++) {
        counter_add(d->bytes[i], now.copy_bytes[i] - d->told.copy_bytes[i]);
        count_slowness(g, reader, i);
        if (d->n > 1) {
            count_failures(g, reader, i);
        }
    }
    d->told = now;
}

void drives_finish(struct engine *g, struct reader *reader)
{
    drives_watch(g, reader);
    g->drives.told = (struct reader_load){0};
    memset(g->drives.failed_told, 0, sizeof(g->drives.failed_told));
    memset(g->drives.slow_told, 0, sizeof(g->drives.slow_told));
}
