/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: sluice score: log-probabilities of a given text, and dumps of what the model computed on the way.
 * Must not know: generation. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/cli/cli.h"
#include "src/cli/dump.h"
#include "src/cli/input.h"
#include "src/cli/prompt.h"
#include "src/cli/report.h"
#include "src/cli/timeline.h"

struct score_args {
    const char *tokens, *tokens_file, *text, *file, *dump;
    bool json;
    struct verbosity verbosity;
};

/* What the hooks write to. Dump arrays: logits, hidden.0.., then ids and weights of each routed layer, then the MTP
 * layer's ids and weights, then mtp.logits. */
struct score {
    struct ids tokens;
    struct str text; /* --text or the file of -f */
    double *logprobs; /* [tokens.n], [0] unused */
    struct sluice_model_info info;
    struct dump *dump; /* NULL: none */
    uint32_t first_hidden, first_route, mtp_logits; /* array numbers */
    uint32_t routed_end; /* first layer without router arrays */
};

/* ln softmax(logits)[token] over all ids, those without a token included. */
static double logprob(const float *logits, uint32_t vocab, int32_t token)
{
    float max = logits[0];
    for (uint32_t i = 1; i < vocab; i++) {
        max = logits[i] > max ? logits[i] : max;
    }
    double sum = 0.0;
    for (uint32_t i = 0; i < vocab; i++) {
        sum += exp((double)logits[i] - max);
    }
    return (double)logits[token] - max - log(sum);
}

static void on_logits(void *ctx, uint32_t position, const float *logits)
{
    struct score *s = ctx;
    if (position + 1 < s->tokens.n) {
        s->logprobs[position + 1] = logprob(logits, s->info.vocab, s->tokens.item[position + 1]);
    }
    if (s->dump != NULL) {
        dump_row(s->dump, 0, position, logits);
    }
}

static void on_hidden(void *ctx, uint32_t layer, uint32_t position, const float *x)
{
    struct score *s = ctx;
    if (layer < s->info.layers) {
        dump_row(s->dump, s->first_hidden + layer, position, x);
    }
}

static void on_route(void *ctx, uint32_t layer, uint32_t position, const int32_t *ids, const float *weights)
{
    struct score *s = ctx;
    if (layer < s->info.first_moe_layer || layer >= s->routed_end) {
        return;
    }
    uint32_t array = s->first_route + 2 * (layer - s->info.first_moe_layer);
    dump_row(s->dump, array, position, ids);
    dump_row(s->dump, array + 1, position, weights);
}

static void on_mtp(void *ctx, uint32_t row, const float *logits)
{
    struct score *s = ctx;
    dump_row(s->dump, s->mtp_logits, row, logits);
}

static void add_array(struct dump_array *arrays, uint32_t *n, bool integers, uint64_t rows, uint64_t cols, const char *fmt, uint32_t layer)
{
    struct dump_array *a = &arrays[(*n)++];
    *a = (struct dump_array){ .integers = integers, .rows = rows, .cols = cols };
    snprintf(a->name, sizeof(a->name), fmt, layer);
}

static int open_dump(struct score *s, const char *path, struct sluice_error *e)
{
    const struct sluice_model_info *m = &s->info;
    uint64_t rows = s->tokens.n, drafts = rows - 1;
    struct dump_array *arrays = calloc(2 + 3 * ((size_t)m->layers + 1), sizeof(*arrays));
    if (arrays == NULL) {
        return cli_fail(e, SLUICE_FAILED, "out of memory");
    }
    uint32_t n = 0;
    add_array(arrays, &n, false, rows, m->vocab, "logits", 0);
    s->first_hidden = n;
    for (uint32_t l = 0; l < m->layers; l++) {
        add_array(arrays, &n, false, rows, m->hidden, "hidden.%u", l);
    }
    s->first_route = n;
    s->routed_end = m->mtp_layers > 0 && m->first_moe_layer < m->layers ? m->layers + 1 : m->layers;
    for (uint32_t l = m->first_moe_layer; l < s->routed_end; l++) {
        add_array(arrays, &n, true, l < m->layers ? rows : drafts, m->experts_used, "router.%u.ids", l);
        add_array(arrays, &n, false, l < m->layers ? rows : drafts, m->experts_used, "router.%u.weights", l);
    }
    s->mtp_logits = n;
    if (m->mtp_layers > 0) {
        add_array(arrays, &n, false, drafts, m->vocab, "mtp.logits", 0);
    }
    int r = dump_create(path, arrays, n, true, &s->dump, e);
    free(arrays);
    return r;
}

/* Feeds in the engine's pieces, so that a full disk ends it early. */
static int compute(struct cli *c, struct score *s, struct sluice_engine *engine, struct sluice_error *e)
{
    struct sluice_session_options o = { .hooks = { .on_logits = on_logits, .ctx = s } };
    if (s->dump != NULL) {
        o.hooks.on_hidden = on_hidden;
        o.hooks.on_route = on_route;
        o.hooks.on_mtp = on_mtp;
        o.mtp = s->info.mtp_layers > 0;
    }
    struct timeline t;
    int r = timeline_init(&t, c, engine, &o, NULL, e);
    r = r != SLUICE_OK ? r : timeline_set(&t, s->tokens.item, s->tokens.n, NULL, e);
    timeline_deinit(&t);
    return r != SLUICE_OK || s->dump == NULL ? r : dump_commit(s->dump, e);
}

static int print_result(const struct score *s, bool json, struct sluice_error *e)
{
    double sum = 0.0;
    size_t n = s->tokens.n;
    for (size_t i = 1; i < n; i++) {
        sum -= s->logprobs[i];
    }
    double mean = n > 1 ? sum / (double)(n - 1) : NAN;
    if (!json) {
        if (n > 1) {
            printf("%zu tokens, mean NLL %.6f nats, perplexity %.4f\n", n, mean, exp(mean));
        } else {
            printf("1 token: nothing to score\n");
        }
        return SLUICE_OK;
    }
    struct str out = { 0 };
    str_puts(&out, "{\"tokens\": ");
    ids_print(&out, s->tokens.item, n);
    str_puts(&out, ", \"logprobs\": [");
    for (size_t i = 1; i < n; i++) {
        str_puts(&out, i == 1 ? "" : ", ");
        report_number(&out, s->logprobs[i]);
    }
    str_puts(&out, "], \"nll_mean\": ");
    report_number(&out, mean);
    str_puts(&out, ", \"perplexity\": ");
    report_number(&out, exp(mean));
    str_puts(&out, "}\n");
    int r = out.failed ? cli_fail(e, SLUICE_FAILED, "out of memory") : SLUICE_OK;
    if (r == SLUICE_OK) {
        fwrite(out.data, 1, out.len, stdout);
    }
    str_deinit(&out);
    return r;
}

static int read_tokens_file(struct cli *c, const char *path, struct ids *out, struct sluice_error *e)
{
    json_t *root = NULL;
    int r = input_json(&c->signals, path, &root, e);
    r = r != SLUICE_OK ? r : ids_from_json(root, path, out, e);
    json_decref(root);
    return r;
}

static int take_text(struct score *s, const struct sluice_engine *engine, struct sluice_error *e)
{
    const struct sluice_tokenizer *t = sluice_engine_tokenizer(engine);
    if (t == NULL) {
        return cli_fail(e, SLUICE_USAGE, "--text, -f: the model has no tokenizer; give ids with --tokens");
    }
    return prompt_text_ids(t, s->text.data, s->text.len, true, &s->tokens, e);
}

static int check_tokens(const struct score *s, struct sluice_error *e)
{
    if (s->tokens.n == 0) {
        return cli_fail(e, SLUICE_USAGE, "no tokens to score; give at least one");
    }
    for (size_t i = 0; i < s->tokens.n; i++) {
        if ((uint32_t)s->tokens.item[i] >= s->info.vocab) {
            return cli_fail(e, SLUICE_USAGE, "token %zu is %d; the model has ids 0 to %u", i, (int)s->tokens.item[i], s->info.vocab - 1);
        }
    }
    return SLUICE_OK;
}

static int score_with(struct cli *c, const struct score_args *a, const struct sluice_options *options, struct score *s, struct sluice_error *e)
{
    if ((a->tokens != NULL) + (a->tokens_file != NULL) + (a->text != NULL) + (a->file != NULL) != 1) {
        return cli_fail(e, SLUICE_USAGE, "nothing to score, or too much; give one of --tokens, --tokens-file, --text and -f");
    }
    struct sluice_engine *engine = NULL;
    int r = a->tokens != NULL ? ids_parse(a->tokens, "--tokens", &s->tokens, e) : SLUICE_OK;
    r = r != SLUICE_OK || a->tokens_file == NULL ? r : read_tokens_file(c, a->tokens_file, &s->tokens, e);
    r = r != SLUICE_OK || a->file == NULL ? r : input_read(&c->signals, a->file, &s->text, e);
    str_puts(&s->text, a->text != NULL ? a->text : "");
    if (r == SLUICE_OK && s->text.failed) {
        r = cli_fail(e, SLUICE_FAILED, "out of memory");
    }
    r = r != SLUICE_OK ? r : cli_open(c, options, &engine, e);
    if (r == SLUICE_OK) {
        sluice_engine_info(engine, &s->info);
        r = a->text != NULL || a->file != NULL ? take_text(s, engine, e) : SLUICE_OK;
    }
    r = r != SLUICE_OK ? r : check_tokens(s, e);
    if (r == SLUICE_OK) {
        s->logprobs = calloc(s->tokens.n, sizeof(*s->logprobs));
        r = s->logprobs == NULL ? cli_fail(e, SLUICE_FAILED, "out of memory") : SLUICE_OK;
    }
    r = r != SLUICE_OK || a->dump == NULL ? r : open_dump(s, a->dump, e);
    r = r != SLUICE_OK ? r : compute(c, s, engine, e);
    r = r != SLUICE_OK ? r : print_result(s, a->json, e);
    dump_destroy(s->dump);
    sluice_engine_close(engine);
    return r;
}

static int parse_and_score(struct cli *c, int argc, char **argv, struct sluice_options *options, struct sluice_error *e)
{
    struct score_args a = { 0 };
    struct score s = { 0 };
    const struct arg args[] = {
        { "--tokens", NULL, ARG_TEXT, "LIST", "ids, 5,17,23; nothing is added", &a.tokens, NULL },
        { "--tokens-file", NULL, ARG_TEXT, "FILE", "ids as one JSON list", &a.tokens_file, NULL },
        { "--text", NULL, ARG_TEXT, "TEXT", "text; starts with the begin token if the model has it so", &a.text, NULL },
        { "--file", "-f", ARG_TEXT, "FILE", "text from a file (-: stdin), as it is", &a.file, NULL },
        { "--dump", NULL, ARG_TEXT, "FILE", "logits, hidden states and routing as safetensors", &a.dump, NULL },
        { "--json", NULL, ARG_SWITCH, NULL, "tokens and their log-probabilities as JSON", &a.json, NULL },
        VERBOSITY_ARGS(&a.verbosity),
    };
    const struct args_spec spec = {
        .command = "score", .usage = "-m PATH (--tokens LIST | --tokens-file FILE | --text TEXT | -f FILE) [flags]",
        .summary = "How likely the model finds a given text: log-probabilities (natural log), perplexity, routing.",
        .examples = "  sluice score -m models/demo --text \"It is a truth universally acknowledged\"\n"
                    "  sluice score -m models/demo --tokens 0,2563,339 --dump out.safetensors --json\n",
        .args = args, .n = ARRAY_LEN(args), .settings = true,
    };
    bool help;
    int r = args_parse(&spec, argc, argv, options, &help, e);
    if (r == SLUICE_OK && !help) {
        cli_set_verbosity(c, &a.verbosity);
        r = score_with(c, &a, options, &s, e);
    }
    ids_deinit(&s.tokens);
    str_deinit(&s.text);
    free(s.logprobs);
    return r;
}

int cli_score(struct cli *c, int argc, char **argv)
{
    struct sluice_error e = { 0 };
    struct sluice_options *options = NULL;
    int r = cli_options(&options, &e);
    r = r != SLUICE_OK ? r : parse_and_score(c, argc, argv, options, &e);
    sluice_options_destroy(options);
    return r == SLUICE_OK ? r : term_fail(&c->term, &e);
}
