/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reference models through the public API: logits, hidden states, routing, draft logits and greedy tokens of
 * tests/data/golden/FOLDER with float32 activations and KV, for several chunk sizes. usage: golden FOLDER MODEL */
#undef NDEBUG
#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/attr.h"
#include "tests/run/harness.h"

/* A safetensors file in memory: small and trusted. */
struct arrays {
    json_t *header;
    unsigned char *data;
};

static struct arrays arrays_load(const char *folder)
{
    char path[512];
    struct arrays a;
    uint64_t n;
    snprintf(path, sizeof(path), "%s/expect.safetensors", folder);
    FILE *f = fopen(path, "rb");
    assert(f && fread(&n, 8, 1, f) == 1);
    char *head = malloc(n);
    assert(head && fread(head, 1, n, f) == n);
    a.header = json_loadb(head, n, 0, NULL);
    long begin = ftell(f);
    assert(a.header && fseek(f, 0, SEEK_END) == 0);
    long size = ftell(f) - begin;
    a.data = malloc((size_t)size);
    assert(a.data && fseek(f, begin, SEEK_SET) == 0 && fread(a.data, 1, (size_t)size, f) == (size_t)size);
    fclose(f);
    free(head);
    return a;
}

/* Data of "name" or "name.i"; ret_dims: up to 3. NULL if absent. */
static const void *array(const struct arrays *a, const char *name, int i, size_t ret_dims[3])
{
    char key[64];
    snprintf(key, sizeof(key), i < 0 ? "%s" : "%s.%d", name, i);
    const json_t *t = json_object_get(a->header, key);
    if (!t) {
        return NULL;
    }
    const json_t *shape = json_object_get(t, "shape");
    for (size_t d = 0; d < 3; d++) {
        ret_dims[d] = d < json_array_size(shape) ? (size_t)json_integer_value(json_array_get(shape, d)) : 1;
    }
    return a->data + json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0));
}

/* Everything the hooks saw of one pass. */
struct seen {
    struct sluice_model_info info;
    float *logits, *mtp, *hidden;  /* [n, vocab], [n, vocab], [layers, n, hidden] */
    int32_t *ids;                  /* [layers + 1, n, k] */
    float *weights;
    uint32_t n;
};

static void on_logits(void *ctx, uint32_t p, const float *x)
{
    struct seen *s = ctx;
    memcpy(s->logits + (size_t)p * s->info.vocab, x, s->info.vocab * sizeof(float));
}

static void on_mtp(void *ctx, uint32_t row, const float *x)
{
    struct seen *s = ctx;
    memcpy(s->mtp + (size_t)row * s->info.vocab, x, s->info.vocab * sizeof(float));
}

static void on_hidden(void *ctx, uint32_t layer, uint32_t p, const float *x)
{
    struct seen *s = ctx;
    assert(layer < s->info.layers && p < s->n);
    memcpy(s->hidden + ((size_t)layer * s->n + p) * s->info.hidden, x, s->info.hidden * sizeof(float));
}

static void on_route(void *ctx, uint32_t layer, uint32_t p, const int32_t *ids, const float *w)
{
    struct seen *s = ctx;
    uint32_t k = s->info.experts_used;
    assert(layer <= s->info.layers && p < s->n);
    memcpy(s->ids + ((size_t)layer * s->n + p) * k, ids, k * sizeof(*ids));
    memcpy(s->weights + ((size_t)layer * s->n + p) * k, w, k * sizeof(*w));
}

static struct seen pass(struct sluice_engine *g, const int32_t *tokens, uint32_t n, bool mtp)
{
    struct seen s = {.n = n};
    struct sluice_session *t;
    struct sluice_error e;
    sluice_engine_info(g, &s.info);
    size_t k = (size_t)(s.info.layers + 1) * n * (s.info.experts_used ? s.info.experts_used : 1);
    s.logits = calloc((size_t)n * s.info.vocab, sizeof(float));
    s.mtp = calloc((size_t)n * s.info.vocab, sizeof(float));
    s.hidden = calloc((size_t)s.info.layers * n * s.info.hidden, sizeof(float));
    s.ids = calloc(k, sizeof(*s.ids));
    s.weights = calloc(k, sizeof(*s.weights));
    assert(s.logits && s.mtp && s.hidden && s.ids && s.weights);
    struct sluice_session_options o = {.mtp = mtp, .hooks = {.on_logits = on_logits, .on_mtp = on_mtp, .on_hidden = on_hidden, .on_route = on_route, .ctx = &s}};
    assert(sluice_session_create(g, &o, &t, &e) == 0);
    harness_feed(t, tokens, n);
    sluice_session_destroy(t);
    return s;
}

static void seen_deinit(struct seen *s)
{
    free(s->logits);
    free(s->mtp);
    free(s->hidden);
    free(s->ids);
    free(s->weights);
}

static void near(const float *got, const float *want, size_t n, float tolerance, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(got[i] - want[i]) <= tolerance)) {
            fprintf(stderr, "%s: element %zu is %.7g, the reference has %.7g\n", what, i, (double)got[i], (double)want[i]);
            abort();
        }
    }
}

static void check_routing(const struct seen *s, const struct arrays *a, int i)
{
    size_t d[3];
    const int32_t *ids = array(a, "router.ids", i, d);
    const float *w = array(a, "router.weights", i, d);
    assert(ids && w && d[0] == s->info.layers - s->info.first_moe_layer && d[1] == s->n && d[2] == s->info.experts_used);
    size_t at = (size_t)s->info.first_moe_layer * d[1] * d[2], n = d[0] * d[1] * d[2];
    assert(memcmp(s->ids + at, ids, n * sizeof(*ids)) == 0);
    near(s->weights + at, w, n, 1e-4f, "router weights");
}

static int32_t *ids_of(const json_t *list, uint32_t *ret_n)
{
    *ret_n = (uint32_t)json_array_size(list);
    int32_t *ids = malloc((*ret_n + 1) * sizeof(*ids));
    assert(ids);
    for (uint32_t i = 0; i < *ret_n; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    }
    return ids;
}

static void check_greedy(struct sluice_engine *g, const int32_t *tokens, uint32_t n, const json_t *want)
{
    struct sluice_session *t;
    struct sluice_sampler *sampler;
    struct sluice_sampling p;
    struct sluice_error e;
    sluice_sampling_init(&p);
    p.temperature = 0.0f;
    assert(sluice_session_create(g, NULL, &t, &e) == 0 && sluice_sampler_create(g, &p, &sampler, &e) == 0);
    harness_feed(t, tokens, n);
    for (size_t i = 0; i < json_array_size(want); i++) {
        struct sluice_choice c;
        assert(sluice_sample(sampler, t, &c, NULL, 0, &e) == 0);
        assert(c.token == json_integer_value(json_array_get(want, i)));
        harness_feed(t, &c.token, 1);
    }
    sluice_sampler_destroy(sampler);
    sluice_session_destroy(t);
}

static void check_prompt(struct sluice_engine *g, const struct arrays *a, const json_t *prompt, int i)
{
    uint32_t n;
    size_t d[3];
    int32_t *tokens = ids_of(json_object_get(prompt, "ids"), &n);
    const json_t *rows = json_object_get(prompt, "logit_rows");
    size_t lo = (size_t)json_integer_value(json_array_get(rows, 0)), hi = (size_t)json_integer_value(json_array_get(rows, 1));
    struct seen s = pass(g, tokens, n, false);
    const float *want = array(a, "logits", i, d);
    assert(want && d[0] == hi - lo && d[1] == s.info.vocab);
    near(s.logits + lo * s.info.vocab, want, d[0] * d[1], 1e-3f, "logits");
    check_routing(&s, a, i);
    want = array(a, "hidden", i, d);
    if (want) {
        assert(d[0] == s.info.layers && d[1] == n && d[2] == s.info.hidden);
        near(s.hidden, want, d[0] * d[1] * d[2], 1e-3f, "hidden states");
    }
    check_greedy(g, tokens, n, json_object_get(prompt, "greedy"));
    seen_deinit(&s);
    free(tokens);
}

/* MTP rows over prompt 1 and the first greedy token; row i pairs position i with token i + 1. */
static void check_mtp(struct sluice_engine *g, const struct arrays *a, const json_t *e)
{
    const json_t *mtp = json_object_get(e, "mtp"), *next = json_object_get(mtp, "next_ids");
    const json_t *prompt = json_array_get(json_object_get(e, "prompts"), (size_t)json_integer_value(json_object_get(mtp, "prompt")));
    uint32_t n;
    size_t d[3];
    int32_t *tokens = ids_of(json_object_get(prompt, "ids"), &n);
    tokens[n] = (int32_t)json_integer_value(json_array_get(next, json_array_size(next) - 1));
    struct seen s = pass(g, tokens, n + 1, true);
    const float *want = array(a, "mtp.logits", -1, d);
    assert(want && d[0] == n && d[1] == s.info.vocab);
    near(s.mtp, want, d[0] * d[1], 1e-3f, "draft logits");
    const int32_t *ids = array(a, "mtp.router.ids", -1, d);
    assert(ids && memcmp(s.ids + (size_t)s.info.layers * (n + 1) * d[1], ids, (size_t)n * d[1] * sizeof(*ids)) == 0);
    seen_deinit(&s);
    free(tokens);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *ubatch, *bulk;
    } passes[] = {{"512", "own"}, {"512", "blas"}, {"7", "own"}, {"1", "own"}};
    char path[512];
    assert(argc == 3);
    snprintf(path, sizeof(path), "%s/expect.json", argv[1]);
    json_t *e = json_load_file(path, 0, NULL);
    assert(e);
    struct arrays a = arrays_load(argv[1]);
    const json_t *prompts = json_object_get(e, "prompts");
    for (size_t u = 0; u < ARRAY_LEN(passes); u++) {
        struct sluice_engine *g = harness_open(argv[2], "activations", "f32", "cache-type-k", "f32", "ubatch", passes[u].ubatch, "bulk", passes[u].bulk, "threads", "2", NULL);
        for (size_t i = 0; i < json_array_size(prompts); i++) {
            check_prompt(g, &a, json_array_get(prompts, i), (int)i);
        }
        if (json_object_get(e, "mtp")) {
            check_mtp(g, &a, e);
        }
        sluice_engine_close(g);
        printf("ok -ub %s --bulk %s\n", passes[u].ubatch, passes[u].bulk);
    }
    json_decref(a.header);
    free(a.data);
    json_decref(e);
    return 0;
}
