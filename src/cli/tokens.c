/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: sluice tokenize and sluice detokenize. Must not know: engines. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/str.h"
#include "src/cli/cli.h"
#include "src/cli/input.h"

struct token_args {
    const char *model, *pre, *batch, *file, *text;
    bool bos, no_special;
    struct verbosity verbosity;
};

static int open_tokenizer(const struct token_args *a, struct sluice_tokenizer **ret, struct sluice_error *e)
{
    if (a->model == NULL) {
        return cli_fail(e, SLUICE_USAGE, "no model; name one with -m PATH");
    }
    return sluice_tokenizer_open(a->model, a->pre, ret, e);
}

/* The one text or list: an argument, a file or stdin. */
static int read_single(struct cli *c, const struct token_args *a, struct str *out, struct sluice_error *e)
{
    if (a->text != NULL && a->file != NULL) {
        return cli_fail(e, SLUICE_USAGE, "both an argument and -f; give one of them");
    }
    if (a->text != NULL && strcmp(a->text, "-") != 0) {
        str_puts(out, a->text);
        return out->failed ? cli_fail(e, SLUICE_FAILED, "out of memory") : SLUICE_OK;
    }
    if (a->file == NULL && a->text == NULL && isatty(STDIN_FILENO) == 1) {
        return cli_fail(e, SLUICE_USAGE, "nothing to work on; give an argument, -f FILE, --batch FILE or stdin");
    }
    return input_read(&c->signals, a->file != NULL ? a->file : "-", out, e);
}

static int put_line(struct str *out, struct sluice_error *e)
{
    str_puts(out, "\n");
    if (out->failed) {
        return cli_fail(e, SLUICE_FAILED, "out of memory");
    }
    fwrite(out->data, 1, out->len, stdout);
    return SLUICE_OK;
}

static int tokenize_one(const struct sluice_tokenizer *t, const char *text, size_t len, unsigned flags, struct str *out, struct sluice_error *e)
{
    int32_t *item = NULL;
    size_t n = 0;
    int r = sluice_tokenize(t, text, len, flags, &item, &n, e);
    if (r == SLUICE_OK) {
        ids_print(out, item, n);
        sluice_free(item);
    }
    return r;
}

static unsigned token_flags(const struct token_args *a)
{
    return (a->no_special ? 0 : SLUICE_SPECIAL) | (a->bos ? SLUICE_BOS : 0);
}

static int tokenize_text(const struct sluice_tokenizer *t, const struct token_args *a, const struct str *text, struct str *out, struct sluice_error *e)
{
    return tokenize_one(t, text->data != NULL ? text->data : "", text->len, token_flags(a), out, e);
}

static int tokenize_batch(struct cli *c, const struct sluice_tokenizer *t, const struct token_args *a, struct str *out, struct sluice_error *e)
{
    const char *path = a->batch;
    json_t *root = NULL;
    int r = input_json(&c->signals, path, &root, e);
    if (r != SLUICE_OK) {
        return r;
    }
    if (!json_is_array(root)) {
        r = cli_fail(e, SLUICE_FAILED, "%s: expected a list of strings", path);
    }
    str_puts(out, "[");
    for (size_t i = 0; r == SLUICE_OK && i < json_array_size(root); i++) {
        const json_t *item = json_array_get(root, i);
        if (!json_is_string(item)) {
            r = cli_fail(e, SLUICE_FAILED, "%s: item %zu is no string", path, i);
        } else if (signals_cancelled(&c->signals)) {
            r = cli_fail(e, SLUICE_INTERRUPTED, "interrupted");
        } else {
            str_puts(out, i == 0 ? "" : ",\n ");
            r = tokenize_one(t, json_string_value(item), json_string_length(item), token_flags(a), out, e);
        }
    }
    str_puts(out, "]");
    json_decref(root);
    return r;
}

/* What differs between the two commands: one text, and a batch file. */
struct token_job {
    int (*text)(const struct sluice_tokenizer *t, const struct token_args *a, const struct str *text, struct str *out, struct sluice_error *e);
    int (*batch)(struct cli *c, const struct sluice_tokenizer *t, const struct token_args *a, struct str *out, struct sluice_error *e);
};

static int run_tokens(struct cli *c, int argc, char **argv, const struct args_spec *spec, struct token_args *a, const struct token_job *job)
{
    struct sluice_error e = { 0 };
    struct sluice_tokenizer *t = NULL;
    struct str text = { 0 }, out = { 0 };
    bool help;
    int r = args_parse(spec, argc, argv, NULL, &help, &e);
    if (r != SLUICE_OK || help) {
        return r == SLUICE_OK ? r : term_fail(&c->term, &e);
    }
    cli_set_verbosity(c, &a->verbosity);
    r = a->batch != NULL && (a->text != NULL || a->file != NULL) ? cli_fail(&e, SLUICE_USAGE, "both --batch and an argument or -f; give one of them") : open_tokenizer(a, &t, &e);
    if (r == SLUICE_OK && a->batch != NULL) {
        r = job->batch(c, t, a, &out, &e);
    } else if (r == SLUICE_OK) {
        r = read_single(c, a, &text, &e);
        r = r != SLUICE_OK ? r : job->text(t, a, &text, &out, &e);
    }
    r = r != SLUICE_OK ? r : put_line(&out, &e);
    str_deinit(&text);
    str_deinit(&out);
    sluice_tokenizer_close(t);
    return r == SLUICE_OK ? r : term_fail(&c->term, &e);
}

int cli_tokenize(struct cli *c, int argc, char **argv)
{
    struct token_args a = { 0 };
    const struct arg args[] = {
        { "--model", "-m", ARG_TEXT, "PATH", "model, or a folder that holds tokenizer files", &a.model, NULL },
        { "--batch", NULL, ARG_TEXT, "FILE", "JSON list of strings; prints a list of id lists", &a.batch, NULL },
        { "--file", "-f", ARG_TEXT, "FILE", "text from a file", &a.file, NULL },
        { "--bos", NULL, ARG_SWITCH, NULL, "put the begin token first", &a.bos, NULL },
        { "--no-special", NULL, ARG_SWITCH, NULL, "spellings of special tokens are plain text", &a.no_special, NULL },
        { "--pre-tokenizer", NULL, ARG_TEXT, "NAME", "instead of an unknown tokenizer.ggml.pre", &a.pre, NULL },
        VERBOSITY_ARGS(&a.verbosity),
    };
    const struct args_spec spec = {
        .command = "tokenize", .usage = "-m PATH [TEXT | -f FILE | --batch FILE]", .summary = "Text to token ids; without TEXT or file, stdin.",
        .examples = "  sluice tokenize -m models/demo \"It is a truth\"\n  sluice tokenize -m models/demo --batch texts.json\n",
        .args = args, .n = ARRAY_LEN(args), .positional = &a.text,
    };
    static const struct token_job job = { tokenize_text, tokenize_batch };
    return run_tokens(c, argc, argv, &spec, &a, &job);
}

static int detokenize_batch(struct cli *c, const struct sluice_tokenizer *t, const struct token_args *a, struct str *out, struct sluice_error *e)
{
    const char *path = a->batch;
    json_t *root = NULL;
    int r = input_json(&c->signals, path, &root, e);
    if (r != SLUICE_OK) {
        return r;
    }
    if (!json_is_array(root)) {
        r = cli_fail(e, SLUICE_FAILED, "%s: expected a list of id lists", path);
    }
    str_puts(out, "[");
    for (size_t i = 0; r == SLUICE_OK && i < json_array_size(root); i++) {
        struct ids list = { 0 };
        char *bytes = NULL;
        size_t len = 0;
        char what[64];
        snprintf(what, sizeof(what), "item %zu", i);
        r = ids_from_json(json_array_get(root, i), what, &list, e);
        r = r != SLUICE_OK ? r : sluice_detokenize(t, list.item, list.n, &bytes, &len, e);
        if (r == SLUICE_OK) {
            str_puts(out, i == 0 ? "{\"hex\": \"" : ",\n {\"hex\": \"");
            for (size_t k = 0; k < len; k++) {
                str_printf(out, "%02x", (unsigned char)bytes[k]);
            }
            str_puts(out, "\"}");
            sluice_free(bytes);
        }
        ids_deinit(&list);
    }
    str_puts(out, "]");
    json_decref(root);
    return r;
}

static int detokenize_text(const struct sluice_tokenizer *t, const struct token_args *a, const struct str *text, struct str *out, struct sluice_error *e)
{
    (void)a;
    struct ids list = { 0 };
    char *bytes = NULL;
    size_t len = 0;
    int r = ids_parse(text->data != NULL ? text->data : "", "list of ids", &list, e);
    r = r != SLUICE_OK ? r : sluice_detokenize(t, list.item, list.n, &bytes, &len, e);
    if (r == SLUICE_OK) {
        str_append(out, bytes, len);
        sluice_free(bytes);
    }
    ids_deinit(&list);
    return r;
}

int cli_detokenize(struct cli *c, int argc, char **argv)
{
    struct token_args a = { 0 };
    const struct arg args[] = {
        { "--model", "-m", ARG_TEXT, "PATH", "model, or a folder that holds tokenizer files", &a.model, NULL },
        { "--batch", NULL, ARG_TEXT, "FILE", "JSON list of id lists; prints a list of {\"hex\": bytes}", &a.batch, NULL },
        { "--file", "-f", ARG_TEXT, "FILE", "ids from a file", &a.file, NULL },
        { "--pre-tokenizer", NULL, ARG_TEXT, "NAME", "instead of an unknown tokenizer.ggml.pre", &a.pre, NULL },
        VERBOSITY_ARGS(&a.verbosity),
    };
    const struct args_spec spec = {
        .command = "detokenize", .usage = "-m PATH [IDS | -f FILE | --batch FILE]", .summary = "Token ids to bytes, special tokens spelled out; without IDS or file, stdin.",
        .examples = "  sluice detokenize -m models/demo 265,493,618\n  sluice detokenize -m models/demo --batch ids.json\n",
        .args = args, .n = ARRAY_LEN(args), .positional = &a.text,
    };
    static const struct token_job job = { detokenize_text, detokenize_batch };
    return run_tokens(c, argc, argv, &spec, &a, &job);
}
