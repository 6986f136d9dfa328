/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: safetensors files - one, a numbered set, or the shards of an index - gathered into a container.
 * Must not know: tensor roles (which shards are wanted is asked of the caller). */
#include <stdlib.h>
#include <string.h>

#include "io/container_build.h"
#include "io/safetensors.h"
#include "io/shard_name.h"

static const char index_suffix[] = ".safetensors.index.json";
static const char main_index[] = "model.safetensors.index.json";

/* What is left behind the data: another header, or something else. */
static void note_trailing(struct container_build *b, const struct file *f, const struct safetensors_header *h)
{
    uint64_t at = h->data_start + h->data_bytes, left = f->size - at;
    char begin[9] = {0};
    uint64_t n = 0;
    if (left >= sizeof begin && file_read_at(f, at, begin, sizeof begin, NULL) == 0) {
        memcpy(&n, begin, 8);
    }
    if (begin[8] == '{' && n <= left - 8) {
        container_build_problem(b, f->path, "another safetensors file begins at byte %llu: shards were joined. Do not join them: keep the "
                                "shards as they were downloaded and pass any of them", (unsigned long long)at);
    } else {
        container_build_problem(b, f->path, "%llu bytes follow the last tensor, which ends at %llu; the file is damaged",
                                (unsigned long long)left, (unsigned long long)at);
    }
}

static int add_tensors(struct container_build *b, const struct safetensors_header *h)
{
    const struct file *f = &b->c->files[b->c->n_files - 1];
    size_t first = b->c->n_tensors;
    for (size_t i = 0; i < h->n_tensors; i++) {
        const struct safetensors_tensor *s = &h->tensors[i];
        struct tensor t = {
            .name = s->name,
            .type_name = s->dtype,
            .format = weight_format_by_safetensors(s->dtype),
            .n_dims = s->n_dims,
            .offset = h->data_start + s->begin,
            .bytes = s->end - s->begin,
        };
        memcpy(t.dims, s->dims, sizeof s->dims);
        int r = container_build_tensor(b, &t);
        if (r < 0) {
            return r;
        }
    }
    if (f->size > h->data_start + h->data_bytes) {
        note_trailing(b, f, h);
    }
    container_build_check_ranges(b, first, h->data_start, h->data_start + h->data_bytes);
    return 0;
}

/* The tensors of one shard are those the index places there. `seen` [n_entries] marks what was found. */
static void check_against_index(struct container_build *b, const struct safetensors_index *x, uint32_t shard,
                                const struct safetensors_header *h, const char *path, bool *seen)
{
    const char *foreign = NULL, *lacking = NULL;
    size_t n_foreign = 0, n_lacking = 0;
    for (size_t i = 0; i < h->n_tensors; i++) {
        const struct safetensors_index_entry *entry = safetensors_index_find(x, h->tensors[i].name);
        if (entry != NULL && entry->shard == shard) {
            seen[entry - x->entries] = true;
        } else {
            foreign = n_foreign++ == 0 ? h->tensors[i].name : foreign;
        }
    }
    for (size_t i = 0; i < x->n_entries; i++) {
        if (x->entries[i].shard == shard && !seen[i]) {
            lacking = n_lacking++ == 0 ? x->entries[i].name : lacking;
        }
    }
    if (n_foreign > 0 || n_lacking > 0) {
        container_build_problem(b, path, "does not agree with the index: %zu tensors do not belong there (first: %.200s), %zu are not there "
                                "(first: %.200s); was it renamed, or is it of another model?", n_foreign,
                                n_foreign > 0 ? foreign : "none", n_lacking, n_lacking > 0 ? lacking : "none");
    }
}

/* One file; with an index, shard `shard` of it. */
static int add_file(struct container_build *b, const char *path, const struct safetensors_index *x, uint32_t shard, bool *seen)
{
    int r = container_build_open(b, path);
    if (r <= 0) {
        return r;
    }
    struct safetensors_header h;
    struct error failed = {0};
    if (safetensors_read_header(&b->c->files[b->c->n_files - 1], &h, &failed) < 0) {
        return container_build_failed(b, path, &failed);
    }
    uint32_t bad = b->n_problems;
    r = add_tensors(b, &h);
    if (r == 0 && x != NULL && b->n_problems == bad) {
        check_against_index(b, x, shard, &h, path, seen);
    }
    container_build_keep(b, h.text);
    h.text = NULL;
    safetensors_header_deinit(&h);
    return r;
}

static int finish(struct container_build *b, int r)
{
    if (r >= 0) {
        r = container_build_verdict(b);
    }
    container_build_deinit(b);
    return r;
}

/* Marks the shards that hold a wanted tensor; returns how many. */
static uint32_t mark_wanted(const struct safetensors_index *x, const struct container_options *options, bool *wanted)
{
    uint32_t n = 0;
    for (size_t i = 0; i < x->n_entries; i++) {
        uint32_t shard = x->entries[i].shard;
        if (!wanted[shard] && (options->want == NULL || options->want(options->want_ctx, x->entries[i].name))) {
            wanted[shard] = true;
            n++;
        }
    }
    return n;
}

static int open_shards(struct container *c, const struct safetensors_index *x, const struct container_options *options, bool *wanted,
                       bool *seen, struct error *e)
{
    uint32_t n = mark_wanted(x, options, wanted);
    if (n == 0) {
        return error_set(e, ERROR_FORMAT, "%s: the index lists none of the tensors looked for", c->path);
    }
    struct container_build b;
    int r = container_build_init(&b, c, options, n, e);
    for (uint32_t s = 0; s < x->n_shards && r >= 0; s++) {
        if (!wanted[s]) {
            continue;
        }
        char *path = file_join(c->folder, x->shards[s]);
        r = path != NULL ? add_file(&b, path, x, s, seen) : error_nomem(e, "file name", strlen(x->shards[s]));
        free(path);
    }
    return finish(&b, r);
}

static int open_index(struct container *c, const struct safetensors_index *x, const struct container_options *options, struct error *e)
{
    bool *wanted = calloc(x->n_shards, sizeof *wanted);
    bool *seen = calloc(x->n_entries, sizeof *seen);
    int r = wanted != NULL && seen != NULL ? open_shards(c, x, options, wanted, seen, e) : error_nomem(e, "index", x->n_entries);
    free(wanted);
    free(seen);
    return r;
}

/* `name` alone, or the numbered set it belongs to. */
static int open_named(struct container *c, const char *name, const struct container_options *options, struct error *e)
{
    struct shard_name parsed;
    bool set = shard_name_parse(name, &parsed) && parsed.count > 1;
    if (set && (parsed.no == 0 || parsed.no > parsed.count)) {
        return error_set(e, ERROR_FORMAT, "%s: a shard numbered %u of %u cannot be; was it renamed?", name, parsed.no, parsed.count);
    }
    struct container_build b;
    int r = container_build_init(&b, c, options, set ? parsed.count : 1, e);
    for (uint32_t no = 1; no <= b.expected && r >= 0; no++) {
        char *path = set ? shard_name_path(c->folder, name, &parsed, no) : file_join(c->folder, name);
        r = path != NULL ? add_file(&b, path, NULL, 0, NULL) : error_nomem(e, "file name", strlen(name));
        free(path);
    }
    return finish(&b, r);
}

static bool names_shard(const struct safetensors_index *x, const char *file)
{
    for (uint32_t s = 0; s < x->n_shards; s++) {
        if (strcmp(x->shards[s], file) == 0) {
            return true;
        }
    }
    return false;
}

/* Reads the index that counts: the one that names `file`, or with no file the folder's. 1 found, 0 none. */
static int find_index(const char *folder, const char *file, struct safetensors_index *ret, struct error *e)
{
    char **names;
    size_t n;
    int r = file_list_folder(folder, index_suffix, &names, &n, e);
    if (r < 0) {
        return r;
    }
    for (size_t i = 0; i < n && r == 0; i++) {
        if (file == NULL && n > 1 && strcmp(names[i], main_index) != 0) {
            continue;
        }
        char *path = file_join(folder, names[i]);
        r = path != NULL ? safetensors_index_read(path, ret, e) : error_nomem(e, "file name", strlen(names[i]));
        free(path);
        if (r < 0) {
            break;
        }
        r = file == NULL || names_shard(ret, file);
        if (r == 0) {
            safetensors_index_deinit(ret);
        }
    }
    if (r == 0 && file == NULL && n > 1) {
        r = error_set(e, ERROR_FORMAT, "%s: has several indexes (%s, %s, ...) and no %s; pass a shard of the one meant", folder, names[0],
                      names[1], main_index);
    }
    file_free_list(names, n);
    return r;
}

/* A folder without index: model.safetensors, or the only set there is. */
static int open_only_set(struct container *c, const struct container_options *options, struct error *e)
{
    char **names;
    size_t n;
    int r = file_list_folder(c->folder, ".safetensors", &names, &n, e);
    if (r < 0) {
        return r;
    }
    const char *name = NULL;
    for (size_t i = 0; i < n && name == NULL; i++) {
        name = strcmp(names[i], "model.safetensors") == 0 ? names[i] : NULL;
    }
    size_t sets = name != NULL ? 1 : container_sets(names, n);
    if (sets == 0) {
        r = error_set(e, ERROR_FORMAT, "%s: holds no .gguf and no .safetensors file", c->path);
    } else if (sets > 1) {
        r = error_set(e, ERROR_FORMAT, "%s: holds %zu sets of safetensors files (%s, %s%s) and no index; pass a file of the one meant",
                      c->path, sets, names[0], names[1], sets > 2 ? ", ..." : "");
    } else {
        r = open_named(c, name != NULL ? name : names[0], options, e);
    }
    file_free_list(names, n);
    return r;
}

int safetensors_set_open(struct container *c, const char *folder, const char *file, const struct container_options *options,
                         struct error *e)
{
    struct safetensors_index x;
    c->kind = CONTAINER_SAFETENSORS;
    int r = find_index(folder, file, &x, e);
    if (r < 0) {
        return r;
    }
    if (r == 1) {
        r = open_index(c, &x, options, e);
        safetensors_index_deinit(&x);
        return r;
    }
    return file != NULL ? open_named(c, file, options, e) : open_only_set(c, options, e);
}
