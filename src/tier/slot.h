/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: how a matrix lies in a buffer of a tier - whole, placed for direct reads, scales in another buffer - and the view of it.
 * Must not know: which weights there are. */
#ifndef SLUICE_TIER_SLOT_H
#define SLUICE_TIER_SLOT_H

#include <stdint.h>

#include "common/intmath.h"
#include "common/view.h"
#include "src/model/names.h"
#include "src/tier/load.h"

enum { SLOT_ALIGN = 64, SLOT_PAGE = 4096, SLOT_DIRECT_BYTES = 1 << 20 };

/* Where a matrix starts in a page-aligned buffer whose first `at` bytes are taken. Large ones keep their file position
 * modulo a page, so that O_DIRECT reads go straight into place; kernels need no alignment. */
static inline uint64_t slot_start(uint64_t at, const struct weight_ref *ref)
{
    return ref->bytes < SLOT_DIRECT_BYTES ? align_up_u64(at, SLOT_ALIGN) : at + ((ref->offset - at) & (SLOT_PAGE - 1));
}

/* The same for its FP8 scales; they take load_scale_count() floats. */
static inline uint64_t slot_scale_start(uint64_t at) { return align_up_u64(at, SLOT_ALIGN); }
static inline uint64_t slot_scale_bytes(const struct weight_ref *ref) { return load_scale_count(ref) * sizeof(float); }

/* All rows of `ref` at `data`, scales at `scale` (ignored without scales). */
static inline struct matrix_view slot_view(const struct weight_ref *ref, const void *data, const float *scale)
{
    return (struct matrix_view){
        .data = data,
        .row_bytes = (size_t)(ref->bytes / ref->rows),
        .scale = ref->scale != NULL ? scale : NULL,
        .scale_cols = ref->scale != NULL ? (uint32_t)ceil_div_u64(ref->cols, FORMAT_SCALE_BLOCK) : 0,
        .rows = ref->rows,
        .cols = ref->cols,
        .format = ref->format,
    };
}

#endif
