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

static double line(double share, double share0, double hit0, double share1, double hit1)
{
    return hit0 + (share - share0) / (share1 - share0) * (hit1 - hit0);
}

static double published_hit(double share)
{
    for (size_t i = 1; i < ARRAY_LEN(published); i++) {
        if (share < published[i].share) {
            return line(share, published[i - 1].share, published[i - 1].hit, published[i].share, published[i].hit);
        }
    }
    return 1;
}

struct hits hits_measured(double expert_share, double hit_ratio)
{
    double bend = log1p(-hit_ratio) / log1p(-published_hit(expert_share));
    return (struct hits){.bend = fmin(fmax(bend, 1.0 / 8), 8)}; /* a point at the edge says little about the rest */
}

static double through_points(const struct hits *h, double share)
{
    double share0 = 0, hit0 = 0;
    for (uint32_t i = 0; i < h->n; i++) {
        if (share < h->point[i].share) {
            return line(share, share0, hit0, h->point[i].share, h->point[i].hit);
        }
        share0 = h->point[i].share;
        hit0 = h->point[i].hit;
    }
    return share < 1 ? line(share, share0, hit0, 1, 1) : 1;
}

double hits_ratio(const struct hits *h, double expert_share)
{
    double share = expert_share > 0 ? expert_share : 0;
    if (h->n > 0) {
        return through_points(h, share);
    }
    double miss = 1 - published_hit(share);
    return 1 - (h->bend > 0 ? pow(miss, h->bend) : miss);
}
