/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: GGUF scalars and typed look-ups in metadata. Must not know: model keys, how the values were read. */
#include <math.h>
#include <string.h>

#include "common/attr.h"
#include "io/gguf.h"

unsigned gguf_scalar_bytes(uint32_t type)
{
    static const unsigned char bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < ARRAY_LEN(bytes) ? bytes[type] : 0;
}

static bool is_signed(enum gguf_type t) { return t == GGUF_I8 || t == GGUF_I16 || t == GGUF_I32 || t == GGUF_I64; }
static bool is_float(enum gguf_type t) { return t == GGUF_F32 || t == GGUF_F64; }
static bool is_integer(enum gguf_type t) { return gguf_scalar_bytes(t) > 0 && !is_float(t) && t != GGUF_BOOL; }

void gguf_scalar_load(enum gguf_type type, const void *bytes, struct gguf_value *ret)
{
    unsigned n = gguf_scalar_bytes(type);
    if (type == GGUF_F32) {
        float f;
        memcpy(&f, bytes, sizeof f);
        ret->v.f = f;
    } else if (type == GGUF_F64) {
        memcpy(&ret->v.f, bytes, sizeof ret->v.f);
    } else {
        uint64_t u = 0;
        memcpy(&u, bytes, n);
        if (is_signed(type) && n < 8 && (u >> (8 * n - 1)) != 0) {
            u |= UINT64_MAX << (8 * n);
        }
        ret->v.u = u;
    }
}

const struct gguf_value *gguf_find(const struct gguf_meta *m, const char *key)
{
    size_t low = 0, high = m->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int c = strcmp(key, m->values[mid].key);
        if (c == 0) {
            return &m->values[mid];
        }
        if (c < 0) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    return NULL;
}

static const char *type_name(enum gguf_type type)
{
    static const char *const names[] = {"u8",     "i8",    "u16", "i16", "u32", "i32", "f32", "bool",
                                        "string", "array", "u64", "i64", "f64"};
    return names[type];
}

static int wrong_type(const struct gguf_value *v, const char *wanted, struct error *e)
{
    return error_set(e, ERROR_FORMAT, "key %.200s is %s%s, expected %s", v->key, v->type == GGUF_ARRAY ? "an array of " : "",
                     type_name(v->element), wanted);
}

/* The value of `key` as a scalar: an array of equal numbers stands for one of them. 1, 0 absent, or an error. */
static int get_scalar(const struct gguf_meta *m, const char *key, const char *wanted, struct gguf_value *ret, struct error *e)
{
    const struct gguf_value *v = gguf_find(m, key);
    if (v == NULL) {
        return 0;
    }
    *ret = *v;
    if (v->type != GGUF_ARRAY) {
        return 1;
    }
    if (v->raw == NULL || v->count == 0) {
        return wrong_type(v, wanted, e);
    }
    unsigned bytes = gguf_scalar_bytes(v->element);
    const char *raw = v->raw;
    for (uint64_t k = 1; k < v->count; k++) {
        if (memcmp(raw, raw + k * bytes, bytes) != 0) {
            return error_set(e, ERROR_FORMAT, "key %.200s is an array whose elements 0 and %llu differ; one value for all layers is expected",
                             v->key, (unsigned long long)k);
        }
    }
    ret->type = v->element;
    gguf_scalar_load(v->element, raw, ret);
    return 1;
}

int gguf_get_u64(const struct gguf_meta *m, const char *key, uint64_t *ret, struct error *e)
{
    struct gguf_value v;
    int r = get_scalar(m, key, "an integer", &v, e);
    if (r <= 0) {
        return r;
    }
    if (!is_integer(v.type)) {
        return wrong_type(&v, "an integer", e);
    }
    if (is_signed(v.type) && v.v.i < 0) {
        return error_set(e, ERROR_FORMAT, "key %.200s is %lld, expected no negative number", v.key, (long long)v.v.i);
    }
    *ret = v.v.u;
    return 1;
}

int gguf_get_f64(const struct gguf_meta *m, const char *key, double *ret, struct error *e)
{
    struct gguf_value v;
    int r = get_scalar(m, key, "a number", &v, e);
    if (r <= 0) {
        return r;
    }
    double f = v.v.f;
    if (is_integer(v.type)) {
        f = is_signed(v.type) ? (double)v.v.i : (double)v.v.u;
    } else if (!is_float(v.type)) {
        return wrong_type(&v, "a number", e);
    }
    if (!isfinite(f)) {
        return error_set(e, ERROR_FORMAT, "key %.200s is not finite", v.key);
    }
    *ret = f;
    return 1;
}

int gguf_get_bool(const struct gguf_meta *m, const char *key, bool *ret, struct error *e)
{
    struct gguf_value v;
    int r = get_scalar(m, key, "a bool", &v, e);
    if (r <= 0) {
        return r;
    }
    if (v.type != GGUF_BOOL && !(is_integer(v.type) && v.v.u <= 1)) {
        return wrong_type(&v, "a bool", e);
    }
    *ret = v.v.u != 0;
    return 1;
}

int gguf_get_string(const struct gguf_meta *m, const char *key, struct gguf_string *ret, struct error *e)
{
    const struct gguf_value *v = gguf_find(m, key);
    if (v == NULL) {
        return 0;
    }
    if (v->type != GGUF_STRING) {
        return wrong_type(v, "a string", e);
    }
    *ret = v->v.s;
    return 1;
}

int64_t gguf_array_i64(const struct gguf_value *v, uint64_t k)
{
    struct gguf_value item = {0};
    if (v->raw == NULL || k >= v->count) { /* not what was asked for: no array of numbers */
        return 0;
    }
    gguf_scalar_load(v->element, (const char *)v->raw + k * gguf_scalar_bytes(v->element), &item);
    return item.v.i;
}
