/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the search for biases. Router scores of a synthetic model are near sigmoid(normal); an expert is chosen when its score
 * and bias pass about the same threshold, so a chance P asks for the quantile z(P) and the bias t - sigmoid(z). What groups and
 * the other experts change is corrected by trial. Must not know: tensors. */
#include "src/commands/synth_router.h"

#include <math.h>
#include <stdlib.h>

#include "common/exact.h"
#include "src/commands/synth_blocks.h"

enum { TRIALS = 2048, ROUNDS = 12, SAMPLE = 1 << 16 };

static const double most = 0.95;

static int rising(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* z with P(normal > z) = p, from a sorted sample: the same on every machine, which erfc need not be. */
static double quantile(const float *sample, double p)
{
    double at = fmin(fmax((1 - p) * SAMPLE - 0.5, 0), SAMPLE - 1.001);
    uint32_t below = (uint32_t)at;
    return sample[below] + (at - below) * ((double)sample[below + 1] - sample[below]);
}

static double sum_of(double zipf, uint32_t experts, double scale, double *out)
{
    double sum = 0;
    for (uint32_t i = 0; i < experts; i++) {
        double p = fmin(scale * pow((double)i + 1, -zipf), most);
        sum += p;
        if (out != NULL) {
            out[i] = p;
        }
    }
    return sum;
}

void synth_router_targets(double zipf, uint32_t experts, uint32_t used, double *out)
{
    double low = 0, high = 1, want = fmin(used, most * experts);
    while (high < 1e300 && sum_of(zipf, experts, high, NULL) < want * 0.999999) {
        high *= 2;
    }
    for (int i = 0; i < 60; i++) {
        double mid = (low + high) / 2;
        if (sum_of(zipf, experts, mid, NULL) < want) {
            low = mid;
        } else {
            high = mid;
        }
    }
    sum_of(zipf, experts, high, out);
}

/* Expert of a rank: dealt to the groups forth and back, so that none has all the popular ones. */
static uint32_t expert_of(const struct shape *s, uint32_t rank)
{
    uint32_t size = s->experts / s->groups, round = rank / s->groups, at = rank % s->groups;
    return (round % 2 == 0 ? at : s->groups - 1 - at) * size + round;
}

/* What the search works with, one allocation of each kind. */
struct search {
    const struct shape *s;
    double *target, *z;              /* [experts] by rank */
    float *sample;                   /* [SAMPLE] rising normal numbers */
    float *logits, *scratch, *weights, *bias; /* bias: [experts] by expert */
    int32_t *ids;
    uint32_t *chosen;                /* [experts] by expert */
};

static void set_biases(struct search *x)
{
    for (uint32_t i = 0; i < x->s->experts; i++) {
        x->bias[expert_of(x->s, i)] = sigmoid_exact((float)x->z[0]) - sigmoid_exact((float)x->z[i]);
    }
}

static void try_out(struct search *x, const struct ops *ops, uint32_t round)
{
    const struct shape *s = x->s;
    struct router_args a = {.logits = x->logits, .bias = x->bias, .scratch = x->scratch, .ids = x->ids, .weights = x->weights,
                            .experts = s->experts, .k = s->experts_used, .groups = s->groups, .groups_used = s->groups_used,
                            .score = s->score, .group = s->group, .normalise = s->normalise, .factor = s->routed_factor};
    for (uint32_t i = 0; i < s->experts; i++) {
        x->chosen[i] = 0;
    }
    for (uint32_t t = 0; t < TRIALS; t++) {
        synth_normals(synth_seed(round, t), x->logits, s->experts);
        ops->router(&a);
        for (uint32_t i = 0; i < s->experts_used; i++) {
            x->chosen[x->ids[i]]++;
        }
    }
}

static void correct(struct search *x)
{
    for (uint32_t i = 0; i < x->s->experts; i++) {
        double seen = fmin(fmax(x->chosen[expert_of(x->s, i)], 0.5), TRIALS - 0.5) / TRIALS;
        x->z[i] += 0.6 * (quantile(x->sample, x->target[i]) - quantile(x->sample, seen));
    }
}

static void search_biases(struct search *x, double zipf, const struct ops *ops)
{
    synth_router_targets(zipf, x->s->experts, x->s->experts_used, x->target);
    synth_normals(ROUNDS, x->sample, SAMPLE);
    qsort(x->sample, SAMPLE, sizeof(*x->sample), rising);
    for (uint32_t i = 0; i < x->s->experts; i++) {
        x->z[i] = quantile(x->sample, x->target[i]);
    }
    set_biases(x);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        try_out(x, ops, round);
        correct(x);
        set_biases(x);
    }
}

int synth_router_init(struct synth_router *r, const struct shape *shape, double zipf, const struct ops *ops, struct error *e)
{
    uint32_t n = shape->experts;
    *r = (struct synth_router){.shape = shape, .zipf = zipf};
    if (zipf == 0) {
        return 0;
    }
    struct search x = {.s = shape};
    x.target = malloc(n * sizeof(double));
    x.z = malloc(n * sizeof(double));
    x.sample = malloc(SAMPLE * sizeof(float));
    x.logits = malloc(n * sizeof(float));
    x.scratch = malloc((2 * (size_t)n + shape->groups) * sizeof(float));
    x.weights = malloc(n * sizeof(float));
    x.bias = malloc(n * sizeof(float));
    x.ids = malloc(n * sizeof(int32_t));
    x.chosen = malloc(n * sizeof(uint32_t));
    bool ok = x.target != NULL && x.z != NULL && x.sample != NULL && x.logits != NULL && x.scratch != NULL && x.weights != NULL && x.bias != NULL &&
              x.ids != NULL && x.chosen != NULL;
    if (ok) {
        search_biases(&x, zipf, ops);
        r->bias = x.bias;
    } else {
        free(x.bias);
    }
    free(x.target);
    free(x.z);
    free(x.sample);
    free(x.logits);
    free(x.scratch);
    free(x.weights);
    free(x.ids);
    free(x.chosen);
    return ok ? 0 : error_nomem(e, "router biases", n * sizeof(double));
}

void synth_router_deinit(struct synth_router *r)
{
    free(r->bias);
    *r = (struct synth_router){0};
}

/* Blocks of `size` floats change places at random. */
static void shuffle(uint64_t seed, float *values, uint32_t n, uint32_t size)
{
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)(synth_seed(seed, i) % i);
        for (uint32_t k = 0; k < size && j != i - 1; k++) {
            float t = values[(i - 1) * size + k];
            values[(i - 1) * size + k] = values[j * size + k];
            values[j * size + k] = t;
        }
    }
}

void synth_router_layer(const struct synth_router *r, uint64_t seed, float *out)
{
    uint32_t n = r->shape->experts, size = n / r->shape->groups;
    synth_normals(seed, out, n);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = 1e-4f * out[i] + (r->bias != NULL ? r->bias[i] : 0.0f);
    }
    for (uint32_t g = 0; g < r->shape->groups; g++) {
        shuffle(synth_seed(seed, g), out + (size_t)g * size, size, 1);
    }
    shuffle(seed, out, r->shape->groups, size);
}
