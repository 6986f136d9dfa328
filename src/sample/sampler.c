/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: drawing a token from logits: penalties, bias, mask, filters, the counter-based generator.
 * Must not know: sessions, engines. Every sum runs in a fixed order and exp is exp_exact, so that the token does not
 * depend on the machine (docs/numerics.md, Sampling). */
#include "src/sample/sampler.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"

struct candidate {
    float value; /* logit, later its weight exp((logit - max) / temperature) */
    int32_t id;
};

struct sampler {
    struct sampler_params params; /* params.bias points into `bias` */
    struct sampler_bias *bias;    /* [n_bias] */
    uint32_t vocab;
    sampler_exp_fn *exp;
    struct candidate *candidates; /* [vocab] scratch of a draw */
    float *weights;               /* [vocab] likewise: logits of candidates, then their exp */
    uint32_t *counts;             /* [vocab] occurrences in the penalty window; all zero between draws */
};

void sampler_params_init(struct sampler_params *ret)
{
    *ret = (struct sampler_params){ .temperature = 0.6f, .top_p = 0.95f, .repetition_penalty = 1.0f, .penalty_window = 64 };
}

static int bad_field(struct error *e, const char *field, double found, const char *expected)
{
    return error_set(e, ERROR_USAGE, "%s %g: expected %s", field, found, expected);
}

int sampler_params_check(const struct sampler_params *p, uint32_t vocab, struct error *e)
{
    if (!(p->temperature >= 0.0f) || isinf(p->temperature)) {
        return bad_field(e, "temperature", p->temperature, "a number of at least 0 (0: greedy)");
    }
    if (p->top_k < 0) {
        return bad_field(e, "top_k", p->top_k, "at least 0 (0: all)");
    }
    if (!(p->top_p > 0.0f && p->top_p <= 1.0f)) {
        return bad_field(e, "top_p", p->top_p, "above 0 and at most 1 (1: off)");
    }
    if (!(p->min_p >= 0.0f && p->min_p <= 1.0f)) {
        return bad_field(e, "min_p", p->min_p, "from 0 to 1 (0: off)");
    }
    if (!(p->repetition_penalty > 0.0f) || isinf(p->repetition_penalty)) {
        return bad_field(e, "repetition_penalty", p->repetition_penalty, "above 0 (1: off)");
    }
    if (!isfinite(p->presence_penalty)) {
        return bad_field(e, "presence_penalty", p->presence_penalty, "a finite number (0: off)");
    }
    if (!isfinite(p->frequency_penalty)) {
        return bad_field(e, "frequency_penalty", p->frequency_penalty, "a finite number (0: off)");
    }
    for (uint32_t i = 0; i < p->n_bias; i++) {
        const struct sampler_bias *b = &p->bias[i];
        if (b->token < 0 || (uint32_t)b->token >= vocab) {
            return error_set(e, ERROR_USAGE, "logit_bias of token %d: the model has ids 0 to %u", (int)b->token, vocab - 1);
        }
        if (isnan(b->add) || b->add == INFINITY) {
            return error_set(e, ERROR_USAGE, "logit_bias of token %d: %g is no finite number or -inf (never)", (int)b->token, (double)b->add);
        }
    }
    return 0;
}

int sampler_create(const struct sampler_params *params, uint32_t vocab, sampler_exp_fn *exp, struct sampler **ret, struct error *e)
{
    if (vocab == 0) {
        return error_set(e, ERROR_USAGE, "vocabulary size 0: expected at least 1");
    }
    int r = sampler_params_check(params, vocab, e);
    if (r < 0) {
        return r;
    }
    struct sampler *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return error_nomem(e, "sampler", sizeof(*s));
    }
    s->params = *params;
    s->vocab = vocab;
    s->exp = exp;
    s->weights = malloc((size_t)vocab * sizeof(*s->weights));
    s->candidates = malloc((size_t)vocab * sizeof(*s->candidates));
    s->counts = calloc(vocab, sizeof(*s->counts));
    s->bias = malloc(((size_t)params->n_bias + 1) * sizeof(*s->bias));
    if (s->weights == NULL || s->candidates == NULL || s->counts == NULL || s->bias == NULL) {
        sampler_destroy(s);
        return error_nomem(e, "sampler", (unsigned long long)vocab * (sizeof(struct candidate) + sizeof(uint32_t) + sizeof(float)));
    }
    if (params->n_bias != 0) {
        memcpy(s->bias, params->bias, params->n_bias * sizeof(*s->bias));
    }
    s->params.bias = s->bias;
    *ret = s;
    return 0;
}

void sampler_destroy(struct sampler *s)
{
    if (s != NULL) {
        free(s->weights);
        free(s->candidates);
        free(s->counts);
        free(s->bias);
        free(s);
    }
}

/* A sampler keeps nothing from draw to draw, so its parameters are all there is to copy. */
int sampler_clone(const struct sampler *s, struct sampler **ret, struct error *e)
{
    return sampler_create(&s->params, s->vocab, s->exp, ret, e);
}

static uint64_t mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

float sampler_uniform(uint64_t seed, uint64_t position)
{
    /* The seed is mixed first: neighbouring seeds are not the same stream shifted. */
    uint64_t z = mix64(mix64(seed + 0x9e3779b97f4a7c15u) + 0x9e3779b97f4a7c15u * (position + 1));
    return (float)(z >> 40) * 0x1p-24f;
}

static bool is_allowed(const uint32_t *allowed, uint32_t id) { return (allowed[id / 32] >> (id % 32) & 1) != 0; }

static float clamp_finite(float x) { return fmaxf(fminf(x, FLT_MAX), -FLT_MAX); }

static void penalise(struct sampler *s, const int32_t *past, size_t n_past)
{
    const struct sampler_params *p = &s->params;
    if (p->repetition_penalty == 1.0f && p->presence_penalty == 0.0f && p->frequency_penalty == 0.0f) {
        return;
    }
    size_t window = p->penalty_window == 0 || p->penalty_window > n_past ? n_past : p->penalty_window;
    const int32_t *first = n_past == 0 ? past : past + (n_past - window);
    for (size_t i = 0; i < window; i++) {
        if (first[i] >= 0 && (uint32_t)first[i] < s->vocab) {
            s->counts[first[i]]++;
        }
    }
    for (size_t i = 0; i < window; i++) {
        if (first[i] < 0 || (uint32_t)first[i] >= s->vocab || s->counts[first[i]] == 0) {
            continue; /* counts is cleared at the first sight of a token: each is penalised once */
        }
        float *v = &s->candidates[first[i]].value;
        *v = *v > 0.0f ? *v / p->repetition_penalty : *v * p->repetition_penalty;
        *v -= (float)s->counts[first[i]] * p->frequency_penalty + p->presence_penalty;
        *v = clamp_finite(*v);
        s->counts[first[i]] = 0;
    }
}

/* Fills candidates[0..n) with the allowed ids in rising order and their adjusted logits; returns n. */
static uint32_t gather(struct sampler *s, const float *logits, const uint32_t *allowed, const int32_t *past, size_t n_past)
{
    struct candidate *c = s->candidates;
    for (uint32_t id = 0; id < s->vocab; id++) {
        c[id] = (struct candidate){ logits[id], (int32_t)id };
    }
    penalise(s, past, n_past);
    for (uint32_t i = 0; i < s->params.n_bias; i++) {
        float *v = &c[s->bias[i].token].value;
        *v = s->bias[i].add == -INFINITY || *v == -INFINITY ? -INFINITY : clamp_finite(*v + s->bias[i].add);
    }
    uint32_t n = 0;
    for (uint32_t id = 0; id < s->vocab; id++) {
        if (is_allowed(allowed, id) && c[id].value != -INFINITY) {
            c[n++] = c[id];
        }
    }
    return n;
}

static uint32_t greatest(const struct candidate *c, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (c[i].value > c[best].value) { /* ids rise: a tie keeps the lower one */
            best = i;
        }
    }
    return best;
}

static bool before(struct candidate a, struct candidate b) { return a.value > b.value || (a.value == b.value && a.id < b.id); }

static void sift_down(struct candidate *heap, uint32_t n, uint32_t i)
{
    struct candidate moving = heap[i];
    for (uint32_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        child += child + 1 < n && before(heap[child + 1], heap[child]);
        if (!before(heap[child], moving)) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}

/* Moves the best candidates to the end, best last, until there are `limit` or they weigh `mass`; returns how many.
 * Only what is kept is sorted. */
static uint32_t keep_best(struct candidate *c, uint32_t n, uint32_t limit, double mass)
{
    for (uint32_t i = n / 2; i-- > 0;) {
        sift_down(c, n, i);
    }
    double sum = 0.0;
    uint32_t kept = 0;
    while (kept < limit && kept < n && (kept == 0 || sum < mass)) {
        uint32_t last = n - 1 - kept++;
        struct candidate best = c[0];
        c[0] = c[last];
        sift_down(c, last, 0);
        c[last] = best;
        sum += best.value;
    }
    return kept;
}

/* candidates[0..n) hold adjusted logits of rising ids. */
static int32_t draw_filtered(struct sampler *s, uint32_t n, uint32_t position)
{
    const struct sampler_params *p = &s->params;
    struct candidate *c = s->candidates;
    float max = c[greatest(c, n)].value;
    double total = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        s->weights[i] = c[i].value;
    }
    s->exp(&(struct exp_args){.x = s->weights, .y = s->weights, .n = n, .minus = max, .over = p->temperature});
    for (uint32_t i = 0; i < n; i++) {
        c[i].value = s->weights[i];
        total += c[i].value;
    }
    /* What is kept: kept[0], kept[step], ... in rising id order, or best first once it had to be sorted. */
    struct candidate *kept = c;
    int step = 1;
    uint32_t count = n;
    bool cut_k = p->top_k != 0 && (uint32_t)p->top_k < n;
    if (cut_k || p->top_p < 1.0f) {
        count = keep_best(c, n, cut_k ? (uint32_t)p->top_k : n, cut_k ? INFINITY : (double)p->top_p * total);
        kept = c + n - 1;
        step = -1;
    }
    if (cut_k && p->top_p < 1.0f) { /* the mass is that of the top k */
        double all = 0.0, sum = 0.0;
        for (uint32_t i = 0; i < count; i++) {
            all += kept[(ptrdiff_t)i * step].value;
        }
        uint32_t k = 0;
        while (k < count && (k == 0 || sum < (double)p->top_p * all)) {
            sum += kept[(ptrdiff_t)k++ * step].value;
        }
        count = k;
    }
    double sum = 0.0; /* the greatest weight is 1, so min_p is compared as it is */
    for (uint32_t i = 0; i < count; i++) {
        float w = kept[(ptrdiff_t)i * step].value;
        sum += w >= p->min_p ? w : 0.0f;
    }
    double target = (double)sampler_uniform(p->seed, position) * sum, reached = 0.0;
    int32_t token = -1;
    for (uint32_t i = 0; i < count && (token < 0 || reached <= target); i++) {
        struct candidate k = kept[(ptrdiff_t)i * step];
        if (k.value > 0.0f && k.value >= p->min_p) {
            reached += k.value;
            token = k.id;
        }
    }
    return token;
}

/* The model's own distribution over the allowed ids. */
struct distribution {
    float max;
    double log_sum; /* ln of the sum of exp(logit - max) */
};

static int measure(const struct sampler *s, const float *logits, const uint32_t *allowed, uint32_t position, struct distribution *ret, struct error *e)
{
    float max = -INFINITY;
    for (uint32_t id = 0; id < s->vocab; id++) {
        if (!isfinite(logits[id])) {
            return error_set(e, ERROR_FORMAT, "position %u: logit of token %u is %g, expected a finite number; sluice check finds bad blocks in a model file", position, id, (double)logits[id]);
        }
        if (is_allowed(allowed, id) && logits[id] > max) {
            max = logits[id];
        }
    }
    if (max == -INFINITY) {
        return error_set(e, ERROR_FORMAT, "position %u: no token may follow; the mask allows none of %u", position, s->vocab);
    }
    double sum = 0.0;
    s->exp(&(struct exp_args){.x = logits, .y = s->weights, .n = s->vocab, .minus = max, .over = 1.0f});
    for (uint32_t id = 0; id < s->vocab; id++) {
        if (is_allowed(allowed, id)) {
            sum += s->weights[id];
        }
    }
    *ret = (struct distribution){ max, log(sum) };
    return 0;
}

static float logprob_of(const struct distribution *d, float logit) { return (float)((double)logit - d->max - d->log_sum); }

/* The n_top most likely allowed tokens, best first, ties to the lower id; {-1, -inf} where there are fewer. */
static void list_top(const struct sampler *s, const float *logits, const uint32_t *allowed, const struct distribution *d, struct sampler_choice *top, uint32_t n_top)
{
    uint32_t have = 0;
    for (uint32_t id = 0; id < s->vocab; id++) { /* .logprob holds the logit until the list is complete */
        if (!is_allowed(allowed, id) || (have == n_top && !(logits[id] > top[have - 1].logprob))) {
            continue;
        }
        uint32_t at = have < n_top ? have++ : n_top - 1;
        for (; at > 0 && logits[id] > top[at - 1].logprob; at--) {
            top[at] = top[at - 1];
        }
        top[at] = (struct sampler_choice){ (int32_t)id, logits[id] };
    }
    for (uint32_t i = 0; i < n_top; i++) {
        top[i] = i < have ? (struct sampler_choice){ top[i].token, logprob_of(d, top[i].logprob) } : (struct sampler_choice){ -1, -INFINITY };
    }
}

int sampler_draw(struct sampler *s, const float *logits, const uint32_t *allowed, const int32_t *past, size_t n_past,
                 uint32_t position, struct sampler_choice *ret, struct sampler_choice *top, uint32_t n_top, struct error *e)
{
    struct distribution d = { 0 };
    int r = measure(s, logits, allowed, position, &d, e);
    if (r < 0) {
        return r;
    }
    uint32_t n = gather(s, logits, allowed, past, n_past);
    if (n == 0) {
        return error_set(e, ERROR_FORMAT, "position %u: no token may follow; logit_bias forbids all that the mask allows", position);
    }
    int32_t token = s->params.temperature == 0.0f ? s->candidates[greatest(s->candidates, n)].id : draw_filtered(s, n, position);
    *ret = (struct sampler_choice){ token, logprob_of(&d, logits[token]) };
    if (top != NULL && n_top != 0) {
        list_top(s, logits, allowed, &d, top, n_top);
    }
    return 0;
}
