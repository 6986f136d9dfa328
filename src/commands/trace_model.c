/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: trace_model.h. Must not know: what is recorded. */
#include "src/commands/trace_model.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/run/profiles.h"
#include "src/run/step.h"

enum { OWN_MOST = 8 };

int trace_model_arguments(struct trace_model *m, int argc, char **argv, const struct argument *own, bool *ret_help, struct error *e)
{
    struct argument all[OWN_MOST + 2] = {{"--tokens-file", NULL, &m->tokens_file}};
    for (uint32_t i = 0; own[i].flag != NULL; i++) {
        assert(i < OWN_MOST);
        all[i + 1] = own[i];
    }
    int r = settings_init(&m->settings, e);
    r = r < 0 ? r : arguments_read_all(argc, argv, all, &m->settings, ret_help, e);
    if (r < 0 || *ret_help) {
        return r;
    }
    if (m->settings.model == NULL) {
        return error_set(e, ERROR_USAGE, "no model given: -m PATH; see `sluice trace --help`");
    }
    return m->tokens_file != NULL ? 0 : error_set(e, ERROR_USAGE, "no texts given: --tokens-file FILE; see `sluice trace --help`");
}

static void log_line(void *ctx, enum log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    fprintf(stderr, "sluice trace: %s\n", line);
}

int trace_model_open(struct trace_model *m, const volatile int *cancel, struct error *e)
{
    const struct engine_hooks hooks = {
        .log = {.level = LOG_WARN, .write = log_line},
        .cancel = (const atomic_int *)(const volatile void *)cancel, /* as in measure.c */
    };
    int r = trace_texts_read(m->tokens_file, &m->texts, e);
    if (r < 0) {
        return r;
    }
    r = profiles_apply(&m->settings, NULL, e);
    if (r == 0 && m->settings.context == 0) {
        r = settings_set_number(&m->settings, "ctx", max_u32(m->texts.longest, KV_PAGE), SOURCE_FLAG, e);
    } else if (r == 0 && m->settings.context < m->texts.longest) {
        return error_set(e, ERROR_USAGE, "-c %u is less than the %u tokens of the longest text; leave it out or give shorter texts", m->settings.context, m->texts.longest);
    }
    r = r < 0 ? r : engine_open(&m->settings, &hooks, &m->engine, e);
    if (r == 0 && (m->engine->weights == NULL || m->engine->shape->experts == 0)) {
        r = error_set(e, ERROR_USAGE, "%s: a model without experts has no routing to trace", m->settings.model);
    }
    return r < 0 ? r : trace_texts_check(&m->texts, m->tokens_file, m->engine->shape->vocab, e);
}

void trace_model_deinit(struct trace_model *m)
{
    engine_close(m->engine);
    trace_texts_deinit(&m->texts);
    settings_deinit(&m->settings);
    *m = (struct trace_model){0};
}

int trace_model_predictors(const struct trace_model *m, char **ret, struct error *e)
{
    *ret = learned_path(m->engine->weights->containers[0]);
    return *ret != NULL ? 0 : error_nomem(e, "path", strlen(m->settings.model));
}

int trace_model_feed(const struct trace_model *m, const struct trace_text *t, const struct session_hooks *hooks, bool mtp, struct error *e)
{
    struct session *s = NULL;
    int r = session_create(m->engine, hooks, mtp ? SESSION_MTP_ALL : SESSION_MTP_NONE, &s, e);
    r = r < 0 ? r : session_feed(s, t->tokens, t->n, e);
    session_destroy(s);
    return r;
}

int trace_model_step(const struct trace_model *m, const struct trace_text *t, const struct session_hooks *hooks, bool mtp, const int32_t *guesses, struct error *e)
{
    struct session *s = NULL;
    int r = session_create(m->engine, hooks, mtp ? SESSION_MTP_ALL : SESSION_MTP_NONE, &s, e);
    for (uint32_t p = 0; r == 0 && p < t->n; p++) {
        const int32_t *guess = guesses != NULL && p + 1 < t->n && guesses[p + 1] >= 0 ? &guesses[p + 1] : NULL;
        r = step_once(m->engine, &(struct step_feed){.session = s, .tokens = &t->tokens[p], .n = 1, .shadow = guess}, 1, e);
    }
    session_destroy(s);
    return r;
}

/* ---- drafts ---- */

struct drafts {
    uint32_t n, vocab;
    int32_t *tokens; /* [n] */
    float *chances;  /* [n] */
};

static void keep_draft(void *ctx, uint32_t row, const float *logits)
{
    struct drafts *d = ctx;
    uint32_t best = 0, position = row + 2;
    double sum = 0;
    if (position >= d->n) {
        return;
    }
    for (uint32_t i = 1; i < d->vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    for (uint32_t i = 0; i < d->vocab; i++) {
        sum += exp((double)logits[i] - (double)logits[best]);
    }
    d->tokens[position] = (int32_t)best;
    d->chances[position] = (float)(1 / sum);
}

int trace_model_drafts(const struct trace_model *m, const struct trace_text *t, int32_t *ret_tokens, float *ret_chances, struct error *e)
{
    struct drafts d = {t->n, m->engine->shape->vocab, ret_tokens, ret_chances};
    for (uint32_t p = 0; p < t->n; p++) {
        ret_tokens[p] = -1;
        ret_chances[p] = 0;
    }
    return trace_model_feed(m, t, &(struct session_hooks){.on_mtp = keep_draft, .ctx = &d}, true, e);
}
