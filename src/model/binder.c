/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: finding a tensor for every role, layer and expert of one container and checking its shape, type and scales.
 * Must not know: how many containers there are, what the weights are used for. */
#include "src/model/binder.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"
#include "src/base/str.h"

enum { MAX_COUNTED = 100000 };

/* What a tensor has to be. */
struct expectation {
    enum role role;
    uint32_t rows, cols;  /* vectors: 1, n */
    uint32_t stack;       /* tensors of three dimensions: [stack, rows / (joined ? stack : 1), cols]; 0: two dimensions */
    bool joined;          /* rows counts the whole stack; two dimensions are accepted as well */
    bool optional;
};

void weights_note(struct weights *w, const char *fmt, ...)
{
    if (w->n_notes == ARRAY_LEN(w->notes)) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(w->notes[w->n_notes], sizeof(w->notes[0]), fmt, args);
    va_end(args);
    text_one_line(w->notes[w->n_notes++]);
}

static bool is_gguf(const struct binder *b) { return b->c->kind == CONTAINER_GGUF; }

int binder_init(struct binder *b, struct weights *w, const struct container *c, struct problems *problems, struct error *e)
{
    *b = (struct binder){ .w = w, .c = c, .problems = problems };
    b->used = calloc(c->n_tensors + 1, sizeof(*b->used));
    if (b->used == NULL) {
        return error_nomem(e, "tensor marks", c->n_tensors + 1);
    }
    if (is_gguf(b)) {
        const char *key = "deepseek2.attention.key_length_mla";
        uint64_t v = 0;
        b->fused_kv = gguf_get_u64(&c->meta, key, &v, NULL) != 1 || v == 0;
    }
    return 0;
}

void binder_deinit(struct binder *b)
{
    free(b->used);
    *b = (struct binder){ 0 };
}

static bool role_tensor_name(const struct binder *b, enum role role, uint32_t layer, uint32_t expert, char *out)
{
    return is_gguf(b) ? names_gguf(role, layer, out) : names_hf(role, layer, expert, out);
}

static const struct tensor *find_role(const struct binder *b, enum role role, uint32_t layer, uint32_t expert)
{
    char name[NAME_BYTES];
    return role_tensor_name(b, role, layer, expert, name) ? container_find(b->c, name) : NULL;
}

static const struct tensor *take(struct binder *b, const struct tensor *t)
{
    if (t != NULL) {
        b->used[t - b->c->tensors] = true;
    }
    return t;
}

/* "model.safetensors": enough beside the container's path. */
static const char *file_name(const struct binder *b, const struct tensor *t)
{
    const char *path = b->c->files[t->file].path;
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* ---- shape ---- */

static void dims_text(const uint64_t *dims, uint32_t n, char *out, size_t out_bytes)
{
    size_t len = (size_t)snprintf(out, out_bytes, "[");
    for (uint32_t i = 0; i < n && len < out_bytes; i++) {
        len += (size_t)snprintf(out + len, out_bytes - len, "%s%llu", i > 0 ? ", " : "", (unsigned long long)dims[i]);
    }
    if (len < out_bytes) {
        snprintf(out + len, out_bytes - len, "]");
    }
}

/* GGUF writers drop outer dimensions of 1. */
static bool dims_equal(const struct binder *b, const struct tensor *t, const uint64_t *dims, uint32_t n)
{
    const uint64_t *found = t->dims;
    uint32_t n_found = t->n_dims;
    if (is_gguf(b)) {
        for (; n_found > 1 && found[0] == 1; found++) {
            n_found--;
        }
        for (; n > 1 && dims[0] == 1; dims++) {
            n--;
        }
    }
    return n_found == n && memcmp(found, dims, n * sizeof(*dims)) == 0;
}

static bool dims_ok(struct binder *b, const struct tensor *t, const struct expectation *x)
{
    uint64_t dims[3], flat[2] = { x->rows, x->cols };
    uint32_t n = 0;
    if (x->stack > 0) {
        dims[n++] = x->stack;
        dims[n++] = x->joined ? x->rows / x->stack : x->rows;
    } else if (!role_is_vector(x->role)) {
        dims[n++] = x->rows;
    }
    dims[n++] = x->cols;
    if (dims_equal(b, t, dims, n) || (x->joined && dims_equal(b, t, flat, 2))) {
        return true;
    }
    char found[96], expected[96];
    dims_text(t->dims, t->n_dims, found, sizeof(found));
    dims_text(dims, n, expected, sizeof(expected));
    problem_add(b->problems, "%s (%s) in %s has shape %s, expected %s", t->name, role_name(x->role), file_name(b, t), found,
                expected);
    return false;
}

/* ---- type ---- */

static bool format_ok(struct binder *b, const struct tensor *t, const struct expectation *x, uint64_t *ret_row_bytes)
{
    if (t->format == FORMAT_NONE) {
        b->problems->type = true;
        problem_add(b->problems, "%s (%s) in %s has type %s, which no kernel reads", t->name, role_name(x->role),
                    file_name(b, t), t->type_name);
        return false;
    }
    bool plain = t->format == FORMAT_F32 || t->format == FORMAT_F16 || t->format == FORMAT_BF16;
    if (role_is_vector(x->role) && !plain) {
        problem_add(b->problems, "%s (%s) in %s has type %s, expected F32, F16 or BF16 for a vector", t->name,
                    role_name(x->role), file_name(b, t), t->type_name);
        return false;
    }
    uint64_t all, rows = (uint64_t)x->rows * (x->stack > 0 && !x->joined ? x->stack : 1);
    if (!weight_row_bytes(t->format, x->cols, ret_row_bytes) || !mul_u64(*ret_row_bytes, rows, &all) || all != t->bytes) {
        problem_add(b->problems, "%s (%s) in %s has %llu bytes, which are not %llu rows of %u as %s", t->name,
                    role_name(x->role), file_name(b, t), (unsigned long long)t->bytes, (unsigned long long)rows, x->cols,
                    t->type_name);
        return false;
    }
    enum low_precision low = x->role == ROLE_ROUTER ? LOW_ROUTER : LOW_BIAS;
    bool hurts = (x->role == ROLE_ROUTER && !plain) || (x->role == ROLE_ROUTER_BIAS && t->format != FORMAT_F32);
    if (hurts && b->n_low[low]++ == 0) {
        b->low[low] = t->name;
    }
    return true;
}

/* The block scales of an FP8 matrix; they may lie in another shard. */
static bool bind_scale(struct binder *b, const struct tensor *t, struct weight_ref *ref)
{
    char name[NAME_BYTES + 16];
    snprintf(name, sizeof(name), "%s_scale_inv", t->name);
    const struct tensor *scale = take(b, container_find(b->c, name));
    if (scale == NULL) {
        b->problems->missing = true;
        problem_add(b->problems, "%s (block scales of an FP8 matrix) is missing", name);
        return false;
    }
    uint64_t dims[2] = { ceil_div_u64(ref->rows, FORMAT_SCALE_BLOCK), ceil_div_u64(ref->cols, FORMAT_SCALE_BLOCK) };
    if (!dims_equal(b, scale, dims, 2)) {
        char found[96], expected[96];
        dims_text(scale->dims, scale->n_dims, found, sizeof(found));
        dims_text(dims, 2, expected, sizeof(expected));
        problem_add(b->problems, "%s (block scales) in %s has shape %s, expected %s", name, file_name(b, scale), found, expected);
        return false;
    }
    bool plain = scale->format == FORMAT_F32 || scale->format == FORMAT_F16 || scale->format == FORMAT_BF16;
    if (!plain && strcmp(scale->type_name, "F8_E8M0") != 0) {
        problem_add(b->problems, "%s (block scales) in %s has type %s, expected F32, BF16, F16 or F8_E8M0", name,
                    file_name(b, scale), scale->type_name);
        return false;
    }
    ref->scale = scale;
    ref->scale_file = &b->c->files[scale->file];
    return true;
}

/* ---- one tensor ---- */

/* Checks t against x; for a stack not joined, ret is entry 0. */
static bool check_tensor(struct binder *b, const struct tensor *t, const struct expectation *x, struct weight_ref *ret)
{
    uint64_t row_bytes;
    if (!dims_ok(b, t, x) || !format_ok(b, t, x, &row_bytes)) {
        return false;
    }
    struct weight_ref ref = {
        .file = &b->c->files[t->file],
        .offset = t->offset,
        .bytes = row_bytes * x->rows,
        .name = t->name,
        .rows = x->rows,
        .cols = x->cols,
        .format = t->format,
    };
    if (t->format == FORMAT_F8_E4M3 && !bind_scale(b, t, &ref)) {
        return false;
    }
    *ret = ref;
    return true;
}

static bool bind_one(struct binder *b, uint32_t layer, uint32_t expert, const struct expectation *x, struct weight_ref *ret)
{
    char name[NAME_BYTES];
    role_tensor_name(b, x->role, layer, expert, name);
    const struct tensor *t = take(b, container_find(b->c, name));
    if (t != NULL) {
        return check_tensor(b, t, x, ret);
    }
    if (!x->optional && b->problems->n < MAX_COUNTED) {
        b->problems->missing = true;
        problem_add(b->problems, "%s (%s) is missing", name, role_name(x->role));
    }
    return false;
}

static void bind_matrix(struct binder *b, uint32_t layer, enum role role, uint32_t rows, uint32_t cols)
{
    struct expectation x = { .role = role, .rows = rows, .cols = cols };
    bind_one(b, layer, 0, &x, &b->w->layers[layer].role[role]);
}

static void bind_vector(struct binder *b, uint32_t layer, enum role role, uint32_t n) { bind_matrix(b, layer, role, 1, n); }

void binder_model(struct binder *b)
{
    struct weights *w = b->w;
    const struct shape *s = &w->shape;
    struct expectation embed = { .role = ROLE_EMBED, .rows = s->vocab, .cols = s->hidden };
    struct expectation norm = { .role = ROLE_FINAL_NORM, .rows = 1, .cols = s->hidden };
    struct expectation head = { .role = ROLE_HEAD, .rows = s->vocab, .cols = s->hidden };
    bind_one(b, 0, 0, &embed, &w->embed);
    bind_one(b, 0, 0, &norm, &w->final_norm);
    if (is_gguf(b)) {
        w->shape.tied_head = find_role(b, ROLE_HEAD, 0, 0) == NULL;
    }
    if (w->shape.tied_head) {
        w->head = w->embed;
    } else {
        bind_one(b, 0, 0, &head, &w->head);
    }
}

/* ---- attention ---- */

static void bind_kv(struct binder *b, uint32_t layer)
{
    const struct shape *s = &b->w->shape;
    bool k_there = find_role(b, ROLE_K_B, layer, 0) != NULL, v_there = find_role(b, ROLE_V_B, layer, 0) != NULL;
    bool fused_there = find_role(b, ROLE_KV_B, layer, 0) != NULL;
    if (fused_there || b->fused_kv || !(k_there || v_there)) {
        bind_matrix(b, layer, ROLE_KV_B, s->heads * (s->nope + s->v_head), s->kv_lora);
        take(b, find_role(b, ROLE_K_B, layer, 0));
        take(b, find_role(b, ROLE_V_B, layer, 0));
        if (fused_there && (k_there || v_there)) { /* a third layout: the same weights twice */
            b->n_idle_kv++;
        } else if (!fused_there && k_there) {
            problem_add(b->problems, "layer %u has attn_k_b, but the metadata lacks key_length_mla and value_length_mla, "
                        "which describe that layout", layer);
        }
        return;
    }
    struct expectation k = { .role = ROLE_K_B, .rows = s->heads * s->kv_lora, .cols = s->nope, .stack = s->heads, .joined = true };
    struct expectation v = { .role = ROLE_V_B, .rows = s->heads * s->v_head, .cols = s->kv_lora, .stack = s->heads, .joined = true };
    bind_one(b, layer, 0, &k, &b->w->layers[layer].role[ROLE_K_B]);
    bind_one(b, layer, 0, &v, &b->w->layers[layer].role[ROLE_V_B]);
}

static void bind_attention(struct binder *b, uint32_t layer)
{
    const struct shape *s = &b->w->shape;
    uint32_t q = s->heads * shape_q_head(s);
    bind_vector(b, layer, ROLE_ATTN_NORM, s->hidden);
    if (s->q_lora > 0) {
        bind_matrix(b, layer, ROLE_Q_A, s->q_lora, s->hidden);
        bind_vector(b, layer, ROLE_Q_A_NORM, s->q_lora);
        bind_matrix(b, layer, ROLE_Q_B, q, s->q_lora);
    } else {
        bind_matrix(b, layer, ROLE_Q, q, s->hidden);
    }
    bind_matrix(b, layer, ROLE_KV_A, s->kv_lora + s->rope, s->hidden);
    bind_vector(b, layer, ROLE_KV_A_NORM, s->kv_lora);
    bind_kv(b, layer);
    bind_matrix(b, layer, ROLE_O, s->hidden, s->heads * s->v_head);
    bind_vector(b, layer, ROLE_FFN_NORM, s->hidden);
}

/* ---- experts ---- */

static struct weight_ref *expert_ref(struct expert_refs *x, enum role role)
{
    return role == ROLE_EXPERT_GATE ? &x->gate : role == ROLE_EXPERT_UP ? &x->up : &x->down;
}

/* GGUF: one stack holds all experts of a layer. */
static void bind_stack(struct binder *b, uint32_t layer, struct expectation *x, struct expert_refs *experts)
{
    char fused[NAME_BYTES];
    snprintf(fused, sizeof(fused), "blk.%u.ffn_gate_up_exps.weight", layer);
    if (x->role == ROLE_EXPERT_GATE && container_find(b->c, fused) != NULL) {
        problem_add(b->problems, "%s holds gate and up in one tensor, a layout that is not supported: convert without fusing them",
                    fused);
    }
    struct weight_ref first;
    x->stack = b->w->shape.experts;
    if (!bind_one(b, layer, 0, x, &first)) {
        return;
    }
    for (uint32_t i = 0; i < x->stack; i++) {
        struct weight_ref *ref = expert_ref(&experts[i], x->role);
        *ref = first;
        ref->offset += first.bytes * i;
    }
}

static int bind_experts(struct binder *b, uint32_t layer, struct error *e)
{
    static const enum role roles[] = { ROLE_EXPERT_GATE, ROLE_EXPERT_UP, ROLE_EXPERT_DOWN };
    const struct shape *s = &b->w->shape;
    struct expert_refs *experts = calloc(s->experts, sizeof(*experts));
    if (experts == NULL) {
        return error_nomem(e, "expert table", (unsigned long long)s->experts * sizeof(*experts));
    }
    b->w->layers[layer].experts = experts;
    for (size_t k = 0; k < ARRAY_LEN(roles); k++) {
        bool down = roles[k] == ROLE_EXPERT_DOWN;
        struct expectation x = { .role = roles[k], .rows = down ? s->hidden : s->expert_width,
                                 .cols = down ? s->expert_width : s->hidden };
        if (is_gguf(b)) {
            bind_stack(b, layer, &x, experts);
            continue;
        }
        for (uint32_t i = 0; i < s->experts; i++) {
            bind_one(b, layer, i, &x, expert_ref(&experts[i], roles[k]));
        }
    }
    return 0;
}

static int bind_moe(struct binder *b, uint32_t layer, struct error *e)
{
    const struct shape *s = &b->w->shape;
    bind_matrix(b, layer, ROLE_ROUTER, s->experts, s->hidden);
    const struct tensor *bias = find_role(b, ROLE_ROUTER_BIAS, layer, 0);
    if (s->router_bias) {
        bind_vector(b, layer, ROLE_ROUTER_BIAS, s->experts);
    } else if (bias != NULL) {
        problem_add(b->problems, "%s is there, but the scores are softmax without a bias (scoring_func, topk_method; "
                    "expert_gating_func in GGUF): the routing metadata is wrong or incomplete", bias->name);
        take(b, bias);
    }
    if (s->shared_width > 0) {
        bind_matrix(b, layer, ROLE_SHARED_GATE, s->shared_width, s->hidden);
        bind_matrix(b, layer, ROLE_SHARED_UP, s->shared_width, s->hidden);
        bind_matrix(b, layer, ROLE_SHARED_DOWN, s->hidden, s->shared_width);
    }
    return bind_experts(b, layer, e);
}

static void bind_mtp(struct binder *b, uint32_t layer)
{
    const struct shape *s = &b->w->shape;
    struct weight_ref *norm = &b->w->layers[layer].role[ROLE_MTP_NORM];
    struct expectation x = { .role = ROLE_MTP_NORM, .rows = 1, .cols = s->hidden, .optional = is_gguf(b) };
    bind_matrix(b, layer, ROLE_MTP_EH, s->hidden, 2 * s->hidden);
    bind_vector(b, layer, ROLE_MTP_ENORM, s->hidden);
    bind_vector(b, layer, ROLE_MTP_HNORM, s->hidden);
    if (!bind_one(b, layer, 0, &x, norm) && find_role(b, ROLE_MTP_NORM, layer, 0) == NULL && x.optional) {
        *norm = b->w->final_norm;
        weights_note(b->w, "MTP layer %u has no shared_head_norm: the final norm is used", layer);
    }
}

static void bind_dense(struct binder *b, uint32_t layer)
{
    const struct shape *s = &b->w->shape;
    bind_matrix(b, layer, ROLE_GATE, s->dense_width, s->hidden);
    bind_matrix(b, layer, ROLE_UP, s->dense_width, s->hidden);
    bind_matrix(b, layer, ROLE_DOWN, s->hidden, s->dense_width);
}

/* A known tensor that nothing took: the metadata describes another model, and leaving it out would change the output. */
static void refuse_leftovers(struct binder *b, uint32_t layer)
{
    for (int role = ROLE_ATTN_NORM; role < ROLE_COUNT; role++) {
        const struct tensor *t = find_role(b, (enum role)role, layer, 0);
        bool copy = layer >= b->w->shape.layers && (role == ROLE_MTP_EMBED || role == ROLE_MTP_HEAD);
        if (t != NULL && !copy && !b->used[t - b->c->tensors]) {
            problem_add(b->problems, "%s (%s) is there, but the metadata describes a layer without it", t->name, role_name((enum role)role));
        }
    }
}

int binder_layer(struct binder *b, uint32_t layer, struct error *e)
{
    const struct shape *s = &b->w->shape;
    int r = 0;
    bind_attention(b, layer);
    if (layer >= s->layers) {
        bind_mtp(b, layer);
    }
    if (shape_layer_is_moe(s, layer)) {
        r = bind_moe(b, layer, e);
    } else {
        bind_dense(b, layer);
    }
    if (r == 0) {
        refuse_leftovers(b, layer);
    }
    return r;
}
