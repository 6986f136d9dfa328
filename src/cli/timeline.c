/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: bringing a session to a list of tokens. Must not know: text, chat. */
#include "src/cli/timeline.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/json_text.h"

/* The engine's settings are {"NAME": {"value": TEXT, ...}, ...}. */
static enum reuse reuse_of(const struct sluice_engine *engine)
{
    char *text = sluice_engine_settings_json(engine);
    json_t *root = NULL;
    if (text != NULL) {
        json_text_parse(text, strlen(text), 0, &root, NULL);
    }
    const char *value = json_string_value(json_object_get(json_object_get(root, "reuse"), "value"));
    enum reuse r = value == NULL || strcmp(value, "all") == 0 ? REUSE_ALL : strcmp(value, "aligned") == 0 ? REUSE_ALIGNED : REUSE_OFF;
    json_decref(root);
    sluice_free(text);
    return r;
}

int timeline_init(struct timeline *t, struct cli *c, struct sluice_engine *engine, const struct sluice_session_options *o, const char *file, struct sluice_error *e)
{
    *t = (struct timeline){ .cli = c, .engine = engine, .reuse = reuse_of(engine) };
    sluice_engine_info(engine, &t->info);
    if (file != NULL && access(file, F_OK) == 0) {
        struct sluice_error why = { 0 };
        int r = sluice_session_restore(engine, file, o, &t->session, &why);
        if (r == SLUICE_OK || r == SLUICE_INTERRUPTED || r == SLUICE_USAGE) { /* usage: the file is somebody else's */
            *e = why;
            return r;
        }
        term_print(&c->term, SLUICE_LOG_WARN, "%s; computing it anew", why.text);
    }
    return sluice_session_create(engine, o, &t->session, e);
}

void timeline_deinit(struct timeline *t)
{
    sluice_session_destroy(t->session);
    *t = (struct timeline){ 0 };
}

static uint32_t common_prefix(const struct timeline *t, const int32_t *tokens, size_t n)
{
    const int32_t *have = sluice_session_tokens(t->session);
    uint32_t length = sluice_session_length(t->session), i = 0;
    while (i < length && i < n && have[i] == tokens[i]) {
        i++;
    }
    return i;
}

static uint32_t kept_prefix(const struct timeline *t, const int32_t *tokens, size_t n)
{
    uint32_t shared = common_prefix(t, tokens, n);
    switch (t->reuse) {
    case REUSE_ALL:
        return shared;
    case REUSE_ALIGNED: /* the last chunk is always computed: its logits must be a cold prefill's */
        shared = shared < t->cold ? shared : t->cold;
        shared = shared < n ? shared : (uint32_t)n - 1;
        return shared - shared % t->info.ubatch;
    default:
        return 0;
    }
}

/* In the pieces that the engine would make, so that progress can be shown. */
static int feed(struct timeline *t, const int32_t *tokens, size_t n, struct sluice_error *e)
{
    struct clock clock = clock_system();
    uint64_t start = clock_now_ns(&clock);
    uint32_t at = sluice_session_length(t->session);
    for (size_t done = 0; done < n;) {
        size_t piece = t->info.ubatch - (at + done) % t->info.ubatch;
        piece = piece < n - done ? piece : n - done;
        int r = sluice_session_feed(t->session, tokens + done, piece, e);
        if (r != SLUICE_OK) {
            term_clear(&t->cli->term);
            return r;
        }
        done += piece;
        if (n > t->info.ubatch) {
            term_count(&t->cli->term, "prompt", done, n, clock_seconds_since(&clock, start));
        }
    }
    term_clear(&t->cli->term);
    return SLUICE_OK;
}

int timeline_set(struct timeline *t, const int32_t *tokens, size_t n, size_t *ret_computed, struct sluice_error *e)
{
    if (n == 0) {
        return cli_fail(e, SLUICE_USAGE, "the prompt has no tokens; give at least one");
    }
    if (n > t->info.context) {
        return cli_fail(e, SLUICE_FAILED, "the prompt has %zu tokens and the context %u positions; shorten the prompt or start with a larger -c", n, t->info.context);
    }
    uint32_t keep = kept_prefix(t, tokens, n);
    int r = keep < sluice_session_length(t->session) ? sluice_session_rollback(t->session, keep, e) : SLUICE_OK;
    t->cold = keep < t->cold ? keep : t->cold;
    r = r != SLUICE_OK ? r : feed(t, tokens + keep, n - keep, e);
    if (r == SLUICE_OK && sluice_session_logits(t->session) == NULL) {
        r = sluice_session_refresh(t->session, e);
    }
    if (r != SLUICE_OK) {
        return r;
    }
    if (t->cold == keep && keep % t->info.ubatch == 0) {
        t->cold = (uint32_t)(n - n % t->info.ubatch);
    }
    if (ret_computed != NULL) {
        *ret_computed = n - keep;
    }
    return SLUICE_OK;
}

int timeline_step(struct timeline *t, int32_t token, struct sluice_error *e) { return sluice_session_feed(t->session, &token, 1, e); }
