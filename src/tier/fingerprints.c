/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: looking up and comparing fingerprints (fingerprints.h). Must not know: the file that holds them (fingerprints_file.c). */
#include "src/tier/fingerprints_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/intmath.h"

enum { BLOCK = 1 << 20 }; /* of a copy that is read again */

uint32_t fingerprints_parts(const struct container *c, const struct tensor *t)
{
    bool stack = c->kind == CONTAINER_GGUF && t->n_dims == 3 && strstr(t->name, "_exps.") != NULL;
    return stack && t->dims[0] > 0 && t->dims[0] <= UINT32_MAX && t->bytes % t->dims[0] == 0 ? (uint32_t)t->dims[0] : 1;
}

/* Of range x among the ranges of f, by place. */
static int place_order(const void *a, const void *b)
{
    const struct fingerprint *x = a, *y = b;
    if (x->file != y->file) {
        return (uintptr_t)x->file < (uintptr_t)y->file ? -1 : 1;
    }
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

void fingerprints_sort(struct fingerprints *f) { qsort(f->ranges, f->n, sizeof(*f->ranges), place_order); }

/* ", layer 3, expert 7" */
static void place_text(const struct fingerprint *x, const char *name, char *out, size_t out_bytes)
{
    int32_t layer = names_layer(name);
    const char *expert = strstr(name, ".experts.");
    size_t n = 0;
    out[0] = '\0';
    if (layer >= 0) {
        n = (size_t)snprintf(out, out_bytes, ", layer %d", layer);
    }
    if (expert != NULL) {
        snprintf(out + n, out_bytes - n, ", expert %lu", strtoul(expert + 9, NULL, 10));
    } else if (x->stacked) {
        snprintf(out + n, out_bytes - n, ", expert %u", x->part);
    }
}

/* Whether the bytes in a file have this fingerprint now; those that cannot be read have not. */
static bool has_value(const struct file *file, uint64_t offset, uint64_t bytes, uint64_t value)
{
    char *block = malloc(BLOCK);
    XXH3_state_t *h = XXH3_createState();
    bool ok = block != NULL && h != NULL;
    if (ok) {
        XXH3_64bits_reset(h);
    }
    for (uint64_t at = 0; ok && at < bytes; at += BLOCK) {
        size_t n = (size_t)min_u64(BLOCK, bytes - at);
        ok = file_read_at(file, offset + at, block, n, NULL) == 0;
        if (ok) {
            XXH3_64bits_update(h, block, n);
        }
    }
    ok = ok && XXH3_64bits_digest(h) == value;
    XXH3_freeState(h);
    free(block);
    return ok;
}

/* Of a file and its copies the one whose bytes are wrong. All are right: the file itself; what was read was damaged on its way. */
static const struct file *wrong_copy(const struct file *file, const struct fingerprint *x, uint64_t bytes)
{
    for (uint32_t i = 0; bytes > 0 && i < file->n_copies; i++) {
        if (!has_value(&file->copies[i], x->offset, bytes, x->value) && has_value(file, x->offset, bytes, x->value)) {
            return &file->copies[i];
        }
    }
    return file;
}

/* bytes: of the range, or 0: no copy was read. */
static int check_value(const struct fingerprints *f, const struct file *file, uint64_t offset, uint64_t bytes, const char *name, uint64_t value, struct error *e)
{
    const struct fingerprint key = {.file = file, .offset = offset};
    const struct fingerprint *x = f != NULL ? bsearch(&key, f->ranges, f->n, sizeof(*f->ranges), place_order) : NULL;
    if (x == NULL || x->value == value) {
        return 0;
    }
    char place[64];
    place_text(x, name, place, sizeof(place));
    const struct fingerprint_source *source = &f->sources[x->source];
    return error_set(e, ERROR_FORMAT, "%s: tensor %s%s: its fingerprint is %016" PRIx64 ", expected is %016" PRIx64 " (%s): %s", wrong_copy(file, x, bytes)->path, name, place,
                     value, x->value, source->path,
                     source->changed ? "the file was changed after its fingerprints were written; if that was meant, write them anew: sluice check "
                                       "--write-fingerprints; else copy it again"
                                     : "the bytes are damaged; copy the file again, and check the drive and the memory");
}

int fingerprints_check_value(const struct fingerprints *f, const struct file *file, uint64_t offset, const char *name, uint64_t value, struct error *e)
{
    return check_value(f, file, offset, 0, name, value, e);
}

int fingerprints_check_bytes(const struct fingerprints *f, const struct file *file, uint64_t offset, const char *name, const void *data,
                             size_t bytes, struct error *e)
{
    return f == NULL ? 0 : check_value(f, file, offset, bytes, name, XXH3_64bits(data, bytes), e);
}

int fingerprints_check_matrix(const struct fingerprints *f, const struct weight_ref *ref, const struct weight_view *v, struct error *e)
{
    XXH3_state_t *h = f != NULL ? XXH3_createState() : NULL;
    uint64_t bytes = 0;
    if (h == NULL) {
        return f == NULL ? 0 : error_nomem(e, "fingerprint", 1024);
    }
    XXH3_64bits_reset(h);
    for (uint32_t k = 0, begin = 0; k < v->parts; begin = v->end[k++]) {
        XXH3_64bits_update(h, v->data[k], (size_t)(v->end[k] - begin) * v->row_bytes);
        bytes += (uint64_t)(v->end[k] - begin) * v->row_bytes;
    }
    uint64_t value = XXH3_64bits_digest(h);
    XXH3_freeState(h);
    return check_value(f, ref->file, ref->offset, bytes, ref->name, value, e);
}

int fingerprints_check_expert(const struct fingerprints *f, const struct expert_refs *refs, const struct weight_view part[3], struct error *e)
{
    int r = fingerprints_check_matrix(f, &refs->gate, &part[0], e);
    r = r < 0 ? r : fingerprints_check_matrix(f, &refs->up, &part[1], e);
    return r < 0 ? r : fingerprints_check_matrix(f, &refs->down, &part[2], e);
}

void fingerprints_close(struct fingerprints *f)
{
    if (f == NULL) {
        return;
    }
    for (uint32_t i = 0; i < f->n_sources; i++) {
        free(f->sources[i].path);
    }
    free(f->sources);
    free(f->ranges);
    free(f);
}
