/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the GGUF header parser. Two walks over the same bytes: the first checks every length and counts, the second
 * fills storage of exactly that size, so no number in a file can make it allocate more than the file pays for.
 * Must not know: model keys, other files of a set. */
#include "io/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "common/format.h"
#include "common/intmath.h"
#include "io/file.h"
#include "src/base/str.h"

enum {
    MAX_VALUES = 65536,
    MAX_TENSORS = 100000,
    MAX_KEY = 65535,
    MAX_NAME = 63,
    MAX_STRING = 1 << 30,
    MIN_VALUE_BYTES = 8 + 1 + 4 + 1,
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8,
    DEFAULT_ALIGNMENT = 32,
    FIRST_READ = 1 << 20,
    MAX_HEADER = 64 << 20, /* the largest real ones have about 12 MB */
};

/* Types without a kernel; the others are in the table of weight formats. */
static const struct {
    uint32_t type, elems, bytes;
} other_types[] = {
    {9, 32, 36},  {15, 256, 292}, {24, 1, 1},   {25, 1, 2},    {26, 1, 4},   {27, 1, 8},
    {28, 1, 8},   {34, 256, 54},  {35, 256, 66}, {40, 64, 36}, {41, 128, 18}, {42, 64, 18},
};

bool gguf_type_size(uint32_t type, uint32_t *ret_elems, uint32_t *ret_bytes)
{
    const struct weight_format_info *info = weight_format_info(weight_format_by_ggml(type));
    if (info != NULL) {
        *ret_elems = info->block_elems;
        *ret_bytes = info->block_bytes;
        return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(other_types); i++) {
        if (other_types[i].type == type) {
            *ret_elems = other_types[i].elems;
            *ret_bytes = other_types[i].bytes;
            return true;
        }
    }
    return false;
}

void gguf_supported_types(struct str *out)
{
    const char *comma = "";
    for (unsigned f = 0; f < FORMAT_COUNT; f++) {
        int id = weight_format_info((enum weight_format)f)->ggml;
        if (id >= 0) {
            str_printf(out, "%s%s", comma, ggml_type_name((uint32_t)id));
            comma = ", ";
        }
    }
}

/* ---- the walk ---- */

/* Position in the header, and where the filling walk puts things (all NULL in the counting walk). */
struct walk {
    const uint8_t *data;
    size_t bytes, pos;
    uint64_t file_size;
    size_t n_values, n_strings, n_tensors, text_bytes, name_bytes; /* so far */
    uint64_t values_total, tensors_total;                          /* as the header says */
    struct gguf_value *values;
    struct gguf_string *strings;
    struct gguf_tensor *tensors;
    char *text;  /* keys, each with a NUL */
    char *names; /* tensor names, each with a NUL */
    struct error *e;
};

/* Pointer to the next n bytes; NULL with *ret_code set when the buffer or the file ends before. */
static const uint8_t *take(struct walk *w, uint64_t n, const char *what, int *ret_code)
{
    if (n <= w->bytes - w->pos) {
        const uint8_t *p = w->data + w->pos;
        w->pos += (size_t)n;
        return p;
    }
    if (n <= w->file_size - w->pos) {
        *ret_code = GGUF_MORE;
        return NULL;
    }
    *ret_code = error_set(w->e, ERROR_FORMAT,
                          "the header is cut at byte %llu: %s needs %llu bytes, %llu are left (key-value %zu of %llu, tensor %zu "
                          "of %llu); is the file complete?",
                          (unsigned long long)w->pos, what, (unsigned long long)n,
                          (unsigned long long)(w->file_size - w->pos), w->n_values, (unsigned long long)w->values_total,
                          w->n_tensors, (unsigned long long)w->tensors_total);
    return NULL;
}

static int take_u32(struct walk *w, const char *what, uint32_t *ret)
{
    int r = 0;
    const uint8_t *p = take(w, 4, what, &r);
    if (p != NULL) {
        memcpy(ret, p, 4);
    }
    return r;
}

static int take_u64(struct walk *w, const char *what, uint64_t *ret)
{
    int r = 0;
    const uint8_t *p = take(w, 8, what, &r);
    if (p != NULL) {
        memcpy(ret, p, 8);
    }
    return r;
}

static int take_string(struct walk *w, const char *what, uint64_t limit, struct gguf_string *ret)
{
    uint64_t len = 0;
    int r = take_u64(w, what, &len);
    if (r != 0) {
        return r;
    }
    if (len > limit) {
        return error_set(w->e, ERROR_FORMAT, "%s at byte %zu has a length of %llu, at most %llu are allowed", what, w->pos - 8,
                         (unsigned long long)len, (unsigned long long)limit);
    }
    const uint8_t *p = take(w, len, what, &r);
    if (p != NULL) {
        *ret = (struct gguf_string){(const char *)p, len};
    }
    return r;
}

/* Keys and names appear in messages: not empty, valid UTF-8, no control characters. */
static int take_name(struct walk *w, const char *what, uint64_t limit, struct gguf_string *ret)
{
    int r = take_string(w, what, limit, ret);
    if (r != 0) {
        return r;
    }
    bool good = ret->len > 0 && utf8_valid_prefix(ret->data, ret->len) == ret->len;
    for (uint64_t i = 0; good && i < ret->len; i++) {
        unsigned char c = (unsigned char)ret->data[i];
        good = c >= 0x20 && c != 0x7f;
    }
    if (!good) {
        return error_set(w->e, ERROR_FORMAT, "%s ending at byte %zu is empty, or no UTF-8, or has control characters", what,
                         w->pos);
    }
    return 0;
}

/* Copies a name into text storage and returns it; counts only while there is no storage. */
static const char *keep(char *storage, size_t *used, struct gguf_string s)
{
    char *to = NULL;
    if (storage != NULL) {
        to = storage + *used;
        memcpy(to, s.data, s.len);
        to[s.len] = '\0';
    }
    *used += s.len + 1;
    return to;
}

static int walk_scalar(struct walk *w, struct gguf_value *v)
{
    int r = 0;
    const uint8_t *p = take(w, gguf_scalar_bytes(v->type), "a value", &r);
    if (p == NULL) {
        return r;
    }
    gguf_scalar_load(v->type, p, v);
    if (v->type == GGUF_BOOL && v->v.u > 1) {
        return error_set(w->e, ERROR_FORMAT, "the bool at byte %zu is %u, not 0 or 1", w->pos - 1, (unsigned)v->v.u);
    }
    return 0;
}

static int walk_array(struct walk *w, struct gguf_value *v)
{
    uint32_t element = 0;
    int r = take_u32(w, "an array's type", &element);
    if (r == 0) {
        r = take_u64(w, "an array's length", &v->count);
    }
    if (r != 0) {
        return r;
    }
    unsigned bytes = element == GGUF_STRING ? 8 : gguf_scalar_bytes(element);
    if (bytes == 0) {
        return error_set(w->e, ERROR_FORMAT, "the array at byte %zu has element type %u; numbers, bool and strings are possible%s",
                         w->pos - 12, element, element == GGUF_ARRAY ? ", nested arrays are not" : "");
    }
    v->element = (enum gguf_type)element;
    if (v->count > MAX_STRING || v->count * bytes > w->file_size - w->pos) {
        return error_set(w->e, ERROR_FORMAT, "the array at byte %zu has %llu elements, more than the %llu bytes left can hold",
                         w->pos - 12, (unsigned long long)v->count, (unsigned long long)(w->file_size - w->pos));
    }
    if (element != GGUF_STRING) {
        v->raw = take(w, v->count * bytes, "an array", &r);
        return r;
    }
    v->strings = w->strings != NULL ? w->strings + w->n_strings : NULL;
    for (uint64_t i = 0; i < v->count; i++) {
        struct gguf_string s;
        r = take_string(w, "a string of an array", MAX_STRING, &s);
        if (r != 0) {
            return r;
        }
        if (w->strings != NULL) {
            w->strings[w->n_strings] = s;
        }
        w->n_strings++;
    }
    return 0;
}

static int walk_value(struct walk *w)
{
    struct gguf_string key;
    struct gguf_value v = {0};
    uint32_t type = 0;
    int r = take_name(w, "a key", MAX_KEY, &key);
    if (r == 0) {
        r = take_u32(w, "a value's type", &type);
    }
    if (r != 0) {
        return r;
    }
    if (type > GGUF_F64) {
        return error_set(w->e, ERROR_FORMAT, "key %.*s has value type %u; 0 to 12 are known", (int)min_u64(key.len, 200), key.data,
                         type);
    }
    v.type = (enum gguf_type)type;
    v.element = v.type;
    v.key = keep(w->text, &w->text_bytes, key);
    if (type == GGUF_ARRAY) {
        r = walk_array(w, &v);
    } else if (type == GGUF_STRING) {
        r = take_string(w, "a string", MAX_STRING, &v.v.s);
    } else {
        r = walk_scalar(w, &v);
    }
    if (r < 0) {
        return error_prefix(w->e, r, "key %.*s", (int)min_u64(key.len, 200), key.data);
    }
    if (r == 0) {
        if (w->values != NULL) {
            w->values[w->n_values] = v;
        }
        w->n_values++;
    }
    return r;
}

static int unknown_type(struct walk *w, const char *name, uint32_t type)
{
    struct str supported = {0};
    gguf_supported_types(&supported);
    const char *type_name = ggml_type_name(type);
    int r = error_set(w->e, ERROR_FORMAT, "tensor %s has type %u (%s), which this build does not know; supported: %s", name, type,
                      type_name != NULL ? type_name : "unknown", supported.data != NULL ? supported.data : "");
    str_deinit(&supported);
    return r;
}

/* Bytes of t, whose name is in `name`. */
static int measure_tensor(struct walk *w, const char *name, struct gguf_tensor *t)
{
    uint32_t elems, bytes;
    if (!gguf_type_size(t->type, &elems, &bytes)) {
        return unknown_type(w, name, t->type);
    }
    uint64_t total = 1;
    bool fits = true;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (t->ne[d] == 0) {
            return error_set(w->e, ERROR_FORMAT, "tensor %s: dimension %u of %u is 0", name, d, t->n_dims);
        }
        fits = fits && mul_u64(total, t->ne[d], &total);
    }
    if (t->ne[0] % elems != 0) {
        return error_set(w->e, ERROR_FORMAT, "tensor %s: rows of %llu elements are no multiple of the %u in a block of %s", name,
                         (unsigned long long)t->ne[0], elems, ggml_type_name(t->type));
    }
    if (!fits || !mul_u64(total / elems, bytes, &t->bytes) || t->bytes > INT64_MAX) {
        return error_set(w->e, ERROR_FORMAT, "tensor %s: its dimensions multiply to more than 2^63 bytes", name);
    }
    return 0;
}

static int walk_tensor(struct walk *w)
{
    struct gguf_string s;
    struct gguf_tensor t = {.ne = {1, 1, 1, 1}};
    int r = take_name(w, "a tensor name", MAX_NAME, &s);
    if (r == 0) {
        r = take_u32(w, "a tensor's dimension count", &t.n_dims);
    }
    if (r != 0) {
        return r;
    }
    char name[MAX_NAME + 1];
    memcpy(name, s.data, s.len);
    name[s.len] = '\0';
    if (t.n_dims > GGUF_MAX_DIMS) {
        return error_set(w->e, ERROR_FORMAT, "tensor %s has %u dimensions, at most %d are possible", name, t.n_dims, GGUF_MAX_DIMS);
    }
    for (uint32_t d = 0; d < t.n_dims && r == 0; d++) {
        r = take_u64(w, "a tensor's dimensions", &t.ne[d]);
    }
    if (r == 0) {
        r = take_u32(w, "a tensor's type", &t.type);
    }
    if (r == 0) {
        r = take_u64(w, "a tensor's offset", &t.offset);
    }
    if (r == 0) {
        r = measure_tensor(w, name, &t);
    }
    if (r == 0) {
        t.name = keep(w->names, &w->name_bytes, s);
        if (w->tensors != NULL) {
            w->tensors[w->n_tensors] = t;
        }
        w->n_tensors++;
    }
    return r;
}

static int walk_version(struct walk *w)
{
    int r = 0;
    const uint8_t *magic = take(w, 4, "the magic", &r);
    if (magic == NULL) {
        return r;
    }
    if (memcmp(magic, "GGUF", 4) != 0) {
        return error_set(w->e, ERROR_FORMAT, "begins with bytes %02x %02x %02x %02x, not with \"GGUF\": this is no GGUF file", magic[0],
                         magic[1], magic[2], magic[3]);
    }
    uint32_t version = 0;
    r = take_u32(w, "the version", &version);
    if (r != 0) {
        return r;
    }
    if (version != 0 && (version & 0xffff) == 0) {
        return error_set(w->e, ERROR_FORMAT, "is a big-endian GGUF file (version field %08x); get the little-endian one", version);
    }
    if (version != 2 && version != 3) {
        return error_set(w->e, ERROR_FORMAT, "has GGUF version %u; 2 and 3 can be read%s", version,
                         version == 1 ? ", convert it again with a tool of today" : "");
    }
    return 0;
}

/* A count of the header: the rest of the file must be able to hold that many. */
static int take_count(struct walk *w, const char *what, uint64_t limit, unsigned min_bytes, uint64_t *ret)
{
    int r = take_u64(w, what, ret);
    if (r == 0 && (*ret > limit || *ret > (w->file_size - w->pos) / min_bytes)) {
        return error_set(w->e, ERROR_FORMAT, "claims %s of %llu; the file of %llu bytes cannot hold them or the limit of %llu is exceeded",
                         what, (unsigned long long)*ret, (unsigned long long)w->file_size, (unsigned long long)limit);
    }
    return r;
}

static int walk_header(struct walk *w)
{
    int r = walk_version(w);
    if (r == 0) {
        r = take_count(w, "a tensor count", MAX_TENSORS, MIN_TENSOR_BYTES, &w->tensors_total);
    }
    if (r == 0) {
        r = take_count(w, "a key-value count", MAX_VALUES, MIN_VALUE_BYTES, &w->values_total);
    }
    while (r == 0 && w->n_values < w->values_total) {
        r = walk_value(w);
    }
    while (r == 0 && w->n_tensors < w->tensors_total) {
        r = walk_tensor(w);
    }
    return r;
}

/* ---- checks over the whole header ---- */

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const struct gguf_value *)a)->key, ((const struct gguf_value *)b)->key);
}

static int compare_tensor_names(const void *a, const void *b)
{
    return strcmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

static int compare_offsets(const void *a, const void *b)
{
    const struct gguf_tensor *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int sort_values(struct gguf_meta *m, struct error *e)
{
    if (m->n > 1) {
        qsort(m->values, m->n, sizeof *m->values, compare_keys);
    }
    for (size_t i = 1; i < m->n; i++) {
        if (strcmp(m->values[i - 1].key, m->values[i].key) == 0) {
            return error_set(e, ERROR_FORMAT, "key %.200s appears twice", m->values[i].key);
        }
    }
    return 0;
}

static int find_alignment(struct gguf_header *h, struct error *e)
{
    h->alignment = DEFAULT_ALIGNMENT;
    if (gguf_get_u64(&h->meta, "general.alignment", &h->alignment, e) < 0) {
        return ERROR_FORMAT;
    }
    if (h->alignment == 0 || (h->alignment & (h->alignment - 1)) != 0 || h->alignment > UINT32_MAX) {
        return error_set(e, ERROR_FORMAT, "general.alignment is %llu, not a power of two below 2^32", (unsigned long long)h->alignment);
    }
    return 0;
}

/* Known by its size only. */
static const char *unreadable(uint32_t type) { return weight_format_by_ggml(type) == FORMAT_NONE ? " (not readable in this build)" : ""; }

static int sort_tensors(struct gguf_header *h, struct error *e)
{
    if (h->n_tensors > 1) {
        qsort(h->tensors, h->n_tensors, sizeof *h->tensors, compare_tensor_names);
    }
    for (size_t i = 1; i < h->n_tensors; i++) {
        if (strcmp(h->tensors[i - 1].name, h->tensors[i].name) == 0) {
            return error_set(e, ERROR_FORMAT, "tensor %s appears twice", h->tensors[i].name);
        }
    }
    if (h->n_tensors > 1) {
        qsort(h->tensors, h->n_tensors, sizeof *h->tensors, compare_offsets);
    }
    h->data_start = align_up_u64(h->header_end, h->alignment);
    uint64_t end = 0;
    for (size_t i = 0; i < h->n_tensors; i++) {
        const struct gguf_tensor *t = &h->tensors[i];
        if (t->offset % h->alignment != 0) {
            return error_set(e, ERROR_FORMAT, "tensor %s: offset %llu is no multiple of the alignment %llu", t->name,
                             (unsigned long long)t->offset, (unsigned long long)h->alignment);
        }
        const struct gguf_tensor *before = i > 0 ? t - 1 : NULL;
        if (t->offset < end) {
            return error_set(e, ERROR_FORMAT, "tensor %s at offset %llu overlaps tensor %s of type %s%s, which ends at %llu", t->name,
                             (unsigned long long)t->offset, before->name, ggml_type_name(before->type), unreadable(before->type),
                             (unsigned long long)end);
        }
        if (t->offset - end >= h->alignment && before != NULL) { /* a type or shape that needs less than what was written */
            return error_set(e, ERROR_FORMAT, "tensor %s of type %s%s ends at %llu, the next, %s, begins at %llu, beyond padding to %llu bytes: its type "
                             "or shape is wrong", before->name, ggml_type_name(before->type), unreadable(before->type),
                             (unsigned long long)end, t->name, (unsigned long long)t->offset, (unsigned long long)h->alignment);
        }
        if (t->offset - end >= h->alignment) {
            return error_set(e, ERROR_FORMAT, "the first tensor, %s, begins at %llu of the data, expected 0", t->name, (unsigned long long)t->offset);
        }
        if (!add_u64(t->offset, t->bytes, &end) || end > INT64_MAX - h->data_start) {
            return error_set(e, ERROR_FORMAT, "tensor %s: offset %llu is beyond 2^63", t->name, (unsigned long long)t->offset);
        }
    }
    h->data_end = h->data_start + end;
    return 0;
}

/* ---- storage ---- */

struct gguf_storage {
    struct gguf_string *strings;
    char *text;
    void *file_bytes; /* NULL if the caller's */
};

void gguf_meta_deinit(struct gguf_meta *m)
{
    struct gguf_storage *s = m->storage;
    if (s != NULL) {
        free(s->strings);
        free(s->text);
        free(s->file_bytes);
        free(s);
    }
    free(m->values);
    *m = (struct gguf_meta){0};
}

void gguf_header_deinit(struct gguf_header *h)
{
    gguf_meta_deinit(&h->meta);
    free(h->tensors);
    free(h->names);
    *h = (struct gguf_header){0};
}

/* n + 1 so that zero is no special case. */
static void *alloc_items(size_t n, size_t size) { return calloc(n + 1, size); }

/* Storage for what the counting walk w found, and the filling walk over it. */
static int fill(const struct walk *counted, struct gguf_header *h, struct error *e)
{
    struct gguf_storage *s = calloc(1, sizeof *s);
    h->meta.storage = s;
    h->meta.values = alloc_items(counted->n_values, sizeof *h->meta.values);
    h->tensors = alloc_items(counted->n_tensors, sizeof *h->tensors);
    h->names = alloc_items(counted->name_bytes, 1);
    if (s != NULL) {
        s->strings = alloc_items(counted->n_strings, sizeof *s->strings);
        s->text = alloc_items(counted->text_bytes, 1);
    }
    if (s == NULL || h->meta.values == NULL || h->tensors == NULL || h->names == NULL || s->strings == NULL || s->text == NULL) {
        return error_nomem(e, "GGUF header", counted->pos);
    }
    struct walk w = {.data = counted->data, .bytes = counted->bytes, .file_size = counted->file_size, .values = h->meta.values,
                     .strings = s->strings, .tensors = h->tensors, .text = s->text, .names = h->names, .e = e};
    int r = walk_header(&w);
    h->meta.n = w.n_values;
    h->n_tensors = w.n_tensors;
    h->header_end = w.pos;
    return r;
}

/* The counting walk. */
static int count(const void *data, size_t bytes, uint64_t file_size, struct walk *ret, struct error *e)
{
    *ret = (struct walk){.data = data, .bytes = bytes, .file_size = file_size, .e = e};
    return walk_header(ret);
}

static int build(const struct walk *counted, struct gguf_header *ret, struct error *e)
{
    struct gguf_header h = {0};
    int r = fill(counted, &h, e);
    if (r == 0) {
        r = sort_values(&h.meta, e);
    }
    if (r == 0) {
        r = find_alignment(&h, e);
    }
    if (r == 0) {
        r = sort_tensors(&h, e);
    }
    if (r != 0) {
        gguf_header_deinit(&h);
        return r;
    }
    *ret = h;
    return 0;
}

int gguf_parse(const void *data, size_t bytes, uint64_t file_size, struct gguf_header *ret, struct error *e)
{
    struct walk w;
    int r = count(data, bytes, file_size, &w, e);
    return r != 0 ? r : build(&w, ret, e);
}

/* Reads until the counting walk is content; *data holds what was read (to be freed on failure too). */
static int read_enough(const struct file *file, char **data, struct walk *w, struct error *e)
{
    size_t have = 0;
    for (size_t want = FIRST_READ; want <= MAX_HEADER; want *= 4) {
        size_t bytes = (size_t)min_u64(want, file->size);
        char *grown = realloc(*data, bytes + 1);
        if (grown == NULL) {
            return error_nomem(e, "GGUF header", bytes);
        }
        *data = grown;
        int r = file_read_at(file, have, *data + have, bytes - have, e);
        if (r < 0) {
            return r;
        }
        have = bytes;
        r = count(*data, have, file->size, w, e);
        if (r != GGUF_MORE) {
            return r < 0 ? error_prefix(e, r, "%s", file->path) : 0;
        }
    }
    return error_set(e, ERROR_FORMAT, "%s: the header is larger than %d MiB", file->path, MAX_HEADER >> 20);
}

int gguf_read_header(const struct file *file, struct gguf_header *ret, struct error *e)
{
    char *data = NULL;
    struct walk w;
    int r = read_enough(file, &data, &w, e);
    if (r == 0) {
        char *shrunk = realloc(data, w.pos + 1); /* drops tensor bytes read too much */
        data = shrunk != NULL ? shrunk : data;
        w.data = (const uint8_t *)data;
        w.bytes = w.pos;
        r = build(&w, ret, e);
        r = r < 0 ? error_prefix(e, r, "%s", file->path) : 0;
    }
    if (r != 0) {
        free(data);
        return r;
    }
    ((struct gguf_storage *)ret->meta.storage)->file_bytes = data;
    return 0;
}
