/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: learned.h. The file is in safetensors format: a list of named arrays. Must not know: how it was learned. */
#include "src/tier/learned.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/attr.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"

/* One array of the file and where it lies in memory. */
struct field {
    const char *name, *dtype;
    uint64_t dims[3]; /* [n_dims] */
    uint32_t n_dims;
    void *data;
    uint64_t bytes;
};

enum { FIELDS = 7 };

/* The arrays of l, the last two only with probes. entries: of the token table. Returns how many. */
static uint32_t fields_of(const struct learned *l, uint64_t entries, struct field ret[FIELDS])
{
    const struct learned_shape *s = &l->shape;
    uint64_t lists = (uint64_t)s->vocab * s->layers + 1, rows = learned_probe_rows(s);
    const struct field all[FIELDS] = {
        {"model", "U8", {LEARNED_FINGERPRINT}, 1, NULL, 1},
        {"popularity", "F32", {s->layers, s->experts}, 2, l->popularity, 4},
        {"table.begin", "U32", {lists}, 1, l->table.begin, 4},
        {"table.expert", "U16", {entries}, 1, l->table.expert, 2},
        {"table.count", "U16", {entries}, 1, l->table.count, 2},
        {"probe.weight", "F16", {LEARNED_PROBES, rows, s->inputs}, 3, l->probe_weight, 2},
        {"probe.bias", "F32", {LEARNED_PROBES, rows}, 2, l->probe_bias, 4},
    };
    for (uint32_t i = 0; i < FIELDS; i++) {
        ret[i] = all[i];
        for (uint32_t d = 0; d < ret[i].n_dims; d++) {
            ret[i].bytes *= ret[i].dims[d];
        }
    }
    return s->inputs > 0 ? FIELDS : FIELDS - 2;
}

int learned_init(struct learned *l, const struct learned_shape *s, struct account *account, struct error *e)
{
    uint64_t rows = (uint64_t)LEARNED_PROBES * learned_probe_rows(s), biases = rows * sizeof(*l->probe_bias);
    *l = (struct learned){.shape = *s};
    l->popularity = calloc((size_t)s->layers * s->experts, sizeof(*l->popularity));
    int r = l->popularity != NULL ? 0 : error_nomem(e, "what predictors learned", (uint64_t)s->layers * s->experts * sizeof(*l->popularity));
    if (r == 0 && s->inputs > 0) {
        r = buffer_init(&l->probes, account, PURPOSE_TABLES, biases + rows * s->inputs * sizeof(*l->probe_weight), e);
        l->probe_bias = l->probes.data;
        l->probe_weight = r == 0 ? (uint16_t *)(l->probe_bias + rows) : NULL;
    }
    if (r < 0) {
        learned_deinit(l);
    }
    return r;
}

void learned_deinit(struct learned *l)
{
    free(l->popularity);
    buffer_deinit(&l->probes);
    token_table_deinit(&l->table);
    *l = (struct learned){0};
}

char *learned_path(const struct container *c) { return container_beside(c, "sluice-predict"); }

uint64_t learned_file_bytes(const struct container *c)
{
    struct file f = {0};
    char *path = learned_path(c);
    uint64_t bytes = path != NULL && file_exists(path) && file_open(path, &f, NULL) == 0 ? f.size : 0;
    file_close(&f);
    free(path);
    return bytes;
}

int learned_write(const struct learned *l, const char *path, struct error *e)
{
    struct field f[FIELDS];
    char fingerprint[LEARNED_FINGERPRINT + 1];
    struct safetensors_writer *w = NULL;
    uint32_t n = fields_of(l, l->table.begin[(size_t)l->shape.vocab * l->shape.layers], f);
    memcpy(fingerprint, l->shape.fingerprint, sizeof(fingerprint));
    f[0].data = fingerprint;
    int r = safetensors_writer_create(path, &w, e);
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        r = safetensors_writer_declare(w, f[i].name, f[i].dtype, f[i].dims, f[i].n_dims, e);
    }
    r = r < 0 ? r : safetensors_writer_begin(w, e);
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        r = safetensors_writer_append(w, f[i].data, (size_t)f[i].bytes, e);
    }
    r = r < 0 ? r : safetensors_writer_finish(w, false, e);
    safetensors_writer_destroy(w);
    return r;
}

/* ---- reading ---- */

struct source {
    const struct file *file;
    const struct safetensors_header *header;
};

static const struct safetensors_tensor *find(const struct source *s, const char *name)
{
    for (size_t i = 0; i < s->header->n_tensors; i++) {
        if (strcmp(s->header->tensors[i].name, name) == 0) {
            return &s->header->tensors[i];
        }
    }
    return NULL;
}

static bool same(const struct field *f, const struct safetensors_tensor *t)
{
    bool ok = strcmp(f->dtype, t->dtype) == 0 && f->n_dims == t->n_dims;
    for (uint32_t d = 0; ok && d < f->n_dims; d++) {
        ok = f->dims[d] == t->dims[d];
    }
    return ok;
}

static int read_field(const struct source *s, const struct field *f, struct error *e)
{
    const struct safetensors_tensor *t = find(s, f->name);
    if (t == NULL || !same(f, t)) {
        return error_set(e, ERROR_FORMAT, "%s: %s is %s, expected %s of %llu bytes in %u dimensions as this model has them; make the file with `sluice trace fit`",
                         s->file->path, f->name, t == NULL ? "missing" : "of another type or size", f->dtype, (unsigned long long)f->bytes, f->n_dims);
    }
    return file_read_at(s->file, s->header->data_start + t->begin, f->data, (size_t)f->bytes, e);
}

static int read_fingerprint(const struct source *s, struct field *f, const char *expected, struct error *e)
{
    char found[LEARNED_FINGERPRINT + 1] = "";
    f->data = found;
    int r = read_field(s, f, e);
    if (r == 0 && strcmp(found, expected) != 0) {
        r = error_set(e, ERROR_FORMAT, "%s belongs to another model; make one for this model with `sluice trace fit`", s->file->path);
    }
    return r;
}

/* What is used without looking later on. */
static const char *fault_of(const struct learned *l, uint64_t entries)
{
    const struct learned_shape *s = &l->shape;
    size_t lists = (size_t)s->vocab * s->layers;
    for (size_t i = 0; i < (size_t)s->layers * s->experts; i++) {
        if (!isfinite(l->popularity[i]) || l->popularity[i] < 0) {
            return "popularity holds a number that is no count";
        }
    }
    for (size_t i = 0; i < lists; i++) {
        if (l->table.begin[i] > l->table.begin[i + 1]) {
            return "table.begin does not rise";
        }
    }
    if (l->table.begin[lists] != entries) {
        return "table.begin ends elsewhere than table.expert";
    }
    for (uint64_t i = 0; i < entries; i++) {
        if (l->table.expert[i] >= s->experts || l->table.count[i] == 0) {
            return "the token table names an expert that is not there, or a count of 0";
        }
    }
    for (size_t i = 0; l->probe_bias != NULL && i < (size_t)LEARNED_PROBES * learned_probe_rows(s); i++) {
        if (!isfinite(l->probe_bias[i])) {
            return "probe.bias holds a number that is not finite";
        }
    }
    for (size_t i = 0; l->probe_weight != NULL && i < (size_t)LEARNED_PROBES * learned_probe_rows(s) * s->inputs; i++) {
        if ((l->probe_weight[i] & 0x7c00) == 0x7c00) {
            return "probe.weight holds a number that is not finite";
        }
    }
    return NULL;
}

static int read_all(struct learned *l, const struct source *s, struct account *account, struct error *e)
{
    struct field f[FIELDS];
    uint32_t n;
    const struct safetensors_tensor *t = find(s, "table.expert");
    uint64_t entries = t != NULL && t->n_dims == 1 ? t->dims[0] : 0;
    (void)fields_of(l, entries, f);
    int r = read_fingerprint(s, &f[0], l->shape.fingerprint, e);
    r = r < 0 ? r : token_table_init(&l->table, l->shape.vocab, l->shape.layers, entries, account, e);
    if (l->probe_weight != NULL && find(s, "probe.weight") == NULL) { /* learned without an MTP layer */
        buffer_deinit(&l->probes);
        l->probe_weight = NULL;
        l->probe_bias = NULL;
        l->shape.inputs = 0;
    }
    n = fields_of(l, entries, f);
    for (uint32_t i = 1; r == 0 && i < n; i++) {
        r = read_field(s, &f[i], e);
    }
    const char *fault = r < 0 ? NULL : fault_of(l, entries);
    return fault == NULL ? r : error_set(e, ERROR_FORMAT, "%s: %s; make the file anew with `sluice trace fit`", s->file->path, fault);
}

int learned_read(struct learned *l, const struct learned_shape *shape, const char *path, struct account *account, struct error *e)
{
    struct file file = {0};
    struct safetensors_header header = {0};
    int r = learned_init(l, shape, account, e);
    if (r < 0) {
        return r;
    }
    r = file_open(path, &file, e);
    r = r < 0 ? r : safetensors_read_header(&file, &header, e);
    if (r == 0 && header.data_bytes != file.size - header.data_start) {
        r = error_set(e, ERROR_FORMAT, "%s: %llu bytes, expected %llu: the file is cut or joined with another", path, (unsigned long long)file.size,
                      (unsigned long long)(header.data_start + header.data_bytes));
    }
    r = r < 0 ? r : read_all(l, &(struct source){&file, &header}, account, e);
    safetensors_header_deinit(&header);
    file_close(&file);
    if (r < 0) {
        learned_deinit(l);
    }
    return r;
}
