/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the calls of bench_kernels.h. Must not know: threads, time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "src/commands/bench_kernels.h"
#include "src/commands/synth_blocks.h"

enum { CACHED_BYTES = 96 << 10, PATTERN_ROWS = 16 };

/* ---- weights ---- */

/* Rows of call `index`: the next tile of the worker's memory, or always the same few. */
static struct matrix_view view_of(const struct kernel *k, const struct kernel_place *p, uint64_t index, bool cached)
{
    uint64_t tiles = p->weight_bytes / (k->row_bytes * KERNEL_TILE_ROWS);
    uint64_t at = cached ? 0 : index % tiles * KERNEL_TILE_ROWS * k->row_bytes;
    return (struct matrix_view){
        .data = p->weights + at, .row_bytes = k->row_bytes, .scale = k->format == FORMAT_F8_E4M3 ? k->input->fp8_scale : NULL,
        .scale_cols = KERNEL_COLS / FORMAT_SCALE_BLOCK, .rows = cached ? k->cached_rows : KERNEL_TILE_ROWS, .cols = KERNEL_COLS, .format = k->format};
}

static struct matvec_args matvec_args_of(const struct kernel *k, const struct kernel_place *p, uint64_t index, bool cached)
{
    struct matrix_view w = view_of(k, p, index, cached);
    const struct kernel_input *in = k->input;
    return (struct matvec_args){
        .w = w, .act = {.x = in->x, .q = in->q, .scale = in->scale, .bsum16 = in->bsum16, .stride = KERNEL_COLS},
        .y = p->scratch, .y_stride = KERNEL_TILE_ROWS, .n = k->n, .row_end = w.rows};
}

static void call_matvec(const struct kernel *k, const struct kernel_place *p, uint64_t index, bool cached)
{
    struct matvec_args a = matvec_args_of(k, p, index, cached);
    k->ops->matvec[k->format](&a);
}

static void call_bulk(const struct kernel *k, const struct kernel_place *p, uint64_t index, bool cached)
{
    struct matvec_args a = matvec_args_of(k, p, index, cached);
    if (k->ops->bulk_bf16[k->format] != NULL) {
        k->ops->bulk_bf16[k->format](&a, k->ops->dequantise[k->format]);
    } else if (k->ops->bulk[k->format] != NULL) {
        k->ops->bulk[k->format](&a);
    } else {
        k->ops->bulk_f32(&a, k->ops->dequantise[k->format]);
    }
}

static void call_dequantise(const struct kernel *k, const struct kernel_place *p, uint64_t index, bool cached)
{
    struct matrix_view w = view_of(k, p, index, cached);
    k->ops->dequantise[k->format](&(struct dequantise_args){.w = w, .y = p->scratch, .row_end = w.rows});
}

/* Bulk rows by the BLAS, unpacking included. */
static void call_blas(const struct kernel *k, const struct kernel_place *p, uint64_t index, bool cached)
{
    float *panel = p->scratch + (size_t)KERNEL_BULK_ROWS * KERNEL_TILE_ROWS;
    struct matrix_view w = view_of(k, p, index, cached);
    k->ops->dequantise[k->format](&(struct dequantise_args){.w = w, .y = panel, .row_end = w.rows});
    k->ops->gemm(k->ops, &(struct gemm_args){
        .x = k->input->x, .x_stride = KERNEL_COLS, .b = panel, .b_stride = KERNEL_COLS, .b_rows_are_outputs = true,
        .y = p->scratch, .y_stride = KERNEL_TILE_ROWS, .m = k->n, .n = w.rows, .k = KERNEL_COLS, .alpha = 1});
}

/* ---- attention ---- */

static void call_attention(const struct kernel *k, const struct kernel_place *p, uint64_t index, bool cached)
{
    const void *pages[KV_SEGMENT_PAGES];
    uint64_t segments = p->weight_bytes / (k->row_bytes * KERNEL_POSITIONS);
    const unsigned char *segment = p->weights + (cached ? 0 : index % segments) * KERNEL_POSITIONS * k->row_bytes;
    for (int i = 0; i < KV_SEGMENT_PAGES; i++) {
        pages[i] = segment + (size_t)i * KV_PAGE * k->row_bytes;
    }
    float *m = p->scratch, *z = m + KERNEL_HEADS, *u = z + KERNEL_HEADS, *scratch = u + (size_t)KERNEL_HEADS * KERNEL_LATENT;
    k->ops->attn_segment(&(struct attn_segment_args){
        .layout = {.type = k->kv, .latent = KERNEL_LATENT, .rope = KERNEL_ROPE, .row_bytes = k->row_bytes},
        .pages = pages, .n = KERNEL_POSITIONS, .q_latent = k->input->x, .q_rope = k->input->x + (size_t)KERNEL_HEADS * KERNEL_LATENT,
        .q_rope_stride = KERNEL_ROPE, .scratch = scratch, .m = m, .z = z, .u = u, .scale = 0.01f, .heads = KERNEL_HEADS});
}

/* ---- vectors ---- */

static void call_quantise(const struct kernel *k, const struct kernel_place *p, uint64_t index, bool cached)
{
    int8_t *q = (int8_t *)p->scratch;
    (void)index;
    (void)cached;
    k->ops->quantise(&(struct quantise_args){.x = k->input->x, .q = q, .scale = (float *)(q + KERNEL_COLS), .bsum16 = (int16_t *)(q + 2 * KERNEL_COLS),
                                             .stride = KERNEL_COLS, .n = 1, .cols = KERNEL_COLS, .block = k->n});
}

static void call_rmsnorm(const struct kernel *k, const struct kernel_place *p, uint64_t index, bool cached)
{
    (void)index;
    (void)cached;
    k->ops->rmsnorm(&(struct rmsnorm_args){.x = k->input->x, .w = k->input->x + KERNEL_COLS, .y = p->scratch, .x_stride = KERNEL_COLS,
                                           .y_stride = KERNEL_COLS, .n = 1, .cols = KERNEL_COLS, .eps = 1e-6f});
}

static void call_swiglu(const struct kernel *k, const struct kernel_place *p, uint64_t index, bool cached)
{
    (void)index;
    (void)cached;
    k->ops->swiglu(&(struct swiglu_args){.gate = k->input->x, .up = k->input->x + KERNEL_COLS, .y = p->scratch, .n = KERNEL_COLS});
}

/* ---- the list ---- */

struct list {
    const struct ops *ops;
    const struct kernel_input *in;
    struct kernel *item;
    uint32_t n, room;
};

static struct kernel *add(struct list *l, const char *op, const char *type, kernel_call call)
{
    if (l->n == l->room) {
        return NULL;
    }
    struct kernel *k = &l->item[l->n++];
    *k = (struct kernel){.op = op, .call = call, .ops = l->ops, .input = l->in, .format = FORMAT_NONE, .n = 1};
    snprintf(k->type, sizeof(k->type), "%s", type);
    return k;
}

/* An operation on weights: `per_weight` operations for each, on each of n rows. */
static void add_weights(struct list *l, const char *op, enum weight_format f, uint32_t n, double per_weight, enum peak_kind peak, kernel_call call)
{
    const struct weight_format_info *info = weight_format_info(f);
    uint64_t row_bytes = 0;
    struct kernel *k = weight_row_bytes(f, KERNEL_COLS, &row_bytes) ? add(l, op, info->name, call) : NULL;
    if (k == NULL) {
        return;
    }
    k->format = f;
    k->n = n;
    k->row_bytes = row_bytes;
    k->cached_rows = max_u32(1, min_u32((uint32_t)(CACHED_BYTES / row_bytes), KERNEL_TILE_ROWS));
    k->bytes = (double)row_bytes * KERNEL_TILE_ROWS;
    k->cached_bytes = (double)row_bytes * k->cached_rows;
    k->operations = per_weight * n * KERNEL_TILE_ROWS * KERNEL_COLS;
    k->cached_operations = per_weight * n * k->cached_rows * KERNEL_COLS;
    k->peak = peak;
    k->memory = true;
}

static void add_format(struct list *l, enum weight_format f)
{
    static const uint32_t rows[] = {1, 2, 4, 8};
    enum peak_kind peak = weight_format_info(f)->act_block > 0 ? PEAK_INT8 : PEAK_FMA;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        add_weights(l, "matvec", f, rows[i], 2, peak, call_matvec);
    }
    add_weights(l, "bulk", f, KERNEL_BULK_ROWS, 2, l->ops->bulk[f] != NULL ? PEAK_INT8 : PEAK_FMA, call_bulk);
    if (l->ops->blas_sgemm != NULL) {
        add_weights(l, "blas", f, KERNEL_BULK_ROWS, 2, PEAK_FMA, call_blas);
    }
    add_weights(l, "dequantise", f, 1, 0, PEAK_FMA, call_dequantise);
}

static void add_attention(struct list *l, enum kv_type type)
{
    struct kernel *k = add(l, "attention", kv_type_name(type), call_attention);
    if (k == NULL) {
        return;
    }
    k->kv = type;
    k->n = KERNEL_HEADS;
    k->row_bytes = kv_row_bytes(type, KERNEL_LATENT, KERNEL_ROPE);
    k->bytes = k->cached_bytes = (double)k->row_bytes * KERNEL_POSITIONS;
    k->operations = k->cached_operations = 2.0 * KERNEL_HEADS * KERNEL_POSITIONS * (2 * KERNEL_LATENT + KERNEL_ROPE);
    k->peak = PEAK_FMA;
    k->memory = true;
}

static void add_vector(struct list *l, const char *op, const char *type, uint32_t n, double bytes, kernel_call call)
{
    struct kernel *k = add(l, op, type, call);
    if (k != NULL) {
        k->n = n;
        k->bytes = k->cached_bytes = bytes;
    }
}

uint32_t kernel_list(const struct ops *ops, const struct kernel_input *in, const bool *wanted, struct kernel *list, uint32_t room)
{
    struct list l = {.ops = ops, .in = in, .item = list, .room = room};
    for (int f = 0; f < FORMAT_COUNT; f++) {
        if (wanted[f]) {
            add_format(&l, (enum weight_format)f);
        }
    }
    for (int t = 0; t < KV_TYPE_COUNT; t++) {
        add_attention(&l, (enum kv_type)t);
    }
    add_vector(&l, "quantise", "32", 32, 4.0 * KERNEL_COLS, call_quantise);
    add_vector(&l, "quantise", "256", 256, 4.0 * KERNEL_COLS, call_quantise);
    add_vector(&l, "rmsnorm", "f32", 1, 8.0 * KERNEL_COLS, call_rmsnorm);
    add_vector(&l, "swiglu", "f32", 1, 8.0 * KERNEL_COLS, call_swiglu);
    return l.n;
}

/* ---- contents ---- */

int kernel_input_init(struct kernel_input *in, struct error *e)
{
    size_t n = (size_t)KERNEL_BULK_ROWS * KERNEL_COLS, scales = KERNEL_COLS / FORMAT_SCALE_BLOCK;
    *in = (struct kernel_input){
        .x = malloc(n * sizeof(*in->x)), .q = malloc(n), .scale = malloc(n / 32 * sizeof(*in->scale)),
        .bsum16 = malloc(n / 16 * sizeof(*in->bsum16)), .fp8_scale = malloc(scales * sizeof(*in->fp8_scale))};
    if (in->x == NULL || in->q == NULL || in->scale == NULL || in->bsum16 == NULL || in->fp8_scale == NULL) {
        kernel_input_deinit(in);
        return error_nomem(e, "activations", n * 6);
    }
    for (size_t i = 0; i < n; i++) {
        in->x[i] = (float)(int)((i * 2654435761u >> 8) % 2001) / 1000 - 1;
    }
    for (size_t i = 0; i < scales; i++) {
        in->fp8_scale[i] = 0.001f;
    }
    return 0;
}

void kernel_input_deinit(struct kernel_input *in)
{
    free(in->x);
    free(in->q);
    free(in->scale);
    free(in->bsum16);
    free(in->fp8_scale);
    *in = (struct kernel_input){0};
}

/* Copies the first `bytes` of memory over the rest. */
static void repeat(struct kernel_place *p, size_t bytes)
{
    for (size_t done = bytes; done < p->weight_bytes; done += bytes) {
        memcpy(p->weights + done, p->weights, min_u64(bytes, p->weight_bytes - done));
    }
}

static void fill_latents(const struct kernel *k, struct kernel_place *p)
{
    struct kv_layout layout = {.type = k->kv, .latent = KERNEL_LATENT, .rope = KERNEL_ROPE, .row_bytes = k->row_bytes};
    for (uint32_t i = 0; i < KV_PAGE; i++) {
        const float *x = k->input->x + (size_t)i * (KERNEL_LATENT + KERNEL_ROPE);
        k->ops->kv_store[k->kv](&(struct kv_store_args){.layout = layout, .latent = x, .rope = x + KERNEL_LATENT, .row = p->weights + i * k->row_bytes});
    }
    repeat(p, KV_PAGE * k->row_bytes);
}

void kernel_fill(const struct kernel *k, struct kernel_place *p, struct kernel_input *in)
{
    if (k->format == FORMAT_NONE) {
        if (k->memory) {
            fill_latents(k, p);
        }
        return;
    }
    struct synth_filler filler;
    synth_filler_init(&filler, k->format, 0.01f, k->ops);
    synth_filler_fill(&filler, 1, p->weights, PATTERN_ROWS * k->row_bytes);
    repeat(p, PATTERN_ROWS * k->row_bytes);
    uint32_t block = weight_format_info(k->format)->act_block;
    if (block > 0) {
        k->ops->quantise(&(struct quantise_args){.x = in->x, .q = in->q, .scale = in->scale, .bsum16 = in->bsum16, .stride = KERNEL_COLS,
                                                 .n = KERNEL_BULK_ROWS, .cols = KERNEL_COLS, .block = block});
    }
}
