/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: one args struct per operation and the table that every instruction set (and the GPU) fills.
 * Arithmetic to the bit: docs/numerics.md. Must not know: who calls, which ISA answers, threads.
 *
 * General rules: all buffers are the caller's; outputs never overlap inputs unless said so; no alignment beyond the
 * element's own is required; n == 0 rows is allowed and does nothing. Rows are computed independently: the bits of a
 * row do not depend on the other rows of the call, nor on [row_begin, row_end). Functions keep no state. */
#ifndef SLUICE_COMMON_OPS_H
#define SLUICE_COMMON_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/view.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { OPS_MAX_ROWS = 8 }; /* activation rows a matvec takes at once */

/* Activation rows in the forms a weight format may need. Block = weight_format_info.act_block of that format.
 * q, scale and bsum16 are written by `quantise`; x is always there. */
struct act_rows {
    const float *x;        /* [n, stride] float32 */
    const int8_t *q;       /* [n, stride]; NULL if only float formats will read it */
    const float *scale;    /* [n, stride/block], entry b of a row belongs to elements [b*block, (b+1)*block) */
    const int16_t *bsum16; /* [n, stride/16] sums of 16 q */
    size_t stride;         /* elements from row to row: >= cols, a multiple of 256 when q is used */
};

/* int8 quantisation of n rows in blocks of `block` (32 or 256): numerics.md, Types. cols is a multiple of block. */
struct quantise_args {
    const float *x; /* [n, stride] */
    int8_t *q;      /* [n, stride] */
    float *scale;   /* [n, stride/block] */
    int16_t *bsum16; /* [n, stride/16] */
    size_t stride;
    uint32_t n, cols, block;
};

/* y[i, r] = w row r . act row i, for r in [row_begin, row_end) of the view, i in [0, n), n <= OPS_MAX_ROWS. */
struct matvec_args {
    struct matrix_view w; /* [rows, cols] */
    struct act_rows act;  /* [n, cols] */
    float *y;             /* [n, y_stride], only columns [row_begin, row_end) are written */
    size_t y_stride;
    uint32_t n;
    uint32_t row_begin, row_end;
};

/* Transposed product y[c] = sum_d x[d] w(d, c), d rising (absorbed UK^T q). One activation row. */
struct matvec_t_args {
    struct matrix_view w; /* [rows, cols] */
    const float *x;       /* [rows] */
    float *y;             /* [cols] */
};

/* y[r - row_begin, c] = w(r, c) as float32 for rows [row_begin, row_end): each product rounded, no FMA. */
struct dequantise_args {
    struct matrix_view w;
    float *y; /* [row_end - row_begin, cols] */
    uint32_t row_begin, row_end;
};

typedef void dequantise_fn(const struct dequantise_args *);

enum { BULK_F32_COLS = 256 }; /* columns of one chain of FMA in bulk_f32; its parts are added in rising order */

/* y = rmsnorm(x) * w per row; y may be x. */
struct rmsnorm_args {
    const float *x; /* [n, x_stride] */
    const float *w; /* [cols] */
    float *y;       /* [n, y_stride] */
    size_t x_stride, y_stride;
    uint32_t n, cols;
    float eps;
};

/* Rotates, in place, `heads` slices of `dim` elements `head_stride` apart; pairs are (2j, 2j+1), or (j, j + dim/2)
 * when `half_split`. */
struct rope_args {
    float *x;             /* [heads, head_stride], the slice starts at element 0 */
    const float *cos_sin; /* [dim/2, 2]: cos, sin of this position */
    size_t head_stride;
    uint32_t heads, dim;
    bool half_split;
};

/* y[i] = (g*sigmoid(g))*u; y may be gate or up. */
struct swiglu_args {
    const float *gate, *up; /* [n] */
    float *y;               /* [n] */
    size_t n;
};

/* y[i] = exp((x[i] - minus) / over), exp of exact.h; y may be x. */
struct exp_args {
    const float *x; /* [n] */
    float *y;       /* [n] */
    size_t n;
    float minus, over;
};

/* ---- latent KV ---- */

enum kv_type { KV_F32, KV_BF16, KV_F16, KV_Q8_0, KV_TYPE_COUNT };

enum { KV_PAGE = 64, KV_SEGMENT_PAGES = 16 }; /* positions per page (= one chunk of attention); pages per segment */

/* Shape of one cached row: latent (normalised), then rotated key. */
struct kv_layout {
    enum kv_type type;
    uint32_t latent, rope; /* elements */
    size_t row_bytes;      /* kv_row_bytes() */
};

struct kv_store_args {
    struct kv_layout layout;
    const float *latent; /* [layout.latent] */
    const float *rope;   /* [layout.rope] */
    void *row;           /* row_bytes */
};

/* n consecutive rows to float32: y[i] = latent then rope, y_stride elements apart. */
struct kv_load_args {
    struct kv_layout layout;
    const void *rows;
    float *y; /* [n, y_stride] */
    size_t y_stride;
    uint32_t n;
};

/* Absorbed attention of one query position over ONE segment (16 pages aligned to position 0), for `heads` heads.
 * Result per head: running maximum, sum and weighted latents of the segment; segments are joined by attn_merge. */
struct attn_segment_args {
    struct kv_layout layout;
    const void *const *pages; /* rows of this layer in each page of the segment: ceil(n/64) pointers */
    uint32_t n;               /* positions of this segment that the query sees: 1..1024 */
    const float *q_latent;    /* [heads, latent]: UK^T q */
    const float *q_rope;      /* [heads, q_rope_stride]: rotated */
    size_t q_rope_stride;
    float *scratch;           /* [KV_PAGE, latent + rope] */
    float *m, *z;             /* [heads] */
    float *u;                 /* [heads, latent] */
    float scale;
    uint32_t heads;
};

/* Merge segments in rising order and divide: y[c] = U[c] / Z. */
struct attn_merge_args {
    const float *m, *z; /* [segments] at stride m_stride */
    const float *u;     /* [segments, latent] at stride u_stride */
    size_t m_stride, u_stride;
    float *y; /* [latent] */
    uint32_t segments, latent;
};

/* Softmax of bulk attention over one tile of positions: scores become exp(s - M), M the largest of the row so far; what was
 * accumulated before is brought to the new M. Sums by dot16's lanes and tree. Row i sees seen + i positions, n at most. */
struct attn_softmax_args {
    float *s;    /* [rows, s_stride] scores, then weights: 0 at positions that are not seen */
    float *acc;  /* [rows, width] *= exp(M before - M) */
    float *m, *z; /* [rows] largest, sum of weights: -inf and 0 before the first tile */
    size_t s_stride;
    uint32_t rows, n, seen, width; /* seen >= 1 */
};

/* ---- router ---- */

enum router_score { ROUTER_SOFTMAX, ROUTER_SIGMOID };
enum router_group { ROUTER_GROUP_SUM2, ROUTER_GROUP_MAX }; /* group score: two largest, or the largest */

struct router_args {
    const float *logits; /* [experts] float32 */
    const float *bias;   /* [experts] added for choosing only; NULL: none */
    float *scratch;      /* [2 * experts + groups] */
    int32_t *ids;        /* [k] rising */
    float *weights;      /* [k] */
    uint32_t experts, k, groups, groups_used;
    enum router_score score;
    enum router_group group;
    bool normalise;
    float factor;
};

/* y[c] = residual[c] + (shared[c] + sum_i w[i] e[i, c]); fma from +0 by rising i, then + shared, then + residual.
 * shared may be NULL (nothing is added). y may be residual. */
struct expert_sum_args {
    const float *e; /* [k, e_stride] */
    const float *w; /* [k] */
    const float *shared, *residual; /* [cols] */
    float *y;                       /* [cols] */
    size_t e_stride;
    uint32_t k, cols;
};

/* y[i] += x[i] */
struct add_args {
    const float *x;
    float *y;
    size_t n;
};

/* Float GEMM of bulk rows: Y[m, n] (+)= X[m, k] * op(B), op(B) = B^T of B[n, k] if b_rows_are_outputs, else B[k, n]. */
struct gemm_args {
    const float *x; /* [m, x_stride] */
    const float *b;
    float *y; /* [m, y_stride] */
    size_t x_stride, b_stride, y_stride;
    uint32_t m, n, k;
    bool b_rows_are_outputs;
    float alpha, beta;
};

struct ops {
    const char *isa; /* "scalar", "avx2", "avx512" */
    void (*quantise)(const struct quantise_args *);
    void (*matvec[FORMAT_COUNT])(const struct matvec_args *);       /* exact; int8 activations for integer blocks */
    void (*matvec_f32[FORMAT_COUNT])(const struct matvec_args *);   /* exact, --activations f32; reads act.x only */
    void (*matvec_t[FORMAT_COUNT])(const struct matvec_t_args *);   /* exact */
    dequantise_fn *dequantise[FORMAT_COUNT];
    void (*bulk[FORMAT_COUNT])(const struct matvec_args *); /* any n; int8 activations; NULL for float formats */
    void (*bulk_f32)(const struct matvec_args *, dequantise_fn *of_format); /* any n and format; reads act.x only */
    /* Any n, reads act.x only, rounds to bfloat16: to be preferred. NULL: no units for it, or not for this format. */
    void (*bulk_bf16[FORMAT_COUNT])(const struct matvec_args *, dequantise_fn *of_format);
    const char *bf16_units; /* of bulk_bf16, they decide its bits: "avx512-bf16", "amx"; NULL: none */
    float (*dot16)(const float *a, const float *b, size_t n);
    void (*rmsnorm)(const struct rmsnorm_args *);
    void (*rope)(const struct rope_args *);
    void (*swiglu)(const struct swiglu_args *);
    void (*exp)(const struct exp_args *);
    void (*kv_store[KV_TYPE_COUNT])(const struct kv_store_args *);
    void (*kv_load[KV_TYPE_COUNT])(const struct kv_load_args *);
    void (*attn_segment)(const struct attn_segment_args *);
    void (*attn_merge)(const struct attn_merge_args *);
    void (*attn_softmax)(const struct attn_softmax_args *);
    void (*router)(const struct router_args *);
    void (*expert_sum)(const struct expert_sum_args *);
    void (*add)(const struct add_args *);
    void (*gemm)(const struct ops *, const struct gemm_args *); /* bulk rows only; single-threaded; needs cpu_blas_open */
    void (*blas_sgemm)(void); /* what gemm calls; only it knows the type */
    /* Softmax of bulk attention scores is written in src/run/mla_bulk.c on top of exact.h. */
};

/* Bytes of one cached row: 4, 2, 2 bytes per element, or q8_0 blocks of 32 (2 + n bytes, the last of each part shorter). */
size_t kv_row_bytes(enum kv_type type, uint32_t latent, uint32_t rope);

const char *kv_type_name(enum kv_type type); /* "f32", "bf16", "f16", "q8_0" */

#ifdef __cplusplus
}
#endif

#endif
