/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: rows ahead of a timeline (draft.h). Must not know: steps, sampling. */
#include "src/run/draft.h"

#include <stdlib.h>
#include <string.h>

#include "src/run/head.h"
#include "src/run/prefetch.h"

_Static_assert((int)SETTINGS_DRAFTS_MOST == (int)GOVERNOR_MOST, "every length that a setting allows is governed");

int draft_create(struct engine *g, struct draft **ret, struct error *e)
{
    struct draft *d = calloc(1, sizeof(*d));
    if (!d) {
        return error_nomem(e, "drafts", sizeof(*d));
    }
    int r = buffer_init(&d->memory, &g->account, PURPOSE_WORK, (size_t)scratch_draft_bytes(g->shape, g->drafts), e);
    if (r < 0) {
        free(d);
        return r;
    }
    d->most = g->drafts;
    d->governed = g->drafts_governed;
    d->states = d->memory.data;
    d->logits = d->states + (size_t)DRAFT_STATES * g->shape->hidden;
    governor_init(&d->governor, d->most);
    *ret = d;
    return 0;
}

void draft_destroy(struct draft *d)
{
    if (d) {
        buffer_deinit(&d->memory);
        free(d);
    }
}

void draft_stop(struct session *s, const char *why)
{
    draft_settle(s, NULL);
    s->draft->most = 0;
    engine_step_down(s->engine, "mtp", "no more drafts on this timeline: %s", why);
}

/* ---- rows ahead ---- */

void draft_settle(struct session *s, const int32_t *token)
{
    struct draft *d = s->draft;
    if (!d || d->ahead == 0) {
        return;
    }
    if (token && *token != s->tokens[s->length]) {
        governor_result(&d->governor, d->taken + 1, false);
    }
    d->ahead = 0;
    kv_table_truncate(&s->kv, s->length);
}

bool session_advance(struct session *s, int32_t token)
{
    struct draft *d = s->draft;
    const struct session_hooks *h = &s->hooks;
    uint32_t position = s->length;
    if (!d || d->ahead == 0 || s->in_step || s->tokens[position] != token) {
        return false;
    }
    memcpy(s->state, draft_state(s, position), s->engine->shape->hidden * sizeof(*s->state));
    memcpy(s->logits, d->logits + (size_t)d->taken * s->engine->shape->vocab, s->engine->shape->vocab * sizeof(*s->logits));
    s->state_valid = s->logits_valid = true;
    d->ahead--;
    governor_result(&d->governor, ++d->taken, true);
    if (h->on_state) {
        h->on_state(h->ctx, position, s->state);
    }
    if (h->on_logits) {
        h->on_logits(h->ctx, position, s->logits);
    }
    if (h->on_token) {
        h->on_token(h->ctx, position, token);
    }
    s->length++;
    counter_add(s->engine->tokens_decode, 1);
    counter_add(s->engine->drafts_accepted, 1);
    return true;
}

uint32_t draft_choose(const struct session *s, uint32_t room)
{
    if (!draft_active(s) || s->length == 0) {
        return 0;
    }
    uint32_t n = s->draft->governed ? governor_choose(&s->draft->governor) : s->draft->most;
    return min_u32(n, min_u32(room, s->engine->context - s->length - 1));
}

bool draft_scouts(const struct session *s, uint32_t room)
{
    return draft_active(s) && s->length > 0 && room > 0 && s->engine->context - s->length > 1 && prefetch_scouts(s->engine->prefetch);
}

/* ---- MTP rows ---- */

uint32_t draft_pending(const struct session *s)
{
    return s->draft && s->draft->most > 0 && s->length > 0 ? s->length - 1 - s->mtp_rows : 0;
}

bool draft_is_behind(const struct session *s, uint32_t rows)
{
    uint32_t n = draft_active(s) ? draft_pending(s) : 0;
    return n >= DRAFT_PENDING || (n > 0 && rows > 1);
}

int draft_catch_up(struct session *s, float *x, struct error *e)
{
    struct batch_row rows[DRAFT_STATES];
    struct mtp_row in[DRAFT_STATES];
    struct span span;
    struct batch b = {.rows = rows, .spans = &span, .x = x};
    for (uint32_t p = s->mtp_rows; p + 1 < s->length; p++) {
        in[b.n] = (struct mtp_row){draft_state(s, p), s->tokens[p + 1]};
        rows[b.n++] = (struct batch_row){.session = s, .position = p};
    }
    batch_span(&b, b.n, false);
    int r = mtp_append(s->engine, &b, in, e);
    s->mtp_rows = r < 0 ? s->mtp_rows : s->length - 1;
    return r;
}

/* Of the ids that are tokens; ties to the lower one. */
static int32_t most_likely(const struct engine *g, const float *logits)
{
    int32_t best = -1;
    for (uint32_t i = 0; i < g->shape->vocab; i++) {
        if ((g->real_tokens[i / 32] >> (i % 32) & 1) != 0 && (best < 0 || logits[i] > logits[best])) {
            best = (int32_t)i;
        }
    }
    return best < 0 ? 0 : best;
}

int draft_guess(struct engine *g, struct batch *b, const struct mtp_row *rows, int32_t *ret, struct error *e)
{
    batch_span(b, b->n, false);
    b->quiet = true;
    int r = mtp_run(g, b, rows, e);
    for (uint32_t i = 0; i < b->n && r == 0; i += OPS_MAX_ROWS) {
        uint32_t n = min_u32(OPS_MAX_ROWS, b->n - i);
        r = head_logits(g, b->x + i * row_stride(g->shape->hidden), n, b->rows + i, e);
        for (uint32_t k = 0; k < n && r == 0; k++) {
            ret[i + k] = most_likely(g, g->work.logits + (size_t)k * g->shape->vocab);
            prefetch_drafted(g->prefetch, &b->rows[i + k], ret[i + k], g->work.logits + (size_t)k * g->shape->vocab);
        }
    }
    return r;
}

/* ---- states ---- */

float *draft_state(const struct session *s, uint32_t position)
{
    return s->draft->states + (size_t)(position % DRAFT_STATES) * s->engine->shape->hidden;
}

void draft_keep(struct session *s, uint32_t first, const float *states, size_t stride, uint32_t n)
{
    struct draft *d = s->draft;
    if (!d || n == 0) {
        return;
    }
    uint32_t end = first + n;
    for (uint32_t i = n > DRAFT_STATES ? n - DRAFT_STATES : 0; i < n; i++) {
        memcpy(draft_state(s, first + i), states + i * stride, s->engine->shape->hidden * sizeof(*states));
    }
    d->first_state = max_u32(min_u32(d->first_state, first), end > DRAFT_STATES ? end - DRAFT_STATES : 0);
}

void draft_check(struct session *s)
{
    if (draft_pending(s) > 0 && s->mtp_rows < s->draft->first_state) {
        draft_stop(s, "it goes on from rows that were computed without the MTP layer");
    }
}

void draft_rollback(struct session *s)
{
    struct draft *d = s->draft;
    if (!d) {
        return;
    }
    d->first_state = min_u32(d->first_state, s->length);
    if (d->first_state < s->length) {
        memcpy(s->state, draft_state(s, s->length - 1), s->engine->shape->hidden * sizeof(*s->state));
        s->state_valid = true;
    }
}

void draft_inherit(struct session *s, const struct session *from)
{
    if (!s->draft) {
        return;
    }
    s->draft->first_state = s->length;
    if (from->draft) {
        memcpy(s->draft->states, from->draft->states, (size_t)DRAFT_STATES * s->engine->shape->hidden * sizeof(*s->state));
        s->draft->first_state = min_u32(from->draft->first_state, s->length);
        s->draft->governor = from->draft->governor;
    } else if (from->state_valid && s->length > 0) {
        draft_keep(s, s->length - 1, from->state, 0, 1);
    }
    draft_check(s);
}
