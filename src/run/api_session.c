/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: public API: sessions, steps, sampling. Must not compute. */
#include <stdlib.h>
#include <string.h>

#include "src/run/api.h"
#include "src/run/step.h"

_Static_assert(sizeof(struct session_hooks) == sizeof(struct sluice_session_hooks), "the public hooks are handed down as they are");

static struct session_hooks hooks_of(const struct sluice_session_options *o)
{
    const struct sluice_session_hooks *h = &o->hooks;
    return (struct session_hooks){h->on_token, h->on_hidden, h->on_route, h->on_logits, h->on_state, h->on_mtp, h->ctx};
}

static const struct sluice_session_options defaults;

static int mtp_of(const struct sluice_session_options *o, enum session_mtp *ret, struct error *e)
{
    *ret = o->mtp ? SESSION_MTP_ALL : o->draft ? SESSION_MTP_DRAFT : SESSION_MTP_NONE;
    return o->mtp && o->draft ? error_set(e, ERROR_USAGE, "a session either has its MTP rows evaluated or drafts with them: set mtp or draft, not both") : 0;
}

/* Wraps what session_create, fork or restore made; on failure of the wrapping itself the session goes. */
static int wrap(int code, struct session *inner, struct sluice_engine *engine, struct sluice_session **ret, struct error *e, struct sluice_error *error)
{
    struct sluice_session *s = code < 0 ? NULL : calloc(1, sizeof(*s));
    if (code == 0 && !s) {
        session_destroy(inner);
        code = error_nomem(e, "session", sizeof(*s));
    }
    if (code == 0) {
        s->session = inner;
        s->engine = engine;
        *ret = s;
    }
    return api_status(code, e, error);
}

int sluice_session_create(struct sluice_engine *engine, const struct sluice_session_options *o, struct sluice_session **ret, struct sluice_error *error)
{
    struct session_hooks h = hooks_of(o ? o : &defaults);
    struct session *inner = NULL;
    struct error e = {0};
    enum session_mtp mtp;
    int r = mtp_of(o ? o : &defaults, &mtp, &e);
    r = r < 0 ? r : session_create(engine->engine, &h, mtp, &inner, &e);
    return wrap(r, inner, engine, ret, &e, error);
}

void sluice_session_destroy(struct sluice_session *s)
{
    if (s) {
        session_destroy(s->session);
        free(s);
    }
}

uint32_t sluice_session_length(const struct sluice_session *s)
{
    return s->session->length;
}

const int32_t *sluice_session_tokens(const struct sluice_session *s)
{
    return s->session->tokens;
}

const float *sluice_session_logits(const struct sluice_session *s)
{
    return s->session->logits_valid ? s->session->logits : NULL;
}

int sluice_session_feed(struct sluice_session *s, const int32_t *tokens, size_t n, struct sluice_error *error)
{
    struct error e = {0};
    return api_status(session_feed(s->session, tokens, n, &e), &e, error);
}

bool sluice_session_advance(struct sluice_session *s, int32_t token)
{
    return session_advance(s->session, token);
}

int sluice_session_rollback(struct sluice_session *s, uint32_t length, struct sluice_error *error)
{
    struct error e = {0};
    return api_status(session_rollback(s->session, length, &e), &e, error);
}

int sluice_session_refresh(struct sluice_session *s, struct sluice_error *error)
{
    struct error e = {0};
    return api_status(session_refresh(s->session, &e), &e, error);
}

int sluice_session_fork(struct sluice_session *s, const struct sluice_session_options *o, struct sluice_session **ret, struct sluice_error *error)
{
    struct session_hooks h = hooks_of(o ? o : &defaults);
    struct session *inner = NULL;
    struct error e = {0};
    enum session_mtp mtp;
    int r = mtp_of(o ? o : &defaults, &mtp, &e);
    r = r < 0 ? r : session_fork(s->session, &h, mtp, &inner, &e);
    return wrap(r, inner, s->engine, ret, &e, error);
}

int sluice_session_save(const struct sluice_session *s, const char *path, struct sluice_error *error)
{
    struct error e = {0};
    return api_status(session_save(s->session, path, &e), &e, error);
}

int sluice_session_restore(struct sluice_engine *engine, const char *path, const struct sluice_session_options *o, struct sluice_session **ret, struct sluice_error *error)
{
    struct session_hooks h = hooks_of(o ? o : &defaults);
    struct session *inner = NULL;
    struct error e = {0};
    enum session_mtp mtp;
    int r = mtp_of(o ? o : &defaults, &mtp, &e);
    r = r < 0 ? r : session_restore(engine->engine, path, &h, mtp, &inner, &e);
    return wrap(r, inner, engine, ret, &e, error);
}

/* ---- steps: the public type is the inner one by another name ---- */

int sluice_step_open(struct sluice_engine *engine, const struct sluice_feed *feeds, uint32_t n, struct sluice_step **ret, struct sluice_error *error)
{
    struct error e = {0};
    struct step *s = NULL;
    struct step_feed inner[STEP_FEEDS_MAX];
    if (n > STEP_FEEDS_MAX) {
        return api_status(error_set(&e, ERROR_USAGE, "a step of %u feeds; at most %d", n, STEP_FEEDS_MAX), &e, error);
    }
    for (uint32_t i = 0; i < n; i++) {
        inner[i] = (struct step_feed){.session = feeds[i].session->session, .tokens = feeds[i].tokens, .n = feeds[i].n, .bulk = feeds[i].bulk};
    }
    int r = step_open(engine->engine, inner, n, &s, &e);
    if (r == 0) {
        *ret = (struct sluice_step *)s;
    }
    return api_status(r, &e, error);
}

uint32_t sluice_step_layers_left(const struct sluice_step *step)
{
    return step_layers_left((const struct step *)step);
}

int sluice_step_run(struct sluice_step *step, uint32_t n, struct sluice_error *error)
{
    struct error e = {0};
    return api_status(step_run((struct step *)step, n, &e), &e, error);
}

int sluice_step_commit(struct sluice_step *step, struct sluice_error *error)
{
    struct error e = {0};
    return api_status(step_commit((struct step *)step, &e), &e, error);
}

void sluice_step_abort(struct sluice_step *step)
{
    step_abort((struct step *)step);
}

/* ---- sampling ---- */

struct sluice_sampler {
    struct sampler *sampler;
    const struct sluice_engine *engine;
    void (*mask)(void *ctx, const struct sluice_session *s, uint32_t *allowed);
    void *mask_ctx;
    uint32_t *allowed; /* [ceil(vocab/32)] */
};

_Static_assert(sizeof(struct sluice_bias) == sizeof(struct sampler_bias), "handed down as it is");
_Static_assert(sizeof(struct sluice_choice) == sizeof(struct sampler_choice), "handed up as it is");

void sluice_sampling_init(struct sluice_sampling *ret)
{
    struct sampler_params p;
    sampler_params_init(&p);
    *ret = (struct sluice_sampling){
        .temperature = p.temperature, .top_k = p.top_k, .top_p = p.top_p, .min_p = p.min_p, .repetition_penalty = p.repetition_penalty,
        .presence_penalty = p.presence_penalty, .frequency_penalty = p.frequency_penalty, .penalty_window = p.penalty_window, .seed = p.seed,
    };
}

static size_t mask_bytes(const struct sluice_engine *g)
{
    return ceil_div_u64(g->engine->shape->vocab, 32) * sizeof(uint32_t);
}

static int sampler_finish(int code, struct sluice_sampler *s, struct sluice_sampler **ret, struct error *e, struct sluice_error *error)
{
    if (code == 0) {
        s->allowed = malloc(mask_bytes(s->engine));
        code = s->allowed ? 0 : error_nomem(e, "token mask", mask_bytes(s->engine));
    }
    if (code < 0) {
        sluice_sampler_destroy(s);
        return api_status(code, e, error);
    }
    *ret = s;
    return api_status(0, e, error);
}

static struct sampler_params params_of(const struct sluice_sampling *p)
{
    return (struct sampler_params){
        .temperature = p->temperature, .top_k = p->top_k, .top_p = p->top_p, .min_p = p->min_p, .repetition_penalty = p->repetition_penalty,
        .presence_penalty = p->presence_penalty, .frequency_penalty = p->frequency_penalty, .penalty_window = p->penalty_window,
        .seed = p->seed, .bias = (const struct sampler_bias *)(const void *)p->bias, .n_bias = p->n_bias,
    };
}

int sluice_sampling_check(const struct sluice_sampling *sampling, struct sluice_error *error)
{
    struct error e = {0};
    const struct sampler_params params = params_of(sampling);
    return api_status(sampler_params_check(&params, INT32_MAX, &e), &e, error);
}

int sluice_sampler_create(const struct sluice_engine *engine, const struct sluice_sampling *p, struct sluice_sampler **ret, struct sluice_error *error)
{
    struct error e = {0};
    struct sluice_sampler *s = calloc(1, sizeof(*s));
    if (!s) {
        return api_status(error_nomem(&e, "sampler", sizeof(*s)), &e, error);
    }
    const struct sampler_params params = params_of(p);
    s->engine = engine;
    s->mask = p->mask;
    s->mask_ctx = p->mask_ctx;
    return sampler_finish(sampler_create(&params, engine->engine->shape->vocab, engine->engine->ops.exp, &s->sampler, &e), s, ret, &e, error);
}

void sluice_sampler_destroy(struct sluice_sampler *s)
{
    if (s) {
        sampler_destroy(s->sampler);
        free(s->allowed);
        free(s);
    }
}

int sluice_sampler_clone(const struct sluice_sampler *from, struct sluice_sampler **ret, struct sluice_error *error)
{
    struct error e = {0};
    struct sluice_sampler *s = calloc(1, sizeof(*s));
    if (!s) {
        return api_status(error_nomem(&e, "sampler", sizeof(*s)), &e, error);
    }
    *s = (struct sluice_sampler){.engine = from->engine, .mask = from->mask, .mask_ctx = from->mask_ctx};
    return sampler_finish(sampler_clone(from->sampler, &s->sampler, &e), s, ret, &e, error);
}

int sluice_sample(struct sluice_sampler *sampler, const struct sluice_session *s, struct sluice_choice *ret, struct sluice_choice *top, uint32_t n_top, struct sluice_error *error)
{
    struct error e = {0};
    const struct session *t = s->session;
    if (sampler->engine->engine != t->engine) {
        return api_status(error_set(&e, ERROR_USAGE, "the sampler belongs to another engine than the session"), &e, error);
    }
    if (!t->logits_valid) {
        return api_status(error_set(&e, ERROR_USAGE, "the session has no logits: feed a token first (after a rollback: refresh)"), &e, error);
    }
    memcpy(sampler->allowed, t->engine->real_tokens, mask_bytes(sampler->engine));
    if (sampler->mask) {
        sampler->mask(sampler->mask_ctx, s, sampler->allowed);
    }
    int r = sampler_draw(sampler->sampler, t->logits, sampler->allowed, t->tokens, t->length, t->length,
                         (struct sampler_choice *)(void *)ret, (struct sampler_choice *)(void *)top, n_top, &e);
    return api_status(r, &e, error);
}
