/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: trace_csv.h. Must not know: what is made of a trace. */
#include "src/commands/trace_csv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/str.h"
#include "src/commands/gz_lines.h"

enum { LINE_BYTES = 1 << 16 };

static const char columns[] = "window,position,layer,ids,weights", shadow_column[] = ",shadow_ids";

void trace_deinit(struct trace *t)
{
    free(t->rows);
    free(t->ids);
    free(t->weights);
    free(t->shadow);
    *t = (struct trace){0};
}

size_t trace_window_end(const struct trace *t, size_t row)
{
    size_t end = row;
    while (end < t->n_rows && t->rows[end].window == t->rows[row].window) {
        end++;
    }
    return end;
}

/* ---- room ---- */

/* Makes room for `need` items in *array, which has room for `have`. */
static int grow(void *array, size_t *have, size_t need, size_t item, struct error *e)
{
    if (need <= *have) {
        return 0;
    }
    void *old;
    memcpy(&old, array, sizeof(old));
    size_t room = need + need / 2 + 1024;
    void *now = realloc(old, room * item);
    if (now == NULL) {
        return error_nomem(e, "trace", (unsigned long long)room * item);
    }
    memcpy(array, &now, sizeof(now));
    *have = room;
    return 0;
}

static int grow_row(struct trace_csv *c, struct error *e)
{
    struct trace *t = c->trace;
    size_t need = (t->n_rows + 1) * t->used, weights = c->ids;
    int r = grow(&t->rows, &c->rows, t->n_rows + 1, sizeof(*t->rows), e);
    r = r < 0 ? r : grow(&t->weights, &weights, need, sizeof(*t->weights), e);
    return r < 0 ? r : grow(&t->ids, &c->ids, need, sizeof(*t->ids), e);
}

/* ---- fields ---- */

static int wrong(const struct trace_csv *c, struct error *e, const char *column, const char *found, const char *expected)
{
    return error_set(e, ERROR_FORMAT, "%s: line %llu, column %s: \"%.40s\", expected %s", c->name, (unsigned long long)c->line, column, found,
                     expected);
}

static int read_number(const struct trace_csv *c, const char *column, const char *text, uint64_t limit, uint64_t *ret, struct error *e)
{
    char expected[64];
    if (parse_u64(text, ret) && *ret < limit) {
        return 0;
    }
    snprintf(expected, sizeof(expected), "a number from 0 to %llu", (unsigned long long)(limit - 1));
    return wrong(c, e, column, text, expected);
}

/* The next word of *at, which ends at a space; NULL at the end of the field. */
static char *next_word(char **at)
{
    char *word = *at + strspn(*at, " ");
    if (*word == '\0') {
        return NULL;
    }
    *at = word + strcspn(word, " ");
    if (**at != '\0') {
        *(*at)++ = '\0';
    }
    return word;
}

static uint32_t count_words(const char *text)
{
    uint32_t n = 0;
    for (text += strspn(text, " "); *text != '\0'; text += strspn(text, " ")) {
        n++;
        text += strcspn(text, " ");
    }
    return n;
}

/* Distinct ids of a field, which has `n` words. `list` numbers the lists of ids of the file. */
static int read_ids(struct trace_csv *c, const char *column, char *text, uint64_t list, uint16_t *ret, struct error *e)
{
    char *word;
    while ((word = next_word(&text)) != NULL) {
        uint64_t id;
        int r = read_number(c, column, word, TRACE_EXPERTS, &id, e);
        if (r < 0) {
            return r;
        }
        if (c->seen[id] == list) {
            return wrong(c, e, column, word, "each expert once");
        }
        c->seen[id] = list;
        c->trace->experts = id >= c->trace->experts ? (uint32_t)id + 1 : c->trace->experts;
        *ret++ = (uint16_t)id;
    }
    return 0;
}

static int read_weights(const struct trace_csv *c, char *text, float *ret, struct error *e)
{
    char *word;
    while ((word = next_word(&text)) != NULL) {
        double x;
        if (!parse_double(word, &x) || x < 0 || x > 1e30) {
            return wrong(c, e, "weights", word, "a number that is not negative");
        }
        *ret++ = (float)x;
    }
    return 0;
}

/* Cuts a line at its commas into exactly n fields. */
static int cut(const struct trace_csv *c, char *line, char **fields, uint32_t n, struct error *e)
{
    uint32_t found = 1;
    fields[0] = line;
    for (char *p = line; *p != '\0'; p++) {
        if (*p == ',') {
            *p = '\0';
            if (found < n) {
                fields[found] = p + 1;
            }
            found++;
        }
    }
    if (found != n) {
        return error_set(e, ERROR_FORMAT, "%s: line %llu: %u fields, expected %u: %s%s", c->name, (unsigned long long)c->line, found, n, columns,
                         c->trace->has_shadow ? shadow_column : "");
    }
    return 0;
}

/* ---- rows ---- */

/* What follows the row before: the next layer of its position, or the first of a later position or window. */
static int check_order(struct trace_csv *c, const struct trace_row *row, struct error *e)
{
    struct trace *t = c->trace;
    const struct trace_row *before = t->n_rows > 0 ? &t->rows[t->n_rows - 1] : NULL;
    unsigned long long line = c->line;
    bool same = before != NULL && row->window == before->window && row->position == before->position;
    if (before != NULL && !same) {
        if (c->layers_known && c->at < t->n_layers) {
            return error_set(e, ERROR_FORMAT, "%s: line %llu: position %u of window %u ends before layer %u, expected the layers of the first position",
                             c->name, line, before->position, before->window, t->layers[c->at]);
        }
        if (row->window < before->window || (row->window == before->window && row->position < before->position)) {
            return error_set(e, ERROR_FORMAT, "%s: line %llu, column %s: %u after %u, expected rising", c->name, line,
                             row->window < before->window ? "window" : "position", row->window < before->window ? row->window : row->position,
                             row->window < before->window ? before->window : before->position);
        }
        c->layers_known = true;
        c->at = 0;
    }
    if (!c->layers_known) {
        if (before != NULL && row->layer <= before->layer) {
            return error_set(e, ERROR_FORMAT, "%s: line %llu, column layer: %u after %u, expected rising", c->name, line, row->layer, before->layer);
        }
        t->layers[t->n_layers++] = row->layer;
    } else if (c->at == t->n_layers || row->layer != t->layers[c->at]) {
        return error_set(e, ERROR_FORMAT, "%s: line %llu, column layer: %u, expected %s", c->name, line, row->layer,
                         c->at == t->n_layers ? "the next position" : "the layers of the first position, rising");
    }
    c->at++;
    return 0;
}

/* How many experts a row has is decided by the first one. */
static int check_counts(struct trace_csv *c, const char *ids, const char *weights, struct error *e)
{
    uint32_t n = count_words(ids), n_weights = count_words(weights);
    unsigned long long line = c->line;
    if (c->trace->n_rows == 0) {
        c->trace->used = n;
    }
    if (n == 0 || n != c->trace->used) {
        return error_set(e, ERROR_FORMAT, "%s: line %llu, column ids: %u experts, expected %u as in the first row", c->name, line, n,
                         c->trace->used == 0 ? 1 : c->trace->used);
    }
    if (n_weights != n) {
        return error_set(e, ERROR_FORMAT, "%s: line %llu, column weights: %u numbers for %u experts", c->name, line, n_weights, n);
    }
    return 0;
}

static int read_shadow(struct trace_csv *c, char *text, struct trace_row *row, struct error *e)
{
    struct trace *t = c->trace;
    uint32_t n = count_words(text);
    if (n > TRACE_EXPERTS) { /* some are there twice */
        return wrong(c, e, "shadow_ids", text, "each expert once");
    }
    int r = grow(&t->shadow, &c->shadow, t->n_shadow + n, sizeof(*t->shadow), e);
    r = r < 0 || n == 0 ? r : read_ids(c, "shadow_ids", text, 2 * c->line + 1, t->shadow + t->n_shadow, e);
    row->shadow = t->n_shadow;
    row->n_shadow = (uint16_t)n;
    t->n_shadow += r < 0 ? 0 : n;
    return r;
}

static int read_row(struct trace_csv *c, char **fields, struct error *e)
{
    struct trace *t = c->trace;
    uint64_t window, position, layer;
    int r = read_number(c, "window", fields[0], UINT32_MAX, &window, e);
    r = r < 0 ? r : read_number(c, "position", fields[1], UINT32_MAX, &position, e);
    r = r < 0 ? r : read_number(c, "layer", fields[2], TRACE_LAYERS, &layer, e);
    if (r < 0) {
        return r;
    }
    struct trace_row row = {.window = (uint32_t)window, .position = (uint32_t)position, .layer = (uint16_t)layer};
    r = check_order(c, &row, e);
    r = r < 0 ? r : check_counts(c, fields[3], fields[4], e);
    r = r < 0 ? r : grow_row(c, e);
    r = r < 0 ? r : read_ids(c, "ids", fields[3], 2 * c->line, t->ids + t->n_rows * t->used, e);
    r = r < 0 ? r : read_weights(c, fields[4], t->weights + t->n_rows * t->used, e);
    r = r < 0 || !t->has_shadow ? r : read_shadow(c, fields[5], &row, e);
    if (r == 0) {
        t->windows += t->n_rows == 0 || t->rows[t->n_rows - 1].window != row.window;
        t->rows[t->n_rows++] = row;
    }
    return r;
}

int trace_csv_line(struct trace_csv *c, char *line, struct error *e)
{
    char *fields[6];
    size_t len = strlen(line);
    if (len > 0 && line[len - 1] == '\r') {
        line[--len] = '\0';
    }
    if (c->line++ == 0) {
        c->trace->has_shadow = strncmp(line, columns, sizeof(columns) - 1) == 0 && strcmp(line + sizeof(columns) - 1, shadow_column) == 0;
        if (!c->trace->has_shadow && strcmp(line, columns) != 0) {
            return error_set(e, ERROR_FORMAT, "%s: line 1: \"%.60s\", expected the columns %s and perhaps %s", c->name, line, columns, shadow_column + 1);
        }
        return 0;
    }
    int r = cut(c, line, fields, c->trace->has_shadow ? 6 : 5, e);
    return r < 0 ? r : read_row(c, fields, e);
}

int trace_csv_end(struct trace_csv *c, struct error *e)
{
    struct trace *t = c->trace;
    if (t->n_rows == 0) {
        return error_set(e, ERROR_FORMAT, "%s: no rows, expected %s and rows below", c->name, columns);
    }
    if (c->layers_known && c->at < t->n_layers) {
        return error_set(e, ERROR_FORMAT, "%s: line %llu: the file ends before layer %u of the last position", c->name, (unsigned long long)c->line,
                         t->layers[c->at]);
    }
    return 0;
}

/* ---- the file ---- */

static int use_line(void *ctx, char *line, struct error *e) { return trace_csv_line(ctx, line, e); }

int trace_read(const char *path, struct trace *ret, struct error *e)
{
    struct trace t = {0};
    struct trace_csv *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return error_nomem(e, "trace", sizeof(*c));
    }
    c->trace = &t;
    c->name = path;
    int r = gz_lines_read(path, LINE_BYTES, use_line, c, e);
    r = r < 0 ? r : trace_csv_end(c, e);
    free(c);
    if (r < 0) {
        trace_deinit(&t);
        return r;
    }
    *ret = t;
    return 0;
}
