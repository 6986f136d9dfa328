/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading ranges of checkpoint files into buffers at open time - large reads, several in flight, progress, cancel,
 * NaN checks of FP8 codes and scales as they arrive. Must not know: who computes with them. */
#ifndef SLUICE_TIER_LOAD_H
#define SLUICE_TIER_LOAD_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/error.h"
#include "common/log.h"
#include "common/view.h"
#include "io/reader.h"
#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/model/bind.h"

struct loader {
    struct reader *reader;
    struct account *account;
    const struct log *log;
    struct clock clock;
    const atomic_int *cancel; /* ERROR_INTERRUPTED when it becomes non-zero */
    void (*progress)(void *ctx, uint64_t done, uint64_t total, double seconds); /* may be NULL */
    void *progress_ctx;
    uint64_t done, total;     /* bytes, kept by load_* */
};

struct load_item {
    struct weight_ref ref;
    void *data; /* [ref.bytes] */
};

/* Reads all items, in file order, largest reads first in flight; checks F8 NaN codes. Error names file, tensor, offset. */
int load_matrices(struct loader *l, const struct load_item *items, size_t n, struct error *e);

/* Vector (norm, bias) as float32 into out [ref.cols]. NaN or Inf is refused by name. */
int load_vector(struct loader *l, const struct weight_ref *ref, float *out, struct error *e);

/* FP8 scales as float32 into out [ceil(rows/128), ceil(cols/128)]. NaN, Inf or negative is refused with tensor and block. */
int load_scales(struct loader *l, const struct weight_ref *ref, float *out, struct error *e);

#endif
