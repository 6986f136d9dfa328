/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/model/model_test.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/gguf_write.h"
#include "io/safetensors_write.h"

enum { RING = 8, RING_BYTES = 2048 };

int folder_setup(void **state)
{
    char path[] = "/tmp/sluice-model-XXXXXX";
    assert_non_null(mkdtemp(path));
    *state = strdup(path);
    assert_non_null(*state);
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

int folder_teardown(void **state)
{
    nftw(*state, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return 0;
}

const char *text(const char *fmt, ...)
{
    static char ring[RING][RING_BYTES];
    static unsigned next;
    char *out = ring[next++ % RING];
    va_list args;
    va_start(args, fmt);
    vsnprintf(out, RING_BYTES, fmt, args);
    va_end(args);
    return out;
}

const char *golden(const char *name) { return text("%s/%s", GOLDEN, name); }

char *read_text(const char *path, size_t *ret_len)
{
    char *data;
    struct error e = { 0 };
    if (file_read_all(path, 1 << 26, &data, ret_len, &e) != 0) {
        fail_msg("%s", e.text);
    }
    return data;
}

void write_text(const char *path, const char *data)
{
    struct error e = { 0 };
    if (file_write_all(path, data, strlen(data), &e) != 0) {
        fail_msg("%s", e.text);
    }
}

void assert_near(double found, double expected, double relative)
{
    if (fabs(found - expected) > relative * fabs(expected)) {
        fail_msg("found %.10g, expected %.10g", found, expected);
    }
}

void assert_contains(const char *message, const char *part)
{
    if (strstr(message, part) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", part, message);
    }
}

/* ---- config.json ---- */

json_t *golden_config(const char *name)
{
    json_t *root = json_load_file(text("%s/%s/config.json", GOLDEN, name), 0, NULL);
    assert_non_null(root);
    return root;
}

int shape_of_json(const json_t *config, struct shape *ret, struct error *e)
{
    char *dump = json_dumps(config, 0);
    assert_non_null(dump);
    int r = shape_from_config(dump, strlen(dump), NULL, 0, "config.json", ret, e);
    free(dump);
    return r;
}

int shape_with(const json_t *config, const char *key, const char *value, struct shape *ret, struct error *e)
{
    json_t *copy = json_deep_copy(config);
    if (value == NULL) {
        json_object_del(copy, key);
    } else {
        json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
        assert_non_null(v);
        json_object_set_new(copy, key, v);
    }
    int r = shape_of_json(copy, ret, e);
    json_decref(copy);
    return r;
}

/* ---- GGUF metadata ---- */

void meta_copy(struct meta *m, const struct gguf_meta *from)
{
    assert_true(from->n < sizeof(m->values) / sizeof(m->values[0]));
    memcpy(m->values, from->values, from->n * sizeof(*from->values));
    m->meta = (struct gguf_meta){ .values = m->values, .n = from->n };
}

void meta_drop(struct meta *m, const char *key)
{
    size_t n = 0;
    for (size_t i = 0; i < m->meta.n; i++) {
        if (strcmp(m->values[i].key, key) != 0) {
            m->values[n++] = m->values[i];
        }
    }
    m->meta.n = n;
}

static void meta_put(struct meta *m, struct gguf_value value)
{
    meta_drop(m, value.key);
    assert_true(m->meta.n < sizeof(m->values) / sizeof(m->values[0]));
    size_t i = m->meta.n++;
    for (; i > 0 && strcmp(m->values[i - 1].key, value.key) > 0; i--) {
        m->values[i] = m->values[i - 1];
    }
    m->values[i] = value;
}

void meta_u32(struct meta *m, const char *key, uint32_t value)
{
    meta_put(m, (struct gguf_value){ .key = key, .type = GGUF_U32, .v.u = value });
}

void meta_f32(struct meta *m, const char *key, double value)
{
    meta_put(m, (struct gguf_value){ .key = key, .type = GGUF_F32, .v.f = (float)value });
}

void meta_bool(struct meta *m, const char *key, bool value)
{
    meta_put(m, (struct gguf_value){ .key = key, .type = GGUF_BOOL, .v.u = value });
}

void meta_text(struct meta *m, const char *key, const char *value)
{
    meta_put(m, (struct gguf_value){ .key = key, .type = GGUF_STRING, .v.s = { value, strlen(value) } });
}

void meta_v3(struct meta *m, bool newer)
{
    static const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {
        { "deepseek2.block_count", 61 },
        { "deepseek2.context_length", 163840 },
        { "deepseek2.embedding_length", 7168 },
        { "deepseek2.feed_forward_length", 18432 },
        { "deepseek2.attention.head_count", 128 },
        { "deepseek2.attention.q_lora_rank", 1536 },
        { "deepseek2.attention.kv_lora_rank", 512 },
        { "deepseek2.leading_dense_block_count", 3 },
        { "deepseek2.vocab_size", 129280 },
        { "deepseek2.expert_count", 256 },
        { "deepseek2.expert_used_count", 8 },
        { "deepseek2.expert_shared_count", 1 },
        { "deepseek2.expert_feed_forward_length", 2048 },
        { "deepseek2.expert_gating_func", 2 },
        { "deepseek2.rope.dimension_count", 64 },
        { "deepseek2.rope.scaling.original_context_length", 4096 },
        { "tokenizer.ggml.bos_token_id", 0 },
        { "tokenizer.ggml.eos_token_id", 1 },
    };
    *m = (struct meta){ 0 };
    m->meta.values = m->values;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        meta_u32(m, numbers[i].key, numbers[i].value);
    }
    meta_u32(m, "deepseek2.attention.head_count_kv", newer ? 1 : 128);
    meta_u32(m, "deepseek2.attention.key_length", newer ? 576 : 192);
    meta_u32(m, "deepseek2.attention.value_length", newer ? 512 : 128);
    if (newer) {
        meta_u32(m, "deepseek2.attention.key_length_mla", 192);
        meta_u32(m, "deepseek2.attention.value_length_mla", 128);
    }
    meta_f32(m, "deepseek2.attention.layer_norm_rms_epsilon", 1e-6);
    meta_f32(m, "deepseek2.expert_weights_scale", 2.5);
    meta_bool(m, "deepseek2.expert_weights_norm", true);
    meta_f32(m, "deepseek2.rope.freq_base", 10000);
    meta_f32(m, "deepseek2.rope.scaling.factor", 40);
    meta_f32(m, "deepseek2.rope.scaling.yarn_log_multiplier", 0.1);
    meta_text(m, "deepseek2.rope.scaling.type", "yarn");
    meta_text(m, "general.architecture", "deepseek2");
    meta_text(m, "tokenizer.ggml.pre", "deepseek-v3");
}

/* ---- checkpoints ---- */

static bool same(const char *a, const char *b) { return a != NULL && strcmp(a, b) == 0; }

/* t as the edit leaves it; false when it is dropped. */
static bool apply(const struct edit *x, struct tensor *t)
{
    if (same(x->drop, t->name) || same(x->drop2, t->name)) {
        return false;
    }
    if (same(x->reshape, t->name)) {
        memcpy(t->dims, x->dims, sizeof(x->dims));
        t->n_dims = x->n_dims;
    }
    if (same(x->retype, t->name)) {
        t->type_name = x->type;
        t->format = weight_format_by_name(x->type);
    }
    if (same(x->rename, t->name)) {
        t->name = x->to;
    }
    return true;
}

static const char *write_safetensors(const char *folder, const struct container *c, const struct edit *x)
{
    struct safetensors_writer *w;
    struct error e = { 0 };
    assert_int_equal(safetensors_writer_create(text("%s/model.safetensors", folder), &w, &e), 0);
    for (size_t i = 0; i < c->n_tensors; i++) {
        struct tensor t = c->tensors[i];
        if (apply(x, &t)) {
            assert_int_equal(safetensors_writer_declare(w, t.name, t.type_name, t.dims, t.n_dims, &e), 0);
        }
    }
    if (x->add != NULL) {
        assert_int_equal(safetensors_writer_declare(w, x->add, "F32", (uint64_t[]){ 2 }, 1, &e), 0);
    }
    assert_int_equal(safetensors_writer_begin(w, &e), 0);
    assert_int_equal(safetensors_writer_finish(w, true, &e), 0);
    safetensors_writer_destroy(w);
    return folder;
}

static const char *write_gguf(const char *folder, const struct container *c, const struct edit *x)
{
    struct gguf_writer *w;
    struct error e = { 0 };
    assert_int_equal(gguf_writer_create(text("%s/model.gguf", folder), 32, &w, &e), 0);
    for (size_t i = 0; i < c->meta.n; i++) {
        if (!same(x->drop_key, c->meta.values[i].key)) {
            gguf_writer_value(w, &c->meta.values[i]);
        }
    }
    for (size_t i = 0; i < c->n_tensors; i++) {
        struct tensor t = c->tensors[i];
        if (apply(x, &t)) {
            assert_int_equal(gguf_writer_tensor(w, t.name, t.format, t.dims, t.n_dims, &e), 0);
        }
    }
    if (x->add != NULL) {
        assert_int_equal(gguf_writer_tensor(w, x->add, FORMAT_F32, (uint64_t[]){ 2 }, 1, &e), 0);
    }
    assert_int_equal(gguf_writer_begin(w, &e), 0);
    assert_int_equal(gguf_writer_finish(w, true, &e), 0);
    gguf_writer_destroy(w);
    return text("%s/model.gguf", folder);
}

const char *write_edited(const char *folder, const char *origin, const struct edit *edit, const char *config)
{
    const struct container_options options = { .allow_header_only = true };
    struct container *c;
    struct error e = { 0 };
    if (container_open(origin, &options, &c, &e) != 0) {
        fail_msg("%s", e.text);
    }
    const char *path;
    if (c->kind == CONTAINER_GGUF) {
        path = write_gguf(folder, c, edit);
    } else {
        path = write_safetensors(folder, c, edit);
        size_t len;
        char *own = config == NULL ? read_text(text("%s/config.json", c->folder), &len) : NULL;
        write_text(text("%s/config.json", folder), config != NULL ? config : own);
        free(own);
    }
    container_close(c);
    return path;
}

int open_weights(const char *path, const char *mtp_from, bool mtp, struct weights **ret, struct error *e)
{
    const struct bind_options options = { .path = path, .mtp_from = mtp_from, .mtp = mtp, .group_routing = true,
                                          .allow_header_only = true };
    *e = (struct error){ 0 };
    return weights_open(&options, ret, e);
}
