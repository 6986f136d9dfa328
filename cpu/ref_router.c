/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the definition of expert choice and weights. Must not know: where experts are, how logits came about. */
#include <math.h>

#include "common/exact.h"
#include "cpu/lanes.h"
#include "cpu/ref.h"

static void softmax(const float *z, float *s, uint32_t n)
{
    float max = -INFINITY, acc[LANES] = {0};
    for (uint32_t i = 0; i < n; i++) {
        max = z[i] > max ? z[i] : max;
    }
    for (uint32_t i = 0; i < n; i++) {
        s[i] = exp_exact(z[i] - max);
        acc[i % LANES] += s[i];
    }
    float sum = lanes_sum(acc);
    for (uint32_t i = 0; i < n; i++) {
        s[i] /= sum;
    }
}

/* NaN never wins a choice: it ranks with the masked ones. */
static float rank_of(float x) { return isnan(x) ? -INFINITY : x; }

/* Largest of the entries that are not NaN, ties to the lower index; at least one is left. Marks it taken with NaN. */
static uint32_t take_largest(float *rank, uint32_t n)
{
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++) {
        if (!isnan(rank[i]) && (best == n || rank[i] > rank[best])) {
            best = i;
        }
    }
    rank[best] = NAN;
    return best;
}

/* The two largest, added, or the largest alone (also in groups of one expert). */
static float group_score(const float *rank, uint32_t n, enum router_group kind)
{
    float first = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (rank[i] > first) {
            second = first;
            first = rank[i];
        } else if (rank[i] > second) {
            second = rank[i];
        }
    }
    return rank_of(kind == ROUTER_GROUP_SUM2 && n > 1 ? first + second : first);
}

/* rank = -inf for the experts of all but the best groups. */
static void mask_groups(const struct router_args *args, float *rank, float *score)
{
    uint32_t size = args->experts / args->groups;
    for (uint32_t g = 0; g < args->groups; g++) {
        score[g] = group_score(rank + (size_t)g * size, size, args->group);
    }
    for (uint32_t i = 0; i < args->groups_used; i++) {
        take_largest(score, args->groups);
    }
    for (uint32_t i = 0; i < args->experts; i++) {
        if (!isnan(score[i / size])) {
            rank[i] = -INFINITY;
        }
    }
}

/* The k largest ranks as rising ids. */
static void choose(const struct router_args *args, float *rank)
{
    for (uint32_t i = 0; i < args->k; i++) {
        take_largest(rank, args->experts);
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < args->experts; i++) {
        if (isnan(rank[i])) {
            args->ids[count++] = (int32_t)i;
        }
    }
}

void ref_router(const struct router_args *args)
{
    float *s = args->scratch, *rank = s + args->experts, *group = rank + args->experts;
    if (args->score == ROUTER_SOFTMAX) {
        softmax(args->logits, s, args->experts);
    }
    for (uint32_t i = 0; i < args->experts; i++) {
        if (args->score == ROUTER_SIGMOID) {
            s[i] = sigmoid_exact(args->logits[i]);
        }
        rank[i] = rank_of(args->bias != NULL ? s[i] + args->bias[i] : s[i]);
    }
    if (args->groups > 1 && args->groups_used < args->groups) {
        mask_groups(args, rank, group);
    }
    choose(args, rank);
    float sum = 0.0f;
    for (uint32_t i = 0; i < args->k; i++) {
        sum += s[args->ids[i]];
    }
    sum += 1e-20f;
    for (uint32_t i = 0; i < args->k; i++) {
        float w = s[args->ids[i]];
        args->weights[i] = (args->normalise ? w / sum : w) * args->factor;
    }
}
