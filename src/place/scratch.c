/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: scratch sizes (scratch.h). Must not know: kernels. */
#include "src/place/scratch.h"

#include <string.h>

#include "common/ops.h"

enum { PARTIAL_BYTES = 64 << 20, FORMS = 2 /* int8 block lengths: 32 and 256 */ };

static uint32_t max_dense_cols(const struct shape *s)
{
    uint32_t m = max_u32(s->hidden, max_u32(s->q_lora, s->heads * s->v_head));
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
    z->router_logits = rows * s->experts * f;
    z->ids = rows * k * sizeof(int32_t);
    z->weights = rows * k * f;
    size_t ffn = row_stride(max_u32(s->dense_width, s->shared_width)), expert = row_stride(s->expert_width);
    z->ffn_mid = rows * ffn * f;
    z->ffn_q = FORMS * rows * ffn;
    z->ffn_scale = FORMS * rows * (ffn / 32) * f;
    z->ffn_bsum = FORMS * rows * (ffn / 16) * sizeof(int16_t);
    z->expert_mid = mid * expert * f;
    z->expert_q = FORMS * mid * expert;
    z->expert_scale = FORMS * mid * (expert / 32) * f;
    z->expert_bsum = FORMS * mid * (expert / 16) * sizeof(int16_t);
    z->expert_out = mid * row_stride(s->hidden) * f;
    z->moe_lists = (mid * 4 + (size_t)s->experts * 4 + 64) * sizeof(uint32_t);
}

static void sizes_worker(const struct shape *s, const struct scratch_request *r, struct scratch_sizes *z)
{
    size_t f = sizeof(float), head = ((size_t)s->nope + s->v_head) * s->kv_lora;
    z->worker_cols = max_u32(max_u32(s->hidden, s->expert_width), max_u32(s->kv_lora, s->nope));
    z->panel_floats = (size_t)max_u64(WEIGHT_TILE_ELEMENTS, 8 * (uint64_t)max_u32(max_u32(z->max_cols, s->expert_width), max_u32(s->dense_width, s->shared_width)));
    z->panel_floats = (size_t)max_u64(z->panel_floats, head);
    z->panel = z->panel_floats * f;
    z->gather = (size_t)MOE_ROW_BLOCK * row_stride(z->worker_cols) * f;
    z->tile = (size_t)MOE_ROW_BLOCK * 2 * WEIGHT_TILE_ROWS * f;
    z->attn = (size_t)KV_PAGE * (s->kv_lora + s->rope) * f;
    size_t per_t = s->kv_lora + s->rope + (size_t)s->nope + s->v_head;
    size_t per_row = BULK_T + max_u32(s->kv_lora, s->v_head) + (size_t)s->kv_lora + 2;
    z->bulk = (BULK_T * per_t + r->ubatch * per_row) * f;
    z->router = (2 * (size_t)s->experts + s->groups) * f;
    z->w_q = (size_t)MOE_ROW_BLOCK * row_stride(z->worker_cols);
    z->w_scale = (size_t)MOE_ROW_BLOCK * (row_stride(z->worker_cols) / 32) * f;
    z->w_bsum = (size_t)MOE_ROW_BLOCK * (row_stride(z->worker_cols) / 16) * sizeof(int16_t);
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
    ret->form_q = FORMS * rows * wide;
    ret->form_scale = FORMS * rows * (wide / 32) * sizeof(float);
    ret->form_bsum = FORMS * rows * (wide / 16) * sizeof(int16_t);
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

uint64_t scratch_draft_bytes(const struct shape *s, uint32_t drafts)
{
    return drafts == 0 ? 0 : ((uint64_t)DRAFT_STATES * s->hidden + (uint64_t)drafts * s->vocab) * sizeof(float);
}
