/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: how a matrix lies in a buffer of a tier - aligned, whole, scales beside it - and the view of it.
 * Must not know: which weights there are. */
#ifndef SLUICE_TIER_SLOT_H
#define SLUICE_TIER_SLOT_H

#include <stdint.h>

#include "common/intmath.h"
#include "common/view.h"
#include "src/model/bind.h"
#include "src/tier/load.h"

enum { SLOT_ALIGN = 64, SLOT_PAGE = 4096 };

/* Bytes a matrix takes in a buffer of aligned pieces. */
static inline uint64_t slot_bytes(uint64_t bytes) { return align_up_u64(bytes, SLOT_ALIGN); }

/* Bytes its FP8 scales take; 0 without scales. */
static inline uint64_t slot_scale_bytes(const struct weight_ref *ref) { return slot_bytes(load_scale_count(ref) * sizeof(float)); }

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
