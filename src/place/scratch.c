/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: scratch sizes (scratch.h). Must not know: kernels. */
#include "src/place/scratch.h"

#include <string.h>

#include "common/ops.h"

enum { PANEL_FLOATS = 1 << 20, PARTIAL_BYTES = 64 << 20 };

uint32_t scratch_tile_rows(uint32_t cols)
{
    uint32_t rows = (uint32_t)(PANEL_FLOATS / cols) / 8 * 8;
    return rows < 8 ? 8 : min_u32(rows, TILE_ROWS);
}

static uint32_t max_dense_cols(const struct shape *s)
{
    uint32_t m = max_u32(s->hidden, max_u32(s->q_lora, s->heads * s->v_head));
    m = max_u32(m, max_u32(s->dense_width, s->shared_width));
    return s->mtp_layers ? max_u32(m, 2 * s->hidden) : m;
}

static void sizes_attention(const struct shape *s, const struct scratch_request *r, struct scratch_sizes *z)
{
    size_t rows = r->rows, f = sizeof(float);
    size_t per_row = (size_t)s->heads * z->segments * (s->kv_lora + 2) * f;
    size_t fit = PARTIAL_BYTES / per_row;
    z->attn_rows = fit < 1 ? 1 : (uint32_t)min_u64(fit, OPS_MAX_ROWS);
    z->norm = rows * row_stride(s->hidden) * f;
    z->q_a = s->q_lora ? rows * row_stride(s->q_lora) * f : 0;
    z->q = rows * row_stride(s->heads * shape_q_head(s)) * f;
    z->kv_a = rows * row_stride(s->kv_lora + s->rope) * f;
    z->heads = rows * row_stride(s->heads * s->v_head) * f;
    z->q_latent = (size_t)z->attn_rows * s->heads * s->kv_lora * f;
    z->part_m = z->part_z = (size_t)z->attn_rows * s->heads * z->segments * f;
    z->part_u = (size_t)z->attn_rows * s->heads * z->segments * s->kv_lora * f;
    z->out = rows * row_stride(s->hidden) * f;
}

static void sizes_ffn(const struct shape *s, const struct scratch_request *r, struct scratch_sizes *z)
{
    size_t rows = r->rows, f = sizeof(float), k = s->experts ? s->experts_used : 0, mid = rows * k;
    z->gate = z->up = rows * row_stride(max_u32(s->dense_width, s->shared_width)) * f;
    z->router_logits = rows * s->experts * f;
    z->ids = rows * k * sizeof(int32_t);
    z->weights = rows * k * f;
    z->expert_mid = mid * row_stride(s->expert_width) * f;
    z->expert_out = mid * row_stride(s->hidden) * f;
    z->mid_q = 2 * mid * row_stride(s->expert_width);
    z->mid_scale = 2 * mid * (row_stride(s->expert_width) / 32) * f;
    z->mid_bsum = 2 * mid * (row_stride(s->expert_width) / 16) * sizeof(int16_t);
    z->moe_lists = (mid * 4 + (size_t)s->experts * 4 + 64) * sizeof(uint32_t);
}

static void sizes_worker(const struct shape *s, const struct scratch_request *r, struct scratch_sizes *z)
{
    size_t f = sizeof(float), head = ((size_t)s->nope + s->v_head) * s->kv_lora;
    z->worker_cols = max_u32(max_u32(s->hidden, s->expert_width), max_u32(s->kv_lora, s->nope));
    z->panel_floats = (size_t)max_u64(PANEL_FLOATS, 8 * (uint64_t)max_u32(z->max_cols, s->expert_width));
    z->panel_floats = (size_t)max_u64(z->panel_floats, head);
    z->panel = z->panel_floats * f;
    z->gather = (size_t)MOE_ROW_BLOCK * row_stride(z->worker_cols) * f;
    z->tile = (size_t)MOE_ROW_BLOCK * 2 * TILE_ROWS * f;
    z->attn = (size_t)KV_PAGE * (s->kv_lora + s->rope) * f;
    size_t per_t = s->kv_lora + s->rope + (size_t)s->nope + s->v_head;
    size_t per_row = BULK_T + max_u32(s->kv_lora, s->v_head) + (size_t)s->kv_lora + 2;
    z->bulk = (BULK_T * per_t + r->ubatch * per_row) * f;
    z->router = (2 * (size_t)s->experts + s->groups) * f;
    z->w_q = (size_t)OPS_MAX_ROWS * row_stride(z->worker_cols);
    z->w_scale = (size_t)OPS_MAX_ROWS * (row_stride(z->worker_cols) / 32) * f;
    z->w_bsum = (size_t)OPS_MAX_ROWS * (row_stride(z->worker_cols) / 16) * sizeof(int16_t);
}

void scratch_sizes(const struct shape *s, const struct scratch_request *r, struct scratch_sizes *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->segments = (uint32_t)ceil_div_u64(max_u32(r->context, 1), (uint64_t)KV_PAGE * KV_SEGMENT_PAGES);
    ret->max_cols = max_dense_cols(s);
    sizes_attention(s, r, ret);
    sizes_ffn(s, r, ret);
    sizes_worker(s, r, ret);
    size_t rows = r->rows, wide = row_stride(ret->max_cols);
    ret->mtp_in = s->mtp_layers ? rows * row_stride(2 * s->hidden) * sizeof(float) : 0;
    ret->logits = (size_t)OPS_MAX_ROWS * s->vocab * sizeof(float);
    ret->form_q = 2 * rows * wide;
    ret->form_scale = 2 * rows * (wide / 32) * sizeof(float);
    ret->form_bsum = 2 * rows * (wide / 16) * sizeof(int16_t);
#define X(name) ret->total += align_up_u64(ret->name, 64);
    SCRATCH_BUFFERS(X)
#undef X
    uint64_t worker = 0;
#define X(name) worker += align_up_u64(ret->name, 64);
    SCRATCH_WORKER_BUFFERS(X)
#undef X
    ret->total += worker * r->workers;
}

uint64_t scratch_step_bytes(const struct shape *s, uint32_t rows)
{
    /* residual stream, states after the final norm, MTP residual; rows' bookkeeping is below 64 bytes each */
    uint64_t width = row_stride(s->hidden) * sizeof(float);
    return rows * (width * (s->mtp_layers ? 3 : 2) + 64);
}
