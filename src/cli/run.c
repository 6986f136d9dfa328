/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: sluice run: one prompt, one answer. Must not know: line editing. */
#include "src/cli/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/cli/generate.h"
#include "src/cli/report.h"

enum { LOGPROBS_MAX = 100 };

static bool is_interactive(const struct run_args *a)
{
    return a->prompt == NULL && a->file == NULL && a->tokens == NULL && !a->json && isatty(STDIN_FILENO) == 1;
}

static int check_args(const struct run_args *a, struct sluice_error *e)
{
    if ((a->prompt != NULL) + (a->file != NULL) + (a->tokens != NULL) > 1) {
        return cli_fail(e, SLUICE_USAGE, "more than one prompt; give one of -p, -f and --tokens");
    }
    if (a->tokens != NULL && (a->form.layout != NULL || a->form.system != NULL || a->form.thinking)) {
        return cli_fail(e, SLUICE_USAGE, "--tokens: ids are taken as they are; leave out --template, --system and --thinking");
    }
    if (a->limit < -1) {
        return cli_fail(e, SLUICE_USAGE, "-n %lld: expected a number of at least 0, or -1 (until the end)", (long long)a->limit);
    }
    if (a->logprobs < 0 || a->logprobs > LOGPROBS_MAX) {
        return cli_fail(e, SLUICE_USAGE, "--logprobs %lld: expected a number from 0 to %d", (long long)a->logprobs, LOGPROBS_MAX);
    }
    if (a->logprobs > 0 && !a->json) {
        return cli_fail(e, SLUICE_USAGE, "--logprobs: needs --json");
    }
    if (a->dump != NULL && is_interactive(a)) {
        return cli_fail(e, SLUICE_USAGE, "--dump: needs a prompt; give one with -p, -f or --tokens");
    }
    return SLUICE_OK;
}

/* The text of the prompt, read before the model is: a missing file is known at once. */
static int read_prompt(struct cli *c, const struct run_args *a, struct str *text, struct sluice_error *e)
{
    if (a->tokens != NULL || is_interactive(a)) {
        return SLUICE_OK;
    }
    if (a->prompt != NULL) {
        str_puts(text, a->prompt);
        return text->failed ? cli_fail(e, SLUICE_FAILED, "out of memory") : SLUICE_OK;
    }
    if (a->file == NULL && isatty(STDIN_FILENO) == 1) {
        return cli_fail(e, SLUICE_USAGE, "--json: no prompt; give one with -p, -f or --tokens");
    }
    int r = input_read(&c->signals, a->file != NULL ? a->file : "-", text, e);
    if (r == SLUICE_OK && text->len > 0 && text->data[text->len - 1] == '\n') {
        text->data[--text->len] = '\0'; /* an editor's or echo's, and no part of what is to be continued */
    }
    return r == SLUICE_OK && text->len == 0 ? cli_fail(e, SLUICE_USAGE, "%s: the prompt is empty; give one with -p, -f or --tokens", a->file != NULL ? a->file : "stdin") : r;
}

static int prompt_ids(const struct run_args *a, const struct sluice_engine *engine, const struct str *text, struct ids *out, struct sluice_error *e)
{
    if (a->tokens != NULL) {
        return ids_parse(a->tokens, "--tokens", out, e);
    }
    const struct sluice_tokenizer *t = sluice_engine_tokenizer(engine);
    bool chat;
    int r = prompt_is_chat(t, &a->form, &chat, e);
    if (r != SLUICE_OK) {
        return r;
    }
    const char *data = text->data != NULL ? text->data : "";
    if (!chat) {
        return prompt_text_ids(t, data, text->len, true, out, e);
    }
    json_t *messages = json_array();
    r = messages == NULL ? cli_fail(e, SLUICE_FAILED, "out of memory") : prompt_add_message(messages, "user", data, text->len, e);
    r = r != SLUICE_OK ? r : prompt_chat_ids(t, &a->form, messages, out, e);
    json_decref(messages);
    return r;
}

static void print_choice(struct str *out, const struct sluice_choice *choice)
{
    str_printf(out, "{\"token\": %d, \"logprob\": ", (int)choice->token);
    report_number(out, choice->logprob);
}

static void print_logprobs(struct str *out, const struct generation *g, uint32_t n_top)
{
    str_puts(out, ", \"logprobs\": [");
    for (size_t i = 0; i < g->tokens.n; i++) {
        str_puts(out, i == 0 ? "" : ", ");
        print_choice(out, &g->choices[i]);
        str_puts(out, ", \"top\": [");
        for (uint32_t k = 0; k < n_top && g->top[i * n_top + k].token >= 0; k++) {
            str_puts(out, k == 0 ? "" : ", ");
            print_choice(out, &g->top[i * n_top + k]);
            str_puts(out, "}");
        }
        str_puts(out, "]}");
    }
    str_puts(out, "]");
}

static int print_json(const struct run_args *a, const struct sluice_engine *engine, const struct ids *prompt, const struct generation *g, const struct timings *timings, struct sluice_error *e)
{
    struct str out = { 0 };
    str_puts(&out, "{\"prompt_tokens\": ");
    ids_print(&out, prompt->item, prompt->n);
    str_puts(&out, ", \"tokens\": ");
    ids_print(&out, g->tokens.item, g->tokens.n);
    str_puts(&out, ", \"text\": ");
    if (sluice_engine_tokenizer(engine) != NULL) {
        str_json(&out, g->text.data != NULL ? g->text.data : "", g->text.len);
    } else {
        str_puts(&out, "null");
    }
    str_printf(&out, ", \"finish_reason\": \"%s\", \"seed\": %llu", g->stopped ? "stop" : "length", (unsigned long long)a->sampling.value.seed);
    if (a->logprobs > 0) {
        print_logprobs(&out, g, (uint32_t)a->logprobs);
    }
    str_puts(&out, ", \"timings\": ");
    report_timings(&out, engine, timings);
    char *memory = sluice_engine_memory_json(engine);
    str_printf(&out, ", \"memory\": %s}\n", memory != NULL ? memory : "null");
    out.failed |= memory == NULL;
    sluice_free(memory);
    int r = out.failed || g->text.failed ? cli_fail(e, SLUICE_FAILED, "out of memory") : SLUICE_OK;
    if (r == SLUICE_OK) {
        fwrite(out.data, 1, out.len, stdout);
    }
    str_deinit(&out);
    return r;
}

static int open_dump(const struct run_args *a, const struct sluice_model_info *info, size_t prompt_n, struct dump **ret, struct sluice_error *e)
{
    if (a->dump == NULL) {
        return SLUICE_OK;
    }
    uint64_t room = info->context > prompt_n ? info->context - prompt_n + 1 : 1;
    struct dump_array array = { .name = "logits", .rows = a->limit >= 0 && (uint64_t)a->limit < room ? (uint64_t)a->limit : room, .cols = info->vocab };
    return dump_create(a->dump, &array, 1, false, ret, e);
}

/* The answer is complete: what was asked for beside it. */
static int finish(const struct run_args *a, struct timeline *t, const struct ids *prompt, const struct generation *g, const struct timings *timings, struct dump *dump, struct sluice_error *e)
{
    int r = SLUICE_OK;
    if (dump != NULL) {
        dump_shorten(dump, g->tokens.n);
        r = dump_commit(dump, e);
    }
    if (r == SLUICE_OK && a->session != NULL) {
        r = sluice_session_save(t->session, a->session, e);
    }
    if (r != SLUICE_OK) {
        return r;
    }
    if (a->json) {
        return print_json(a, t->engine, prompt, g, timings, e);
    }
    report_line(&t->cli->term, t->engine, timings);
    return SLUICE_OK;
}

static int answer(const struct run_args *a, struct timeline *t, struct sluice_sampler *sampler, const struct ids *prompt, struct sluice_error *e)
{
    struct clock clock = clock_system();
    struct timings timings = { 0 };
    struct generation g = { 0 };
    struct dump *dump = NULL;
    struct text_stream stream;
    text_stream_init(&stream, stdout);
    int r = open_dump(a, &t->info, prompt->n, &dump, e);
    uint64_t start = clock_now_ns(&clock);
    r = r != SLUICE_OK ? r : timeline_set(t, prompt->item, prompt->n, &timings.prompt_n, e);
    timings.prompt_s = clock_seconds_since(&clock, start);
    if (r == SLUICE_OK) {
        struct generate_options o = { .limit = a->limit, .n_top = (uint32_t)a->logprobs, .sampler = sampler, .stream = a->json ? NULL : &stream, .dump = dump };
        r = generate(t, &o, &g, e);
        if (!a->json && !stream.newline) {
            fputs("\n", stdout);
        }
        fflush(stdout); /* before the figures on stderr, wherever both end up */
    }
    timings.answer_n = g.tokens.n;
    timings.decode_n = g.decode_n;
    timings.decode_s = g.decode_s;
    timings.decode_ram = g.decode_ram;
    timings.decode_nvme = g.decode_nvme;
    r = r != SLUICE_OK ? r : finish(a, t, prompt, &g, &timings, dump, e);
    dump_destroy(dump);
    generation_deinit(&g);
    return r;
}

static int run_once(struct cli *c, struct run_args *a, struct sluice_engine *engine, const struct str *text, struct sluice_error *e)
{
    struct ids prompt = { 0 };
    struct sluice_sampler *sampler = NULL;
    struct timeline t = { 0 };
    const struct sluice_session_options o = { .draft = true };
    int r = prompt_ids(a, engine, text, &prompt, e);
    r = r != SLUICE_OK ? r : sampling_open(&a->sampling, engine, &sampler, e);
    r = r != SLUICE_OK ? r : timeline_init(&t, c, engine, &o, a->session, e);
    r = r != SLUICE_OK ? r : answer(a, &t, sampler, &prompt, e);
    timeline_deinit(&t);
    sluice_sampler_destroy(sampler);
    ids_deinit(&prompt);
    return r;
}

/* A session is kept when the answer is there, which is late to learn that its folder takes no files. */
static int check_session(const char *path, struct sluice_error *e)
{
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    struct str folder = { 0 };
    if (path == NULL) {
        return SLUICE_OK;
    }
    str_append(&folder, slash != NULL ? path : ".", slash != NULL ? (size_t)(slash - path) + 1 : 1);
    int r = folder.failed ? cli_fail(e, SLUICE_FAILED, "out of memory") : SLUICE_OK;
    if (r == SLUICE_OK && access(folder.data, W_OK) != 0) {
        r = cli_fail(e, SLUICE_FAILED, "--session %s: nothing can be written to %s: %s; name a file elsewhere", path, folder.data, strerror(errno));
    }
    str_deinit(&folder);
    return r;
}

static int run_with(struct cli *c, struct run_args *a, const struct sluice_options *options, struct sluice_error *e)
{
    struct sluice_engine *engine = NULL;
    struct str text = { 0 };
    int r = check_args(a, e);
    r = r != SLUICE_OK ? r : check_session(a->session, e);
    r = r != SLUICE_OK ? r : sampling_finish(&a->sampling, e);
    r = r != SLUICE_OK ? r : read_prompt(c, a, &text, e);
    r = r != SLUICE_OK ? r : cli_open(c, options, &engine, e);
    if (r == SLUICE_OK && is_interactive(a)) {
        bool chat;
        r = prompt_is_chat(sluice_engine_tokenizer(engine), &a->form, &chat, e);
        r = r != SLUICE_OK ? r : chat_run(c, a, engine, chat, e);
    } else if (r == SLUICE_OK) {
        r = run_once(c, a, engine, &text, e);
    }
    sluice_engine_close(engine);
    str_deinit(&text);
    return r;
}

static int parse_and_run(struct cli *c, int argc, char **argv, struct sluice_options *options, struct sluice_error *e)
{
    struct run_args a = { .limit = -1 };
    sampling_init(&a.sampling);
    const struct arg args[] = {
        { "--prompt", "-p", ARG_TEXT, "TEXT", "the prompt; a chat message where the model has a chat template", &a.prompt, NULL },
        { "--file", "-f", ARG_TEXT, "FILE", "the prompt from a file (-: stdin), without its last line end", &a.file, NULL },
        { "--tokens", NULL, ARG_TEXT, "LIST", "the prompt as ids, 5,17,23; nothing is added", &a.tokens, NULL },
        { "--n-predict", "-n", ARG_INT, "N", "at most N tokens; -1: until the end or the context is full [-1]", &a.limit, NULL },
        SAMPLING_ARGS(&a.sampling),
        { "--raw", NULL, ARG_SWITCH, NULL, "no chat template", &a.form.raw, NULL },
        { "--template", NULL, ARG_TEXT, "NAME", "a built-in chat layout: v3, r1, r1-0528, v3.1, plain", &a.form.layout, NULL },
        { "--system", NULL, ARG_TEXT, "TEXT", "system message", &a.form.system, NULL },
        { "--thinking", NULL, ARG_SWITCH, NULL, "ask for thinking, where the layout can", &a.form.thinking, NULL },
        { "--session", NULL, ARG_TEXT, "FILE", "keep the computed context in FILE and go on from it", &a.session, NULL },
        { "--json", NULL, ARG_SWITCH, NULL, "tokens, text and figures as JSON", &a.json, NULL },
        { "--logprobs", NULL, ARG_INT, "N", "with --json: each token's N most likely alternatives", &a.logprobs, NULL },
        { "--dump", NULL, ARG_TEXT, "FILE", "logits of each token as safetensors", &a.dump, NULL },
        VERBOSITY_ARGS(&a.verbosity),
    };
    const struct args_spec spec = {
        .command = "run", .usage = "-m PATH [-p TEXT | -f FILE | --tokens LIST] [flags]",
        .summary = "Generates text. Without a prompt: reads it from stdin, or talks if stdin is a terminal.\nText goes to stdout, everything else to stderr.",
        .examples = "  sluice run -m models/demo -p \"It is a truth universally acknowledged\" -n 40\n"
                    "  sluice run -m models/demo --tokens 0,2563,339 -n 16 --temp 0 --json\n"
                    "  sluice run -m models/demo                      (interactive)\n",
        .args = args, .n = ARRAY_LEN(args), .settings = true,
    };
    bool help;
    int r = args_parse(&spec, argc, argv, options, &help, e);
    if (r == SLUICE_OK && !help) {
        cli_set_verbosity(c, &a.verbosity);
        r = run_with(c, &a, options, e);
    }
    sampling_deinit(&a.sampling);
    return r;
}

int cli_run(struct cli *c, int argc, char **argv)
{
    struct sluice_error e = { 0 };
    struct sluice_options *options = NULL;
    int r = cli_options(&options, &e);
    r = r != SLUICE_OK ? r : parse_and_run(c, argc, argv, options, &e);
    sluice_options_destroy(options);
    return r == SLUICE_OK ? r : term_fail(&c->term, &e);
}
