/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: writing a GGUF v3 file: key-values, tensor infos, begin, the data in order, finish. The file appears whole or not at
 * all. Must not know: model keys. */
#ifndef SLUICE_IO_GGUF_WRITE_H
#define SLUICE_IO_GGUF_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/format.h"
#include "io/gguf.h"
#include "src/base/str.h"

struct gguf_writer;

/* alignment: a power of two; other than 32 it is written as general.alignment. Without a path only the header is made
 * (gguf_writer_render). */
int gguf_writer_create(const char *path, uint32_t alignment, struct gguf_writer **ret, struct error *e);
/* Removes what an unfinished file left behind. Accepts NULL. */
void gguf_writer_destroy(struct gguf_writer *w);

/* Key-values, before the first tensor. Lack of memory is told by gguf_writer_begin. */
void gguf_writer_integer(struct gguf_writer *w, const char *key, enum gguf_type type, uint64_t value); /* u8 .. i64, bool */
void gguf_writer_float(struct gguf_writer *w, const char *key, enum gguf_type type, double value);     /* f32, f64 */
void gguf_writer_string(struct gguf_writer *w, const char *key, const char *data, size_t len);
/* raw: packed numbers; NULL for strings. */
void gguf_writer_array(struct gguf_writer *w, const char *key, enum gguf_type element, const void *raw, const struct gguf_string *strings,
                       uint64_t count);
/* Any value as it was read; general.alignment is left out: it belongs to the writer. */
void gguf_writer_value(struct gguf_writer *w, const struct gguf_value *value);

/* dims in C order (dims[n_dims-1] is contiguous), n_dims at most 4. */
int gguf_writer_tensor(struct gguf_writer *w, const char *name, enum weight_format format, const uint64_t *dims, uint32_t n_dims,
                       struct error *e);

/* The whole header, padded to where the data starts. */
int gguf_writer_render(const struct gguf_writer *w, struct str *out, struct error *e);
/* Where the data of tensor i (in the order of their declaration) starts, behind the header. */
uint64_t gguf_writer_offset(const struct gguf_writer *w, uint64_t i);
/* Bytes behind the header, without the padding of the last tensor. */
uint64_t gguf_writer_data_bytes(const struct gguf_writer *w);

/* After all tensors: writes the header. */
int gguf_writer_begin(struct gguf_writer *w, struct error *e);

/* The data of all tensors in their order, in pieces that end where a tensor ends or before; padding is added here. */
int gguf_writer_append(struct gguf_writer *w, const void *data, size_t bytes, struct error *e);

/* Everything declared must have been appended; with header_only nothing. */
int gguf_writer_finish(struct gguf_writer *w, bool header_only, struct error *e);

#endif
