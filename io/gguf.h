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
/* Element k of an integer array. */
int64_t gguf_array_i64(const struct gguf_value *v, uint64_t k);

#endif
