/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: GGUF v2/v3 headers: key-values and tensor infos, from bytes (fuzzed) and from files; split sets.
 * Format: docs/formats.md. Must not know: model keys. */
#ifndef SLUICE_IO_GGUF_H
#define SLUICE_IO_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum gguf_type { GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY,
                 GGUF_U64, GGUF_I64, GGUF_F64 };

struct gguf_string {
    const char *data; /* not NUL-terminated */
    uint64_t len;
};

struct gguf_value {
    const char *key; /* NUL-terminated */
    enum gguf_type type, element; /* element: of arrays */
    union {
        uint64_t u; /* all unsigned types and bool */
        int64_t i;  /* all signed types */
        double f;   /* f32, f64 */
        struct gguf_string s;
    } v;
    uint64_t count;      /* arrays */
    const void *raw;     /* arrays of numbers: packed little-endian elements, unaligned */
    const struct gguf_string *strings; /* arrays of strings: [count] */
};

struct gguf_meta {
    struct gguf_value *values; /* [n] sorted by key */
    size_t n;
    void *storage;             /* private */
};

/* Typed look-ups. 1 found, 0 absent, negative: present with a wrong type or value (error says which). Any integer width
 * is accepted; an array stands for its first element when all elements are equal (per-layer keys). */
const struct gguf_value *gguf_find(const struct gguf_meta *m, const char *key);
int gguf_get_u64(const struct gguf_meta *m, const char *key, uint64_t *ret, struct error *e);
int gguf_get_f64(const struct gguf_meta *m, const char *key, double *ret, struct error *e);
int gguf_get_bool(const struct gguf_meta *m, const char *key, bool *ret, struct error *e);
int gguf_get_string(const struct gguf_meta *m, const char *key, struct gguf_string *ret, struct error *e);
/* Element k of an integer or bool array. */
int64_t gguf_array_i64(const struct gguf_value *v, uint64_t k);

/* Bytes of a number or bool in the file, 0 for strings, arrays and unknown types; and its value from those bytes. */
unsigned gguf_scalar_bytes(uint32_t type);
void gguf_scalar_load(enum gguf_type type, const void *bytes, struct gguf_value *ret);

enum { GGUF_MAX_DIMS = 4 };

/* One tensor info. */
struct gguf_tensor {
    const char *name; /* NUL-terminated, valid UTF-8 without control characters */
    uint32_t type;    /* ggml id, its size is known */
    uint32_t n_dims;
    uint64_t ne[GGUF_MAX_DIMS]; /* file order: ne[0] is contiguous; unused ones are 1 */
    uint64_t offset, bytes;     /* relative to data_start */
};

struct gguf_header {
    struct gguf_meta meta;
    struct gguf_tensor *tensors; /* [n_tensors] by rising offset, no two overlap */
    size_t n_tensors;
    char *names;                 /* storage of the tensor names */
    uint64_t alignment;
    uint64_t header_end;         /* bytes of header before padding */
    uint64_t data_start, data_end; /* absolute; whether the file is long enough is the caller's to check */
};

enum { GGUF_MORE = 1 }; /* gguf_parse: the header goes on behind `bytes` */

/* Parses the header in data[0, bytes), the beginning of a file of file_size bytes. 0, GGUF_MORE (only if bytes <
 * file_size), or an error without file name. Strings and arrays of *ret point into data, which must outlive it. */
int gguf_parse(const void *data, size_t bytes, uint64_t file_size, struct gguf_header *ret, struct error *e);

struct file;
/* Reads as much of the file as its header needs; *ret owns the bytes. Errors name the file. */
int gguf_read_header(const struct file *file, struct gguf_header *ret, struct error *e);

/* Accept all-zero objects. A header whose meta was moved elsewhere has meta zeroed by the mover. */
void gguf_header_deinit(struct gguf_header *h);
void gguf_meta_deinit(struct gguf_meta *m);

/* Block of any ggml type whose layout is known, kernel or not. */
bool gguf_type_size(uint32_t type, uint32_t *ret_elems, uint32_t *ret_bytes);

struct str;
/* Appends "F32, F16, Q4_0, ...": the types a kernel reads. */
void gguf_supported_types(struct str *out);

#endif
