/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the walk over layers and roles that lists a checkpoint's tensors. Must not know: bytes, files. */
#include "src/commands/tensor_list.h"

#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"

struct builder {
    struct tensor_list list;
    const struct shape *s;
    enum tensor_form form;
    struct tensor_formats formats;
    enum weight_format vectors, wide; /* wide: embedding, head, eh_proj */
    int code;
    struct error *e;
};

/* The type converters fall back to where rows are no multiple of a block (docs/formats.md). */
static enum weight_format fitting(enum weight_format f, uint64_t cols)
{
    uint64_t bytes;
    if (weight_row_bytes(f, cols, &bytes)) {
        return f;
    }
    enum weight_format near = f == FORMAT_Q6_K || f == FORMAT_Q8_0 ? FORMAT_Q8_0
                              : f == FORMAT_Q5_K                   ? FORMAT_Q5_1
                              : f == FORMAT_Q4_K                   ? FORMAT_Q5_0
                              : f == FORMAT_Q2_K || f == FORMAT_Q3_K ? FORMAT_Q4_0
                                                                   : FORMAT_IQ4_NL;
    return weight_row_bytes(near, cols, &bytes) ? near : FORMAT_F16;
}

/* A matrix, or a vector (n_dims 1), with its name still to come; NULL after a failure. */
static struct tensor_entry *add(struct builder *b, const struct tensor_entry *entry)
{
    struct tensor_list *l = &b->list;
    uint64_t row_bytes = 0, rows = 1;
    if (b->code == 0 && l->n == l->cap) {
        size_t cap = l->cap == 0 ? 256 : 2 * l->cap;
        struct tensor_entry *items = realloc(l->items, cap * sizeof(*items));
        if (items == NULL) {
            b->code = error_nomem(b->e, "tensor list", cap * sizeof(*items));
        } else {
            l->items = items;
            l->cap = cap;
        }
    }
    if (b->code < 0) {
        return NULL;
    }
    struct tensor_entry *t = &l->items[l->n++];
    *t = *entry;
    for (uint32_t i = 0; i + 1 < t->n_dims; i++) {
        rows *= t->dims[i];
    }
    if (!weight_row_bytes(t->format, t->dims[t->n_dims - 1], &row_bytes) || !mul_u64(rows, row_bytes, &t->bytes)) {
        b->code = error_set(b->e, ERROR_USAGE, "%s: rows of %llu do not fit its format", role_name(t->role),
                            (unsigned long long)t->dims[t->n_dims - 1]);
    }
    t->grain = t->role == ROLE_K_B ? t->dims[1] * row_bytes : row_bytes;
    b->list.bytes += t->bytes;
    if (b->form == FORM_GGUF) {
        names_gguf(t->role, t->layer, t->name);
    } else {
        names_hf(t->role, t->layer, t->expert, t->name);
    }
    return t;
}

static void vector(struct builder *b, enum role role, uint32_t layer, uint32_t n)
{
    enum weight_format f = role == ROLE_ROUTER_BIAS ? FORMAT_F32 : b->vectors;
    add(b, &(struct tensor_entry){.role = role, .layer = layer, .format = f, .n_dims = 1, .dims = {n}});
}

/* `stack` 0: two dimensions. FP8 brings its scales. */
static void matrix(struct builder *b, struct tensor_entry t, uint32_t stack, uint32_t rows, uint32_t cols, enum weight_format format)
{
    uint64_t dims[3] = {stack, rows, cols};
    t.format = fitting(format, cols);
    t.n_dims = stack > 0 ? 3 : 2;
    memcpy(t.dims, stack > 0 ? dims : dims + 1, t.n_dims * sizeof(*dims));
    b->list.fallbacks += t.format != format;
    add(b, &t);
    if (format == FORMAT_F8_E4M3) {
        t.scales = true;
        t.format = FORMAT_F32;
        t.dims[0] = ceil_div_u64(rows, FORMAT_SCALE_BLOCK);
        t.dims[1] = ceil_div_u64(cols, FORMAT_SCALE_BLOCK);
        struct tensor_entry *scales = add(b, &t);
        if (scales != NULL) {
            strcat(scales->name, "_scale_inv");
        }
    }
}

static void dense(struct builder *b, enum role role, uint32_t layer, uint32_t rows, uint32_t cols)
{
    matrix(b, (struct tensor_entry){.role = role, .layer = layer}, 0, rows, cols, b->formats.dense);
}

static void wide(struct builder *b, enum role role, uint32_t layer, uint32_t rows, uint32_t cols)
{
    matrix(b, (struct tensor_entry){.role = role, .layer = layer}, 0, rows, cols, b->wide);
}

static void add_kv_b(struct builder *b, uint32_t layer)
{
    const struct shape *s = b->s;
    if (b->form == FORM_HF) {
        dense(b, ROLE_KV_B, layer, s->heads * (s->nope + s->v_head), s->kv_lora);
        return;
    }
    matrix(b, (struct tensor_entry){.role = ROLE_K_B, .layer = layer}, s->heads, s->kv_lora, s->nope, b->formats.dense);
    matrix(b, (struct tensor_entry){.role = ROLE_V_B, .layer = layer}, s->heads, s->v_head, s->kv_lora, b->formats.dense);
}

static void add_attention(struct builder *b, uint32_t layer)
{
    const struct shape *s = b->s;
    uint32_t q_rows = s->heads * shape_q_head(s);
    vector(b, ROLE_ATTN_NORM, layer, s->hidden);
    if (s->q_lora > 0) {
        dense(b, ROLE_Q_A, layer, s->q_lora, s->hidden);
        vector(b, ROLE_Q_A_NORM, layer, s->q_lora);
        dense(b, ROLE_Q_B, layer, q_rows, s->q_lora);
    } else {
        dense(b, ROLE_Q, layer, q_rows, s->hidden);
    }
    dense(b, ROLE_KV_A, layer, s->kv_lora + s->rope, s->hidden);
    vector(b, ROLE_KV_A_NORM, layer, s->kv_lora);
    add_kv_b(b, layer);
    dense(b, ROLE_O, layer, s->hidden, s->heads * s->v_head);
    vector(b, ROLE_FFN_NORM, layer, s->hidden);
}

static void add_routed(struct builder *b, uint32_t layer)
{
    static const enum role roles[] = {ROLE_EXPERT_GATE, ROLE_EXPERT_UP, ROLE_EXPERT_DOWN};
    const struct shape *s = b->s;
    uint32_t each = b->form == FORM_HF ? s->experts : 1, stack = b->form == FORM_HF ? 0 : s->experts;
    for (uint32_t expert = 0; expert < each; expert++) {
        for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
            bool down = roles[i] == ROLE_EXPERT_DOWN;
            matrix(b, (struct tensor_entry){.role = roles[i], .layer = layer, .expert = expert}, stack, down ? s->hidden : s->expert_width,
                   down ? s->expert_width : s->hidden, b->formats.experts);
        }
    }
}

static void add_experts(struct builder *b, uint32_t layer)
{
    const struct shape *s = b->s;
    matrix(b, (struct tensor_entry){.role = ROLE_ROUTER, .layer = layer}, 0, s->experts, s->hidden, b->vectors);
    if (s->router_bias) {
        vector(b, ROLE_ROUTER_BIAS, layer, s->experts);
    }
    add_routed(b, layer);
    if (s->shared_width > 0) {
        dense(b, ROLE_SHARED_GATE, layer, s->shared_width, s->hidden);
        dense(b, ROLE_SHARED_UP, layer, s->shared_width, s->hidden);
        dense(b, ROLE_SHARED_DOWN, layer, s->hidden, s->shared_width);
    }
}

/* The copies of embedding and head are what published folders hold and GGUF files leave out. */
static void add_mtp(struct builder *b, uint32_t layer)
{
    const struct shape *s = b->s;
    wide(b, ROLE_MTP_EH, layer, s->hidden, 2 * s->hidden);
    vector(b, ROLE_MTP_ENORM, layer, s->hidden);
    vector(b, ROLE_MTP_HNORM, layer, s->hidden);
    vector(b, ROLE_MTP_NORM, layer, s->hidden);
    if (b->form == FORM_HF) {
        wide(b, ROLE_MTP_EMBED, layer, s->vocab, s->hidden);
        wide(b, ROLE_MTP_HEAD, layer, s->vocab, s->hidden);
    }
}

static void add_layer(struct builder *b, uint32_t layer)
{
    const struct shape *s = b->s;
    add_attention(b, layer);
    if (shape_layer_is_moe(s, layer)) {
        add_experts(b, layer);
    } else {
        dense(b, ROLE_GATE, layer, s->dense_width, s->hidden);
        dense(b, ROLE_UP, layer, s->dense_width, s->hidden);
        dense(b, ROLE_DOWN, layer, s->hidden, s->dense_width);
    }
    if (layer >= s->layers) {
        add_mtp(b, layer);
    }
}

int tensor_list_build(struct tensor_list *ret, const struct shape *s, enum tensor_form form, const struct tensor_formats *formats,
                      struct error *e)
{
    struct builder b = {.s = s, .form = form, .formats = *formats, .wide = formats->dense, .vectors = FORMAT_F32, .e = e};
    if (form == FORM_HF) {
        b.wide = formats->dense == FORMAT_F8_E4M3 ? FORMAT_BF16 : formats->dense;
        b.vectors = b.wide;
    }
    wide(&b, ROLE_EMBED, 0, s->vocab, s->hidden);
    for (uint32_t i = 0; i < shape_all_layers(s); i++) {
        add_layer(&b, i);
    }
    vector(&b, ROLE_FINAL_NORM, 0, s->hidden);
    if (!s->tied_head) {
        wide(&b, ROLE_HEAD, 0, s->vocab, s->hidden);
    }
    if (b.code < 0) {
        tensor_list_deinit(&b.list);
        return b.code;
    }
    *ret = b.list;
    return 0;
}

void tensor_list_deinit(struct tensor_list *l)
{
    free(l->items);
    *l = (struct tensor_list){0};
}
