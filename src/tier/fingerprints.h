/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: fingerprints of a model's weights - XXH3-64 of every tensor, and of each expert's part of a stacked one -, the file beside the
 * model that holds them, and whether bytes in memory are those it was written for. The file: docs/formats.md. Immutable once open,
 * so any thread may check. Must not know: how bytes are read, where they are kept. */
#ifndef SLUICE_TIER_FINGERPRINTS_H
#define SLUICE_TIER_FINGERPRINTS_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/view.h"
#include "io/container.h"
#include "src/model/names.h"

struct fingerprints;

/* Parts of a tensor with a fingerprint each, all of the same size: experts of a stack, else 1. */
uint32_t fingerprints_parts(const struct container *c, const struct tensor *t);

/* Path of the file that belongs to a container: MODEL.gguf.sluice-xxh, or model.sluice-xxh in a folder of safetensors. The caller
 * frees; NULL: no memory. */
char *fingerprints_path(const struct container *c);

/* values: for each tensor of c, in its order, [fingerprints_parts]. */
int fingerprints_write(const struct container *c, const uint64_t *const *values, struct error *e);

/* Reads the files of all containers that have one; *ret is NULL when none has. ERROR_FORMAT for a file that is damaged, of another
 * model, or of files with other sizes. The containers stay open as long. */
int fingerprints_open(struct container *const *containers, uint32_t n, struct fingerprints **ret, struct error *e);
void fingerprints_close(struct fingerprints *f);

/* The checks: 0 when the bytes are right, when f is NULL and when the container has no fingerprints; else ERROR_FORMAT, which names
 * file - of copies the one that is damaged; they are read again -, tensor, layer and expert, what was found and what is expected. */
int fingerprints_check_value(const struct fingerprints *f, const struct file *file, uint64_t offset, const char *name, uint64_t value, struct error *e);
int fingerprints_check_bytes(const struct fingerprints *f, const struct file *file, uint64_t offset, const char *name, const void *data,
                             size_t bytes, struct error *e); /* a whole part, as it lies in the file */
int fingerprints_check_matrix(const struct fingerprints *f, const struct weight_ref *ref, const struct weight_view *v, struct error *e);
int fingerprints_check_expert(const struct fingerprints *f, const struct expert_refs *refs, const struct weight_view part[3], struct error *e); /* gate, up, down */

#endif
