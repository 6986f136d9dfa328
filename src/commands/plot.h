/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: lines over a square of percents by percents, as SVG text. Must not know: what the lines are. */
#ifndef SLUICE_COMMANDS_PLOT_H
#define SLUICE_COMMANDS_PLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "src/base/str.h"

/* The square with its scales. The labels are plain text. */
void plot_begin(struct str *out, const char *across, const char *up);

/* The diagonal: as much up as across. */
void plot_diagonal(struct str *out);

/* A line through the points (across[i], up[i]), shares from 0 to 1, in the colour of its number, which is its place in the list
 * of names beside the square, too. `bound`: dashed. */
void plot_line(struct str *out, uint32_t number, const char *name, bool bound, const double *across, const double *up, uint32_t n);

/* Ends the text and writes it to `path`; *out is empty then. -ENOMEM if a part of it had no room. */
int plot_write(struct str *out, const char *path, struct error *e);

#endif
