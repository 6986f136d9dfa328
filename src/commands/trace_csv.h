/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a routing trace in memory, and reading one from a CSV file, plain or gzip (docs/trace.md). Must not know: what is made of it. */
#ifndef SLUICE_COMMANDS_TRACE_CSV_H
#define SLUICE_COMMANDS_TRACE_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum { TRACE_LAYERS = 1024, TRACE_EXPERTS = 4096 }; /* layers and experts are numbered below these */

/* One layer of one position. */
struct trace_row {
    uint32_t window, position;
    uint16_t layer;
    uint16_t n_shadow;
    size_t shadow; /* first of them in trace.shadow */
};

struct trace {
    struct trace_row *rows;        /* [n_rows], in the order of evaluation: whole positions, each with all layers, rising */
    size_t n_rows;
    uint16_t *ids;                 /* [n_rows][used], distinct in a row */
    float *weights;                /* [n_rows][used] */
    uint16_t *shadow;              /* predicted ids of all rows */
    size_t n_shadow;
    bool has_shadow;               /* there is such a column */
    uint32_t used;                 /* experts per row */
    uint32_t experts;              /* per layer: the highest id, predicted ones too, + 1 */
    uint32_t n_layers, windows;
    uint16_t layers[TRACE_LAYERS]; /* [n_layers], rising */
};

/* Errors name file, line and column. */
int trace_read(const char *path, struct trace *ret, struct error *e);
void trace_deinit(struct trace *t);

static inline const uint16_t *trace_ids(const struct trace *t, size_t row) { return t->ids + row * t->used; }
static inline size_t trace_tokens(const struct trace *t) { return t->n_rows / t->n_layers; }

/* The row after the last one of row's window. */
size_t trace_window_end(const struct trace *t, size_t row);

/* Line by line, for trace_read. Begins all zero but for `trace` and `name`. */
struct trace_csv {
    struct trace *trace;
    const char *name;                /* of the file, for errors */
    uint64_t line;                   /* number of the last one */
    uint32_t at;                     /* layers of this position so far */
    bool layers_known;               /* the first position is complete */
    size_t rows, ids, shadow;        /* allocated */
    uint64_t seen[TRACE_EXPERTS];    /* list of ids that named this one last */
};

/* A line without its end; the text is cut up. The first one names the columns. */
int trace_csv_line(struct trace_csv *c, char *line, struct error *e);
int trace_csv_end(struct trace_csv *c, struct error *e);

#endif
