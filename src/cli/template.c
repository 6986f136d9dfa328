/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: sluice template: chat requests to the text a model sees. Must not know: layouts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/json_text.h"
#include "src/base/str.h"
#include "src/cli/cli.h"
#include "src/cli/input.h"

struct template_args {
    const char *model, *pre, *layout, *file;
    struct verbosity verbosity;
};

/* Appends the text of one request, or null with the reason on stderr. Only a missing or unknown template fails. */
static int render(struct cli *c, const struct sluice_tokenizer *t, const char *layout, const json_t *request, size_t index, struct str *out, struct sluice_error *e)
{
    char *json = json_text_print(request, JSON_ENCODE_ANY | JSON_COMPACT), *text = NULL;
    if (json == NULL) {
        return cli_fail(e, SLUICE_FAILED, "out of memory");
    }
    size_t len = 0;
    int r = sluice_chat_text(t, layout, json, strlen(json), &text, &len, e);
    free(json);
    if (r == SLUICE_OK) {
        str_json(out, text, len);
        sluice_free(text);
    } else if (r != SLUICE_USAGE) {
        term_print(&c->term, SLUICE_LOG_WARN, "request %zu: %s", index, e->text);
        str_puts(out, "null");
        r = SLUICE_OK;
    }
    return r;
}

static int render_all(struct cli *c, const struct sluice_tokenizer *t, const struct template_args *a, struct str *out, struct sluice_error *e)
{
    json_t *root = NULL;
    int r = input_json(&c->signals, a->file != NULL ? a->file : "-", &root, e);
    if (r != SLUICE_OK) {
        return r;
    }
    bool list = json_is_array(root);
    size_t n = list ? json_array_size(root) : 1;
    str_puts(out, "[");
    for (size_t i = 0; r == SLUICE_OK && i < n; i++) {
        str_puts(out, i == 0 ? "" : ",\n ");
        r = render(c, t, a->layout, list ? json_array_get(root, i) : root, i, out, e);
    }
    str_puts(out, "]\n");
    json_decref(root);
    return r == SLUICE_OK && out->failed ? cli_fail(e, SLUICE_FAILED, "out of memory") : r;
}

int cli_template(struct cli *c, int argc, char **argv)
{
    struct template_args a = { 0 };
    const struct arg args[] = {
        { "--model", "-m", ARG_TEXT, "PATH", "model, or a folder that holds tokenizer files", &a.model, NULL },
        { "--template", NULL, ARG_TEXT, "NAME", "a built-in layout (v3, r1, r1-0528, v3.1, plain) instead of the model's", &a.layout, NULL },
        { "--pre-tokenizer", NULL, ARG_TEXT, "NAME", "instead of an unknown tokenizer.ggml.pre", &a.pre, NULL },
        VERBOSITY_ARGS(&a.verbosity),
    };
    const struct args_spec spec = {
        .command = "template", .usage = "-m PATH [FILE]",
        .summary = "Chat requests to prompt text. FILE (or stdin) holds one object or a list of\n{\"messages\": [...], \"add_generation_prompt\": bool, \"tools\": [...], \"thinking\": bool};\n"
                   "prints a list of strings, null (reason on stderr) where one cannot be rendered.",
        .examples = "  sluice template -m models/demo --template v3 request.json\n",
        .args = args, .n = ARRAY_LEN(args), .positional = &a.file,
    };
    struct sluice_error e = { 0 };
    struct sluice_tokenizer *t = NULL;
    struct str out = { 0 };
    bool help;
    int r = args_parse(&spec, argc, argv, NULL, &help, &e);
    if (r != SLUICE_OK || help) {
        return r == SLUICE_OK ? r : term_fail(&c->term, &e);
    }
    cli_set_verbosity(c, &a.verbosity);
    r = a.model == NULL ? cli_fail(&e, SLUICE_USAGE, "no model; name one with -m PATH") : sluice_tokenizer_open(a.model, a.pre, &t, &e);
    r = r != SLUICE_OK ? r : render_all(c, t, &a, &out, &e);
    if (r == SLUICE_OK) {
        fwrite(out.data, 1, out.len, stdout);
    }
    str_deinit(&out);
    sluice_tokenizer_close(t);
    return r == SLUICE_OK ? r : term_fail(&c->term, &e);
}
