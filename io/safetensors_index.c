/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the parser of model.safetensors.index.json. Must not know: whether the shards are there. */
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "io/json_scan.h"
#include "io/safetensors.h"

enum { MAX_INDEX = 64 << 20, MAX_ENTRIES = 1000000, MAX_SHARDS = 100000 };

/* An entry while its shard still is a name. */
struct placed {
    const char *name, *shard;
};

struct list {
    struct placed *items;
    size_t n, cap;
};

static int compare_shards(const void *a, const void *b)
{
    return strcmp(((const struct placed *)a)->shard, ((const struct placed *)b)->shard);
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct safetensors_index_entry *)a)->name, ((const struct safetensors_index_entry *)b)->name);
}

static int scan_failed(const struct json_scan *s, struct error *e)
{
    return error_set(e, ERROR_FORMAT, "byte %zu: %s", s->pos, s->wrong != NULL ? s->wrong : "unexpected text");
}

static int add(struct list *l, const char *name, const char *shard, struct error *e)
{
    if (shard[0] == '\0' || strchr(shard, '/') != NULL || strchr(shard, '\\') != NULL || strcmp(shard, ".") == 0 ||
        strcmp(shard, "..") == 0) {
        return error_set(e, ERROR_FORMAT, "weight_map places tensor %.200s in '%.200s', which is no plain file name of the same folder", name,
                         shard);
    }
    if (l->n == MAX_ENTRIES) {
        return error_set(e, ERROR_FORMAT, "weight_map has more than %d tensors", MAX_ENTRIES);
    }
    if (l->n == l->cap) {
        size_t cap = l->cap == 0 ? 1024 : l->cap * 2;
        struct placed *grown = realloc(l->items, cap * sizeof *grown);
        if (grown == NULL) {
            return error_nomem(e, "weight_map", cap * sizeof *grown);
        }
        l->items = grown;
        l->cap = cap;
    }
    l->items[l->n++] = (struct placed){name, shard};
    return 0;
}

static int parse_weight_map(struct json_scan *s, struct list *l, struct error *e)
{
    bool first = true;
    if (!json_scan_expect(s, '{')) {
        return scan_failed(s, e);
    }
    while (json_scan_next(s, '}', &first)) {
        const char *name, *shard;
        if (!json_scan_string(s, &name) || !json_scan_expect(s, ':') || !json_scan_string(s, &shard)) {
            return scan_failed(s, e);
        }
        int r = add(l, name, shard, e);
        if (r < 0) {
            return r;
        }
    }
    return s->wrong == NULL ? 0 : scan_failed(s, e);
}

static int parse_text(struct json_scan *s, struct list *l, struct error *e)
{
    bool first = true, found = false;
    if (s->wrong != NULL || !json_scan_expect(s, '{')) {
        return scan_failed(s, e);
    }
    while (json_scan_next(s, '}', &first)) {
        const char *key;
        if (!json_scan_string(s, &key) || !json_scan_expect(s, ':')) {
            return scan_failed(s, e);
        }
        if (strcmp(key, "weight_map") != 0) {
            if (!json_scan_skip(s)) {
                return scan_failed(s, e);
            }
            continue;
        }
        if (found) {
            return error_set(e, ERROR_FORMAT, "weight_map appears twice");
        }
        found = true;
        int r = parse_weight_map(s, l, e);
        if (r < 0) {
            return r;
        }
    }
    if (!json_scan_finish(s)) {
        return scan_failed(s, e);
    }
    return l->n > 0 ? 0 : error_set(e, ERROR_FORMAT, "has no weight_map, or an empty one");
}

/* Numbers the shards and sorts the entries. l is sorted by shard afterwards. */
static int number_shards(struct list *l, struct safetensors_index *x, struct error *e)
{
    x->entries = malloc(l->n * sizeof *x->entries);
    qsort(l->items, l->n, sizeof *l->items, compare_shards);
    size_t shards = 1;
    for (size_t i = 1; i < l->n; i++) {
        shards += strcmp(l->items[i - 1].shard, l->items[i].shard) != 0;
    }
    if (shards > MAX_SHARDS) {
        return error_set(e, ERROR_FORMAT, "weight_map names %zu files, at most %d are possible", shards, MAX_SHARDS);
    }
    x->shards = malloc(shards * sizeof *x->shards);
    if (x->entries == NULL || x->shards == NULL) {
        return error_nomem(e, "weight_map", l->n * sizeof *x->entries);
    }
    for (size_t i = 0; i < l->n; i++) {
        if (i == 0 || strcmp(l->items[i - 1].shard, l->items[i].shard) != 0) {
            x->shards[x->n_shards++] = l->items[i].shard;
        }
        x->entries[i] = (struct safetensors_index_entry){l->items[i].name, x->n_shards - 1};
    }
    x->n_entries = l->n;
    qsort(x->entries, x->n_entries, sizeof *x->entries, compare_entries);
    for (size_t i = 1; i < x->n_entries; i++) {
        if (strcmp(x->entries[i - 1].name, x->entries[i].name) == 0) {
            return error_set(e, ERROR_FORMAT, "weight_map has tensor %.200s twice", x->entries[i].name);
        }
    }
    return 0;
}

int safetensors_index_parse(char *text, size_t bytes, struct safetensors_index *ret, struct error *e)
{
    struct json_scan s;
    struct list l = {0};
    struct safetensors_index x = {0};
    json_scan_init(&s, text, bytes);
    int r = parse_text(&s, &l, e);
    if (r == 0) {
        r = number_shards(&l, &x, e);
    }
    free(l.items);
    if (r < 0) {
        safetensors_index_deinit(&x);
        return r;
    }
    x.text = text;
    *ret = x;
    return 0;
}

int safetensors_index_read(const char *path, struct safetensors_index *ret, struct error *e)
{
    char *text;
    size_t bytes;
    int r = file_read_all(path, MAX_INDEX, &text, &bytes, e);
    if (r < 0) {
        return r;
    }
    struct error failed = {0};
    r = safetensors_index_parse(text, bytes, ret, &failed);
    if (r < 0) {
        free(text);
        return error_set(e, r, "%s: %s; get the file again", path, failed.text);
    }
    return 0;
}

void safetensors_index_deinit(struct safetensors_index *x)
{
    free(x->entries);
    free(x->shards);
    free(x->text);
    *x = (struct safetensors_index){0};
}

const struct safetensors_index_entry *safetensors_index_find(const struct safetensors_index *x, const char *name)
{
    struct safetensors_index_entry key = {.name = name};
    return bsearch(&key, x->entries, x->n_entries, sizeof key, compare_entries);
}
