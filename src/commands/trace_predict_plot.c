/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the calibration plot of `sluice trace predict`: share of experts used over the chance they had, a line per lead.
 * Must not know: how it was measured. */
#include "src/commands/plot.h"
#include "src/commands/trace_predict.h"

static void curve(const struct predict_calibration *c, enum lead lead, struct str *out)
{
    double chance[PREDICT_BINS], used[PREDICT_BINS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < PREDICT_BINS; i++) {
        if (c->n[i] > 0) {
            chance[n] = c->chance[i] / (double)c->n[i];
            used[n++] = (double)c->used[i] / (double)c->n[i];
        }
    }
    plot_line(out, lead, lead_name(lead), false, chance, used, n);
}

int predict_report_plot(const struct predict_report *r, const char *path, struct error *e)
{
    struct str out = {0};
    plot_begin(&out, "chance", "used");
    plot_diagonal(&out);
    for (uint32_t lead = 0; lead < LEADS; lead++) {
        curve(predict_calibration(r->predict, (enum lead)lead), (enum lead)lead, &out);
    }
    return plot_write(&out, path, e);
}
