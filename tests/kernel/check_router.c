/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: checks and the rate of the router. Its worked numbers are in tests/unit/cpu. */
#include <math.h>
#include <stdio.h>

#include "common/attr.h"
#include "tests/kernel/check.h"

static bool ids_are_valid(struct check *c, const struct router_args *a)
{
    for (uint32_t i = 0; i < a->k; i++) {
        if (!check_near(c, "id in range", a->ids[i],
                        a->ids[i] < 0 || (uint32_t)a->ids[i] >= a->experts ? -1 : a->ids[i], 0) ||
            (i > 0 && !check_near(c, "ids rising", 1, a->ids[i] > a->ids[i - 1], 0))) {
            return false;
        }
    }
    return true;
}

static void random_logits(struct check *c, float *logits, uint32_t n)
{
    check_fill_floats(c, logits, n);
    if (check_one_in(c, 3)) { /* ties */
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = (float)(int)check_below(c, 4);
        }
    } else if (check_one_in(c, 3)) { /* NaN, infinities, exp out of range */
        static const float odd[] = {NAN, INFINITY, -INFINITY, 200.0f, -200.0f, 0.0f, -0.0f};
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = check_one_in(c, 2) ? odd[check_below(c, ARRAY_LEN(odd))] : logits[i];
        }
    }
}

static bool router_case(struct check *c, int score)
{
    static const uint32_t group_counts[] = {1, 1, 2, 4, 8};
    struct router_args a = {.groups = group_counts[check_below(c, ARRAY_LEN(group_counts))],
                            .score = (enum router_score)score};
    a.experts = a.groups * (1 + check_below(c, 40));
    a.groups_used = 1 + check_below(c, a.groups);
    a.k = 1 + check_below(c, a.experts < 12 ? a.experts : 12);
    a.group = check_one_in(c, 2) ? ROUTER_GROUP_SUM2 : ROUTER_GROUP_MAX;
    a.normalise = check_one_in(c, 2);
    a.factor = 2.5f;
    float *logits = check_floats(c, a.experts);
    random_logits(c, logits, a.experts);
    a.logits = logits;
    a.bias = check_one_in(c, 3) ? NULL : check_floats(c, a.experts);
    a.scratch = check_output(c, 2 * a.experts + a.groups);
    struct router_args b = a;
    a.ids = check_bytes(c, a.k * sizeof(*a.ids));
    b.ids = check_bytes(c, a.k * sizeof(*a.ids));
    a.weights = check_output(c, a.k);
    b.weights = check_output(c, a.k);
    snprintf(c->shape, sizeof(c->shape), "experts %u, k %u, groups %u of %u", a.experts, a.k, a.groups_used, a.groups);
    c->ref->router(&a);
    c->ops->router(&b);
    return check_same_bytes(c, "ids", a.ids, b.ids, a.k * sizeof(*a.ids)) &&
           check_same(c, "weights", a.weights, b.weights, a.k) && ids_are_valid(c, &b);
}

struct bench {
    const struct ops *ops;
    struct router_args args;
};

static void run_router(void *p) { ((struct bench *)p)->ops->router(&((struct bench *)p)->args); }

void check_router(struct check *c)
{
    if (!c->bench) {
        check_slot(c, "router", "sigmoid", ROUTER_SIGMOID, c->ops->router == c->ref->router, router_case);
        check_slot(c, "router", "softmax", ROUTER_SOFTMAX, c->ops->router == c->ref->router, router_case);
        return;
    }
    struct bench b = {.ops = c->ops,
                      .args = {.experts = 256,
                               .k = 8,
                               .groups = 8,
                               .groups_used = 4,
                               .score = ROUTER_SIGMOID,
                               .group = ROUTER_GROUP_SUM2,
                               .normalise = true,
                               .factor = 2.5f}};
    b.args.logits = check_floats(c, 256);
    b.args.bias = check_floats(c, 256);
    b.args.scratch = check_output(c, 2 * 256 + 8);
    b.args.ids = check_bytes(c, 8 * sizeof(int32_t));
    b.args.weights = check_output(c, 8);
    check_bench(c, "router", "256 of 8 groups", (struct check_timed){run_router, &b, 2 * 4 * 256});
}
