/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the weights of a checkpoint as float32, by the rows of the GGUF tensors they become: reading, scales, the order of rows
 * in stacks and split kv_b. What no kernel may meet (NaN, negative scales) is an error. Must not know: output formats. */
#ifndef SLUICE_COMMANDS_CONVERT_SOURCE_H
#define SLUICE_COMMANDS_CONVERT_SOURCE_H

#include "common/ops.h"
#include "src/commands/tensor_list.h"

enum { CONVERT_FLOATS = 1 << 17 }; /* most float32 handed over at once, unless one row (or head of attn_k_b) has more */

struct convert_window;

struct convert_source {
    const struct weights *w;
    struct ops ops;
    struct convert_window *windows; /* [workers] what each worker has read */
    uint32_t workers;
};

int convert_source_init(struct convert_source *s, const struct weights *w, uint32_t workers, struct error *e);
void convert_source_deinit(struct convert_source *s);

typedef int (*convert_fn)(void *ctx, const float *values, uint64_t first, size_t n, struct error *e);

/* Hands over elements [first, first + n) of a tensor of the list (whole grains), in order, in runs of whole rows. */
int convert_source_read(const struct convert_source *s, const struct tensor_entry *t, uint64_t first, uint64_t n, uint32_t worker, convert_fn fn,
                        void *ctx, struct error *e);

#endif
