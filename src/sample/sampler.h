/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: logits -> token, as a pure function of (logits, past tokens, parameters, seed, position): docs/numerics.md,
 * Sampling. Must not know: sessions, engines. */
#ifndef SLUICE_SAMPLE_SAMPLER_H
#define SLUICE_SAMPLE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/ops.h"

struct sampler_bias {
    int32_t token;
    float add;
};

struct sampler_params {
    float temperature;
    int32_t top_k;
    float top_p, min_p;
    float repetition_penalty, presence_penalty, frequency_penalty;
    uint32_t penalty_window; /* 0: all */
    uint64_t seed;
    const struct sampler_bias *bias; /* [n_bias], copied by create */
    uint32_t n_bias;
};

void sampler_params_init(struct sampler_params *ret); /* defaults of sluice.h */
/* NaN, negative temperature, top_p outside (0, 1] ... : ERROR_USAGE naming the field. */
int sampler_params_check(const struct sampler_params *p, uint32_t vocab, struct error *e);

struct sampler;
typedef void sampler_exp_fn(const struct exp_args *); /* ops.exp */
int sampler_create(const struct sampler_params *params, uint32_t vocab, sampler_exp_fn *exp, struct sampler **ret, struct error *e);
void sampler_destroy(struct sampler *s);
int sampler_clone(const struct sampler *s, struct sampler **ret, struct error *e);

struct sampler_choice {
    int32_t token;
    float logprob; /* ln softmax(logits)[token] over allowed ids, before temperature, penalties and filters */
};

/* logits: [vocab], not changed. allowed: [ceil(vocab/32)] bit mask. past: [n_past] the timeline. position: absolute
 * position the token will take. Order: penalties, bias, mask, (greedy: argmax, ties to the lowest id) temperature, top-k,
 * top-p, min-p, draw with the generator keyed by (seed, position). Non-finite logits or an empty mask: ERROR_FORMAT. */
int sampler_draw(struct sampler *s, const float *logits, const uint32_t *allowed, const int32_t *past, size_t n_past,
                 uint32_t position, struct sampler_choice *ret, struct sampler_choice *top, uint32_t n_top, struct error *e);

/* Float in [0, 1) of 24 random bits for (seed, position): a counter-based generator. Exposed for tests. */
float sampler_uniform(uint64_t seed, uint64_t position);

#endif
