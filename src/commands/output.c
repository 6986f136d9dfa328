/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: cutting a list of tensors into files, their headers and the places of their data; what may be written over.
 * Must not know: how data is made and written (output_write.c). */
#include "src/commands/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "common/intmath.h"
#include "io/file.h"
#include "io/gguf_write.h"
#include "io/safetensors_write.h"

enum { GGUF_ALIGNMENT = 32 };

/* A tensor goes to the next file when this one would pass the limit; FP8 scales stay with their matrix. */
static int cut(struct output *o, uint64_t limit, struct error *e)
{
    struct tensor_list *l = o->list;
    uint64_t used = 0;
    uint32_t file = 0;
    for (size_t i = 0; i < l->n; i++) {
        uint64_t bytes = l->items[i].bytes + (i + 1 < l->n && l->items[i + 1].scales ? l->items[i + 1].bytes : 0);
        if (limit > 0 && used > 0 && used + bytes > limit && !l->items[i].scales) {
            file++;
            used = 0;
        }
        used += l->items[i].bytes;
        l->items[i].file = file;
    }
    o->n = file + 1;
    o->files = calloc(o->n, sizeof(*o->files));
    if (o->files == NULL) {
        return error_nomem(e, "list of files", o->n * sizeof(*o->files));
    }
    for (size_t i = 0; i < l->n; i++) {
        struct output_file *f = &o->files[l->items[i].file];
        f->first = f->end == 0 ? i : f->first;
        f->end = i + 1;
    }
    return 0;
}

/* malloc'd PATH, or PATH-0000N-of-0000M.gguf. */
static char *part_name(const char *path, uint32_t i, uint32_t n)
{
    struct str s = {0};
    size_t len = strlen(path) - (file_has_suffix(path, ".gguf") ? 5 : 0);
    if (n == 1) {
        str_puts(&s, path);
    } else {
        str_append(&s, path, len);
        str_printf(&s, "-%05u-of-%05u.gguf", i + 1, n);
    }
    return str_take(&s, &len);
}

/* ---- GGUF ---- */

static void add_split_keys(struct gguf_writer *w, const struct output *o, uint32_t i)
{
    if (o->n > 1) {
        gguf_writer_integer(w, "split.no", GGUF_U16, i);
        gguf_writer_integer(w, "split.count", GGUF_U16, o->n);
        gguf_writer_integer(w, "split.tensors.count", GGUF_I32, o->list->n);
    }
}

static int lay_gguf(struct output *o, uint32_t index, struct gguf_writer *w, struct error *e)
{
    struct output_file *f = &o->files[index];
    struct tensor_entry *t = o->list->items;
    int r = 0;
    add_split_keys(w, o, index);
    for (size_t i = f->first; r == 0 && i < f->end; i++) {
        r = gguf_writer_tensor(w, t[i].name, t[i].format, t[i].dims, t[i].n_dims, e);
    }
    r = r < 0 ? r : gguf_writer_render(w, &f->header, e);
    for (size_t i = f->first; r == 0 && i < f->end; i++) {
        t[i].offset = f->header.len + gguf_writer_offset(w, i - f->first);
    }
    f->bytes = f->header.len + gguf_writer_data_bytes(w);
    return r;
}

int output_init_gguf(struct output *o, const char *path, uint64_t limit, struct tensor_list *list,
                     void (*add_keys)(void *ctx, struct gguf_writer *w), void *ctx, struct error *e)
{
    *o = (struct output){.list = list};
    int r = cut(o, limit, e);
    if (r == 0 && o->n > UINT16_MAX) {
        r = error_set(e, ERROR_USAGE, "%s: %u parts, at most %d are possible; take a larger split size", path, o->n, UINT16_MAX);
    }
    for (uint32_t i = 0; r == 0 && i < o->n; i++) {
        struct gguf_writer *w = NULL;
        o->files[i].path = part_name(path, i, o->n);
        r = o->files[i].path != NULL ? gguf_writer_create(NULL, GGUF_ALIGNMENT, &w, e) : error_nomem(e, "path", strlen(path));
        if (r == 0 && i == 0) {
            add_keys(ctx, w);
        }
        r = r < 0 ? r : lay_gguf(o, i, w, e);
        gguf_writer_destroy(w);
    }
    if (r < 0) {
        output_deinit(o);
    }
    return r;
}

/* ---- safetensors ---- */

static int lay_shard(struct output *o, uint32_t index, struct safetensors_writer *w, struct error *e)
{
    struct output_file *f = &o->files[index];
    struct tensor_entry *t = o->list->items;
    int r = 0;
    for (size_t i = f->first; r == 0 && i < f->end; i++) {
        r = safetensors_writer_declare(w, t[i].name, weight_format_info(t[i].format)->safetensors, t[i].dims, t[i].n_dims, e);
    }
    r = r < 0 ? r : safetensors_writer_render(w, &f->header, e);
    f->bytes = f->header.len;
    for (size_t i = f->first; r == 0 && i < f->end; i++) {
        t[i].offset = f->bytes;
        f->bytes += t[i].bytes;
    }
    return r;
}

static void put_index(const struct output *o, struct str *out)
{
    str_printf(out, "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n  \"weight_map\": {", (unsigned long long)o->list->bytes);
    for (size_t i = 0; i < o->list->n; i++) {
        const struct tensor_entry *t = &o->list->items[i];
        str_printf(out, "%s\n    \"%s\": \"%s\"", i > 0 ? "," : "", t->name, strrchr(o->files[t->file].path, '/') + 1);
    }
    str_puts(out, "\n  }\n}\n");
}

int output_init_hf(struct output *o, const char *folder, uint64_t limit, struct tensor_list *list, struct str *index, struct error *e)
{
    *o = (struct output){.list = list};
    int r = cut(o, limit, e);
    for (uint32_t i = 0; r == 0 && i < o->n; i++) {
        struct safetensors_writer *w = NULL;
        char name[64];
        snprintf(name, sizeof(name), "model-%05u-of-%05u.safetensors", i + 1, o->n);
        o->files[i].path = file_join(folder, name);
        r = o->files[i].path != NULL ? safetensors_writer_create(NULL, &w, e) : error_nomem(e, "path", strlen(folder));
        r = r < 0 ? r : lay_shard(o, i, w, e);
        safetensors_writer_destroy(w);
    }
    if (r == 0) {
        put_index(o, index);
        r = index->failed ? error_nomem(e, "index", list->n * sizeof(list->items->name)) : 0;
    }
    if (r < 0) {
        output_deinit(o);
    }
    return r;
}

void output_deinit(struct output *o)
{
    for (uint32_t i = 0; o->files != NULL && i < o->n; i++) {
        free(o->files[i].path);
        str_deinit(&o->files[i].header);
    }
    free(o->files);
    *o = (struct output){0};
}

uint64_t output_bytes(const struct output *o)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        bytes += o->files[i].bytes;
    }
    return bytes;
}

/* ---- what is there ---- */

int output_check_free(const char *path, bool force, struct error *e)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        return 0; /* absent; whatever else is wrong shows when it is created */
    }
    if (!S_ISREG(st.st_mode)) {
        return error_set(e, ERROR_USAGE, "%s: is there and is no regular file; name a new one", path);
    }
    if (st.st_size > 0 && !force) {
        char size[24];
        return error_set(e, ERROR_USAGE, "%s: is there already (%s); name a new file, or give --force to replace it", path,
                         format_bytes(size, (uint64_t)st.st_size));
    }
    return 0;
}

int output_check_space(const char *path, uint64_t bytes, struct error *e)
{
    const char *slash = strrchr(path, '/');
    struct str folder = {0};
    str_append(&folder, slash != NULL ? path : ".", slash != NULL ? (size_t)(slash - path) + 1 : 1);
    struct statvfs v;
    bool known = !folder.failed && statvfs(folder.data, &v) == 0;
    str_deinit(&folder);
    uint64_t left = 0;
    if (!known || !mul_u64(v.f_bavail, v.f_frsize, &left) || left >= bytes) {
        return 0; /* unknown: reserving the space will tell */
    }
    char need[24], there[24];
    return error_set(e, -ENOSPC, "%s: needs %s, the file system has %s left; make room or choose another place", path,
                     format_bytes(need, bytes), format_bytes(there, left));
}
