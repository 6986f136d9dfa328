/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: windows of rows read from the source, one a worker, and their decoding. Must not know: output formats. */
#include "src/commands/convert_source.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/intmath.h"
#include "cpu/cpu.h"
#include "src/commands/check_scan.h"

enum { WINDOW_BYTES = 4 << 20, ALIGN = 4096, DIRECT_LEAST = 1 << 16 };

/* Rows [row, end) of one matrix, and all its scales. */
struct convert_window {
    unsigned char *raw;        /* [WINDOW_BYTES + 2 ALIGN] or more */
    size_t cap;
    const unsigned char *data; /* inside raw: row `row` */
    const struct weight_ref *ref;
    uint32_t row, end;
    float *scales;             /* [n_scales] of `scaled` */
    size_t cap_scales;
    const struct weight_ref *scaled;
    float *values, *turned;    /* [CONVERT_FLOATS] or more */
    size_t cap_values, cap_turned;
};

int convert_source_init(struct convert_source *s, const struct weights *w, uint32_t workers, struct error *e)
{
    struct cpu_flags flags;
    *s = (struct convert_source){.w = w, .workers = workers, .windows = calloc(workers, sizeof(*s->windows))};
    if (s->windows == NULL) {
        return error_nomem(e, "read buffers", workers * sizeof(*s->windows));
    }
    cpu_detect(&flags);
    cpu_ops_init(&s->ops, cpu_isa_best(&flags), &flags);
    return 0;
}

void convert_source_deinit(struct convert_source *s)
{
    for (uint32_t i = 0; s->windows != NULL && i < s->workers; i++) {
        free(s->windows[i].raw);
        free(s->windows[i].scales);
        free(s->windows[i].values);
        free(s->windows[i].turned);
    }
    free(s->windows);
    *s = (struct convert_source){0};
}

static int room_for_floats(float **values, size_t *cap, size_t n, struct error *e)
{
    if (n <= *cap) {
        return 0;
    }
    free(*values);
    *cap = 0;
    *values = malloc(n * sizeof(**values));
    if (*values == NULL) {
        return error_nomem(e, "float buffer", n * sizeof(**values));
    }
    *cap = n;
    return 0;
}

/* ---- bytes ---- */

/* Reads into `raw` (room for 2 ALIGN more than bytes), past the page cache where that works. */
static int read_bytes(const struct file *f, uint64_t offset, size_t bytes, unsigned char *raw, const unsigned char **ret, struct error *e)
{
    uint64_t start = align_down_u64(offset, ALIGN);
    size_t skip = (size_t)(offset - start), want = (size_t)align_up_u64(skip + bytes, ALIGN), got = 0;
    bool direct = f->direct_fd >= 0 && f->direct_align <= ALIGN && bytes >= DIRECT_LEAST;
    while (direct && got < skip + bytes) {
        ssize_t n = pread(f->direct_fd, raw + got, want - got, (off_t)(start + got));
        direct = n > 0 && ((size_t)n % ALIGN == 0 || got + (size_t)n >= skip + bytes);
        got += n > 0 ? (size_t)n : 0;
    }
    *ret = direct ? raw + skip : raw;
    return direct ? 0 : file_read_at(f, offset, raw, bytes, e);
}

static int refuse(const struct file *f, const char *name, const struct scan *bad, uint64_t first, uint32_t cols,
                  struct error *e)
{
    uint64_t at = first + bad->first_bad;
    return error_set(e, ERROR_FORMAT, "%s: tensor %s: %s in row %llu, column %llu; the file is damaged, get it again (sluice check lists all)",
                     f->path, name, bad->what, (unsigned long long)(at / cols), (unsigned long long)(at % cols));
}

static int read_window(struct convert_window *w, const struct weight_ref *ref, uint32_t row, uint32_t end, struct error *e)
{
    uint64_t row_bytes = ref->bytes / ref->rows;
    uint32_t rows = min_u32(end - row, max_u32((uint32_t)(WINDOW_BYTES / row_bytes), 1));
    size_t bytes = (size_t)(rows * row_bytes);
    if (bytes + 2 * ALIGN > w->cap) {
        free(w->raw);
        w->cap = 0;
        size_t cap = bytes > WINDOW_BYTES ? bytes + 2 * ALIGN : WINDOW_BYTES + 2 * ALIGN;
        w->raw = aligned_alloc(ALIGN, align_up_u64(cap, ALIGN));
        if (w->raw == NULL) {
            return error_nomem(e, "read buffer", cap);
        }
        w->cap = cap;
    }
    w->ref = NULL;
    int r = read_bytes(ref->file, ref->offset + row * row_bytes, bytes, w->raw, &w->data, e);
    struct scan scan = {.kind = SCAN_FORMAT, .format = ref->format};
    if (r == 0) {
        scan_bytes(&scan, w->data, bytes);
        r = scan.bad == 0 ? 0 : refuse(ref->file, ref->name, &scan, (uint64_t)row * ref->cols, ref->cols, e);
    }
    if (r == 0) {
        w->ref = ref;
        w->row = row;
        w->end = row + rows;
    }
    return r;
}

/* ---- scales ---- */

static void decode_scales(const struct convert_source *s, const struct tensor *t, const unsigned char *raw, float *out, size_t n)
{
    if (strcmp(t->type_name, "F8_E8M0") == 0) {
        for (size_t i = 0; i < n; i++) {
            out[i] = ldexpf(1.0f, (int)raw[i] - 127);
        }
        return;
    }
    struct dequantise_args a = {.w = {.data = raw, .row_bytes = (size_t)t->bytes, .rows = 1, .cols = (uint32_t)n, .format = t->format}, .y = out, .row_end = 1};
    s->ops.dequantise[t->format](&a);
}

static int load_scales(const struct convert_source *s, struct convert_window *w, const struct weight_ref *ref, struct error *e)
{
    if (ref->scale == NULL || w->scaled == ref) {
        return 0;
    }
    const struct tensor *t = ref->scale;
    uint32_t cols = (uint32_t)ceil_div_u64(ref->cols, FORMAT_SCALE_BLOCK);
    size_t n = (size_t)ceil_div_u64(ref->rows, FORMAT_SCALE_BLOCK) * cols;
    bool exponents = strcmp(t->type_name, "F8_E8M0") == 0;
    w->scaled = NULL;
    int r = room_for_floats(&w->scales, &w->cap_scales, n, e);
    unsigned char *raw = r == 0 ? malloc((size_t)t->bytes) : NULL;
    if (r == 0 && raw == NULL) {
        r = error_nomem(e, "scales", t->bytes);
    }
    r = r < 0 ? r : file_read_at(ref->scale_file, t->offset, raw, (size_t)t->bytes, e);
    struct scan scan = {.kind = exponents ? SCAN_E8M0 : SCAN_SCALE, .format = t->format};
    if (r == 0) {
        scan_bytes(&scan, raw, (size_t)t->bytes);
        r = scan.bad == 0 ? 0 : refuse(ref->scale_file, t->name, &scan, 0, cols, e);
    }
    if (r == 0) {
        decode_scales(s, t, raw, w->scales, n);
        w->scaled = ref;
    }
    free(raw);
    return r;
}

/* ---- rows ---- */

/* Rows [row, row + n) as float32; `end`: rows worth reading ahead. */
static int rows_to_floats(const struct convert_source *s, struct convert_window *w, const struct weight_ref *ref, uint32_t row, uint32_t n,
                          uint32_t end, float *out, struct error *e)
{
    uint64_t row_bytes = ref->bytes / ref->rows;
    int r = load_scales(s, w, ref, e);
    for (uint32_t done = 0; r == 0 && done < n;) {
        uint32_t at = row + done;
        if (w->ref != ref || at < w->row || at >= w->end) {
            r = read_window(w, ref, at, end, e);
        }
        if (r == 0) {
            uint32_t take = min_u32(n - done, w->end - at);
            struct dequantise_args a = {
                .w = {.data = w->data + (at - w->row) * row_bytes, .row_bytes = (size_t)row_bytes, .scale = ref->scale != NULL ? w->scales : NULL,
                      .scale_cols = (uint32_t)ceil_div_u64(ref->cols, FORMAT_SCALE_BLOCK), .row0 = at, .rows = take, .cols = ref->cols,
                      .format = ref->format},
                .y = out + (size_t)done * ref->cols, .row_end = take};
            s->ops.dequantise[ref->format](&a);
            done += take;
        }
    }
    return r;
}

/* Where row `row` of the output tensor comes from, and how many rows follow it there. */
static const struct weight_ref *place_of(const struct convert_source *s, const struct tensor_entry *t, uint64_t row, uint32_t *ret_row,
                                         uint32_t *ret_run)
{
    const struct weights *w = s->w;
    const struct layer_refs *l = &w->layers[t->layer];
    uint32_t rows = t->n_dims == 1 ? 1 : (uint32_t)t->dims[t->n_dims - 2], stack = (uint32_t)(row / rows), within = (uint32_t)(row % rows);
    *ret_row = within;
    *ret_run = rows - within;
    switch (t->role) {
    case ROLE_EMBED:
        return &w->embed;
    case ROLE_HEAD:
        return &w->head;
    case ROLE_FINAL_NORM:
        return &w->final_norm;
    case ROLE_EXPERT_GATE:
        return &l->experts[stack].gate;
    case ROLE_EXPERT_UP:
        return &l->experts[stack].up;
    case ROLE_EXPERT_DOWN:
        return &l->experts[stack].down;
    case ROLE_V_B:
        *ret_row = stack * (w->shape.nope + w->shape.v_head) + w->shape.nope + within;
        return &l->role[ROLE_KV_B];
    default:
        return &l->role[t->role];
    }
}

/* One head: `nope` rows of kv_b, turned. */
static int read_head(const struct convert_source *s, struct convert_window *w, const struct tensor_entry *t, uint32_t head, struct error *e)
{
    const struct shape *shape = &s->w->shape;
    uint32_t rows = shape->nope, cols = shape->kv_lora, first = head * (shape->nope + shape->v_head);
    int r = room_for_floats(&w->turned, &w->cap_turned, (size_t)rows * cols, e);
    r = r < 0 ? r : room_for_floats(&w->values, &w->cap_values, (size_t)rows * cols, e);
    r = r < 0 ? r : rows_to_floats(s, w, &s->w->layers[t->layer].role[ROLE_KV_B], first, rows, first + rows, w->turned, e);
    for (uint32_t c = 0; r == 0 && c < cols; c++) {
        for (uint32_t d = 0; d < rows; d++) {
            w->values[(size_t)c * rows + d] = w->turned[(size_t)d * cols + c];
        }
    }
    return r;
}

static int read_heads(const struct convert_source *s, const struct tensor_entry *t, uint64_t first, uint64_t n, uint32_t worker, convert_fn fn,
                      void *ctx, struct error *e)
{
    struct convert_window *w = &s->windows[worker];
    uint64_t each = t->dims[1] * t->dims[2];
    int r = 0;
    for (uint64_t at = first; r == 0 && at < first + n; at += each) {
        r = read_head(s, w, t, (uint32_t)(at / each), e);
        r = r < 0 ? r : fn(ctx, w->values, at, (size_t)each, e);
    }
    return r;
}

int convert_source_read(const struct convert_source *s, const struct tensor_entry *t, uint64_t first, uint64_t n, uint32_t worker, convert_fn fn,
                        void *ctx, struct error *e)
{
    if (t->role == ROLE_K_B) {
        return read_heads(s, t, first, n, worker, fn, ctx, e);
    }
    struct convert_window *w = &s->windows[worker];
    uint64_t cols = t->dims[t->n_dims - 1], most = max_u64(CONVERT_FLOATS / cols, 1), end = (first + n) / cols;
    int r = room_for_floats(&w->values, &w->cap_values, (size_t)(most * cols), e);
    for (uint64_t row = first / cols; r == 0 && row < end;) {
        uint32_t from, run;
        const struct weight_ref *ref = place_of(s, t, row, &from, &run);
        run = (uint32_t)min_u64(run, end - row);
        uint32_t take = (uint32_t)min_u64(run, most);
        r = rows_to_floats(s, w, ref, from, take, from + run, w->values, e);
        r = r < 0 ? r : fn(ctx, w->values, row * cols, (size_t)(take * cols), e);
        row += take;
    }
    return r;
}
