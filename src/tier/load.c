/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading at open time: items are sorted into file order, cut into pieces, kept in flight, checked as they arrive.
 * Must not know: who computes with the bytes. */
#include "src/tier/load.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/exact.h"
#include "common/intmath.h"
#include "io/container.h"

enum { PROGRESS_NS = 250 * 1000 * 1000, POLL_MS = 100, LOAD_PAGE = 4096, NAN_CODE = 0x7f };

/* One range to read. */
struct extent {
    const struct file *file;
    const char *name;
    uint64_t offset, bytes;
    unsigned char *data;
    uint32_t f8_cols; /* columns of FP8 codes to check; 0: none */
    uint64_t f8_begin; /* element of the matrix at `offset` */
};

struct piece {
    const struct extent *extent;
    uint64_t at, bytes; /* inside the extent */
    bool busy;
};

/* Where the walk over the extents stands. */
struct walk {
    struct loader *loader;
    const struct extent *extents; /* [n] in file order */
    size_t n, next;
    uint64_t next_at;             /* first byte of extents[next] that is not submitted */
    struct piece pieces[LOAD_DEPTH];
    uint32_t in_flight;
    int status;                   /* first failure */
    struct error *e;
};

static int extent_order(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    if (x->file != y->file) {
        int c = strcmp(x->file->path, y->file->path);
        return c != 0 ? c : (x->file < y->file ? -1 : 1);
    }
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void report(struct loader *l, bool force)
{
    uint64_t now = clock_now_ns(&l->clock);
    if (l->progress != NULL && (force || now - l->reported_ns >= PROGRESS_NS)) {
        l->reported_ns = now;
        l->progress(l->progress_ctx, l->done, l->total, clock_seconds_since(&l->clock, l->start_ns));
    }
}

/* The first failure counts; what is not in flight is not read any more. */
static void fail(struct walk *w, int status)
{
    if (w->status != 0) {
        return;
    }
    w->status = status;
    for (uint32_t i = 0; i < LOAD_DEPTH; i++) {
        if (w->pieces[i].busy) {
            reader_cancel(w->loader->reader, i);
        }
    }
}

int load_interrupted(const struct loader *l, struct error *e)
{
    bool cancelled = l->cancel != NULL && atomic_load(l->cancel) != 0;
    return cancelled ? error_set(e, ERROR_INTERRUPTED, "interrupted while loading weights") : 0;
}

/* Of a file and its copies one in which the code at `offset` is NaN; none: the file itself. */
static const struct file *file_with_nan(const struct file *file, uint64_t offset)
{
    unsigned char code = 0;
    for (uint32_t i = 0; i < file->n_copies; i++) {
        if (file_read_at(&file->copies[i], offset, &code, 1, NULL) == 0 && (code & NAN_CODE) == NAN_CODE) {
            bool own = file_read_at(file, offset, &code, 1, NULL) == 0 && (code & NAN_CODE) == NAN_CODE;
            return own ? file : &file->copies[i];
        }
    }
    return file;
}

/* Bytes [0, n) of `code` are elements `first` on of a matrix of FP8 codes. */
static int find_nan(const struct file *file, const char *name, uint32_t cols, uint64_t first, uint64_t offset, const unsigned char *code, uint64_t n, struct error *e)
{
    unsigned found = 0;
    for (uint64_t i = 0; i < n; i++) { /* no early exit: this form is vectorised */
        found |= (code[i] & NAN_CODE) == NAN_CODE;
    }
    if (found == 0) {
        return 0;
    }
    uint64_t i = 0;
    while ((code[i] & NAN_CODE) != NAN_CODE) {
        i++;
    }
    return error_set(e, ERROR_FORMAT, "%s: tensor %s: NaN (FP8 code 0x%02x) at row %llu, column %llu, byte %llu of the file; the file is "
                     "damaged or badly converted: download it again, `sluice check` lists all such places", file_with_nan(file, offset + i)->path, name, code[i],
                     (unsigned long long)((first + i) / cols), (unsigned long long)((first + i) % cols), (unsigned long long)(offset + i));
}

int load_check_item(const struct load_item *item, struct error *e)
{
    const struct weight_ref *r = &item->ref;
    return r->format != FORMAT_F8_E4M3 ? 0 : find_nan(r->file, r->name, r->cols, item->begin, r->offset + item->begin, item->data, item->bytes, e);
}

static void check_codes(struct walk *w, const struct piece *p)
{
    const struct extent *x = p->extent;
    struct error found;
    int r = w->status != 0 ? 0 : find_nan(x->file, x->name, x->f8_cols, x->f8_begin + p->at, x->offset + p->at, x->data + p->at, p->bytes, &found);
    if (r < 0) {
        fail(w, error_set(w->e, r, "%s", found.text));
    }
}

static void submit_piece(struct walk *w)
{
    uint32_t slot = 0;
    while (w->pieces[slot].busy) {
        slot++;
    }
    const struct extent *x = &w->extents[w->next];
    struct piece *p = &w->pieces[slot];
    uint64_t skew = (x->offset + w->next_at) % LOAD_PAGE; /* pieces end at whole pages of the file: good for O_DIRECT */
    *p = (struct piece){.extent = x, .at = w->next_at, .bytes = min_u64(LOAD_PIECE - skew, x->bytes - w->next_at)};
    struct read_request request = {
        .file = x->file, .offset = x->offset + p->at, .bytes = p->bytes, .data = x->data + p->at, .tag = slot};
    int r = reader_submit(w->loader->reader, &request);
    if (r == -EAGAIN && w->in_flight > 0) {
        return; /* a reader of less depth: collect first */
    }
    if (r < 0) {
        fail(w, error_set(w->e, r, "%s: tensor %s: the read at byte %llu was refused: %s", x->file->path, x->name,
                          (unsigned long long)request.offset, strerror(-r)));
        return;
    }
    p->busy = true;
    w->in_flight++;
    w->next_at += p->bytes;
    if (w->next_at == x->bytes) {
        w->next++;
        w->next_at = 0;
    }
}

static void take_result(struct walk *w, const struct read_result *result)
{
    struct piece *p = &w->pieces[result->tag];
    p->busy = false;
    w->in_flight--;
    if (result->status < 0) {
        if (w->status == 0) {
            fail(w, error_set(w->e, result->status, "%s: tensor %s: reading at byte %llu failed: %s; %llu bytes wanted, %llu read",
                              result->file->path, p->extent->name, (unsigned long long)result->file_offset,
                              reader_status_text(result->status),
                              (unsigned long long)p->bytes, (unsigned long long)result->bytes));
        }
        return;
    }
    w->loader->done += p->bytes;
    if (p->extent->f8_cols > 0) {
        check_codes(w, p);
    }
}

/* Reads all extents; whatever happens, nothing is in flight on return. */
static int read_extents(struct loader *l, struct extent *extents, size_t n, struct error *e)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += extents[i].bytes;
    }
    l->total = max_u64(l->total, l->done + bytes);
    if (l->start_ns == 0) {
        l->start_ns = l->reported_ns = clock_now_ns(&l->clock);
    }
    qsort(extents, n, sizeof(*extents), extent_order);
    struct walk w = {.loader = l, .extents = extents, .n = n, .e = e};
    while (w.in_flight > 0 || (w.status == 0 && w.next < n)) {
        int stop = w.status == 0 ? load_interrupted(l, e) : 0;
        if (stop < 0) {
            fail(&w, stop);
        }
        uint32_t before = LOAD_DEPTH;
        while (w.status == 0 && w.next < n && w.in_flight < LOAD_DEPTH && w.in_flight != before) {
            before = w.in_flight;
            submit_piece(&w);
        }
        struct read_result result;
        int got = w.in_flight > 0 ? reader_collect(l->reader, &result, POLL_MS) : 0;
        if (got > 0) {
            take_result(&w, &result);
        }
        report(l, false);
    }
    if (w.status == 0) {
        report(l, true);
    }
    return w.status;
}

int load_matrices(struct loader *l, const struct load_item *items, size_t n, struct error *e)
{
    struct extent *x = calloc(n > 0 ? n : 1, sizeof(*x));
    if (x == NULL) {
        return error_nomem(e, "list of reads", n * sizeof(*x));
    }
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const struct weight_ref *r = &items[i].ref;
        if (items[i].bytes > 0) {
            x[used++] = (struct extent){
                .file = r->file, .name = r->name, .offset = r->offset + items[i].begin, .bytes = items[i].bytes, .data = items[i].data,
                .f8_cols = r->format == FORMAT_F8_E4M3 ? r->cols : 0, .f8_begin = items[i].begin,
            };
        }
    }
    int r = read_extents(l, x, used, e);
    free(x);
    return r;
}

/* ---- vectors and scales ---- */

/* 2^(code - 127); 255 is NaN. */
static float e8m0_to_float(uint8_t code)
{
    return code == 255 ? float_from_bits(0x7fc00000u) : code == 0 ? 0x1p-127f : float_from_bits((uint32_t)code << 23);
}

enum float_kind { KIND_F32, KIND_F16, KIND_BF16, KIND_E8M0, KIND_OTHER };

static enum float_kind float_kind_of(const struct load_floats_item *item)
{
    enum weight_format f = item->scales ? item->ref.scale->format : item->ref.format;
    if (item->scales && strcmp(item->ref.scale->type_name, "F8_E8M0") == 0) {
        return KIND_E8M0;
    }
    return f == FORMAT_F32 ? KIND_F32 : f == FORMAT_F16 ? KIND_F16 : f == FORMAT_BF16 ? KIND_BF16 : KIND_OTHER;
}

static size_t float_kind_bytes(enum float_kind kind) { return kind == KIND_F32 ? 4 : kind == KIND_E8M0 ? 1 : 2; }

/* The file's n elements lie at the end of out [n]; rising order never overwrites one that is still to be read. */
static void expand(enum float_kind kind, float *out, size_t n)
{
    const unsigned char *raw = (const unsigned char *)(out + n) - n * float_kind_bytes(kind);
    for (size_t i = 0; i < n; i++) {
        uint16_t half = 0;
        if (kind == KIND_E8M0) {
            out[i] = e8m0_to_float(raw[i]);
            continue;
        }
        memcpy(&half, raw + 2 * i, sizeof(half));
        out[i] = kind == KIND_F16 ? half_to_float(half) : bf16_to_float(half);
    }
}

static int check_values(const struct load_floats_item *item, const char *name, const char *path, size_t n, struct error *e)
{
    const float *v = item->out;
    size_t i = 0;
    while (i < n && isfinite(v[i]) && (!item->scales || v[i] >= 0.0f)) {
        i++;
    }
    if (i == n) {
        return 0;
    }
    if (!item->scales) {
        return error_set(e, ERROR_FORMAT, "%s: tensor %s: element %zu is %g, a finite number is needed; the file is damaged or badly converted",
                         path, name, i, (double)v[i]);
    }
    size_t per_row = ceil_div_u64(item->ref.cols, FORMAT_SCALE_BLOCK);
    return error_set(e, ERROR_FORMAT, "%s: tensor %s: the scale of block (%zu, %zu) is %g, a finite number of 0 or more is needed; the file is "
                     "damaged or badly converted", path, name, i / per_row, i % per_row, (double)v[i]);
}

uint64_t load_scale_count(const struct weight_ref *ref)
{
    return ref->scale == NULL ? 0 : ceil_div_u64(ref->rows, FORMAT_SCALE_BLOCK) * ceil_div_u64(ref->cols, FORMAT_SCALE_BLOCK);
}

static size_t floats_count(const struct load_floats_item *item) { return item->scales ? load_scale_count(&item->ref) : item->ref.cols; }

static const struct file *floats_file(const struct load_floats_item *i) { return i->scales ? i->ref.scale_file : i->ref.file; }
static const char *floats_name(const struct load_floats_item *i) { return i->scales ? i->ref.scale->name : i->ref.name; }

int load_floats(struct loader *l, const struct load_floats_item *items, size_t n, struct error *e)
{
    struct extent *x = calloc(n > 0 ? n : 1, sizeof(*x));
    if (x == NULL) {
        return error_nomem(e, "list of reads", n * sizeof(*x));
    }
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++) {
        const struct load_floats_item *item = &items[i];
        enum float_kind kind = float_kind_of(item);
        size_t count = floats_count(item), bytes = count * float_kind_bytes(kind);
        uint64_t there = item->scales ? item->ref.scale->bytes : item->ref.bytes;
        if (kind == KIND_OTHER || there != bytes) {
            r = error_set(e, ERROR_FORMAT, "%s: tensor %s: %llu bytes found, %zu numbers as F32, F16 or BF16 expected", floats_file(item)->path,
                          floats_name(item), (unsigned long long)there, count);
        }
        x[i] = (struct extent){
            .file = floats_file(item), .name = floats_name(item), .offset = item->scales ? item->ref.scale->offset : item->ref.offset,
            .bytes = bytes, .data = (unsigned char *)(item->out + count) - bytes,
        };
    }
    r = r < 0 ? r : read_extents(l, x, n, e);
    for (size_t i = 0; r == 0 && i < n; i++) {
        r = fingerprints_check_bytes(l->fingerprints, x[i].file, x[i].offset, x[i].name, x[i].data, (size_t)x[i].bytes, e);
    }
    free(x);
    for (size_t i = 0; r == 0 && i < n; i++) {
        enum float_kind kind = float_kind_of(&items[i]);
        if (kind != KIND_F32) {
            expand(kind, items[i].out, floats_count(&items[i]));
        }
        r = check_values(&items[i], floats_name(&items[i]), floats_file(&items[i])->path, floats_count(&items[i]), e);
    }
    return r;
}

int load_vector(struct loader *l, const struct weight_ref *ref, float *out, struct error *e)
{
    const struct load_floats_item item = {.ref = *ref, .out = out, .scales = false};
    return load_floats(l, &item, 1, e);
}

int load_scales(struct loader *l, const struct weight_ref *ref, float *out, struct error *e)
{
    const struct load_floats_item item = {.ref = *ref, .out = out, .scales = true};
    return load_floats(l, &item, 1, e);
}
