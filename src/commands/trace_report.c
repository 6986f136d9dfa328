/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice trace report`: how often each expert is used, how many differ between consecutive tokens, and which experts of
 * neighbouring layers go together. Must not know: caches. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/attr.h"
#include "src/base/str.h"
#include "src/commands/arguments.h"
#include "src/commands/trace.h"

enum { RUN_MOST = 4, MAP_COLUMNS = 64, UNUSED_SHOWN = 16 }; /* rows of a run of consecutive positions; experts per line; ids per layer */

struct pair {
    uint16_t layer, expert, next_layer, next_expert;
    uint32_t count;
    double expected; /* if the two were used independently */
};

struct layer_use {
    uint64_t *uses; /* [experts] */
    double *gate;   /* [experts]: sum of weights */
    uint32_t used_experts, busiest;
    double over_mean, effective, hottest_share;
    double distinct[RUN_MOST + 1]; /* [2..]: experts of so many consecutive positions, in rows */
};

struct use_report {
    const struct trace *trace;
    const struct trace_options *options;
    uint64_t tokens; /* counted */
    struct layer_use layers[TRACE_LAYERS];
    struct pair *pairs; /* [n_pairs], most above expectation first; room for options->top */
    uint32_t n_pairs;
};

static bool counted(const struct use_report *u, size_t row)
{
    return row < u->trace->n_rows && u->trace->rows[row].position >= u->options->first_position;
}

/* ---- use ---- */

static int by_uses(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

/* Entropy as a number of equally used experts; what the hottest fifth carries. */
static void summarise(const struct use_report *u, struct layer_use *l, uint64_t *sorted)
{
    uint32_t n = u->options->experts;
    double total = (double)u->tokens * u->trace->used, entropy = 0, hottest = 0;
    for (uint32_t x = 0; x < n; x++) {
        double p = (double)l->uses[x] / total;
        l->used_experts += l->uses[x] > 0;
        l->busiest = l->uses[x] > l->uses[l->busiest] ? x : l->busiest;
        entropy -= p > 0 ? p * log2(p) : 0;
    }
    memcpy(sorted, l->uses, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), by_uses);
    for (uint32_t x = 0; x < (n + 4) / 5; x++) {
        hottest += (double)sorted[x];
    }
    l->over_mean = (double)l->uses[l->busiest] * n / total;
    l->effective = exp2(entropy);
    l->hottest_share = hottest / total;
}

static void count_uses(struct use_report *u)
{
    const struct trace *t = u->trace;
    for (size_t row = 0; row < t->n_rows; row++) {
        struct layer_use *l = &u->layers[row % t->n_layers];
        for (uint32_t k = 0; counted(u, row) && k < t->used; k++) {
            l->uses[trace_ids(t, row)[k]]++;
            l->gate[trace_ids(t, row)[k]] += (double)t->weights[row * t->used + k];
        }
    }
}

/* Runs of consecutive positions of one window, all counted. `seen` [experts] has no number of a row + 1 in it. */
static void count_distinct(struct use_report *u, uint32_t layer, size_t *seen)
{
    const struct trace *t = u->trace;
    uint64_t sum[RUN_MOST + 1] = {0}, runs[RUN_MOST + 1] = {0};
    for (size_t row = layer; row < t->n_rows; row += t->n_layers) {
        uint32_t distinct = 0;
        size_t at = row;
        for (uint32_t n = 1; n <= RUN_MOST && counted(u, at); n++, at += t->n_layers) {
            if (t->rows[at].window != t->rows[row].window || t->rows[at].position != t->rows[row].position + n - 1) {
                break;
            }
            for (uint32_t k = 0; k < t->used; k++) {
                size_t *s = &seen[trace_ids(t, at)[k]];
                distinct += *s != row + 1;
                *s = row + 1;
            }
            sum[n] += distinct;
            runs[n]++;
        }
    }
    for (uint32_t n = 2; n <= RUN_MOST; n++) {
        u->layers[layer].distinct[n] = runs[n] > 0 ? (double)sum[n] / (double)runs[n] / t->used : 0;
    }
}

/* ---- pairs ---- */

static double excess(const struct pair *p) { return p->count - p->expected; }

/* Equal ones stay in the order of layers and experts. */
static void keep_pair(struct use_report *u, const struct pair *p)
{
    uint32_t at = u->n_pairs;
    while (at > 0 && excess(p) > excess(&u->pairs[at - 1])) {
        at--;
    }
    if (at == u->options->top) {
        return;
    }
    u->n_pairs += u->n_pairs < u->options->top;
    memmove(u->pairs + at + 1, u->pairs + at, (u->n_pairs - at - 1) * sizeof(*p));
    u->pairs[at] = *p;
}

/* `together` [experts][experts]. */
static void count_pairs(struct use_report *u, uint32_t layer, uint32_t *together)
{
    const struct trace *t = u->trace;
    uint32_t n = u->options->experts;
    memset(together, 0, (size_t)n * n * sizeof(*together));
    for (size_t row = layer; row < t->n_rows; row += t->n_layers) {
        for (uint32_t i = 0; counted(u, row) && i < t->used; i++) {
            for (uint32_t k = 0; k < t->used; k++) {
                together[(size_t)trace_ids(t, row)[i] * n + trace_ids(t, row + 1)[k]]++;
            }
        }
    }
    for (size_t i = 0; i < (size_t)n * n; i++) {
        struct pair p = {t->layers[layer], (uint16_t)(i / n), t->layers[layer + 1], (uint16_t)(i % n), together[i], 0};
        p.expected = (double)u->layers[layer].uses[p.expert] * (double)u->layers[layer + 1].uses[p.next_expert] / (double)u->tokens;
        if (excess(&p) > 0) {
            keep_pair(u, &p);
        }
    }
}

/* ---- showing it ---- */

static char level(double over_mean)
{
    static const struct {
        double below;
        char mark;
    } levels[] = {{0.25, '.'}, {0.5, ':'}, {0.75, '-'}, {1.25, '='}, {1.75, '+'}, {2.5, '*'}, {4, '#'}, {6, '%'}};
    if (over_mean == 0) {
        return ' ';
    }
    for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
        if (over_mean < levels[i].below) {
            return levels[i].mark;
        }
    }
    return '@';
}

static void text_map(const struct use_report *u, struct str *out)
{
    uint32_t n = u->options->experts;
    str_puts(out, "\nuse of each expert, in units of the mean of its layer\n"
                  "  blank none  . <1/4  : <1/2  - <3/4  = <5/4  + <7/4  * <5/2  # <4  % <6  @ more\n\n");
    for (uint32_t l = 0; l < u->trace->n_layers; l++) {
        for (uint32_t x = 0; x < n; x += MAP_COLUMNS) {
            str_printf(out, "%5u %4u |", u->trace->layers[l], x);
            for (uint32_t i = x; i < n && i < x + MAP_COLUMNS; i++) {
                char mark = level((double)u->layers[l].uses[i] * n / ((double)u->tokens * u->trace->used));
                str_append(out, &mark, 1);
            }
            str_puts(out, "|\n");
        }
    }
}

/* Layers whose experts were all used have no line. */
static void text_unused(const struct use_report *u, struct str *out)
{
    uint32_t n = u->options->experts;
    uint64_t all = 0;
    str_puts(out, "\nexperts that were never used\n");
    for (uint32_t l = 0; l < u->trace->n_layers; l++) {
        uint32_t unused = n - u->layers[l].used_experts, shown = 0;
        all += unused;
        if (unused > 0) {
            str_printf(out, "%5u %5u:", u->trace->layers[l], unused);
        }
        for (uint32_t x = 0; x < n && shown < unused && shown < UNUSED_SHOWN; x++) {
            if (u->layers[l].uses[x] == 0) {
                str_printf(out, " %u", x);
                shown++;
            }
        }
        str_puts(out, unused == 0 ? "" : unused > shown ? " ...\n" : "\n");
    }
    str_printf(out, "  all %5llu of %llu\n", (unsigned long long)all, (unsigned long long)n * u->trace->n_layers);
}

static void text(const struct use_report *u, struct str *out)
{
    const struct trace *t = u->trace;
    str_printf(out, "%s: %u windows, %zu tokens, %u layers of %u experts, %u used; counted: %llu tokens\n\n", u->options->path, t->windows,
               trace_tokens(t), t->n_layers, u->options->experts, t->used, (unsigned long long)u->tokens);
    str_puts(out, "       experts   busiest       evenly    hottest fifth  distinct experts of n rows, in rows\n"
                  "layer     used   id   x mean   used as  carries            2      3      4\n");
    for (uint32_t i = 0; i < t->n_layers; i++) {
        const struct layer_use *l = &u->layers[i];
        str_printf(out, "%5u   %6u %4u   %6.2f  %8.1f  %5.1f %%        %6.3f %6.3f %6.3f\n", t->layers[i], l->used_experts, l->busiest, l->over_mean,
                   l->effective, 100 * l->hottest_share, l->distinct[2], l->distinct[3], l->distinct[4]);
    }
    text_map(u, out);
    text_unused(u, out);
    str_printf(out, "\npairs of neighbouring layers used most above chance\n\nlayer expert  layer expert   times  by chance   ratio\n");
    for (uint32_t i = 0; i < u->n_pairs; i++) {
        const struct pair *p = &u->pairs[i];
        str_printf(out, "%5u %6u  %5u %6u  %6u  %9.1f  %6.1f\n", p->layer, p->expert, p->next_layer, p->next_expert, p->count, p->expected,
                   p->count / p->expected);
    }
}

static void json_layer(const struct use_report *u, uint32_t i, struct str *out)
{
    const struct layer_use *l = &u->layers[i];
    str_printf(out, "  {\"layer\": %u, \"used_experts\": %u, \"busiest\": %u, \"busiest_over_mean\": %.6f, \"effective_experts\": %.6f,",
               u->trace->layers[i], l->used_experts, l->busiest, l->over_mean, l->effective);
    str_printf(out, " \"hottest_fifth_share\": %.6f, \"distinct_rows\": {\"2\": %.6f, \"3\": %.6f, \"4\": %.6f},\n   \"uses\": [", l->hottest_share,
               l->distinct[2], l->distinct[3], l->distinct[4]);
    for (uint32_t x = 0; x < u->options->experts; x++) {
        str_printf(out, "%s%llu", x > 0 ? ", " : "", (unsigned long long)l->uses[x]);
    }
    str_puts(out, "],\n   \"unused\": [");
    for (uint32_t x = 0, n = 0; x < u->options->experts; x++) {
        if (l->uses[x] == 0) {
            str_printf(out, "%s%u", n++ > 0 ? ", " : "", x);
        }
    }
    str_puts(out, "],\n   \"gate\": [");
    for (uint32_t x = 0; x < u->options->experts; x++) {
        str_printf(out, "%s%.6g", x > 0 ? ", " : "", l->gate[x]);
    }
    str_puts(out, "]}");
}

static void json(const struct use_report *u, struct str *out)
{
    const struct trace *t = u->trace;
    trace_json_head(t, u->options, u->tokens, out);
    str_puts(out, " \"layers\": [\n");
    for (uint32_t i = 0; i < t->n_layers; i++) {
        str_puts(out, i > 0 ? ",\n" : "");
        json_layer(u, i, out);
    }
    str_puts(out, "\n ],\n \"pairs\": [");
    for (uint32_t i = 0; i < u->n_pairs; i++) {
        const struct pair *p = &u->pairs[i];
        str_printf(out, "%s\n  {\"layers\": [%u, %u], \"experts\": [%u, %u], \"count\": %u, \"expected\": %.6f}", i > 0 ? "," : "", p->layer,
                   p->next_layer, p->expert, p->next_expert, p->count, p->expected);
    }
    str_puts(out, "\n ]}\n");
}

/* ---- all of it ---- */

static int measure(struct use_report *u, struct error *e)
{
    size_t n = u->options->experts;
    uint32_t layers = u->trace->n_layers;
    uint64_t *sorted = calloc(n, sizeof(*sorted));
    size_t *seen = calloc(n, sizeof(*seen));
    uint32_t *together = calloc(n * n, sizeof(*together));
    int r = sorted == NULL || seen == NULL || together == NULL ? error_nomem(e, "pairs of experts", n * n * sizeof(*together)) : 0;
    if (r == 0) {
        count_uses(u);
    }
    for (uint32_t l = 0; r == 0 && l < layers; l++) {
        memset(seen, 0, n * sizeof(*seen));
        summarise(u, &u->layers[l], sorted);
        count_distinct(u, l, seen);
        if (l + 1 < layers) {
            count_pairs(u, l, together);
        }
        r = *u->options->cancel ? error_set(e, ERROR_INTERRUPTED, "interrupted") : 0;
    }
    free(sorted);
    free(seen);
    free(together);
    return r;
}

int trace_report(const struct trace *t, const struct trace_options *o, struct error *e)
{
    struct str out = {0};
    struct use_report *u = calloc(1, sizeof(*u));
    uint64_t *uses = calloc((size_t)t->n_layers * o->experts, sizeof(*uses));
    double *gate = calloc((size_t)t->n_layers * o->experts, sizeof(*gate));
    struct pair *pairs = calloc(o->top + 1u, sizeof(*pairs));
    int r = u == NULL || uses == NULL || gate == NULL || pairs == NULL ? error_nomem(e, "report", (uint64_t)t->n_layers * o->experts * 16) : 0;
    if (r == 0) {
        *u = (struct use_report){.trace = t, .options = o, .pairs = pairs};
        for (size_t row = 0; row < t->n_rows; row += t->n_layers) {
            u->tokens += counted(u, row);
        }
        for (uint32_t l = 0; l < t->n_layers; l++) {
            u->layers[l].uses = uses + (size_t)l * o->experts;
            u->layers[l].gate = gate + (size_t)l * o->experts;
        }
        r = measure(u, e);
    }
    if (r == 0) {
        (o->json ? json : text)(u, &out);
        r = arguments_print(&out, e);
    }
    free(pairs);
    free(gate);
    free(uses);
    free(u);
    return r;
}
