/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the loop over pieces: workers, progress, cancelling, the parts of files and their end. Must not know: layouts. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/intmath.h"
#include "cpu/cpu.h"
#include "io/file_part.h"
#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/numa.h"
#include "src/base/thread.h"
#include "src/commands/output.h"

/* A window of pieces is one parallel loop; between windows the place reached is on record. */
enum { WORKERS_PER_CORE = 2, MAX_WORKERS = 64, WINDOW = 8 * MAX_WORKERS, WINDOW_LEAST = 64 };

struct writing {
    const struct output *o;
    const struct output_job *job;
    struct pool *pool;
    struct buffer buffer;            /* [workers, SLOT]; none when visiting */
    struct error *errors;            /* [workers] */
    struct file_part part;
    struct output_piece pieces[WINDOW];
    uint32_t n;
    struct output_place next;        /* first piece that is in no window yet */
    _Atomic bool stop;
    _Atomic uint64_t done;
    struct clock clock;
    uint64_t start, told, total, skipped;
    bool progress, visiting;
};

static const size_t slot_bytes = OUTPUT_PIECE + 2 * FILE_PART_ALIGN;

static void tell_progress(struct writing *w, bool last)
{
    uint64_t now = clock_now_ns(&w->clock), done = atomic_load(&w->done);
    if (!w->progress || (!last && now - w->told < 250000000)) {
        return;
    }
    w->told = now;
    char text[24], total[24], rate[24];
    double seconds = clock_seconds_since(&w->clock, w->start), speed = seconds > 0 ? (double)(done - w->skipped) / seconds : 0;
    fprintf(stderr, "\r%s%s of %s, %s/s, %.0f s left \033[K%s", w->visiting ? "compared " : "", format_bytes(text, done),
            format_bytes(total, w->total), format_bytes(rate, (uint64_t)speed), speed > 0 ? (double)(w->total - done) / speed : 0,
            last ? "\n" : "");
}

static bool cancelled(const struct writing *w) { return w->job->cancel != NULL && *w->job->cancel != 0; }

static int do_piece(struct writing *w, const struct output_piece *p, uint32_t worker, struct error *e)
{
    const struct tensor_entry *t = &w->o->list->items[p->tensor];
    if (w->visiting) {
        return w->job->make(w->job->ctx, p, NULL, worker, e);
    }
    uint64_t place = t->offset + p->at;
    unsigned char *out = (unsigned char *)w->buffer.data + worker * slot_bytes + place % FILE_PART_ALIGN;
    int r = w->job->make(w->job->ctx, p, out, worker, e);
    return r < 0 ? r : file_part_write(&w->part, place, out, p->bytes, e);
}

static void run_piece(void *ctx, uint32_t task, uint32_t worker)
{
    struct writing *w = ctx;
    if (atomic_load(&w->stop) || cancelled(w)) {
        return;
    }
    if (do_piece(w, &w->pieces[task], worker, &w->errors[worker]) < 0) {
        atomic_store(&w->stop, true);
        return;
    }
    atomic_fetch_add(&w->done, w->pieces[task].bytes);
    if (worker == 0) {
        tell_progress(w, false);
    }
}

/* The next pieces of a file, in its order. */
static void gather(struct writing *w, const struct output_file *f)
{
    uint32_t most_pieces = min_u32(max_u32(8 * w->job->workers, WINDOW_LEAST), WINDOW);
    w->n = 0;
    while (w->n < most_pieces && w->next.tensor < f->end) {
        const struct tensor_entry *t = &w->o->list->items[w->next.tensor];
        uint64_t most = max_u64(OUTPUT_PIECE / t->grain * t->grain, t->grain);
        struct output_piece p = {w->next.tensor, w->next.at, (size_t)min_u64(most, t->bytes - w->next.at)};
        w->pieces[w->n++] = p;
        w->next.at += p.bytes;
        if (w->next.at == t->bytes) {
            w->next = (struct output_place){w->next.tensor + 1, 0};
        }
    }
}

static int run_window(struct writing *w, struct error *e)
{
    pool_run(w->pool, w->n, run_piece, w);
    for (uint32_t i = 0; i < w->job->workers; i++) {
        if (w->errors[i].code != 0) {
            return error_set(e, w->errors[i].code, "%s", w->errors[i].text);
        }
    }
    return cancelled(w) ? error_set(e, ERROR_INTERRUPTED, "interrupted; %s", w->job->keep ? "the same command continues" : "nothing is left behind")
                        : 0;
}

static int checkpoint(struct writing *w, struct error *e)
{
    if (w->visiting || w->job->checkpoint == NULL) {
        return 0;
    }
    int r = file_part_sync(&w->part, e);
    return r < 0 ? r : w->job->checkpoint(w->job->ctx, &w->next, e);
}

static int run_file_data(struct writing *w, const struct output_file *f, struct error *e)
{
    int r = 0;
    while (r == 0 && w->next.tensor < f->end) {
        gather(w, f);
        r = run_window(w, e);
        r = r < 0 ? r : checkpoint(w, e);
    }
    return r;
}

static bool before(const struct output_place *a, const struct output_place *b)
{
    return a->tensor < b->tensor || (a->tensor == b->tensor && a->at < b->at);
}

static int write_one(struct writing *w, const struct output_file *f, struct error *e)
{
    const struct output_place first = {f->first, 0};
    bool there = w->job->resume && before(&first, &w->job->start);
    uint64_t bytes = w->job->header_only ? f->header.len : f->bytes;
    int r = file_part_open(&w->part, f->path, bytes, there, e);
    r = r < 0 ? r : file_part_write(&w->part, 0, f->header.data, f->header.len, e);
    if (r == 0 && !w->job->header_only) {
        r = run_file_data(w, f, e);
    }
    r = r < 0 ? r : file_part_sync(&w->part, e);
    file_part_close(&w->part);
    return r;
}

static int start(struct writing *w, struct error *e)
{
    w->errors = calloc(w->job->workers, sizeof(*w->errors));
    if (w->errors == NULL) {
        return error_nomem(e, "workers", w->job->workers * sizeof(*w->errors));
    }
    int r = w->visiting ? 0 : buffer_init(&w->buffer, NULL, PURPOSE_STAGING, w->job->workers * slot_bytes, e);
    struct pool_options po = {.workers = w->job->workers};
    r = r < 0 ? r : pool_create(&po, &w->pool, e);
    w->next = w->job->start;
    for (size_t i = 0; r == 0 && i < w->o->list->n; i++) {
        const struct tensor_entry *t = &w->o->list->items[i];
        w->total += t->bytes;
        w->skipped += i < w->next.tensor ? t->bytes : 0;
        if (t->grain > OUTPUT_PIECE) {
            r = error_set(e, ERROR_USAGE, "tensor %s is made of parts of %llu bytes, at most %d are possible", t->name,
                          (unsigned long long)t->grain, OUTPUT_PIECE);
        }
    }
    w->skipped += w->next.at;
    atomic_store(&w->done, w->skipped);
    w->clock = clock_system();
    w->start = clock_now_ns(&w->clock);
    w->progress = isatty(STDERR_FILENO) == 1 && !w->job->header_only;
    return r;
}

static int write_files(struct writing *w, struct error *e)
{
    const struct output *o = w->o;
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < o->n; i++) {
        if (o->files[i].end > w->next.tensor || w->job->header_only) { /* else it is complete already */
            r = write_one(w, &o->files[i], e);
        }
    }
    for (uint32_t i = 0; r == 0 && i < o->n; i++) {
        r = file_part_publish(o->files[i].path, e);
    }
    for (uint32_t i = 0; r < 0 && !(w->job->keep && r != ERROR_FORMAT) && i < o->n; i++) {
        file_part_remove(o->files[i].path);
    }
    return r;
}

static int run(const struct output *o, const struct output_job *job, bool visiting, struct error *e)
{
    struct writing *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        return error_nomem(e, "pieces", sizeof(*w));
    }
    w->o = o;
    w->job = job;
    w->visiting = visiting;
    int r = start(w, e);
    for (uint32_t i = 0; visiting && r == 0 && i < o->n; i++) {
        r = run_file_data(w, &o->files[i], e);
    }
    if (!visiting && r == 0) {
        r = write_files(w, e);
    }
    if (w->told != 0) {
        tell_progress(w, true);
    }
    pool_destroy(w->pool);
    buffer_deinit(&w->buffer);
    free(w->errors);
    free(w);
    return r;
}

int output_write(const struct output *o, const struct output_job *job, struct error *e) { return run(o, job, false, e); }

int output_visit(const struct output *o, const struct output_job *job, struct error *e) { return run(o, job, true, e); }

int output_workers(uint32_t *ret, struct error *e)
{
    struct topology *topology = malloc(sizeof(*topology));
    int r = topology != NULL ? topology_read(topology, e) : error_nomem(e, "topology", sizeof(*topology));
    if (r == 0) {
        *ret = min_u32(WORKERS_PER_CORE * max_u32(topology->cores, 1), MAX_WORKERS);
    }
    free(topology);
    return r;
}
