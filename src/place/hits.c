/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: hits.h. Must not know: bytes, time. */
#include "src/place/hits.h"

#include <math.h>
#include <stddef.h>

#include "common/attr.h"

/* GLM-5.2: 75 layers of 256 experts, 8 per token, a shape that differs from V3's in little else. Up to 18 % a sweep of the cache on
 * one machine (ml-explore/mlx-lm issue 1438: 20 to 75 GB of 407), then hosts of JustVugg/colibri: 25 to 30 % held gave 66 to 73 %,
 * 194 of 256 gave 98 %. Straight lines between points lie below a curve that bends down. */
static const struct {
    double share, hit;
} published[] = {{0, 0},        {0.049, 0.24}, {0.074, 0.40}, {0.086, 0.44}, {0.098, 0.46}, {0.123, 0.51},
                 {0.147, 0.55}, {0.184, 0.60}, {0.275, 0.695}, {0.758, 0.98}, {1, 1}};

static double published_hit(double share)
{
    for (size_t i = 1; i < ARRAY_LEN(published); i++) {
        if (share < published[i].share) {
            double part = (share - published[i - 1].share) / (published[i].share - published[i - 1].share);
            return published[i - 1].hit + part * (published[i].hit - published[i - 1].hit);
        }
    }
    return 1;
}

struct hits hits_measured(double expert_share, double hit_ratio)
{
    double bend = log1p(-hit_ratio) / log1p(-published_hit(expert_share));
    return (struct hits){fmin(fmax(bend, 1.0 / 8), 8)}; /* a point at the edge says little about the rest */
}

double hits_ratio(const struct hits *h, double expert_share)
{
    double miss = 1 - published_hit(expert_share > 0 ? expert_share : 0);
    return 1 - (h->bend > 0 ? pow(miss, h->bend) : miss);
}
