/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: timelines (session.h). Must not know: layers. */
#include "src/run/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/run/draft.h"
#include "src/run/step.h"

int session_create(struct engine *g, const struct session_hooks *hooks, enum session_mtp mtp, struct session **ret, struct error *e)
{
    if (mtp == SESSION_MTP_ALL && (g->script || g->shape->mtp_layers == 0)) {
        return error_set(e, ERROR_USAGE, "this model has no MTP layer (or --mtp off was given); bind one with --mtp-from PATH");
    }
    struct session *s = calloc(1, sizeof(*s));
    if (!s) {
        return error_nomem(e, "session", sizeof(*s));
    }
    s->engine = g;
    s->hooks = hooks ? *hooks : (struct session_hooks){0};
    s->mtp = mtp == SESSION_MTP_ALL;
    s->tokens = malloc(g->context * sizeof(*s->tokens));
    s->state = calloc(g->shape->hidden, sizeof(*s->state));
    s->logits = malloc(g->shape->vocab * sizeof(*s->logits));
    int r = s->tokens && s->state && s->logits ? 0 : error_nomem(e, "session buffers", ((unsigned long long)g->context + g->shape->hidden + g->shape->vocab) * 4);
    r = r < 0 ? r : kv_table_init(&s->kv, &g->kv, g->context, e);
    r = r < 0 || mtp != SESSION_MTP_DRAFT || g->drafts == 0 ? r : draft_create(g, &s->draft, e);
    if (r < 0) {
        s->engine = NULL;
        session_destroy(s);
        return r;
    }
    g->sessions++;
    *ret = s;
    return 0;
}

void session_destroy(struct session *s)
{
    if (!s) {
        return;
    }
    if (s->engine) {
        s->engine->sessions--;
    }
    kv_table_deinit(&s->kv);
    draft_destroy(s->draft);
    free(s->tokens);
    free(s->state);
    free(s->logits);
    free(s);
}

/* Drafts must not cost what the tokens alone would have given: a step that fails is tried again without them. */
static int feed_once(struct session *s, const struct step_feed *feed, struct error *e)
{
    struct error first = {0};
    int r = step_once(s->engine, feed, 1, &first);
    if (r < 0 && s->draft && s->draft->rest) {
        int again = step_once(s->engine, feed, 1, e);
        if (again == 0 && r != ERROR_DOES_NOT_FIT && s->draft->most > 0) {
            draft_stop(s, first.text);
        }
        return again;
    }
    if (r < 0 && e) {
        *e = first;
    }
    return r;
}

int session_feed(struct session *s, const int32_t *tokens, size_t n, struct error *e)
{
    struct engine *g = s->engine;
    if (n == 1 && !engine_cancelled(g) && session_advance(s, tokens[0])) {
        return 0;
    }
    if (n > g->context - s->length) {
        return error_set(e, ERROR_FORMAT, "%zu tokens do not fit: the timeline holds %u of %u positions; shorten the prompt or start with a larger -c", n, s->length, g->context);
    }
    if ((s->mtp || draft_active(s)) && s->length > 0 && !s->state_valid) {
        int r = session_refresh(s, e);
        if (r < 0) {
            return r;
        }
    }
    while (n > 0) {
        uint32_t m = (uint32_t)min_u64(n, g->ubatch - s->length % g->ubatch);
        int r = feed_once(s, &(struct step_feed){.session = s, .tokens = tokens, .n = m, .bulk = m > OPS_MAX_ROWS}, e);
        if (r < 0) {
            return r;
        }
        tokens += m;
        n -= m;
    }
    return 0;
}

int session_refresh(struct session *s, struct error *e)
{
    return step_once(s->engine, &(struct step_feed){.session = s, .n = 1, .refresh = true}, 1, e);
}

int session_rollback(struct session *s, uint32_t length, struct error *e)
{
    if (s->in_step || length > s->length) {
        return error_set(e, -EINVAL, s->in_step ? "the session is part of an open step" : "rollback to position %u of a timeline of %u", length, s->length);
    }
    if (length == s->length) {
        return 0;
    }
    draft_settle(s, NULL);
    s->length = length;
    s->mtp_rows = length == 0 ? 0 : min_u32(s->mtp_rows, length - 1);
    s->state_valid = s->logits_valid = false;
    kv_table_truncate(&s->kv, length);
    draft_rollback(s);
    return 0;
}

int session_fork(struct session *s, const struct session_hooks *hooks, enum session_mtp mtp, struct session **ret, struct error *e)
{
    struct session *f;
    if (s->in_step) {
        return error_set(e, -EBUSY, "the session is part of an open step");
    }
    if (mtp == SESSION_MTP_ALL && s->length > 0 && s->mtp_rows + 1 != s->length) {
        return error_set(e, ERROR_USAGE, "the timeline has no MTP rows to go on from; create it with mtp");
    }
    int r = session_create(s->engine, hooks, mtp, &f, e);
    if (r < 0) {
        return r;
    }
    memcpy(f->tokens, s->tokens, s->length * sizeof(*f->tokens));
    memcpy(f->state, s->state, s->engine->shape->hidden * sizeof(*f->state));
    if (s->logits_valid) {
        memcpy(f->logits, s->logits, s->engine->shape->vocab * sizeof(*f->logits));
    }
    f->length = s->length;
    f->mtp_rows = s->mtp_rows;
    f->state_valid = s->state_valid;
    f->logits_valid = s->logits_valid;
    kv_table_share(&s->kv, &f->kv);
    kv_table_truncate(&f->kv, f->length); /* rows ahead stay where they are */
    draft_inherit(f, s);
    *ret = f;
    return 0;
}
