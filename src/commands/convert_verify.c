/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the comparison. Must not know: how the file was made. */
#include "src/commands/convert_verify.h"

#include <math.h>
#include <stdlib.h>

#include "src/commands/convert_encode.h"
#include "src/model/bind.h"

struct verifying {
    const struct tensor_list *list;
    const struct convert_source *source;
    const struct container *made;
};

struct comparison {
    const struct verifying *v;
    const struct tensor_entry *t;
    const struct tensor *there;
};

static int differs(const struct comparison *c, uint64_t at, float want, float found, struct error *e)
{
    const struct file *f = &c->v->made->files[c->there->file];
    return error_set(e, ERROR_FORMAT, "%s: tensor %s: element %llu is %g, the source has %g; convert again with --force and check the drive", f->path,
                     c->t->name, (unsigned long long)at, (double)found, (double)want);
}

static int compare_values(const struct comparison *c, const float *want, const float *found, uint64_t first, size_t n, struct error *e)
{
    const struct weight_format_info *info = weight_format_info(c->t->format);
    for (size_t b = 0; b < n; b += info->block_elems) {
        float block_max = 0;
        for (size_t i = b; i < b + info->block_elems; i++) {
            block_max = fmaxf(block_max, fabsf(want[i]));
        }
        for (size_t i = b; i < b + info->block_elems; i++) {
            if (!(fabsf(want[i] - found[i]) <= convert_tolerance(c->t->format, want[i], block_max))) {
                return differs(c, first + i, want[i], found[i], e);
            }
        }
    }
    return 0;
}

/* convert_fn: reads the same elements back. */
static int compare_run(void *ctx, const float *want, uint64_t first, size_t n, struct error *e)
{
    const struct comparison *c = ctx;
    const struct weight_format_info *info = weight_format_info(c->t->format);
    size_t bytes = n / info->block_elems * info->block_bytes;
    unsigned char *raw = malloc(bytes);
    float *found = malloc(n * sizeof(*found));
    int r = raw != NULL && found != NULL ? 0 : error_nomem(e, "comparison", bytes + n * sizeof(*found));
    if (r == 0) {
        uint64_t offset = c->there->offset + first / info->block_elems * info->block_bytes;
        r = file_read_at(&c->v->made->files[c->there->file], offset, raw, bytes, e);
    }
    if (r == 0) {
        struct dequantise_args a = {.w = {.data = raw, .row_bytes = bytes, .rows = 1, .cols = (uint32_t)n, .format = c->t->format}, .y = found, .row_end = 1};
        c->v->source->ops.dequantise[c->t->format](&a);
        r = compare_values(c, want, found, first, n, e);
    }
    free(raw);
    free(found);
    return r;
}

static int compare_piece(void *ctx, const struct output_piece *p, void *out, uint32_t worker, struct error *e)
{
    (void)out;
    const struct verifying *v = ctx;
    const struct tensor_entry *t = &v->list->items[p->tensor];
    const struct weight_format_info *info = weight_format_info(t->format);
    struct comparison c = {.v = v, .t = t, .there = container_find(v->made, t->name)};
    if (c.there == NULL || c.there->format != t->format || c.there->bytes != t->bytes) {
        return error_set(e, ERROR_FORMAT, "%s: tensor %s is not there as it was written; convert again with --force", v->made->path, t->name);
    }
    uint64_t first = p->at / info->block_bytes * info->block_elems, n = p->bytes / info->block_bytes * info->block_elems;
    return convert_source_read(v->source, t, first, n, worker, compare_run, &c, e);
}

int convert_verify(const char *path, const struct output *o, const struct convert_source *source, const volatile int *cancel, struct error *e)
{
    struct bind_options options = {.path = path, .mtp = true, .group_routing = true};
    struct weights *made;
    int r = weights_open(&options, &made, e);
    if (r < 0) {
        return r;
    }
    struct verifying v = {.list = o->list, .source = source, .made = made->containers[0]};
    struct output_job job = {.make = compare_piece, .ctx = &v, .workers = source->workers, .cancel = cancel};
    r = output_visit(o, &job, e);
    weights_close(made);
    return r;
}
