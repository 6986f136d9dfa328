/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: GGUF files, single or split, gathered into a container. Must not know: model keys but split.*. */
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"
#include "io/container_build.h"
#include "io/gguf.h"
#include "io/shard_name.h"

/* The split.* keys; `present` is false where there is no split.count. */
struct split {
    uint64_t no, count, tensors;
    bool present, has_tensors;
};

static int read_split(const struct gguf_meta *m, struct split *ret, struct error *e)
{
    struct split s = {0};
    int has_no = gguf_get_u64(m, "split.no", &s.no, e);
    int has_count = gguf_get_u64(m, "split.count", &s.count, e);
    int has_tensors = gguf_get_u64(m, "split.tensors.count", &s.tensors, e);
    if (has_no < 0 || has_count < 0 || has_tensors < 0) {
        return ERROR_FORMAT;
    }
    s.present = has_count == 1;
    s.has_tensors = has_tensors == 1;
    *ret = s;
    return 0;
}

/* Offset behind the data where another GGUF file begins, 0 if none does. */
static uint64_t find_joined(const struct file *f, const struct gguf_header *h)
{
    const uint64_t at[] = {h->n_tensors == 0 ? h->header_end : h->data_end, align_up_u64(h->data_end, h->alignment)};
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        char magic[4];
        if (at[i] <= f->size && f->size - at[i] >= sizeof magic && file_read_at(f, at[i], magic, sizeof magic, NULL) == 0 &&
            memcmp(magic, "GGUF", sizeof magic) == 0) {
            return at[i];
        }
    }
    return 0;
}

static int add_tensors(struct container_build *b, const struct gguf_header *h)
{
    size_t first = b->c->n_tensors;
    for (size_t i = 0; i < h->n_tensors; i++) {
        const struct gguf_tensor *g = &h->tensors[i];
        struct tensor t = {
            .name = g->name,
            .type_name = ggml_type_name(g->type),
            .format = weight_format_by_ggml(g->type),
            .n_dims = g->n_dims,
            .offset = h->data_start + g->offset,
            .bytes = g->bytes,
        };
        for (uint32_t d = 0; d < g->n_dims; d++) {
            t.dims[d] = g->ne[g->n_dims - 1 - d];
        }
        int r = container_build_tensor(b, &t);
        if (r < 0) {
            return r;
        }
    }
    container_build_check_ranges(b, first, h->data_start, h->data_end);
    return 0;
}

/* Part `no` of `total` against its own metadata and that of the first readable part; true if it belongs. */
static bool check_part(struct container_build *b, const char *path, const struct split *s, const struct split *set, uint32_t no)
{
    uint32_t total = b->expected;
    if (!s->present || s->count <= 1) {
        container_build_problem(b, path, "has no split.count: not a part of this set");
    } else if (s->count != total) {
        container_build_problem(b, path, "is part %llu of %llu by its metadata, but %u of %u by its name: renamed, or of another set",
                                (unsigned long long)s->no + 1, (unsigned long long)s->count, no, total);
    } else if (s->no + 1 != no) {
        container_build_problem(b, path, "is part %llu of %llu by its metadata, but %u by its name: renamed", (unsigned long long)s->no + 1,
                                (unsigned long long)s->count, no);
    } else if (set->present && (s->has_tensors != set->has_tensors || s->tensors != set->tensors)) {
        container_build_problem(b, path, "belongs to a set of %llu tensors, the parts before to one of %llu (split.tensors.count)",
                                (unsigned long long)s->tensors, (unsigned long long)set->tensors);
    } else {
        return true;
    }
    return false;
}

/* Opens and reads one file. 1: *ret holds it; 0: a problem was noted; negative: fatal. */
static int open_header(struct container_build *b, const char *path, struct gguf_header *ret, struct split *ret_split)
{
    int r = container_build_open(b, path);
    if (r <= 0) {
        return r;
    }
    const struct file *f = &b->c->files[b->c->n_files - 1];
    struct gguf_header h;
    struct error failed = {0};
    r = gguf_read_header(f, &h, &failed);
    if (r < 0) {
        return container_build_failed(b, path, &failed);
    }
    uint64_t joined = find_joined(f, &h);
    if (joined != 0) {
        container_build_problem(b, path, "another GGUF file begins at byte %llu: parts were joined. Do not join them: keep the parts as "
                                "they were downloaded and pass the first part", (unsigned long long)joined);
    } else if (h.n_tensors > 0 && f->size > align_up_u64(h.data_end, h.alignment)) {
        container_build_problem(b, path, "the last tensor, %s, ends at byte %llu, the file of %llu bytes goes on: its type or shape is wrong, "
                                "or the file is damaged; get it again or take another one", h.tensors[h.n_tensors - 1].name,
                                (unsigned long long)h.data_end, (unsigned long long)f->size);
    } else if (read_split(&h.meta, ret_split, &failed) < 0) {
        r = container_build_failed(b, path, &failed);
    } else {
        *ret = h;
        return 1;
    }
    gguf_header_deinit(&h);
    return r;
}

/* Takes what is kept of h; the first file's metadata becomes the container's. */
static int add_file(struct container_build *b, struct gguf_header *h, bool first)
{
    int r = add_tensors(b, h);
    container_build_keep(b, h->names);
    h->names = NULL;
    if (first) {
        b->c->meta = h->meta;
        h->meta = (struct gguf_meta){0};
    }
    gguf_header_deinit(h);
    return r;
}

static int open_single(struct container_build *b, const char *path)
{
    struct gguf_header h;
    struct split s;
    int r = open_header(b, path, &h, &s);
    if (r <= 0) {
        return r;
    }
    if (s.count > 1) {
        container_build_problem(b, path, "is part %llu of %llu, but its name does not end in -%05llu-of-%05llu.gguf, so the others cannot "
                                "be found; give all parts their names back", (unsigned long long)s.no + 1, (unsigned long long)s.count,
                                (unsigned long long)s.no + 1, (unsigned long long)s.count);
        gguf_header_deinit(&h);
        return 0;
    }
    return add_file(b, &h, true);
}

/* The set's totals, once every part is there. */
static int check_total(const struct container_build *b, const struct split *set)
{
    if (b->n_problems == 0 && set->has_tensors && set->tensors != b->c->n_tensors) {
        return error_set(b->e, ERROR_FORMAT, "%s: the %u parts hold %zu tensors, split.tensors.count says %llu: parts of different sets are mixed",
                         b->c->path, b->expected, b->c->n_tensors, (unsigned long long)set->tensors);
    }
    return 0;
}

static int open_parts(struct container_build *b, const char *name, const struct shard_name *parsed)
{
    struct split set = {0};
    int r = 0;
    for (uint32_t no = 1; no <= parsed->count && r >= 0; no++) {
        char *path = shard_name_path(b->c->folder, name, parsed, no);
        struct gguf_header h;
        struct split s = {0};
        if (path == NULL) {
            return error_nomem(b->e, "file name", strlen(name));
        }
        r = open_header(b, path, &h, &s);
        if (r == 1 && check_part(b, path, &s, &set, no)) {
            set = s;
            r = add_file(b, &h, no == 1);
        } else if (r == 1) {
            gguf_header_deinit(&h);
        }
        free(path);
    }
    return r < 0 ? r : check_total(b, &set);
}

/* Whether the named file says of itself that it is whole (a merged file keeps a part's name). */
static bool says_single(const char *path)
{
    struct file f;
    struct gguf_header h;
    struct split s;
    bool single = false;
    if (file_open(path, &f, NULL) < 0) {
        return false;
    }
    if (gguf_read_header(&f, &h, NULL) == 0) {
        single = read_split(&h.meta, &s, NULL) == 0 && s.count <= 1;
        gguf_header_deinit(&h);
    }
    file_close(&f);
    return single;
}

int gguf_set_open(struct container *c, const char *path, const struct container_options *options, struct error *e)
{
    struct container_build b;
    struct shard_name parsed;
    const char *name = shard_base_name(path);
    bool split = shard_name_parse(name, &parsed) && parsed.count > 1 && !says_single(path);
    if (split && (parsed.no == 0 || parsed.no > parsed.count)) {
        return error_set(e, ERROR_FORMAT, "%s: a part numbered %u of %u cannot be; was it renamed?", path, parsed.no, parsed.count);
    }
    c->kind = CONTAINER_GGUF;
    int r = container_build_init(&b, c, options, split ? parsed.count : 1, e);
    if (r == 0) {
        r = split ? open_parts(&b, name, &parsed) : open_single(&b, path);
    }
    if (r >= 0) {
        r = container_build_verdict(&b);
    }
    container_build_deinit(&b);
    return r;
}
