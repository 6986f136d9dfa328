/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the calibration plot of `sluice trace predict` as SVG: share of experts used over the chance they had, a line per lead.
 * Must not know: how it was measured. */
#include "io/file.h"
#include "src/commands/trace_predict.h"

enum { SIDE = 400, LEFT = 60, TOP = 20 }; /* pixels: of the square, and around it */

static const char *const colours[LEADS] = {"#d62728", "#ff7f0e", "#2ca02c", "#1f77b4", "#9467bd"};

static double x_of(double share) { return LEFT + SIDE * share; }
static double y_of(double share) { return TOP + SIDE * (1 - share); }

static void axes(struct str *out)
{
    str_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n", LEFT + SIDE + 150, TOP + SIDE + 50);
    str_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888\"/>\n", LEFT, TOP, SIDE, SIDE);
    str_printf(out, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#888\" stroke-dasharray=\"4\"/>\n", LEFT, TOP + SIDE, LEFT + SIDE, TOP);
    for (int i = 0; i <= 10; i += 2) {
        str_printf(out, "<text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", x_of(i / 10.0), TOP + SIDE + 18, 10 * i);
        str_printf(out, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">%d</text>\n", LEFT - 6, y_of(i / 10.0) + 4, 10 * i);
    }
    str_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">chance, percent</text>\n", LEFT + SIDE / 2, TOP + SIDE + 38);
    str_printf(out, "<text transform=\"translate(16,%d) rotate(-90)\" text-anchor=\"middle\">used, percent</text>\n", TOP + SIDE / 2);
}

static void curve(const struct predict_calibration *c, enum lead lead, struct str *out)
{
    str_printf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colours[lead]);
    for (uint32_t i = 0; i < PREDICT_BINS; i++) {
        if (c->n[i] > 0) {
            str_printf(out, "%.1f,%.1f ", x_of(c->chance[i] / (double)c->n[i]), y_of((double)c->used[i] / (double)c->n[i]));
        }
    }
    str_printf(out, "\"/>\n<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", LEFT + SIDE + 12, TOP + 20 + 18 * (int)lead, colours[lead], lead_name(lead));
}

int predict_report_plot(const struct predict_report *r, const char *path, struct error *e)
{
    struct str out = {0};
    axes(&out);
    for (uint32_t lead = 0; lead < LEADS; lead++) {
        curve(predict_calibration(r->predict, (enum lead)lead), (enum lead)lead, &out);
    }
    str_puts(&out, "</svg>\n");
    int rc = out.failed ? error_nomem(e, "plot", out.len) : file_write_all(path, out.data, out.len, e);
    str_deinit(&out);
    return rc;
}
