/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the file of fingerprints: JSON, written whole, read with every field checked against the files it is for. Must not know: who
 * compares (fingerprints.c). */
#include "src/tier/fingerprints_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/json_text.h"
#include "src/base/str.h"

enum { LIMIT_BYTES = 256 << 20, VERSION = 1, DIGITS = 16 };

#define FORMAT_NAME "sluice fingerprints"
#define HASH_NAME "XXH3-64"
#define ANEW "delete it, or write it anew: sluice check -m MODEL --write-fingerprints"

char *fingerprints_path(const struct container *c) { return container_beside(c, "sluice-xxh"); }

static const char *base_name(const struct file *f)
{
    const char *slash = strrchr(f->path, '/');
    return slash != NULL ? slash + 1 : f->path;
}

/* ---- writing ---- */

static void put_name(struct str *s, const char *before, const char *name)
{
    str_puts(s, before);
    str_json(s, name, strlen(name));
}

static void put_tensor(struct str *s, const struct container *c, size_t index, const uint64_t *values)
{
    const struct tensor *t = &c->tensors[index];
    put_name(s, index > 0 ? ",\n" : "\n", t->name);
    str_printf(s, ": {\"bytes\": %" PRIu64 ", \"parts\": [", t->bytes);
    for (uint32_t k = 0; k < fingerprints_parts(c, t); k++) {
        str_printf(s, "%s\"%016" PRIx64 "\"", k > 0 ? "," : "", values[k]);
    }
    str_puts(s, "]}");
}

int fingerprints_write(const struct container *c, const uint64_t *const *values, struct error *e)
{
    struct str s = {0};
    str_printf(&s, "{\"format\": \"%s\", \"version\": %d, \"hash\": \"%s\",\n\"files\": {", FORMAT_NAME, VERSION, HASH_NAME);
    for (uint32_t i = 0; i < c->n_files; i++) {
        put_name(&s, i > 0 ? ",\n" : "\n", base_name(&c->files[i]));
        str_printf(&s, ": {\"bytes\": %" PRIu64 ", \"changed_ns\": %" PRId64 "}", c->files[i].size, c->files[i].changed_ns);
    }
    str_puts(&s, "},\n\"tensors\": {");
    for (size_t i = 0; i < c->n_tensors; i++) {
        put_tensor(&s, c, i, values[i]);
    }
    str_puts(&s, "}}\n");
    size_t len = 0;
    char *text = str_take(&s, &len), *path = fingerprints_path(c);
    int r = text != NULL && path != NULL ? file_write_all(path, text, len, e) : error_nomem(e, "fingerprints", c->n_tensors * 64ull);
    free(text);
    free(path);
    return r;
}

/* ---- reading ---- */

/* The same files, by name, with the same sizes; another time of change is remembered. */
static int check_files(const struct container *c, const json_t *files, struct fingerprint_source *source, struct error *e)
{
    for (uint32_t i = 0; i < c->n_files; i++) {
        const struct file *f = &c->files[i];
        const json_t *entry = json_object_get(files, base_name(f)), *bytes = json_object_get(entry, "bytes");
        if (!json_is_integer(bytes)) {
            return error_set(e, ERROR_FORMAT, "%s: knows no file %s: it is of another model, or the file got another name; " ANEW, source->path, base_name(f));
        }
        if ((uint64_t)json_integer_value(bytes) != f->size) {
            return error_set(e, ERROR_FORMAT, "%s: was written for %s of %lld bytes, the file has %" PRIu64 ": it was replaced or is not complete; "
                             "copy it again, or write the fingerprints anew: sluice check -m MODEL --write-fingerprints", source->path, base_name(f),
                             (long long)json_integer_value(bytes), f->size);
        }
        source->changed = source->changed || json_integer_value(json_object_get(entry, "changed_ns")) != f->changed_ns;
    }
    return 0;
}

static bool read_value(const json_t *v, uint64_t *ret)
{
    const char *text = json_string_value(v);
    if (text == NULL || strlen(text) != DIGITS || strspn(text, "0123456789abcdef") != DIGITS) {
        return false;
    }
    *ret = strtoull(text, NULL, 16);
    return true;
}

static int read_tensor(struct fingerprints *f, const struct container *c, const struct tensor *t, const json_t *entry, struct error *e)
{
    const char *path = f->sources[f->n_sources - 1].path;
    const json_t *bytes = json_object_get(entry, "bytes"), *values = json_object_get(entry, "parts");
    uint32_t parts = fingerprints_parts(c, t);
    if (!json_is_integer(bytes) || !json_is_array(values)) {
        return error_set(e, ERROR_FORMAT, "%s: knows no tensor %s: it is of another model; " ANEW, path, t->name);
    }
    if ((uint64_t)json_integer_value(bytes) != t->bytes || json_array_size(values) != parts) {
        return error_set(e, ERROR_FORMAT, "%s: is of another model: tensor %s has %lld bytes in %zu parts there, %" PRIu64 " in %u here; " ANEW, path, t->name,
                         (long long)json_integer_value(bytes), json_array_size(values), t->bytes, parts);
    }
    for (uint32_t k = 0; k < parts; k++) {
        struct fingerprint x = {.file = &c->files[t->file], .offset = t->offset + t->bytes / parts * k, .part = k, .source = f->n_sources - 1, .stacked = parts > 1};
        if (!read_value(json_array_get(values, k), &x.value)) {
            return error_set(e, ERROR_FORMAT, "%s: tensor %s, part %u: 16 hexadecimal digits are expected; " ANEW, path, t->name, k);
        }
        if (t->bytes > 0) { /* an empty tensor has no place of its own */
            f->ranges[f->n++] = x;
        }
    }
    return 0;
}

static int check_head(const json_t *root, const char *path, struct error *e)
{
    const char *format = json_string_value(json_object_get(root, "format")), *hash = json_string_value(json_object_get(root, "hash"));
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    if (format == NULL || strcmp(format, FORMAT_NAME) != 0) {
        return error_set(e, ERROR_FORMAT, "%s: holds no fingerprints: \"format\": \"" FORMAT_NAME "\" is expected; " ANEW, path);
    }
    if (version != VERSION || hash == NULL || strcmp(hash, HASH_NAME) != 0) {
        return error_set(e, ERROR_FORMAT, "%s: version %lld with hash %.20s; version %d with " HASH_NAME " is what this program reads; " ANEW, path,
                         (long long)version, hash != NULL ? hash : "none", VERSION);
    }
    return 0;
}

static int read_root(struct fingerprints *f, const struct container *c, const json_t *root, struct error *e)
{
    struct fingerprint_source *source = &f->sources[f->n_sources - 1];
    const json_t *tensors = json_object_get(root, "tensors");
    int r = check_head(root, source->path, e);
    r = r < 0 ? r : check_files(c, json_object_get(root, "files"), source, e);
    for (size_t i = 0; r == 0 && i < c->n_tensors; i++) {
        r = read_tensor(f, c, &c->tensors[i], json_object_get(tensors, c->tensors[i].name), e);
    }
    return r;
}

int fingerprints_parse(struct fingerprints *f, const struct container *c, const char *text, size_t len, struct error *e)
{
    json_t *root = NULL;
    int r = json_text_parse(text, len, JSON_REJECT_DUPLICATES, &root, e);
    r = r < 0 ? error_prefix(e, r, "%s", f->sources[f->n_sources - 1].path) : read_root(f, c, root, e);
    json_decref(root);
    return r;
}

/* Takes `path` over. */
static int read_source(struct fingerprints *f, const struct container *c, char *path, struct error *e)
{
    char *text;
    size_t len;
    f->sources[f->n_sources++].path = path;
    int r = file_read_all(path, LIMIT_BYTES, &text, &len, e);
    if (r == 0) {
        r = fingerprints_parse(f, c, text, len, e);
        free(text);
    }
    return r;
}

static int read_sources(struct fingerprints *f, struct container *const *containers, uint32_t n, struct error *e)
{
    for (uint32_t i = 0; i < n; i++) {
        char *path = fingerprints_path(containers[i]);
        if (path == NULL) {
            return error_nomem(e, "path", 0);
        }
        if (!file_exists(path)) {
            free(path);
            continue;
        }
        int r = read_source(f, containers[i], path, e);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int fingerprints_open(struct container *const *containers, uint32_t n, struct fingerprints **ret, struct error *e)
{
    size_t room = 1;
    for (uint32_t i = 0; i < n; i++) {
        for (size_t k = 0; k < containers[i]->n_tensors; k++) {
            room += fingerprints_parts(containers[i], &containers[i]->tensors[k]);
        }
    }
    struct fingerprints *f = calloc(1, sizeof(*f));
    if (f == NULL) {
        return error_nomem(e, "fingerprints", sizeof(*f));
    }
    f->ranges = calloc(room, sizeof(*f->ranges));
    f->sources = calloc(n + 1, sizeof(*f->sources));
    int r = f->ranges != NULL && f->sources != NULL ? read_sources(f, containers, n, e) : error_nomem(e, "fingerprints", room * sizeof(*f->ranges));
    if (r < 0 || f->n_sources == 0) {
        fingerprints_close(f);
        f = NULL;
    } else {
        fingerprints_sort(f);
    }
    if (r == 0) {
        *ret = f;
    }
    return r;
}
