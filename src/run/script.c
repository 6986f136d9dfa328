/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the scripted model (script.h). */
#include "src/run/script.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "src/base/json_text.h"

enum { SCRIPT_FILE_MAX = 64 << 20 };

bool script_is_path(const char *path)
{
    static const char suffix[] = ".script.json";
    size_t n = strlen(path);
    return n >= sizeof(suffix) && strcmp(path + n - (sizeof(suffix) - 1), suffix) == 0;
}

/* Integer member in [low, high], `fallback` if absent. */
static int member(const json_t *j, const char *key, json_int_t fallback, json_int_t low, json_int_t high, const char *path, uint32_t *ret, struct error *e)
{
    const json_t *v = json_object_get(j, key);
    json_int_t n = v ? json_integer_value(v) : fallback;
    if ((v && !json_is_integer(v)) || n < low || n > high) {
        return error_set(e, ERROR_FORMAT, "%s: \"%s\" must be an integer from %lld to %lld", path, key, (long long)low, (long long)high);
    }
    *ret = (uint32_t)n;
    return 0;
}

static int read_tokens(struct script *s, const json_t *j, const char *path, struct error *e)
{
    const json_t *list = json_object_get(j, "tokens");
    size_t n = json_array_size(list);
    if (n == 0 || n > UINT32_MAX / 8) {
        return error_set(e, ERROR_FORMAT, "%s: \"tokens\" must be a list of ids", path);
    }
    s->tokens = malloc(n * sizeof(*s->tokens));
    if (!s->tokens) {
        return error_nomem(e, "script tokens", n * sizeof(*s->tokens));
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= s->shape.vocab) {
            return error_set(e, ERROR_FORMAT, "%s: tokens[%zu] is no id below %u (\"vocab\")", path, i, s->shape.vocab);
        }
        s->tokens[s->n++] = (int32_t)json_integer_value(v);
    }
    return 0;
}

static int read_tokenizer(struct script *s, const json_t *j, const char *path, struct error *e)
{
    const char *name = json_string_value(json_object_get(j, "tokenizer")), *slash = strrchr(path, '/');
    if (!name) {
        return 0;
    }
    char *folder = slash && name[0] != '/' ? strndup(path, (size_t)(slash - path)) : strdup(name[0] == '/' ? "" : ".");
    s->tokenizer = !folder ? NULL : name[0] == '/' ? strdup(name) : file_join(folder, name);
    free(folder);
    return s->tokenizer ? 0 : error_nomem(e, "script path", strlen(path));
}

static void shape_minimal(struct shape *s)
{
    strcpy(s->family, "script");
    s->hidden = s->heads = s->kv_lora = s->nope = s->rope = s->v_head = s->dense_width = 1;
    s->layers = s->dense_layers = s->moe_layer_freq = s->groups = s->groups_used = 1;
    s->bos = -1;
}

static int script_parse(struct script *s, const char *text, size_t len, const char *path, struct error *e)
{
    json_t *j = NULL;
    uint32_t eos = 0;
    int r = json_text_parse(text, len, 0, &j, e);
    if (r < 0) {
        return error_prefix(e, r, "%s", path);
    }
    shape_minimal(&s->shape);
    r = member(j, "vocab", 4096, 1, 1 << 24, path, &s->shape.vocab, e);
    r = r < 0 ? r : member(j, "context", 4096, 1, 1 << 24, path, &s->shape.max_positions, e);
    r = r < 0 ? r : member(j, "delay_ms", 0, 0, 600000, path, &s->delay_ms, e);
    if (r == 0 && json_object_get(j, "eos")) {
        r = member(j, "eos", 0, 0, (json_int_t)s->shape.vocab - 1, path, &eos, e);
        s->shape.eos[0] = (int32_t)eos;
        s->shape.n_eos = 1;
    }
    r = r < 0 ? r : read_tokens(s, j, path, e);
    r = r < 0 ? r : read_tokenizer(s, j, path, e);
    json_decref(j);
    return r;
}

int script_open(const char *path, struct script **ret, struct error *e)
{
    char *text;
    size_t len;
    int r = file_read_all(path, SCRIPT_FILE_MAX, &text, &len, e);
    if (r < 0) {
        return r;
    }
    struct script *s = calloc(1, sizeof(*s));
    r = s ? script_parse(s, text, len, path, e) : error_nomem(e, "script", sizeof(*s));
    free(text);
    if (r < 0) {
        script_close(s);
        return r;
    }
    *ret = s;
    return 0;
}

void script_close(struct script *s)
{
    if (s) {
        free(s->tokenizer);
        free(s->tokens);
        free(s);
    }
}

void script_logits(const struct script *s, uint32_t position, float *logits)
{
    memset(logits, 0, s->shape.vocab * sizeof(*logits));
    logits[s->tokens[position < s->n ? position : s->n - 1]] = 100.0f;
}
