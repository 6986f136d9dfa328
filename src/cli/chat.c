/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the interactive form of sluice run: turns, slash commands, the conversation's files. Must not know: layouts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/cli/generate.h"
#include "src/cli/lines.h"
#include "src/cli/report.h"
#include "src/cli/run.h"

struct chat {
    struct cli *cli;
    struct run_args *args;
    struct sluice_engine *engine;
    struct timeline timeline;
    json_t *messages;  /* chat: the conversation */
    struct ids ids;    /* text: everything so far */
    size_t answer;     /* text: where the last answer starts in ids */
    bool is_chat, quit;
    char *system;      /* set by /system; args->form.system points here or into argv */
    struct timings last;
};

static int say(struct chat *h, const struct sluice_error *e)
{
    term_fail(&h->cli->term, e);
    return e->status;
}

/* ---- turns ---- */

/* Continues the timeline made of `prompt`; text to stdout. SIGINT ends the answer, not the conversation. */
static int answer(struct chat *h, const struct ids *prompt, struct generation *g, struct sluice_error *e)
{
    struct clock clock = clock_system();
    struct sluice_sampler *sampler = NULL;
    struct text_stream stream;
    text_stream_init(&stream, stdout);
    h->last = (struct timings){ 0 };
    int r = sampling_open(&h->args->sampling, h->engine, &sampler, e);
    uint64_t start = clock_now_ns(&clock);
    r = r != SLUICE_OK ? r : timeline_set(&h->timeline, prompt->item, prompt->n, &h->last.prompt_n, e);
    h->last.prompt_s = clock_seconds_since(&clock, start);
    if (r == SLUICE_OK) {
        struct generate_options o = { .limit = h->args->limit, .sampler = sampler, .stream = &stream };
        r = generate(&h->timeline, &o, g, e);
        h->last.answer_n = g->tokens.n;
        h->last.decode_n = g->decode_n;
        h->last.decode_s = g->decode_s;
        h->last.decode_ram = g->decode_ram;
        h->last.decode_nvme = g->decode_nvme;
        fputs(stream.newline ? "" : "\n", stdout);
        fflush(stdout);
        if (r == SLUICE_OK && !g->stopped && (h->args->limit < 0 || g->tokens.n < (uint64_t)h->args->limit)) {
            term_print(&h->cli->term, SLUICE_LOG_WARN, "the context of %u positions is full; /reset starts anew, -c N makes it larger", h->timeline.info.context);
        }
    }
    if (r == SLUICE_INTERRUPTED && !signals_stopped(&h->cli->signals)) {
        signals_reset(&h->cli->signals);
        term_print(&h->cli->term, SLUICE_LOG_NOTICE, "stopped");
        r = g->tokens.n > 0 ? SLUICE_OK : r; /* what was said stays */
    }
    sluice_sampler_destroy(sampler);
    return r;
}

/* The messages so far end with the user's; adds the answer. */
static int answer_messages(struct chat *h, struct sluice_error *e)
{
    struct ids prompt = { 0 };
    struct generation g = { 0 };
    int r = prompt_chat_ids(sluice_engine_tokenizer(h->engine), &h->args->form, h->messages, &prompt, e);
    r = r != SLUICE_OK ? r : answer(h, &prompt, &g, e);
    r = r != SLUICE_OK ? r : prompt_add_message(h->messages, "assistant", g.text.data != NULL ? g.text.data : "", g.text.len, e);
    generation_deinit(&g);
    ids_deinit(&prompt);
    return r;
}

static int answer_text(struct chat *h, struct sluice_error *e)
{
    struct generation g = { 0 };
    h->answer = h->ids.n;
    int r = answer(h, &h->ids, &g, e);
    r = r != SLUICE_OK ? r : ids_append(&h->ids, g.tokens.item, g.tokens.n, e);
    generation_deinit(&g);
    return r;
}

/* A failed turn leaves the conversation as it was. */
static int turn(struct chat *h, const struct str *text)
{
    struct sluice_error e = { 0 };
    int r;
    if (h->is_chat) {
        size_t n = json_array_size(h->messages);
        r = prompt_add_message(h->messages, "user", text->data, text->len, &e);
        r = r != SLUICE_OK ? r : answer_messages(h, &e);
        while (r != SLUICE_OK && json_array_size(h->messages) > n) {
            json_array_remove(h->messages, n);
        }
    } else {
        size_t n = h->ids.n;
        r = prompt_text_ids(sluice_engine_tokenizer(h->engine), text->data, text->len, n == 0, &h->ids, &e);
        r = r != SLUICE_OK ? r : answer_text(h, &e);
        h->ids.n = r != SLUICE_OK ? n : h->ids.n;
    }
    return r == SLUICE_OK || e.status == SLUICE_INTERRUPTED ? r : say(h, &e);
}

/* ---- files: the timeline in FILE, what was said in FILE.json ---- */

static char *messages_path(const char *path)
{
    struct str s = { 0 };
    str_printf(&s, "%s.json", path);
    return str_take(&s, NULL);
}

static int save_messages(const struct chat *h, const char *path, struct sluice_error *e)
{
    char *name = messages_path(path), *partial = NULL;
    int r = SLUICE_OK;
    if (name == NULL || asprintf(&partial, "%s.%ld.tmp", name, (long)getpid()) < 0) {
        free(name);
        return cli_fail(e, SLUICE_FAILED, "out of memory");
    }
    if (json_dump_file(h->messages, partial, JSON_INDENT(1)) != 0 || rename(partial, name) < 0) {
        r = cli_fail(e, SLUICE_FAILED, "%s: cannot write: %s", name, strerror(errno));
        unlink(partial);
    }
    free(partial);
    free(name);
    return r;
}

/* FILE.json is replaced only beside its FILE: a file of that name that somebody else wrote stays. */
static int check_messages_file(const char *path, struct sluice_error *e)
{
    char *name = messages_path(path);
    if (name == NULL) {
        return cli_fail(e, SLUICE_FAILED, "out of memory");
    }
    bool foreign = access(path, F_OK) < 0 && access(name, F_OK) == 0;
    int r = foreign ? cli_fail(e, SLUICE_USAGE, "%s: is there, but no session %s beside it; choose another name", name, path) : SLUICE_OK;
    free(name);
    return r;
}

static int save(struct chat *h, const char *path, struct sluice_error *e)
{
    int r = h->is_chat ? check_messages_file(path, e) : SLUICE_OK;
    r = r != SLUICE_OK ? r : sluice_session_save(h->timeline.session, path, e);
    return r == SLUICE_OK && h->is_chat ? save_messages(h, path, e) : r;
}

static int load_messages(struct chat *h, const char *path, struct sluice_error *e)
{
    char *name = messages_path(path);
    json_t *root = NULL;
    int r = name == NULL ? cli_fail(e, SLUICE_FAILED, "out of memory") : input_json(&h->cli->signals, name, &root, e);
    if (r == SLUICE_OK && !json_is_array(root)) {
        json_decref(root);
        r = cli_fail(e, SLUICE_FAILED, "%s: expected a list of messages", name);
    }
    if (r == SLUICE_OK) {
        json_decref(h->messages);
        h->messages = root;
    }
    free(name);
    return r;
}

/* Takes the restored timeline as the conversation. A chat whose messages are gone starts anew; its timeline is kept and
 * used as far as the new one agrees with it. */
static int take_files(struct chat *h, const char *path, struct sluice_error *e)
{
    if (h->is_chat) {
        return load_messages(h, path, e);
    }
    h->ids.n = h->answer = 0;
    return ids_append(&h->ids, sluice_session_tokens(h->timeline.session), sluice_session_length(h->timeline.session), e);
}

static int load(struct chat *h, const char *path, struct sluice_error *e)
{
    struct sluice_session *restored = NULL;
    const struct sluice_session_options o = { .draft = true };
    int r = sluice_session_restore(h->engine, path, &o, &restored, e);
    if (r != SLUICE_OK) {
        return r;
    }
    sluice_session_destroy(h->timeline.session);
    h->timeline.session = restored;
    h->timeline.cold = 0;
    return take_files(h, path, e);
}

/* ---- commands ---- */

static int no_argument(const char *text, const char *usage, struct sluice_error *e)
{
    return text[0] == '\0' ? cli_fail(e, SLUICE_USAGE, "the argument is missing: %s", usage) : SLUICE_OK;
}

static int command_help(struct chat *h, const char *text, struct sluice_error *e);

static int command_quit(struct chat *h, const char *text, struct sluice_error *e)
{
    (void)text, (void)e;
    h->quit = true;
    return SLUICE_OK;
}

static int command_reset(struct chat *h, const char *text, struct sluice_error *e)
{
    (void)text, (void)e;
    json_array_clear(h->messages);
    h->ids.n = h->answer = 0;
    term_print(&h->cli->term, SLUICE_LOG_NOTICE, "starting anew");
    return SLUICE_OK;
}

static int command_save(struct chat *h, const char *text, struct sluice_error *e)
{
    int r = no_argument(text, "/save FILE", e);
    r = r != SLUICE_OK ? r : save(h, text, e);
    if (r == SLUICE_OK) {
        term_print(&h->cli->term, SLUICE_LOG_NOTICE, "saved to %s", text);
    }
    return r;
}

static int command_load(struct chat *h, const char *text, struct sluice_error *e)
{
    int r = no_argument(text, "/load FILE", e);
    r = r != SLUICE_OK ? r : load(h, text, e);
    if (r == SLUICE_OK) {
        term_print(&h->cli->term, SLUICE_LOG_NOTICE, "loaded %s: %u tokens", text, sluice_session_length(h->timeline.session));
    }
    return r;
}

/* The last answer again, with the next seed. */
static int command_regen(struct chat *h, const char *text, struct sluice_error *e)
{
    (void)text;
    size_t n = json_array_size(h->messages);
    if (h->is_chat ? n < 2 : h->answer == 0) {
        return cli_fail(e, SLUICE_USAGE, "there is no answer to make again");
    }
    h->args->sampling.value.seed++;
    if (!h->is_chat) {
        h->ids.n = h->answer;
        return answer_text(h, e);
    }
    json_t *before = json_incref(json_array_get(h->messages, n - 1));
    json_array_remove(h->messages, n - 1);
    int r = answer_messages(h, e);
    if (r != SLUICE_OK && json_array_append(h->messages, before) != 0) {
        r = cli_fail(e, SLUICE_FAILED, "out of memory");
    }
    json_decref(before);
    return r;
}

static int command_stats(struct chat *h, const char *text, struct sluice_error *e)
{
    (void)text, (void)e;
    report_line(&h->cli->term, h->engine, &h->last);
    term_print(&h->cli->term, SLUICE_LOG_NOTICE, "%u of %u positions used", sluice_session_length(h->timeline.session), h->timeline.info.context);
    return SLUICE_OK;
}

static int command_system(struct chat *h, const char *text, struct sluice_error *e)
{
    if (!h->is_chat) {
        return cli_fail(e, SLUICE_USAGE, "the model has no chat template, so there is no system message");
    }
    char *copy = strdup(text);
    if (copy == NULL) {
        return cli_fail(e, SLUICE_FAILED, "out of memory");
    }
    free(h->system);
    h->system = copy;
    h->args->form.system = text[0] != '\0' ? copy : NULL;
    return command_reset(h, "", e);
}

static const struct {
    const char *name, *help; /* NULL: another name, as llama.cpp has it */
    int (*run)(struct chat *h, const char *text, struct sluice_error *e);
} slash[] = {
    { "/help", "this list", command_help },
    { "/exit", NULL, command_quit },
    { "/clear", NULL, command_reset },
    { "/quit", "end (also Ctrl-D, or Ctrl-C at an empty prompt)", command_quit },
    { "/reset", "forget the conversation", command_reset },
    { "/save", "FILE: keep the conversation", command_save },
    { "/load", "FILE: take up a kept conversation", command_load },
    { "/regen", "the last answer again, with another seed", command_regen },
    { "/stats", "speed of the last answer, context in use", command_stats },
    { "/system", "TEXT: set the system message and start anew", command_system },
};

static int command_help(struct chat *h, const char *text, struct sluice_error *e)
{
    (void)h, (void)text, (void)e;
    for (size_t i = 0; i < ARRAY_LEN(slash); i++) {
        if (slash[i].help != NULL) {
            fprintf(stderr, "  %-8s %s\n", slash[i].name, slash[i].help);
        }
    }
    fputs("  a line that ends in \\ goes on; Ctrl-C stops an answer\n", stderr);
    return SLUICE_OK;
}

static int command(struct chat *h, const char *line)
{
    struct sluice_error e = { 0 };
    const char *names[ARRAY_LEN(slash) + 1] = { NULL };
    size_t len = strcspn(line, " \t\n");
    for (size_t i = 0; i < ARRAY_LEN(slash); i++) {
        names[i] = slash[i].name;
        if (strlen(names[i]) == len && strncmp(names[i], line, len) == 0) {
            int r = slash[i].run(h, line + len + strspn(line + len, " \t\n"), &e);
            return r == SLUICE_OK || r == SLUICE_INTERRUPTED ? r : say(h, &e);
        }
    }
    const char *near = nearest_name(line, names);
    cli_fail(&e, SLUICE_USAGE, near != NULL ? "unknown command %.40s; did you mean %s?" : "unknown command %.40s; /help lists them", line, near);
    return say(h, &e);
}

/* ---- the loop ---- */

static int loop(struct chat *h, struct lines *lines)
{
    enum lines_result r = LINES_TEXT;
    while (!h->quit) {
        struct str text = { 0 };
        signals_reset(&h->cli->signals); /* a Ctrl-C that came as an answer ended was meant for it */
        r = lines_read(lines, h->is_chat ? ">>> " : "> ", &text);
        if (r == LINES_TEXT && text.len > 0 && !text.failed) {
            if (text.data[0] == '/') {
                command(h, text.data);
            } else {
                turn(h, &text);
            }
        }
        str_deinit(&text);
        if (r != LINES_TEXT) {
            break;
        }
        if (signals_stopped(&h->cli->signals)) {
            return SLUICE_INTERRUPTED;
        }
    }
    return r == LINES_INTERRUPTED || r == LINES_STOP ? SLUICE_INTERRUPTED : SLUICE_OK;
}

static int start(struct chat *h, struct sluice_error *e)
{
    const struct sluice_session_options o = { .draft = true };
    const char *file = h->args->session;
    int r = timeline_init(&h->timeline, h->cli, h->engine, &o, file, e);
    if (r != SLUICE_OK || file == NULL || sluice_session_length(h->timeline.session) == 0) {
        return r;
    }
    struct sluice_error why = { 0 };
    if (take_files(h, file, &why) != SLUICE_OK) {
        term_print(&h->cli->term, SLUICE_LOG_WARN, "%s; starting anew", why.text);
    }
    return SLUICE_OK;
}

int chat_run(struct cli *c, struct run_args *a, struct sluice_engine *engine, bool chat, struct sluice_error *e)
{
    struct chat h = { .cli = c, .args = a, .engine = engine, .is_chat = chat, .messages = json_array() };
    struct lines *lines = NULL;
    int r = h.messages == NULL ? cli_fail(e, SLUICE_FAILED, "out of memory") : lines_create(&c->signals, &lines, e);
    r = r != SLUICE_OK ? r : start(&h, e);
    if (r == SLUICE_OK) {
        signals_set_interactive(&c->signals);
        term_print(&c->term, SLUICE_LOG_NOTICE, chat ? "chat; /help lists commands" : "this model continues text (it has no chat template); /help lists commands");
        r = loop(&h, lines);
        struct sluice_error why = { 0 };
        if (a->session != NULL && save(&h, a->session, &why) != SLUICE_OK) {
            r = say(&h, &why);
        }
        if (r == SLUICE_INTERRUPTED) {
            cli_fail(e, r, "interrupted");
        }
    }
    lines_destroy(lines);
    timeline_deinit(&h.timeline);
    json_decref(h.messages);
    ids_deinit(&h.ids);
    free(h.system);
    return r;
}
