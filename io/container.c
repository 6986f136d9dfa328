/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: from what the user named to the kind of model that lies there; the finished container.
 * Must not know: header formats. */
#include "io/container.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/container_build.h"
#include "io/shard_name.h"
#include "src/base/str.h"

static char *copy(const char *text, size_t len)
{
    char *s = malloc(len + 1);
    if (s != NULL) {
        memcpy(s, text, len);
        s[len] = '\0';
    }
    return s;
}

/* A safetensors model, not just some file of that kind: an index, model.safetensors, or numbered shards. */
static int holds_safetensors_model(const char *folder, struct error *e)
{
    char **names;
    size_t n;
    int r = file_list_folder(folder, ".safetensors.index.json", &names, &n, e);
    if (r < 0) {
        return r;
    }
    file_free_list(names, n);
    if (n > 0) {
        return 1;
    }
    r = file_list_folder(folder, ".safetensors", &names, &n, e);
    if (r < 0) {
        return r;
    }
    struct shard_name parsed;
    for (size_t i = 0; i < n && r == 0; i++) {
        r = strcmp(names[i], "model.safetensors") == 0 || shard_name_parse(names[i], &parsed);
    }
    file_free_list(names, n);
    return r;
}

/* A folder with GGUF files: one set of them and nothing else that could be meant. */
static int open_gguf_folder(struct container *c, char **names, size_t n, const struct container_options *options, struct error *e)
{
    size_t sets = container_sets(names, n);
    int also = holds_safetensors_model(c->folder, e);
    if (also < 0) {
        return also;
    }
    if (sets > 1 || also) {
        return error_set(e, ERROR_FORMAT, "%s: holds several models (%s, %s%s); pass the file of the one meant", c->path, names[0],
                         sets > 1 ? names[1] : "a safetensors model", sets > 2 || (sets > 1 && also) ? ", ..." : "");
    }
    char *path = file_join(c->folder, names[0]);
    if (path == NULL) {
        return error_nomem(e, "file name", strlen(names[0]));
    }
    int r = gguf_set_open(c, path, options, e);
    free(path);
    return r;
}

static int open_folder(struct container *c, const struct container_options *options, struct error *e)
{
    char **names;
    size_t n;
    int r = file_list_folder(c->folder, ".gguf", &names, &n, e);
    if (r < 0) {
        return r;
    }
    r = n > 0 ? open_gguf_folder(c, names, n, options, e) : safetensors_set_open(c, c->folder, NULL, options, e);
    file_free_list(names, n);
    return r;
}

/* By the first bytes, since files in a cache may have any name; by the name where there is no file to look into. */
static int open_file(struct container *c, const struct container_options *options, struct error *e)
{
    const char *name = shard_base_name(c->path);
    char begin[9] = {0};
    struct file f;
    bool gguf = file_has_suffix(name, ".gguf"), safetensors = file_has_suffix(name, ".safetensors");
    if (file_has_suffix(name, ".safetensors.index.json")) {
        return safetensors_set_open(c, c->folder, NULL, options, e);
    }
    int r = file_open(c->path, &f, e);
    if (r == 0) {
        bool enough = f.size >= sizeof begin && file_read_at(&f, 0, begin, sizeof begin, NULL) == 0;
        gguf = gguf || (enough && memcmp(begin, "GGUF", 4) == 0);
        safetensors = safetensors || (enough && !gguf && begin[8] == '{');
        file_close(&f);
    }
    if (gguf) {
        return gguf_set_open(c, c->path, options, e);
    }
    if (safetensors) {
        return safetensors_set_open(c, c->folder, name, options, e);
    }
    return r < 0 ? r : error_set(e, ERROR_FORMAT, "%s: is neither a GGUF nor a safetensors file; pass a model file or its folder", c->path);
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

/* Sorts; names are unique over all files. */
static int finish(struct container *c, struct error *e)
{
    if (c->n_tensors > 1) {
        qsort(c->tensors, c->n_tensors, sizeof *c->tensors, compare_tensors);
    }
    for (size_t i = 1; i < c->n_tensors; i++) {
        const struct tensor *a = &c->tensors[i - 1], *b = &c->tensors[i];
        if (strcmp(a->name, b->name) == 0) {
            return error_set(e, ERROR_FORMAT, "%s: tensor %.200s is both in %s and in %s: files of different models are mixed", c->path, b->name,
                             shard_base_name(c->files[a->file].path), shard_base_name(c->files[b->file].path));
        }
    }
    return c->n_tensors > 0 ? 0 : error_set(e, ERROR_FORMAT, "%s: holds no tensors", c->path);
}

int container_open(const char *path, const struct container_options *options, struct container **ret, struct error *e)
{
    static const struct container_options defaults;
    bool folder = file_is_folder(path);
    const char *name = shard_base_name(path);
    struct container *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return error_nomem(e, "model files", sizeof *c);
    }
    c->path = copy(path, strlen(path));
    c->folder = folder ? copy(path, strlen(path)) : name == path ? copy(".", 1) : copy(path, (size_t)(name - path));
    int r = c->path != NULL && c->folder != NULL ? 0 : error_nomem(e, "file name", strlen(path));
    if (r == 0) {
        options = options != NULL ? options : &defaults;
        r = folder ? open_folder(c, options, e) : open_file(c, options, e);
    }
    if (r == 0) {
        r = finish(c, e);
    }
    if (r < 0) {
        container_close(c);
        return r;
    }
    *ret = c;
    return 0;
}

void container_close(struct container *c)
{
    if (c == NULL) {
        return;
    }
    void **blocks = c->names;
    for (uint32_t i = 0; i < c->n_files; i++) {
        file_close(&c->files[i]);
        free(blocks[i]);
    }
    gguf_meta_deinit(&c->meta);
    free(c->names);
    free(c->files);
    free(c->tensors);
    free(c->folder);
    free(c->path);
    free(c);
}

const struct tensor *container_find(const struct container *c, const char *name)
{
    struct tensor key = {.name = name};
    return bsearch(&key, c->tensors, c->n_tensors, sizeof key, compare_tensors);
}

const char *container_where(const struct container *c, const struct tensor *t, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes, "%s: tensor %s", shard_base_name(c->files[t->file].path), t->name);
    return out;
}

char *container_beside(const struct container *c, const char *suffix)
{
    struct str s = {0};
    if (c->kind == CONTAINER_GGUF) {
        str_printf(&s, "%s.%s", c->files[0].path, suffix);
    } else {
        str_printf(&s, "%s/model.%s", c->folder, suffix);
    }
    return str_take(&s, NULL);
}
