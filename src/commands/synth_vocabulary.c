/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the synthetic vocabulary and its two spellings. Must not know: tensors, files. */
#include "src/commands/synth_vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/pretokenizer.h"

enum { TOKEN_BYTES = 48, TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_UNUSED = 5 };

/* Pairs joined into tokens of their own, so that there is something to merge. */
static const char *const pairs[][2] = {{"t", "h"}, {"th", "e"}, {"i", "n"}, {"a", "n"}, {"e", "r"}, {"o", "n"}, {"r", "e"}, {"\xC4\xA0", "the"}};

struct synth_vocabulary {
    const struct synth_model *model;
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

static void set_token(struct synth_vocabulary *v, uint32_t id, const char *text, int32_t type)
{
    snprintf(v->text[id], TOKEN_BYTES, "%s", text);
    v->type[id] = type;
}

/* Next free id; every shape has room. */
static void add_token(struct synth_vocabulary *v, const char *text)
{
    while (v->type[v->next] != 0) {
        v->next++;
    }
    set_token(v, v->next, text, TYPE_NORMAL);
}

static void fill(struct synth_vocabulary *v, const struct shape *s)
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

int synth_vocabulary_create(const struct synth_model *m, struct synth_vocabulary **ret, struct error *e)
{
    struct synth_vocabulary *v = calloc(1, sizeof(*v));
    if (v == NULL) {
        return error_nomem(e, "vocabulary", sizeof(*v));
    }
    v->model = m;
    v->n = m->shape.vocab;
    v->text = calloc(v->n, sizeof(*v->text));
    v->type = calloc(v->n, sizeof(*v->type));
    v->strings = calloc(v->n, sizeof(*v->strings));
    if (v->text == NULL || v->type == NULL || v->strings == NULL) {
        synth_vocabulary_destroy(v);
        return error_nomem(e, "vocabulary", v->n * sizeof(*v->text));
    }
    fill(v, &m->shape);
    *ret = v;
    return 0;
}

void synth_vocabulary_destroy(struct synth_vocabulary *v)
{
    if (v != NULL) {
        free(v->text);
        free(v->type);
        free(v->strings);
        free(v);
    }
}

/* ---- GGUF ---- */

static void put_text(struct gguf_writer *w, const char *key, const char *text) { gguf_writer_string(w, key, text, strlen(text)); }

void synth_vocabulary_gguf(const struct synth_vocabulary *v, struct gguf_writer *w)
{
    char merges[ARRAY_LEN(pairs)][2 * TOKEN_BYTES];
    struct gguf_string merge_strings[ARRAY_LEN(pairs)];
    const struct shape *s = &v->model->shape;
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        snprintf(merges[i], sizeof(merges[i]), "%s %s", pairs[i][0], pairs[i][1]);
        merge_strings[i] = (struct gguf_string){merges[i], strlen(merges[i])};
    }
    put_text(w, "tokenizer.ggml.model", "gpt2");
    put_text(w, "tokenizer.ggml.pre", v->model->pre);
    gguf_writer_array(w, "tokenizer.ggml.tokens", GGUF_STRING, NULL, v->strings, v->n);
    gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->type, NULL, v->n);
    gguf_writer_array(w, "tokenizer.ggml.merges", GGUF_STRING, NULL, merge_strings, ARRAY_LEN(pairs));
    gguf_writer_integer(w, "tokenizer.ggml.bos_token_id", GGUF_U32, (uint32_t)s->bos);
    gguf_writer_integer(w, "tokenizer.ggml.eos_token_id", GGUF_U32, (uint32_t)s->eos[0]);
    gguf_writer_integer(w, "tokenizer.ggml.padding_token_id", GGUF_U32, (uint32_t)s->eos[0]);
    gguf_writer_integer(w, "tokenizer.ggml.add_bos_token", GGUF_BOOL, 1);
    gguf_writer_integer(w, "tokenizer.ggml.add_eos_token", GGUF_BOOL, 0);
}

/* ---- tokenizer.json ---- */

static void put_string(struct str *out, const char *text) { str_json(out, text, strlen(text)); }

static void put_pre_tokenizer(struct str *out, const char *name)
{
    str_puts(out, "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n");
    for (const char *const *pattern = pretokenizer_patterns(name, strlen(name)); *pattern != NULL; pattern++) {
        str_puts(out, "    {\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        put_string(out, *pattern);
        str_puts(out, "}, \"behavior\": \"Isolated\", \"invert\": false},\n");
    }
    str_puts(out, "    {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false}\n  ]},\n");
}

static void put_added(struct str *out, const struct synth_vocabulary *v)
{
    const char *comma = "";
    str_puts(out, "  \"added_tokens\": [");
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->type[i] == TYPE_CONTROL) {
            str_printf(out, "%s\n    {\"id\": %u, \"content\": ", comma, i);
            put_string(out, v->text[i]);
            str_puts(out, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}");
            comma = ",";
        }
    }
    str_puts(out, "\n  ],\n");
}

static void put_model(struct str *out, const struct synth_vocabulary *v)
{
    const char *comma = "";
    str_printf(out, "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"fuse_unk\": false, \"byte_fallback\": false, "
               "\"ignore_merges\": %s,\n    \"vocab\": {", strcmp(v->model->pre, "kimi-k2") == 0 ? "true" : "false");
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->type[i] == TYPE_NORMAL) {
            str_puts(out, comma);
            put_string(out, v->text[i]);
            str_printf(out, ": %u", i);
            comma = ", ";
        }
    }
    str_puts(out, "},\n    \"merges\": [");
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        str_printf(out, "%s\"%s %s\"", i > 0 ? ", " : "", pairs[i][0], pairs[i][1]);
    }
    str_puts(out, "]}\n}\n");
}

void synth_vocabulary_json(const struct synth_vocabulary *v, struct str *tokenizer, struct str *config)
{
    const char *bos = v->text[v->model->shape.bos], *eos = v->text[v->model->shape.eos[0]];
    str_puts(tokenizer, "{\n  \"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n");
    put_added(tokenizer, v);
    str_puts(tokenizer, "  \"normalizer\": null,\n");
    put_pre_tokenizer(tokenizer, v->model->pre);
    str_puts(tokenizer, "  \"post_processor\": null,\n  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
             "\"use_regex\": true},\n");
    put_model(tokenizer, v);
    str_printf(config, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"add_bos_token\": true,\n  \"add_eos_token\": false,\n"
               "  \"bos_token\": \"%s\",\n  \"eos_token\": \"%s\",\n  \"pad_token\": \"%s\",\n  \"model_max_length\": %u\n}\n", bos, eos, eos,
               v->model->shape.max_positions);
}
