/* SPDX-License-Identifier: Apache-2.0 */
/* Template over cpu/x86/bulk_<isa>.h. Owns: products of many activation rows with integer blocks: sixteen weight rows by
 * BULK_COLS columns are unpacked to a panel that stays in the first cache while all activation rows pass over it. Must not
 * know: how a format is packed (bulk_unpack_tmpl.h).
 *
 * An int32 lane is a weight row; four bytes of an activation row are broadcast to all lanes. Sums of codes are integers
 * and the float steps of an output follow one another in rising column order, so neither the cut into panels nor the
 * instruction set shows in the result; cpu/ref_bulk.c is the definition. */
#ifndef SLUICE_CPU_BULK_TMPL_H
#define SLUICE_CPU_BULK_TMPL_H

#include "common/intmath.h"
#include "common/ops.h"
#include "cpu/bulk_kind.h"

/* Panel of `blocks` blocks of 16 weight rows, row_bytes apart. */
#define BULK_UNPACK(name) void name(const uint8_t *w, size_t row_bytes, uint32_t blocks, struct bulk_panel *ret)

/* What a few activation rows bring to a panel beside their codes, in one place: their loads do not wait for stores to y. */
struct bulk_act {
    float scale[BULK_ROWS][BULK_COLS / 32]; /* [blocks] */
    union {
        int32_t start[BULK_COLS / 32]; /* [blocks] of 32: minus the offset times the sum of the block */
        float sum[BULK_COLS / 32];     /* [blocks] of 32: the sum of the block */
        int16_t sums[BULK_COLS / 16];  /* [blocks, 16] of 256: by 16, or, for groups of 32, as bulk_pair_sums writes them */
    } by[BULK_ROWS];
};

SIMD_INLINE void bulk_act_sums(struct bulk_kind kind, const int16_t *bsum16, uint32_t blocks, int32_t offset, uint32_t i, struct bulk_act *ret)
{
    for (uint32_t b = 0; b < blocks; b++) {
        if (kind.block == 256 && kind.group == 32) {
            bulk_pair_sums(bsum16 + 16 * b, ret->by[i].sums + 16 * b);
        } else if (kind.block == 256) {
            memcpy(ret->by[i].sums + 16 * b, bsum16 + 16 * b, 16 * sizeof(*bsum16));
        } else if (kind.sum == BULK_SUM_OFFSET) {
            ret->by[i].start[b] = -offset * (bsum16[2 * b] + bsum16[2 * b + 1]);
        } else {
            ret->by[i].sum[b] = (float)(bsum16[2 * b] + bsum16[2 * b + 1]);
        }
    }
}

SIMD_INLINE void bulk_act_init(struct bulk_kind kind, const struct act_rows *act, uint32_t blocks, uint32_t rows, int32_t offset, struct bulk_act *ret)
{
    SIMD_UNROLL
    for (uint32_t i = 0; i < rows; i++) {
        memcpy(ret->scale[i], act->scale + i * (act->stride / kind.block), blocks * sizeof(*act->scale));
        if (kind.sum != BULK_SUM_NONE) {
            bulk_act_sums(kind, act->bsum16 + i * (act->stride / 16), blocks, offset, i, ret);
        }
    }
}

/* Sum over the groups of block b, which has 256 columns, of factor times activation sum. */
SIMD_INLINE struct vi bulk_by_sum(struct bulk_kind kind, const struct bulk_panel *p, const struct bulk_act *act, uint32_t i, size_t b)
{
    const uint32_t pairs = 256 / kind.group / 2;
    const int16_t *sums = act->by[i].sums + 16 * b;
    struct vi total = vi_zero();
    SIMD_UNROLL
    for (uint32_t k = 0; k < pairs; k++) {
        uint32_t at = kind.group == 16 ? 2 * k : bulk_pair_at(2 * k);
        total = vi_madd(total, vi_load(p->by_sum[b * pairs + k]), bulk_broadcast(sums + at));
    }
    return total;
}

/* Where the integer sum of activation row i starts in block b. */
SIMD_INLINE struct vi bulk_start(struct bulk_kind kind, const struct bulk_panel *p, const struct bulk_act *act, uint32_t i, size_t b)
{
    if (kind.is_signed) {
        return vi_load(p->start[b]);
    }
    return kind.sum == BULK_SUM_OFFSET && kind.block == 32 ? bulk_broadcast(&act->by[i].start[b]) : vi_zero();
}

/* y (16 outputs of activation row i) after block b, whose integer sum is total. */
SIMD_INLINE void bulk_step(struct bulk_kind kind, const struct bulk_panel *p, const struct bulk_act *act, uint32_t i, size_t b, struct vi total, float *y)
{
    struct vf a = vf_set1(act->scale[i][b]);
    if (kind.sum == BULK_SUM_OFFSET && kind.block == 256) {
        total = vi_sub32(total, bulk_by_sum(kind, p, act, i, b));
    }
    struct vf out = vf_fma(vf_mul(vf_load(p->d[b]), a), vf_from_i32(total), vf_load(y));
    if (kind.sum == BULK_SUM_MIN) {
        struct vf sum = kind.block == 256 ? vf_from_i32(bulk_by_sum(kind, p, act, i, b)) : vf_set1(act->by[i].sum[b]);
        out = vf_fma(vf_mul(vf_load(p->min[b]), a), sum, out);
    }
    vf_store(y, out);
}

/* total += scale times the products of kind.run lines, from `code` on, with the activations from q[i] + col on. One or two lines
 * stay in registers while the rows pass, so that a part lives for one row. */
SIMD_INLINE void bulk_short_run(struct bulk_kind kind, const uint8_t *code, struct vi scale, const int8_t *const q[], size_t col, uint32_t rows, struct vi total[])
{
    struct bulk_code w[2];
    SIMD_UNROLL
    for (uint32_t l = 0; l < kind.run; l++) {
        w[l] = bulk_code(vi_load(code + 64 * l), kind.is_signed);
    }
    SIMD_UNROLL
    for (uint32_t i = 0; i < rows; i++) {
        struct vi part = vi_zero();
        SIMD_UNROLL
        for (uint32_t l = 0; l < kind.run; l++) {
            part = bulk_dot(part, w[l], bulk_broadcast(q[i] + col + 4 * l), kind.is_signed);
        }
        total[i] = bulk_widen(total[i], part, scale);
    }
}

/* The same of more lines: a line at a time, and a part for each row. */
SIMD_INLINE void bulk_long_run(struct bulk_kind kind, const uint8_t *code, struct vi scale, const int8_t *const q[], size_t col, uint32_t rows, struct vi total[])
{
    struct vi part[BULK_ROWS];
    SIMD_UNROLL
    for (uint32_t l = 0; l < kind.run; l++) {
        struct bulk_code w = bulk_code(vi_load(code + 64 * l), kind.is_signed);
        SIMD_UNROLL
        for (uint32_t i = 0; i < rows; i++) {
            part[i] = bulk_dot(l == 0 ? vi_zero() : part[i], w, bulk_broadcast(q[i] + col + 4 * l), kind.is_signed);
            total[i] = l + 1 == kind.run ? bulk_widen(total[i], part[i], scale) : total[i];
        }
    }
}

/* `rows` activation rows, which start at the panel's first column, times the panel. */
SIMD_INLINE void bulk_rows(struct bulk_kind kind, const struct bulk_panel *p, uint32_t blocks, const struct act_rows *act, uint32_t rows, float *y, size_t y_stride)
{
    const uint32_t groups = kind.block / kind.group, runs = kind.group / 4 / kind.run;
    const uint8_t *scales = p->scale[0];
    const int8_t *q[BULK_ROWS];
    struct bulk_act by_row;
    bulk_act_init(kind, act, blocks, rows, p->offset, &by_row);
    SIMD_UNROLL
    for (uint32_t i = 0; i < rows; i++) {
        q[i] = act->q + i * act->stride;
    }
    for (size_t b = 0, col = 0; b < blocks; b++) {
        struct vi total[BULK_ROWS];
        SIMD_UNROLL
        for (uint32_t i = 0; i < rows; i++) {
            total[i] = bulk_start(kind, p, &by_row, i, b);
        }
        for (uint32_t g = 0; g < groups; g++, scales += 64) {
            struct vi scale = kind.block == 32 ? bulk_unit_scale() : vi_load(scales);
            SIMD_UNROLL
            for (uint32_t l = 0; l < runs; l++, col += 4 * kind.run) {
                const uint8_t *code = p->code[0] + 16 * col;
                if (kind.run <= 2) {
                    bulk_short_run(kind, code, scale, q, col, rows, total);
                } else {
                    bulk_long_run(kind, code, scale, q, col, rows, total);
                }
            }
        }
        SIMD_UNROLL
        for (uint32_t i = 0; i < rows; i++) {
            bulk_step(kind, p, &by_row, i, b, total[i], y + i * y_stride);
        }
    }
}

typedef void bulk_rows_fn(const struct bulk_panel *p, uint32_t blocks, const struct act_rows *act, float *y, size_t y_stride);

struct bulk_format {
    bulk_rows_fn *const *rows; /* [BULK_ROWS] the kind's functions for 1, 2, .. activation rows */
    BULK_UNPACK((*unpack));
};

/* Rows to take next where `left` remain: as few calls as possible, of nearly equal size. */
SIMD_INLINE uint32_t bulk_share(uint32_t left, uint32_t most)
{
    uint32_t calls = (left + most - 1) / most;
    return (left + calls - 1) / calls;
}

SIMD_INLINE struct act_rows bulk_act_at(const struct act_rows *act, uint32_t row, uint32_t col, uint32_t block)
{
    size_t at = row * act->stride + col;
    return (struct act_rows){.q = act->q + at, .scale = act->scale + at / block, .bsum16 = act->bsum16 + at / 16, .stride = act->stride};
}

/* Weight rows that the panel after this one is unpacked from. */
struct bulk_next {
    const uint8_t *w;
    size_t row_bytes, bytes;
    uint32_t lanes; /* 0: this is the last */
};

/* Asks for them while this panel is multiplied, by shares: products wait for a core that was asked for all of them at once. */
SIMD_INLINE void bulk_prefetch(const struct bulk_next *next, uint32_t begin, uint32_t end, uint32_t n)
{
    for (uint32_t j = next->lanes * begin / n; j < next->lanes * end / n; j++) {
        prefetch(next->w + j * next->row_bytes, next->bytes);
    }
}

/* n activation rows over one panel; y is at the panel's first weight row. */
static void bulk_panel_product(bulk_rows_fn *const *f, const struct bulk_panel *p, uint32_t cols, uint32_t block, const struct act_rows *act, uint32_t n, float *y, size_t y_stride, const struct bulk_next *next)
{
    for (uint32_t i = 0, rows; i < n; i += rows) {
        struct act_rows at = bulk_act_at(act, i, 0, block);
        rows = bulk_share(n - i, BULK_ROWS);
        bulk_prefetch(next, i, i + rows, n);
        f[rows - 1](p, cols / block, &at, y + i * y_stride, y_stride);
    }
}

/* Where fewer than 16 weight rows are left: their bytes with zeros for the others, and outputs of 16 columns. */
enum { BULK_PADDED_BYTES = BULK_LANES * (BULK_COLS / 32) * 34, BULK_PADDED_ROWS = 16 };

static void bulk_unpack_last(const struct bulk_format *f, const uint8_t *w, size_t row_bytes, uint32_t lanes, uint32_t blocks, size_t bytes, struct bulk_panel *ret)
{
    uint8_t padded[BULK_PADDED_BYTES];
    memset(padded, 0, BULK_LANES * bytes);
    for (uint32_t j = 0; j < lanes; j++) {
        memcpy(padded + j * bytes, w + j * row_bytes, bytes);
    }
    f->unpack(padded, bytes, blocks, ret);
}

static void bulk_last_product(const struct bulk_format *f, const struct bulk_panel *p, uint32_t lanes, uint32_t cols, uint32_t block, const struct act_rows *act, uint32_t n, float *y, size_t y_stride)
{
    for (uint32_t i = 0, rows; i < n; i += rows) {
        float part[BULK_PADDED_ROWS][BULK_LANES] = {{0}};
        struct act_rows at = bulk_act_at(act, i, 0, block);
        rows = min_u32(BULK_PADDED_ROWS, n - i);
        for (uint32_t k = 0; k < rows; k++) {
            memcpy(part[k], y + (i + k) * y_stride, lanes * sizeof(float));
        }
        bulk_panel_product(f->rows, p, cols, block, &at, rows, part[0], BULK_LANES, &(struct bulk_next){0});
        for (uint32_t k = 0; k < rows; k++) {
            memcpy(y + (i + k) * y_stride, part[k], lanes * sizeof(float));
        }
    }
}

/* The panel from row r and column col on, which may be past the end. */
static struct bulk_next bulk_next(const struct matvec_args *a, uint32_t r, uint32_t col, uint32_t block, uint32_t block_bytes)
{
    uint32_t cols = min_u32(BULK_COLS, a->w.cols - col);
    return (struct bulk_next){
        .w = (const uint8_t *)a->w.data + r * a->w.row_bytes + (size_t)(col / block) * block_bytes,
        .row_bytes = a->w.row_bytes,
        .bytes = (size_t)(cols / block) * block_bytes,
        .lanes = cols > 0 ? min_u32(BULK_LANES, a->row_end - r) : 0};
}

/* n activation rows, few enough that BULK_COLS columns of them stay in the second cache over all panels that meet them. */
static void bulk_row_block(const struct bulk_format *f, const struct matvec_args *a, const struct act_rows *act, uint32_t n, float *y, uint32_t block, uint32_t block_bytes)
{
    struct bulk_panel panel;
    const uint8_t *data = a->w.data;
    for (uint32_t col = 0, cols; col < a->w.cols; col += cols) {
        cols = min_u32(BULK_COLS, a->w.cols - col);
        size_t bytes = (size_t)(cols / block) * block_bytes, at = (size_t)(col / block) * block_bytes;
        struct act_rows act_at = bulk_act_at(act, 0, col, block);
        for (uint32_t r = a->row_begin, lanes; r < a->row_end; r += lanes) {
            const uint8_t *w = data + (size_t)r * a->w.row_bytes + at;
            lanes = min_u32(BULK_LANES, a->row_end - r);
            if (lanes == BULK_LANES) {
                bool below = r + lanes < a->row_end;
                struct bulk_next next = bulk_next(a, below ? r + lanes : a->row_begin, below ? col : col + cols, block, block_bytes);
                f->unpack(w, a->w.row_bytes, cols / block, &panel);
                bulk_panel_product(f->rows, &panel, cols, block, &act_at, n, y + r, a->y_stride, &next);
            } else {
                bulk_unpack_last(f, w, a->w.row_bytes, lanes, cols / block, bytes, &panel);
                bulk_last_product(f, &panel, lanes, cols, block, &act_at, n, y + r, a->y_stride);
            }
        }
    }
}

static void bulk_product(const struct bulk_format *f, const struct matvec_args *a, uint32_t block, uint32_t block_bytes)
{
    for (uint32_t i = 0, n; i < a->n; i += n) {
        struct act_rows act = bulk_act_at(&a->act, i, 0, block);
        float *y = a->y + i * a->y_stride;
        n = min_u32(BULK_ROW_BLOCK, a->n - i);
        for (uint32_t k = 0; k < n; k++) {
            memset(y + k * a->y_stride + a->row_begin, 0, (a->row_end - a->row_begin) * sizeof(float));
        }
        bulk_row_block(f, a, &act, n, y, block, block_bytes);
    }
}

#endif
