/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the safetensors writer. Must not know: what the tensors are. */
#include "io/safetensors_write.h"

#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"
#include "io/file_write.h"
#include "io/safetensors.h"

enum { HEADER_ALIGN = 8 };

struct safetensors_writer {
    struct file_writer file;
    struct str header;
    uint64_t data_bytes, data_start;
};

int safetensors_writer_create(const char *path, struct safetensors_writer **ret, struct error *e)
{
    struct safetensors_writer *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return error_nomem(e, "safetensors writer", sizeof *w);
    }
    w->file.fd = -1;
    int r = path != NULL ? file_writer_init(&w->file, path, e) : 0;
    if (r < 0) {
        safetensors_writer_destroy(w);
        return r;
    }
    str_puts(&w->header, "{\"__metadata__\":{\"format\":\"pt\"}"); /* readers in Python ask for it */
    *ret = w;
    return 0;
}

void safetensors_writer_destroy(struct safetensors_writer *w)
{
    if (w == NULL) {
        return;
    }
    file_writer_deinit(&w->file);
    str_deinit(&w->header);
    free(w);
}

int safetensors_writer_declare(struct safetensors_writer *w, const char *name, const char *dtype, const uint64_t *dims, uint32_t n_dims,
                               struct error *e)
{
    uint64_t bits = safetensors_dtype_bits(dtype), end;
    bool fits = bits > 0 && n_dims <= SAFETENSORS_MAX_DIMS;
    str_puts(&w->header, ",");
    str_json(&w->header, name, strlen(name));
    str_printf(&w->header, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
    for (uint32_t d = 0; d < n_dims && fits; d++) {
        fits = mul_u64(bits, dims[d], &bits);
        str_printf(&w->header, "%s%llu", d > 0 ? "," : "", (unsigned long long)dims[d]);
    }
    if (!fits || bits % 8 != 0 || !add_u64(w->data_bytes, bits / 8, &end) || end > INT64_MAX / 2) {
        return error_set(e, ERROR_USAGE, "tensor %s of %u dimensions and dtype %s cannot be written", name, n_dims, dtype);
    }
    str_printf(&w->header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)w->data_bytes, (unsigned long long)end);
    w->data_bytes = end;
    return 0;
}

int safetensors_writer_render(const struct safetensors_writer *w, struct str *out, struct error *e)
{
    uint64_t n = align_up_u64(w->header.len + 1, HEADER_ALIGN);
    if (w->header.failed) {
        return error_nomem(e, "safetensors header", w->header.len);
    }
    if (n > SAFETENSORS_MAX_HEADER) {
        return error_set(e, ERROR_USAGE, "a header would have %llu bytes, at most %d are possible; write several shards", (unsigned long long)n,
                         SAFETENSORS_MAX_HEADER);
    }
    size_t end = out->len + sizeof n + (size_t)n;
    str_append(out, (const char *)&n, sizeof n);
    str_append(out, w->header.data, w->header.len);
    str_puts(out, "}");
    while (out->len < end && !out->failed) {
        str_puts(out, " ");
    }
    return out->failed ? error_nomem(e, "safetensors header", n) : 0;
}

int safetensors_writer_begin(struct safetensors_writer *w, struct error *e)
{
    struct str header = {0};
    int r = safetensors_writer_render(w, &header, e);
    r = r < 0 ? r : file_writer_append(&w->file, header.data, header.len, e);
    str_deinit(&header);
    w->data_start = w->file.size;
    return r;
}

int safetensors_writer_append(struct safetensors_writer *w, const void *data, size_t bytes, struct error *e)
{
    uint64_t written = w->file.size - w->data_start;
    if (bytes > w->data_bytes - written) {
        return error_set(e, ERROR_USAGE, "%s: %llu bytes of data written and %zu to come, %llu were declared", w->file.path,
                         (unsigned long long)written, bytes, (unsigned long long)w->data_bytes);
    }
    return file_writer_append(&w->file, data, bytes, e);
}

int safetensors_writer_finish(struct safetensors_writer *w, bool header_only, struct error *e)
{
    uint64_t written = w->file.size - w->data_start, wanted = header_only ? 0 : w->data_bytes;
    if (written != wanted) {
        return error_set(e, ERROR_USAGE, "%s: %llu bytes of data written, %llu were declared", w->file.path, (unsigned long long)written,
                         (unsigned long long)wanted);
    }
    return file_writer_finish(&w->file, e);
}
