/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the GGUF writer. Must not know: model keys. */
#include "io/gguf_write.h"

#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"
#include "io/file_write.h"

enum { DEFAULT_ALIGNMENT = 32, VERSION = 3 };

struct range {
    uint64_t offset, bytes;
};

struct gguf_writer {
    struct file_writer file; /* path NULL: there is none */
    struct str values, infos;
    uint64_t n_values, n_tensors;
    struct range *ranges; /* [n_tensors] of the data */
    size_t cap;
    uint64_t alignment;
    uint64_t data_bytes; /* declared, padding included */
    uint64_t current, left; /* tensor being written, its bytes to come */
};

static void put_u32(struct str *s, uint32_t v) { str_append(s, (const char *)&v, sizeof v); }
static void put_u64(struct str *s, uint64_t v) { str_append(s, (const char *)&v, sizeof v); }

static void put_string(struct str *s, const char *data, size_t len)
{
    put_u64(s, len);
    str_append(s, data, len);
}

static void put_key(struct gguf_writer *w, const char *key, enum gguf_type type)
{
    put_string(&w->values, key, strlen(key));
    put_u32(&w->values, (uint32_t)type);
    w->n_values++;
}

int gguf_writer_create(const char *path, uint32_t alignment, struct gguf_writer **ret, struct error *e)
{
    struct gguf_writer *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return error_nomem(e, "GGUF writer", sizeof *w);
    }
    w->alignment = alignment;
    w->file.fd = -1;
    int r = path != NULL ? file_writer_init(&w->file, path, e) : 0;
    if (r < 0) {
        gguf_writer_destroy(w);
        return r;
    }
    if (alignment != DEFAULT_ALIGNMENT) {
        gguf_writer_integer(w, "general.alignment", GGUF_U32, alignment);
    }
    *ret = w;
    return 0;
}

void gguf_writer_destroy(struct gguf_writer *w)
{
    if (w == NULL) {
        return;
    }
    file_writer_deinit(&w->file);
    str_deinit(&w->values);
    str_deinit(&w->infos);
    free(w->ranges);
    free(w);
}

void gguf_writer_integer(struct gguf_writer *w, const char *key, enum gguf_type type, uint64_t value)
{
    put_key(w, key, type);
    str_append(&w->values, (const char *)&value, gguf_scalar_bytes(type)); /* little-endian: the low bytes come first */
}

void gguf_writer_float(struct gguf_writer *w, const char *key, enum gguf_type type, double value)
{
    float f = (float)value;
    put_key(w, key, type);
    str_append(&w->values, type == GGUF_F32 ? (const char *)&f : (const char *)&value, gguf_scalar_bytes(type));
}

void gguf_writer_string(struct gguf_writer *w, const char *key, const char *data, size_t len)
{
    put_key(w, key, GGUF_STRING);
    put_string(&w->values, data, len);
}

void gguf_writer_array(struct gguf_writer *w, const char *key, enum gguf_type element, const void *raw, const struct gguf_string *strings,
                       uint64_t count)
{
    put_key(w, key, GGUF_ARRAY);
    put_u32(&w->values, (uint32_t)element);
    put_u64(&w->values, count);
    if (element != GGUF_STRING) {
        str_append(&w->values, raw, (size_t)count * gguf_scalar_bytes(element));
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        put_string(&w->values, strings[i].data, (size_t)strings[i].len);
    }
}

void gguf_writer_value(struct gguf_writer *w, const struct gguf_value *v)
{
    if (strcmp(v->key, "general.alignment") == 0) {
        return;
    }
    if (v->type == GGUF_ARRAY) {
        gguf_writer_array(w, v->key, v->element, v->raw, v->strings, v->count);
    } else if (v->type == GGUF_STRING) {
        gguf_writer_string(w, v->key, v->v.s.data, (size_t)v->v.s.len);
    } else if (v->type == GGUF_F32 || v->type == GGUF_F64) {
        gguf_writer_float(w, v->key, v->type, v->v.f);
    } else {
        gguf_writer_integer(w, v->key, v->type, v->v.u);
    }
}

static int add_range(struct gguf_writer *w, uint64_t bytes, struct error *e)
{
    if (w->n_tensors == w->cap) {
        size_t cap = w->cap == 0 ? 256 : w->cap * 2;
        struct range *grown = realloc(w->ranges, cap * sizeof *grown);
        if (grown == NULL) {
            return error_nomem(e, "tensor list", cap * sizeof *grown);
        }
        w->ranges = grown;
        w->cap = cap;
    }
    w->ranges[w->n_tensors++] = (struct range){w->data_bytes, bytes};
    w->data_bytes = align_up_u64(w->data_bytes + bytes, w->alignment);
    return 0;
}

int gguf_writer_tensor(struct gguf_writer *w, const char *name, enum weight_format format, const uint64_t *dims, uint32_t n_dims,
                       struct error *e)
{
    const struct weight_format_info *info = weight_format_info(format);
    uint64_t bytes = 0, end = 0;
    bool good = info != NULL && info->ggml >= 0 && n_dims >= 1 && n_dims <= GGUF_MAX_DIMS && weight_row_bytes(format, dims[n_dims - 1], &bytes);
    for (uint32_t d = 0; d + 1 < n_dims && good; d++) {
        good = mul_u64(bytes, dims[d], &bytes);
    }
    good = good && bytes > 0 && add_u64(w->data_bytes, bytes, &end) && end < INT64_MAX / 2;
    if (!good) {
        return error_set(e, ERROR_USAGE, "tensor %s of %u dimensions cannot be written as %s", name, n_dims, info != NULL ? info->name : "its type");
    }
    put_string(&w->infos, name, strlen(name));
    put_u32(&w->infos, n_dims);
    for (uint32_t d = n_dims; d > 0; d--) {
        put_u64(&w->infos, dims[d - 1]);
    }
    put_u32(&w->infos, (uint32_t)info->ggml);
    put_u64(&w->infos, w->data_bytes);
    return add_range(w, bytes, e);
}

static int pad(struct gguf_writer *w, struct error *e)
{
    return file_writer_zeros(&w->file, align_up_u64(w->file.size, w->alignment) - w->file.size, e);
}

int gguf_writer_render(const struct gguf_writer *w, struct str *out, struct error *e)
{
    static const char zeros[4096];
    bool lost = w->values.failed || w->infos.failed;
    str_puts(out, "GGUF");
    put_u32(out, VERSION);
    put_u64(out, w->n_tensors);
    put_u64(out, w->n_values);
    str_append(out, w->values.data, lost ? 0 : w->values.len);
    str_append(out, w->infos.data, lost ? 0 : w->infos.len);
    for (uint64_t padding = align_up_u64(out->len, w->alignment) - out->len; padding > 0 && !out->failed;) {
        uint64_t n = min_u64(padding, sizeof zeros);
        str_append(out, zeros, (size_t)n);
        padding -= n;
    }
    return lost || out->failed ? error_nomem(e, "GGUF header", w->values.len + w->infos.len) : 0;
}

uint64_t gguf_writer_offset(const struct gguf_writer *w, uint64_t i) { return w->ranges[i].offset; }

uint64_t gguf_writer_data_bytes(const struct gguf_writer *w)
{
    return w->n_tensors > 0 ? w->ranges[w->n_tensors - 1].offset + w->ranges[w->n_tensors - 1].bytes : 0;
}

int gguf_writer_begin(struct gguf_writer *w, struct error *e)
{
    struct str header = {0};
    int r = gguf_writer_render(w, &header, e);
    r = r < 0 ? r : file_writer_append(&w->file, header.data, header.len, e);
    str_deinit(&header);
    w->left = w->n_tensors > 0 ? w->ranges[0].bytes : 0;
    return r;
}

int gguf_writer_append(struct gguf_writer *w, const void *data, size_t bytes, struct error *e)
{
    if (bytes > w->left) {
        return error_set(e, ERROR_USAGE, "%s: %zu bytes of data for tensor %llu, which has %llu to come", w->file.path, bytes,
                         (unsigned long long)w->current, (unsigned long long)w->left);
    }
    int r = file_writer_append(&w->file, data, bytes, e);
    w->left -= bytes;
    if (r == 0 && bytes > 0 && w->left == 0) {
        w->current++;
        w->left = w->current < w->n_tensors ? w->ranges[w->current].bytes : 0;
        r = pad(w, e);
    }
    return r;
}

int gguf_writer_finish(struct gguf_writer *w, bool header_only, struct error *e)
{
    if (w->current != (header_only ? 0 : w->n_tensors)) {
        return error_set(e, ERROR_USAGE, "%s: data of %llu tensors written, %llu were declared", w->file.path, (unsigned long long)w->current,
                         (unsigned long long)w->n_tensors);
    }
    return file_writer_finish(&w->file, e);
}
