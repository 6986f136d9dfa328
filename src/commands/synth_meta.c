/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: keys of a synthetic model as today's converters write them, and a tokenizer of the 256 byte symbols, a few merges
 * and the end tokens, padded to the vocabulary. Must not know: tensors. */
#include "src/commands/synth_meta.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/str.h"

static void put_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    char full[96];
    snprintf(full, sizeof(full), "deepseek2.%s", key);
    gguf_writer_integer(w, full, GGUF_U32, value);
}

static void put_f32(struct gguf_writer *w, const char *key, double value)
{
    char full[96];
    snprintf(full, sizeof(full), "deepseek2.%s", key);
    gguf_writer_float(w, full, GGUF_F32, value);
}

static void put_text(struct gguf_writer *w, const char *key, const char *text) { gguf_writer_string(w, key, text, strlen(text)); }

static void write_architecture(struct gguf_writer *w, const struct synth_model *m)
{
    const struct shape *s = &m->shape;
    char name[64];
    snprintf(name, sizeof(name), "synthetic %s", m->name);
    put_text(w, "general.architecture", "deepseek2");
    put_text(w, "general.type", "model");
    put_text(w, "general.name", name);
    gguf_writer_integer(w, "general.quantization_version", GGUF_U32, 2);
    put_u32(w, "block_count", shape_all_layers(s));
    put_u32(w, "context_length", s->max_positions);
    put_u32(w, "embedding_length", s->hidden);
    put_u32(w, "feed_forward_length", s->dense_width);
    put_u32(w, "vocab_size", s->vocab);
    put_u32(w, "leading_dense_block_count", s->dense_layers);
    if (s->mtp_layers > 0) {
        put_u32(w, "nextn_predict_layers", s->mtp_layers);
    }
}

static void write_attention(struct gguf_writer *w, const struct synth_model *m)
{
    const struct shape *s = &m->shape;
    put_u32(w, "attention.head_count", s->heads);
    put_u32(w, "attention.head_count_kv", 1);
    put_u32(w, "attention.key_length", s->kv_lora + s->rope);
    put_u32(w, "attention.value_length", s->kv_lora);
    put_u32(w, "attention.key_length_mla", shape_q_head(s));
    put_u32(w, "attention.value_length_mla", s->v_head);
    if (s->q_lora > 0) {
        put_u32(w, "attention.q_lora_rank", s->q_lora);
    }
    put_u32(w, "attention.kv_lora_rank", s->kv_lora);
    put_f32(w, "attention.layer_norm_rms_epsilon", s->rms_eps);
    put_u32(w, "rope.dimension_count", s->rope);
    put_f32(w, "rope.freq_base", s->rope_theta);
    put_text(w, "deepseek2.rope.scaling.type", "yarn");
    put_f32(w, "rope.scaling.factor", s->yarn_factor);
    put_u32(w, "rope.scaling.original_context_length", s->yarn_original);
    put_f32(w, "rope.scaling.yarn_log_multiplier", 0.1 * m->mscale_all_dim);
    put_f32(w, "rope.scaling.yarn_beta_fast", s->yarn_beta_fast);
    put_f32(w, "rope.scaling.yarn_beta_slow", s->yarn_beta_slow);
}

static void write_experts(struct gguf_writer *w, const struct shape *s)
{
    put_u32(w, "expert_count", s->experts);
    put_u32(w, "expert_used_count", s->experts_used);
    put_u32(w, "expert_shared_count", s->shared_width / s->expert_width);
    put_u32(w, "expert_feed_forward_length", s->expert_width);
    put_f32(w, "expert_weights_scale", s->routed_factor);
    put_u32(w, "expert_gating_func", s->score == ROUTER_SIGMOID ? 2 : 1);
    put_u32(w, "expert_group_count", s->groups);
    put_u32(w, "expert_group_used_count", s->groups_used);
    gguf_writer_integer(w, "deepseek2.expert_weights_norm", GGUF_BOOL, s->normalise);
}

/* ---- tokenizer ---- */

enum { TOKEN_BYTES = 48, TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_UNUSED = 5 };

/* Pairs joined into tokens of their own, so that there is something to merge. */
static const char *const pairs[][2] = {{"t", "h"}, {"th", "e"}, {"i", "n"}, {"a", "n"}, {"e", "r"}, {"o", "n"}, {"r", "e"}, {"\xC4\xA0", "the"}};

struct vocabulary {
    char (*text)[TOKEN_BYTES];    /* [n] */
    int32_t *type;                /* [n] */
    struct gguf_string *strings;  /* [n] */
    uint32_t n, next;
};

/* The character that stands for a byte in byte-level vocabularies (docs/tokenizer.md). */
static uint32_t byte_symbol(uint32_t byte)
{
    uint32_t others = 0;
    for (uint32_t b = 0; b <= byte; b++) {
        bool same = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        if (b == byte) {
            return same ? b : 0x100 + others;
        }
        others += !same;
    }
    return byte;
}

static void encode_symbol(uint32_t symbol, char *out)
{
    if (symbol < 0x80) {
        out[0] = (char)symbol;
        out[1] = '\0';
    } else { /* at most U+0143 */
        out[0] = (char)(0xc0 | symbol >> 6);
        out[1] = (char)(0x80 | (symbol & 0x3f));
        out[2] = '\0';
    }
}

static void set_token(struct vocabulary *v, uint32_t id, const char *text, int32_t type)
{
    snprintf(v->text[id], TOKEN_BYTES, "%s", text);
    v->type[id] = type;
}

/* Next free id; the caller has checked that there is room. */
static void add_token(struct vocabulary *v, const char *text)
{
    while (v->type[v->next] != 0) {
        v->next++;
    }
    set_token(v, v->next, text, TYPE_NORMAL);
}

static void fill_vocabulary(struct vocabulary *v, const struct shape *s)
{
    char text[TOKEN_BYTES];
    set_token(v, (uint32_t)s->bos, "<\xEF\xBD\x9C" "begin\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>", TYPE_CONTROL);
    set_token(v, (uint32_t)s->eos[0], "<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>", TYPE_CONTROL);
    for (uint32_t b = 0; b < 256; b++) {
        encode_symbol(byte_symbol(b), text);
        add_token(v, text);
    }
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        snprintf(text, sizeof(text), "%s%s", pairs[i][0], pairs[i][1]);
        add_token(v, text);
    }
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->type[i] == 0) {
            snprintf(text, sizeof(text), "[PAD%u]", i);
            set_token(v, i, text, TYPE_UNUSED);
        }
        v->strings[i] = (struct gguf_string){v->text[i], strlen(v->text[i])};
    }
}

static void write_vocabulary(struct gguf_writer *w, const struct synth_model *m, const struct vocabulary *v)
{
    char merges[ARRAY_LEN(pairs)][2 * TOKEN_BYTES];
    struct gguf_string merge_strings[ARRAY_LEN(pairs)];
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        snprintf(merges[i], sizeof(merges[i]), "%s %s", pairs[i][0], pairs[i][1]);
        merge_strings[i] = (struct gguf_string){merges[i], strlen(merges[i])};
    }
    put_text(w, "tokenizer.ggml.model", "gpt2");
    put_text(w, "tokenizer.ggml.pre", m->pre);
    gguf_writer_array(w, "tokenizer.ggml.tokens", GGUF_STRING, NULL, v->strings, v->n);
    gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->type, NULL, v->n);
    gguf_writer_array(w, "tokenizer.ggml.merges", GGUF_STRING, NULL, merge_strings, ARRAY_LEN(pairs));
    gguf_writer_integer(w, "tokenizer.ggml.bos_token_id", GGUF_U32, (uint32_t)m->shape.bos);
    gguf_writer_integer(w, "tokenizer.ggml.eos_token_id", GGUF_U32, (uint32_t)m->shape.eos[0]);
    gguf_writer_integer(w, "tokenizer.ggml.padding_token_id", GGUF_U32, (uint32_t)m->shape.eos[0]);
    gguf_writer_integer(w, "tokenizer.ggml.add_bos_token", GGUF_BOOL, 1);
    gguf_writer_integer(w, "tokenizer.ggml.add_eos_token", GGUF_BOOL, 0);
}

int synth_meta_write(struct gguf_writer *w, const struct synth_model *m, struct error *e)
{
    struct vocabulary v = {.n = m->shape.vocab};
    v.text = calloc(v.n, sizeof(*v.text));
    v.type = calloc(v.n, sizeof(*v.type));
    v.strings = calloc(v.n, sizeof(*v.strings));
    int r = v.text != NULL && v.type != NULL && v.strings != NULL ? 0 : error_nomem(e, "vocabulary", v.n * sizeof(*v.text));
    if (r == 0) {
        write_architecture(w, m);
        write_attention(w, m);
        write_experts(w, &m->shape);
        fill_vocabulary(&v, &m->shape);
        write_vocabulary(w, m, &v);
    }
    free(v.text);
    free(v.type);
    free(v.strings);
    return r;
}
