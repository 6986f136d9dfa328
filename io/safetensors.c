/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the safetensors header parser and its rules. Must not know: other files of a set. */
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"
#include "io/file.h"
#include "io/json_scan.h"

enum { MAX_TENSORS = 500000 };

static const struct dtype {
    const char *name;
    unsigned bits;
} dtypes[] = {
    {"BF16", 16},    {"F8_E4M3", 8},     {"F32", 32},        {"F16", 16}, {"F64", 64},    {"I64", 64},    {"U64", 64},
    {"C64", 64},     {"I32", 32},        {"U32", 32},        {"I16", 16}, {"U16", 16},    {"I8", 8},      {"U8", 8},
    {"BOOL", 8},     {"F8_E5M2", 8},     {"F8_E8M0", 8},     {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8},
};

static const struct dtype *find_dtype(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            return &dtypes[i];
        }
    }
    return NULL;
}

unsigned safetensors_dtype_bits(const char *dtype)
{
    const struct dtype *d = find_dtype(dtype);
    return d != NULL ? d->bits : 0;
}

/* State of one parse. Fields of a tensor may come in any order, each once. */
struct parse {
    struct json_scan scan;
    struct safetensors_tensor *tensors;
    size_t n, cap;
    struct error *e;
};

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

static int scan_failed(const struct parse *p)
{
    return error_set(p->e, ERROR_FORMAT, "the header is no valid JSON of a safetensors file: byte %zu: %s", p->scan.pos,
                     p->scan.wrong != NULL ? p->scan.wrong : "unexpected text");
}

static int parse_shape(struct parse *p, struct safetensors_tensor *t)
{
    bool first = true;
    if (!json_scan_expect(&p->scan, '[')) {
        return scan_failed(p);
    }
    while (json_scan_next(&p->scan, ']', &first)) {
        if (t->n_dims == SAFETENSORS_MAX_DIMS) {
            return error_set(p->e, ERROR_FORMAT, "tensor %.200s has more than %d dimensions", t->name, SAFETENSORS_MAX_DIMS);
        }
        if (!json_scan_u64(&p->scan, &t->dims[t->n_dims++])) {
            return scan_failed(p);
        }
    }
    return p->scan.wrong == NULL ? 0 : scan_failed(p);
}

static int parse_dtype(struct parse *p, struct safetensors_tensor *t)
{
    const char *name;
    if (!json_scan_string(&p->scan, &name)) {
        return scan_failed(p);
    }
    const struct dtype *d = find_dtype(name);
    if (d == NULL) {
        return error_set(p->e, ERROR_FORMAT, "tensor %.200s has dtype %.40s, which this build does not know; weights are read from F32, F16, "
                         "BF16, F8_E4M3", t->name, name);
    }
    t->dtype = d->name;
    return 0;
}

static int parse_offsets(struct parse *p, struct safetensors_tensor *t)
{
    struct json_scan *s = &p->scan;
    bool first = true;
    bool good = json_scan_expect(s, '[') && json_scan_next(s, ']', &first) && json_scan_u64(s, &t->begin) &&
                json_scan_next(s, ']', &first) && json_scan_u64(s, &t->end) && json_scan_expect(s, ']');
    return good ? 0 : scan_failed(p);
}

static int parse_field(struct parse *p, struct safetensors_tensor *t, unsigned *seen)
{
    const char *key;
    if (!json_scan_string(&p->scan, &key) || !json_scan_expect(&p->scan, ':')) {
        return scan_failed(p);
    }
    unsigned field = strcmp(key, "dtype") == 0          ? HAS_DTYPE
                     : strcmp(key, "shape") == 0        ? HAS_SHAPE
                     : strcmp(key, "data_offsets") == 0 ? HAS_OFFSETS
                                                        : 0;
    if (field == 0 || (*seen & field) != 0) {
        return error_set(p->e, ERROR_FORMAT, "tensor %.200s: field %.40s %s", t->name, key, field == 0 ? "is unknown" : "appears twice");
    }
    *seen |= field;
    return field == HAS_DTYPE ? parse_dtype(p, t) : field == HAS_SHAPE ? parse_shape(p, t) : parse_offsets(p, t);
}

/* end - begin is what dtype and shape say. */
static int check_size(const struct parse *p, const struct safetensors_tensor *t)
{
    uint64_t bits = safetensors_dtype_bits(t->dtype);
    bool fits = true, empty = false;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        empty = empty || t->dims[d] == 0;
        fits = fits && mul_u64(bits, t->dims[d], &bits);
    }
    if (empty) {
        bits = 0;
        fits = true;
    }
    if (!fits || bits % 8 != 0 || t->end < t->begin || t->end - t->begin != bits / 8) {
        return error_set(p->e, ERROR_FORMAT, "tensor %.200s: data_offsets [%llu, %llu] do not fit its shape and dtype %s (%s%llu bits)",
                         t->name, (unsigned long long)t->begin, (unsigned long long)t->end, t->dtype, fits ? "" : "more than ",
                         (unsigned long long)(fits ? bits : UINT64_MAX));
    }
    return 0;
}

static int add_tensor(struct parse *p, const struct safetensors_tensor *t)
{
    if (p->n == MAX_TENSORS) {
        return error_set(p->e, ERROR_FORMAT, "the header lists more than %d tensors", MAX_TENSORS);
    }
    if (p->n == p->cap) {
        size_t cap = p->cap == 0 ? 256 : p->cap * 2;
        struct safetensors_tensor *grown = realloc(p->tensors, cap * sizeof *grown);
        if (grown == NULL) {
            return error_nomem(p->e, "tensor list", cap * sizeof *grown);
        }
        p->tensors = grown;
        p->cap = cap;
    }
    p->tensors[p->n++] = *t;
    return 0;
}

static int parse_tensor(struct parse *p, const char *name)
{
    struct safetensors_tensor t = {.name = name};
    unsigned seen = 0;
    bool first = true;
    if (!json_scan_expect(&p->scan, '{')) {
        return scan_failed(p);
    }
    while (json_scan_next(&p->scan, '}', &first)) {
        int r = parse_field(p, &t, &seen);
        if (r < 0) {
            return r;
        }
    }
    if (p->scan.wrong != NULL) {
        return scan_failed(p);
    }
    if (name[0] == '\0' || seen != HAS_ALL) {
        return error_set(p->e, ERROR_FORMAT, "tensor '%.200s' has no %s", name,
                         name[0] == '\0' ? "name" : (seen & HAS_DTYPE) == 0 ? "dtype" : (seen & HAS_SHAPE) == 0 ? "shape" : "data_offsets");
    }
    int r = check_size(p, &t);
    return r < 0 ? r : add_tensor(p, &t);
}

/* __metadata__: an object of string to string, of no interest. */
static int parse_metadata(struct parse *p, bool *seen)
{
    struct json_scan *s = &p->scan;
    bool first = true;
    if (*seen) {
        return error_set(p->e, ERROR_FORMAT, "the header has __metadata__ twice");
    }
    *seen = true;
    if (!json_scan_expect(s, '{')) {
        return scan_failed(p);
    }
    while (json_scan_next(s, '}', &first)) {
        bool good = json_scan_skip_string(s) && json_scan_expect(s, ':') && json_scan_skip_string(s);
        if (!good) {
            return scan_failed(p);
        }
    }
    return s->wrong == NULL ? 0 : scan_failed(p);
}

static int parse_header(struct parse *p)
{
    struct json_scan *s = &p->scan;
    bool first = true, metadata = false;
    if (s->wrong != NULL || s->end == 0 || s->data[0] != '{' || !json_scan_expect(s, '{')) {
        return scan_failed(p);
    }
    while (json_scan_next(s, '}', &first)) {
        const char *name;
        if (!json_scan_string(s, &name) || !json_scan_expect(s, ':')) {
            return scan_failed(p);
        }
        int r = strcmp(name, "__metadata__") == 0 ? parse_metadata(p, &metadata) : parse_tensor(p, name);
        if (r < 0) {
            return r;
        }
    }
    return json_scan_finish(s) ? 0 : scan_failed(p);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct safetensors_tensor *)a)->name, ((const struct safetensors_tensor *)b)->name);
}

static int compare_begins(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return (x->end > y->end) - (x->end < y->end);
}

/* Names once, and the data buffer covered without hole or overlap. */
static int check_all(struct safetensors_tensor *t, size_t n, uint64_t *ret_bytes, struct error *e)
{
    if (n > 1) {
        qsort(t, n, sizeof *t, compare_names);
    }
    for (size_t i = 1; i < n; i++) {
        if (strcmp(t[i - 1].name, t[i].name) == 0) {
            return error_set(e, ERROR_FORMAT, "tensor %.200s appears twice", t[i].name);
        }
    }
    if (n > 1) {
        qsort(t, n, sizeof *t, compare_begins);
    }
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (t[i].begin != at) {
            return error_set(e, ERROR_FORMAT, "tensor %.200s begins at %llu of the data, where the tensor before ends at %llu: %s", t[i].name,
                             (unsigned long long)t[i].begin, (unsigned long long)at, t[i].begin < at ? "they overlap" : "a hole between them");
        }
        at = t[i].end;
    }
    *ret_bytes = at;
    return 0;
}

int safetensors_parse(char *text, size_t bytes, struct safetensors_header *ret, struct error *e)
{
    struct parse p = {.e = e};
    struct safetensors_header h = {.text = text};
    json_scan_init(&p.scan, text, bytes);
    int r = parse_header(&p);
    if (r == 0) {
        r = check_all(p.tensors, p.n, &h.data_bytes, e);
    }
    if (r < 0) {
        free(p.tensors);
        return r;
    }
    h.tensors = p.tensors;
    h.n_tensors = p.n;
    *ret = h;
    return 0;
}

/* The header's text; *ret_bytes its length. NULL after an error, which names the file. */
static char *read_text(const struct file *file, size_t *ret_bytes, int *ret_code, struct error *e)
{
    uint64_t n = 0;
    if (file->size < 8) {
        *ret_code = error_set(e, ERROR_FORMAT, "%s: has %llu bytes, a safetensors file begins with 8 bytes of header length", file->path,
                              (unsigned long long)file->size);
        return NULL;
    }
    *ret_code = file_read_at(file, 0, &n, 8, e);
    if (*ret_code < 0) {
        return NULL;
    }
    if (n > SAFETENSORS_MAX_HEADER) {
        *ret_code = error_set(e, ERROR_FORMAT, "%s: claims a header of %llu bytes, at most %d are possible: this is no safetensors file",
                              file->path, (unsigned long long)n, SAFETENSORS_MAX_HEADER);
        return NULL;
    }
    if (n > file->size - 8) {
        *ret_code = error_set(e, ERROR_FORMAT, "%s: the header needs %llu bytes, the file has %llu behind its length; is it complete?",
                              file->path, (unsigned long long)n, (unsigned long long)(file->size - 8));
        return NULL;
    }
    char *text = malloc((size_t)n + 1);
    if (text == NULL) {
        *ret_code = error_nomem(e, "safetensors header", n);
        return NULL;
    }
    *ret_code = file_read_at(file, 8, text, (size_t)n, e);
    if (*ret_code < 0) {
        free(text);
        return NULL;
    }
    *ret_bytes = (size_t)n;
    return text;
}

int safetensors_read_header(const struct file *file, struct safetensors_header *ret, struct error *e)
{
    size_t bytes = 0;
    int r = 0;
    char *text = read_text(file, &bytes, &r, e);
    if (text == NULL) {
        return r;
    }
    r = safetensors_parse(text, bytes, ret, e);
    if (r < 0) {
        free(text);
        return error_prefix(e, r, "%s", file->path);
    }
    ret->data_start = 8 + (uint64_t)bytes;
    return 0;
}

void safetensors_header_deinit(struct safetensors_header *h)
{
    free(h->tensors);
    free(h->text);
    *h = (struct safetensors_header){0};
}
