/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: bench_ceilings.h. Must not know: what is repeated. */
#include "src/commands/bench_ceilings.h"

#include <math.h>

static const double read_seconds = 0.25, peak_seconds = 0.05;

int ceilings_measure(struct rates *r, struct ceilings *ret, struct error *e)
{
    struct ceilings c = {0};
    struct rate rate = {0};
    int code = r != NULL ? rates_read(r, RATES_ALL, read_seconds, &rate, e) : 0;
    c.of[CEILING_READ] = rate.best;
    for (int k = 0; code == 0 && r != NULL && k < PEAK_COUNT; k++) {
        code = rates_compute(r, (enum peak_kind)k, RATES_ALL, peak_seconds, &rate, e);
        c.of[k] = rate.best;
    }
    if (code == 0) {
        *ret = c;
    }
    return code;
}

void ceilings_pair(const struct ceilings *measured, uint32_t n, struct ceilings *ret_each, struct ceilings *ret_median)
{
    for (int k = 0; k < CEILINGS; k++) {
        double samples[RATES_SAMPLES_MAX];
        for (uint32_t i = 0; i < n; i++) {
            samples[i] = ret_each[i].of[k] = fmax(measured[i].of[k], measured[i + 1].of[k]);
        }
        ret_median->of[k] = rate_of(samples, n).median;
    }
}

struct machine ceilings_machine(const struct ceilings *c)
{
    return (struct machine){.ram_read_gb_s = 1e-9 * c->of[CEILING_READ], .fma_gop_s = 1e-9 * c->of[PEAK_FMA],
                            .bf16_gop_s = 1e-9 * c->of[PEAK_BF16], .int8_gop_s = 1e-9 * c->of[PEAK_INT8]};
}
