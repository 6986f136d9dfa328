/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: plot.h. Must not know: what the lines are. */
#include "src/commands/plot.h"

#include "common/attr.h"
#include "io/file.h"

enum { SIDE = 400, LEFT = 60, TOP = 20, NAMES = 150 }; /* pixels: of the square, around it, and of the names beside it */

static const char *const colours[] = {"#d62728", "#ff7f0e", "#2ca02c", "#1f77b4", "#9467bd", "#8c564b", "#e377c2", "#555555"};

static double x_of(double share) { return LEFT + SIDE * share; }
static double y_of(double share) { return TOP + SIDE * (1 - share); }

void plot_begin(struct str *out, const char *across, const char *up)
{
    str_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n", LEFT + SIDE + NAMES, TOP + SIDE + 50);
    str_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888\"/>\n", LEFT, TOP, SIDE, SIDE);
    for (int i = 0; i <= 10; i += 2) {
        str_printf(out, "<text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", x_of(i / 10.0), TOP + SIDE + 18, 10 * i);
        str_printf(out, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">%d</text>\n", LEFT - 6, y_of(i / 10.0) + 4, 10 * i);
    }
    str_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s, percent</text>\n", LEFT + SIDE / 2, TOP + SIDE + 38, across);
    str_printf(out, "<text transform=\"translate(16,%d) rotate(-90)\" text-anchor=\"middle\">%s, percent</text>\n", TOP + SIDE / 2, up);
}

void plot_diagonal(struct str *out)
{
    str_printf(out, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#888\" stroke-dasharray=\"4\"/>\n", LEFT, TOP + SIDE, LEFT + SIDE, TOP);
}

void plot_line(struct str *out, uint32_t number, const char *name, bool bound, const double *across, const double *up, uint32_t n)
{
    const char *colour = colours[number % ARRAY_LEN(colours)];
    str_printf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s points=\"", colour, bound ? " stroke-dasharray=\"6 3\"" : "");
    for (uint32_t i = 0; i < n; i++) {
        str_printf(out, "%.1f,%.1f ", x_of(across[i]), y_of(up[i]));
    }
    str_printf(out, "\"/>\n<text x=\"%d\" y=\"%u\" fill=\"%s\">%s</text>\n", LEFT + SIDE + 12, TOP + 20 + 18 * number, colour, name);
}

int plot_write(struct str *out, const char *path, struct error *e)
{
    str_puts(out, "</svg>\n");
    int r = out->failed ? error_nomem(e, "plot", out->len) : file_write_all(path, out->data, out->len, e);
    str_deinit(out);
    return r;
}
