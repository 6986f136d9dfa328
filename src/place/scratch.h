/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the sizes of the token loop's scratch buffers, as arithmetic on the shape: the plan counts them, src/run/work
 * carves them. Must not know: what is computed in them. */
#ifndef SLUICE_PLACE_SCRATCH_H
#define SLUICE_PLACE_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#include "common/intmath.h"
#include "common/view.h"
#include "src/model/shape.h"

enum {
    BULK_T = 256,        /* cached positions of one tile of bulk attention */
    MOE_ROW_BLOCK = 128, /* rows of an expert per GEMM */
    EXTRA_ROWS = 64,     /* rows of a step beyond one prompt chunk: decodes beside a prefill */
    DRAFT_STATES = 16,   /* positions of a timeline that drafts, whose states are kept */
};

/* Distance of activation rows in elements: int8 blocks of 256 start aligned. */
static inline size_t row_stride(uint32_t cols) { return (size_t)align_up_u64(cols, 256); }

/* Every buffer with its bytes; the comment in src/run/work.h gives its shape. */
#define SCRATCH_BUFFERS(X) \
    X(norm) X(q_a) X(q) X(kv_a) X(heads) X(q_latent) X(part_m) X(part_z) X(part_u) X(out) X(router_logits) X(ids) X(weights) \
    X(ffn_mid) X(ffn_q) X(ffn_scale) X(ffn_bsum) X(expert_mid) X(expert_q) X(expert_scale) X(expert_bsum) X(expert_out) \
    X(mtp_in) X(logits) X(form_q) X(form_scale) X(form_bsum) X(moe_lists)

#define SCRATCH_WORKER_BUFFERS(X) \
    X(panel) X(gather) X(tile) X(attn) X(bulk) X(router) X(w_q) X(w_scale) X(w_bsum)

struct scratch_request {
    uint32_t rows;    /* rows a step may have: ubatch + EXTRA_ROWS */
    uint32_t ubatch;  /* rows of one bulk chunk */
    uint32_t context; /* positions of a session */
    uint32_t workers;
};

struct scratch_sizes {
#define X(name) size_t name;
    SCRATCH_BUFFERS(X)
    SCRATCH_WORKER_BUFFERS(X) /* of one worker */
#undef X
    uint32_t segments;   /* attention segments of a full context */
    uint32_t attn_rows;  /* exact rows whose attention is open at once: 1..8 */
    uint32_t max_cols;   /* longest activation row of a dense matrix */
    uint32_t worker_cols; /* longest row a worker quantises or gathers */
    size_t panel_floats;
    uint64_t total;      /* all buffers, workers included, each rounded up to 64 bytes */
};

void scratch_sizes(const struct shape *s, const struct scratch_request *r, struct scratch_sizes *ret);

/* State that outlives a layer: residual rows, last hidden states and rows' bookkeeping of one step. */
uint64_t scratch_step_bytes(const struct shape *s, uint32_t rows);

/* What a timeline keeps for drafts: states, and the logits of rows that are ahead of it. */
uint64_t scratch_draft_bytes(const struct shape *s, uint32_t drafts);

#endif
