/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: which tensors a model of the family has, with deviations that keep activations near 1: a matrix of n columns gets
 * 1/sqrt(n). Must not know: bytes, files. */
#include "src/commands/synth_tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"

struct builder {
    struct synth_list list;
    const struct shape *s;
    const struct synth_formats *formats;
    int code;
    struct error *e;
};

static const float head_gain = 3.0f; /* logits of deviation 3: clear winners */

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

static struct synth_tensor *add(struct builder *b, enum role role, uint32_t layer)
{
    struct synth_list *l = &b->list;
    if (b->code == 0 && l->n == l->cap) {
        size_t cap = l->cap == 0 ? 256 : 2 * l->cap;
        struct synth_tensor *items = realloc(l->items, cap * sizeof(*items));
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
    struct synth_tensor *t = &l->items[l->n++];
    *t = (struct synth_tensor){.format = FORMAT_F32, .content = SYNTH_ONES};
    names_gguf(role, layer, t->name);
    return t;
}

static void finish(struct builder *b, struct synth_tensor *t)
{
    uint64_t row_bytes = 0, rows = 1;
    for (uint32_t i = 0; i + 1 < t->n_dims; i++) {
        rows *= t->dims[i];
    }
    if (!weight_row_bytes(t->format, t->dims[t->n_dims - 1], &row_bytes) || !mul_u64(rows, row_bytes, &t->bytes)) {
        b->code = error_set(b->e, ERROR_USAGE, "tensor %s: rows of %llu do not fit its format", t->name, (unsigned long long)t->dims[t->n_dims - 1]);
    }
    b->list.bytes += t->bytes;
}

static void vector(struct builder *b, enum role role, uint32_t layer, uint32_t n, enum synth_content content)
{
    struct synth_tensor *t = add(b, role, layer);
    if (t != NULL) {
        t->n_dims = 1;
        t->dims[0] = n;
        t->content = content;
        finish(b, t);
    }
}

/* `stack` 0: two dimensions. */
static void matrix(struct builder *b, enum role role, uint32_t layer, uint32_t stack, uint32_t rows, uint32_t cols, enum weight_format format,
                   float deviation)
{
    struct synth_tensor *t = add(b, role, layer);
    if (t == NULL) {
        return;
    }
    t->format = fitting(format, cols);
    b->list.fallbacks += t->format != format;
    t->n_dims = stack > 0 ? 3 : 2;
    uint64_t dims[3] = {stack, rows, cols};
    memcpy(t->dims, stack > 0 ? dims : dims + 1, t->n_dims * sizeof(*dims));
    t->content = SYNTH_RANDOM;
    t->deviation = deviation;
    finish(b, t);
}

static float even(uint32_t cols) { return 1.0f / sqrtf((float)cols); }

static void dense(struct builder *b, enum role role, uint32_t layer, uint32_t rows, uint32_t cols)
{
    matrix(b, role, layer, 0, rows, cols, b->formats->dense, even(cols));
}

static void add_attention(struct builder *b, uint32_t layer)
{
    const struct shape *s = b->s;
    enum weight_format f = b->formats->dense;
    uint32_t q_rows = s->heads * shape_q_head(s);
    vector(b, ROLE_ATTN_NORM, layer, s->hidden, SYNTH_ONES);
    if (s->q_lora > 0) {
        dense(b, ROLE_Q_A, layer, s->q_lora, s->hidden);
        vector(b, ROLE_Q_A_NORM, layer, s->q_lora, SYNTH_ONES);
        dense(b, ROLE_Q_B, layer, q_rows, s->q_lora);
    } else {
        dense(b, ROLE_Q, layer, q_rows, s->hidden);
    }
    dense(b, ROLE_KV_A, layer, s->kv_lora + s->rope, s->hidden);
    vector(b, ROLE_KV_A_NORM, layer, s->kv_lora, SYNTH_ONES);
    matrix(b, ROLE_K_B, layer, s->heads, s->kv_lora, s->nope, f, even(s->kv_lora)); /* transposed: keys have deviation 1 */
    matrix(b, ROLE_V_B, layer, s->heads, s->v_head, s->kv_lora, f, even(s->kv_lora));
    dense(b, ROLE_O, layer, s->hidden, s->heads * s->v_head);
    vector(b, ROLE_FFN_NORM, layer, s->hidden, SYNTH_ONES);
}

static void add_experts(struct builder *b, uint32_t layer)
{
    const struct shape *s = b->s;
    enum weight_format f = b->formats->experts;
    matrix(b, ROLE_ROUTER, layer, 0, s->experts, s->hidden, FORMAT_F32, even(s->hidden));
    if (s->router_bias) {
        vector(b, ROLE_ROUTER_BIAS, layer, s->experts, SYNTH_BIAS);
    }
    matrix(b, ROLE_EXPERT_GATE, layer, s->experts, s->expert_width, s->hidden, f, even(s->hidden));
    matrix(b, ROLE_EXPERT_UP, layer, s->experts, s->expert_width, s->hidden, f, even(s->hidden));
    matrix(b, ROLE_EXPERT_DOWN, layer, s->experts, s->hidden, s->expert_width, f, even(s->expert_width));
    dense(b, ROLE_SHARED_GATE, layer, s->shared_width, s->hidden);
    dense(b, ROLE_SHARED_UP, layer, s->shared_width, s->hidden);
    dense(b, ROLE_SHARED_DOWN, layer, s->hidden, s->shared_width);
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
        dense(b, ROLE_MTP_EH, layer, s->hidden, 2 * s->hidden);
        vector(b, ROLE_MTP_ENORM, layer, s->hidden, SYNTH_ONES);
        vector(b, ROLE_MTP_HNORM, layer, s->hidden, SYNTH_ONES);
        vector(b, ROLE_MTP_NORM, layer, s->hidden, SYNTH_ONES);
    }
}

int synth_list_build(struct synth_list *ret, const struct synth_model *m, const struct synth_formats *formats, struct error *e)
{
    struct builder b = {.s = &m->shape, .formats = formats, .e = e};
    const struct shape *s = b.s;
    matrix(&b, ROLE_EMBED, 0, 0, s->vocab, s->hidden, formats->dense, 1.0f);
    for (uint32_t i = 0; i < shape_all_layers(s); i++) {
        add_layer(&b, i);
    }
    vector(&b, ROLE_FINAL_NORM, 0, s->hidden, SYNTH_ONES);
    matrix(&b, ROLE_HEAD, 0, 0, s->vocab, s->hidden, formats->dense, head_gain * even(s->hidden));
    if (b.code < 0) {
        synth_list_deinit(&b.list);
        return b.code;
    }
    *ret = b.list;
    return 0;
}

void synth_list_deinit(struct synth_list *l)
{
    free(l->items);
    *l = (struct synth_list){0};
}
