/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the generation loop and the UTF-8 stream. Must not know: prompts, JSON. */
#include "src/cli/generate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"

static const char REPLACEMENT[] = "\xEF\xBF\xBD";

void text_stream_init(struct text_stream *s, FILE *file)
{
    *s = (struct text_stream){ .file = file, .terminal = isatty(fileno(file)) == 1, .newline = true };
}

/* `len` bytes that are no valid text yet: could more bytes make them so? */
static bool may_become_text(const char *bytes, size_t len)
{
    unsigned char lead = (unsigned char)bytes[0];
    size_t need = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || len >= need) {
        return false;
    }
    for (int fill = 0x80; fill <= 0xbf; fill += 0x3f) { /* the lowest and the highest that can follow */
        char whole[4];
        memset(whole, fill, sizeof(whole));
        memcpy(whole, bytes, len);
        if (utf8_valid_prefix(whole, need) == need) {
            return true;
        }
    }
    return false;
}

static void put_text(struct text_stream *s, const char *text, size_t len)
{
    size_t start = 0;
    for (size_t i = 0; s->terminal && i < len; i++) { /* a model must not drive the terminal */
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
            fwrite(text + start, 1, i - start, s->file);
            fputs(REPLACEMENT, s->file);
            start = i + 1;
        }
    }
    fwrite(text + start, 1, len - start, s->file);
    s->newline = len > 0 ? text[len - 1] == '\n' : s->newline;
}

void text_stream_put(struct text_stream *s, const char *bytes, size_t len)
{
    struct str all = { 0 };
    str_append(&all, s->held, s->n_held);
    str_append(&all, bytes, len);
    s->n_held = 0;
    const char *p = all.data;
    size_t left = all.failed ? 0 : all.len;
    s->failed = s->failed || all.failed;
    while (left > 0) {
        size_t valid = utf8_valid_prefix(p, left);
        put_text(s, p, valid);
        p += valid;
        left -= valid;
        if (left > 0 && may_become_text(p, left)) {
            memcpy(s->held, p, left);
            s->n_held = left;
            break;
        }
        if (left > 0) {
            fputs(REPLACEMENT, s->file);
            p++;
            left--;
        }
    }
    str_deinit(&all);
    fflush(s->file);
}

void text_stream_end(struct text_stream *s)
{
    for (; s->n_held > 0; s->n_held--) {
        fputs(REPLACEMENT, s->file);
    }
    fflush(s->file);
}

void generation_deinit(struct generation *g)
{
    ids_deinit(&g->tokens);
    str_deinit(&g->text);
    free(g->choices);
    free(g->top);
    *g = (struct generation){ 0 };
}

static int keep_choice(struct generation *g, const struct sluice_choice *choice, const struct sluice_choice *top, uint32_t n_top, struct sluice_error *e)
{
    size_t n = g->tokens.n;
    if (n == g->cap) {
        size_t cap = 2 * n + 64;
        struct sluice_choice *choices = realloc(g->choices, cap * sizeof(*choices));
        g->choices = choices != NULL ? choices : g->choices;
        struct sluice_choice *tops = n_top == 0 ? NULL : realloc(g->top, cap * n_top * sizeof(*tops));
        g->top = tops != NULL ? tops : g->top;
        if (choices == NULL || (n_top != 0 && tops == NULL)) {
            return cli_fail(e, SLUICE_FAILED, "out of memory: list of %zu tokens", cap);
        }
        g->cap = cap;
    }
    g->choices[n] = *choice;
    if (n_top != 0) {
        memcpy(g->top + n * n_top, top, n_top * sizeof(*top));
    }
    return ids_push(&g->tokens, choice->token, e);
}

static void show(struct timeline *t, const struct generate_options *o, struct generation *g, int32_t token)
{
    const struct sluice_tokenizer *tokenizer = sluice_engine_tokenizer(t->engine);
    if (tokenizer == NULL || sluice_token_is_special(tokenizer, token)) {
        return;
    }
    size_t len = 0;
    const char *bytes = sluice_token_bytes(tokenizer, token, &len);
    str_append(&g->text, bytes, len);
    if (o->stream != NULL) {
        text_stream_put(o->stream, bytes, len);
    }
}

static int loop(struct timeline *t, const struct generate_options *o, struct generation *g, struct sluice_choice *top, struct sluice_error *e)
{
    struct clock clock = clock_system();
    uint64_t first_step = 0;
    for (;;) {
        if (o->limit >= 0 && g->tokens.n >= (uint64_t)o->limit) {
            return SLUICE_OK;
        }
        if (signals_cancelled(&t->cli->signals)) {
            return cli_fail(e, SLUICE_INTERRUPTED, "interrupted");
        }
        struct sluice_choice choice;
        int r = sluice_sample(o->sampler, t->session, &choice, top, o->n_top, e);
        if (r != SLUICE_OK) {
            return r;
        }
        if (sluice_engine_is_end(t->engine, choice.token)) {
            g->stopped = true;
            return SLUICE_OK;
        }
        if (o->dump != NULL) {
            dump_row(o->dump, 0, g->tokens.n, sluice_session_logits(t->session));
            r = dump_check(o->dump, e);
        }
        r = r != SLUICE_OK ? r : keep_choice(g, &choice, top, o->n_top, e);
        if (r != SLUICE_OK) {
            return r;
        }
        show(t, o, g, choice.token);
        if (g->text.failed || (o->stream != NULL && o->stream->failed)) {
            return cli_fail(e, SLUICE_FAILED, "out of memory: text of the answer");
        }
        if (o->stream != NULL && ferror(o->stream->file)) {
            return cli_fail(e, SLUICE_FAILED, "cannot write the text to stdout: %s", strerror(errno));
        }
        if (g->tokens.n == (uint64_t)o->limit || sluice_session_length(t->session) >= t->info.context) {
            return SLUICE_OK;
        }
        first_step = g->decode_n == 0 ? clock_now_ns(&clock) : first_step;
        r = timeline_step(t, choice.token, e);
        if (r != SLUICE_OK) {
            return r;
        }
        g->decode_s = clock_seconds_since(&clock, first_step);
        g->decode_n++;
    }
}

int generate(struct timeline *t, const struct generate_options *o, struct generation *ret, struct sluice_error *e)
{
    *ret = (struct generation){ 0 };
    struct sluice_choice *top = o->n_top == 0 ? NULL : calloc(o->n_top, sizeof(*top));
    if (o->n_top != 0 && top == NULL) {
        return cli_fail(e, SLUICE_FAILED, "out of memory");
    }
    uint64_t before = sluice_engine_counter(t->engine, "expert.nvme.drive_bytes"), weights = sluice_engine_counter(t->engine, "weights.bytes");
    int r = loop(t, o, ret, top, e);
    ret->decode_ram = sluice_engine_counter(t->engine, "weights.bytes") - weights;
    ret->decode_nvme = sluice_engine_counter(t->engine, "expert.nvme.drive_bytes") - before;
    free(top);
    if (o->stream != NULL) {
        text_stream_end(o->stream);
    }
    return r;
}
