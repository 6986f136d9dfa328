/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: writing a safetensors file: declare, begin, append the data in order, finish. The file appears whole or not at all.
 * Must not know: what the tensors are. */
#ifndef SLUICE_IO_SAFETENSORS_WRITE_H
#define SLUICE_IO_SAFETENSORS_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "src/base/str.h"

struct safetensors_writer;

/* Without a path only the header is made (safetensors_writer_render). */
int safetensors_writer_create(const char *path, struct safetensors_writer **ret, struct error *e);
/* Removes what an unfinished file left behind. Accepts NULL. */
void safetensors_writer_destroy(struct safetensors_writer *w);

/* dims in C order; dtype as in safetensors.h: "F32", "I32", "BF16". Names are UTF-8 and given once each. */
int safetensors_writer_declare(struct safetensors_writer *w, const char *name, const char *dtype, const uint64_t *dims, uint32_t n_dims,
                               struct error *e);

/* The length field and the header; the data of the tensors follows in the order of declaration, without gaps. */
int safetensors_writer_render(const struct safetensors_writer *w, struct str *out, struct error *e);

/* After all declarations: writes the header. */
int safetensors_writer_begin(struct safetensors_writer *w, struct error *e);

/* The data of all tensors in the order of declaration, in pieces of any size. */
int safetensors_writer_append(struct safetensors_writer *w, const void *data, size_t bytes, struct error *e);

/* Everything declared must have been appended; with header_only nothing. */
int safetensors_writer_finish(struct safetensors_writer *w, bool header_only, struct error *e);

#endif
