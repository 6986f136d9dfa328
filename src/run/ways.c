/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: ways.h. Analysis of covariance: both ways have one slope. Must not know: clocks. */
#include "src/run/ways.h"

void ways_token(struct ways *w, bool second, double seconds, uint64_t experts, uint32_t memory)
{
    struct way *x = &w->way[second];
    double share = 1.0 / ++x->seen, least = 1.0 / memory, more_experts = (double)experts - x->experts, more_seconds = seconds - x->seconds;
    share = share > least ? share : least;
    x->experts += share * more_experts;
    x->seconds += share * more_seconds;
    x->variance = (1 - share) * (x->variance + share * more_experts * more_experts);
    x->covariance = (1 - share) * (x->covariance + share * more_experts * more_seconds);
}

double ways_slope(const struct ways *w)
{
    double variance = w->way[0].variance + w->way[1].variance, slope = variance > 0 ? (w->way[0].covariance + w->way[1].covariance) / variance : 0;
    return slope > 0 ? slope : 0;
}

double ways_saved(const struct ways *w)
{
    return w->way[0].seconds - w->way[1].seconds - ways_slope(w) * (w->way[0].experts - w->way[1].experts);
}
