/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice trace simulate`: the sweep over policies and cache sizes, as a table and as JSON. Must not know: how a policy decides. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"
#include "src/base/str.h"
#include "src/commands/arguments.h"
#include "src/commands/plot.h"
#include "src/commands/trace.h"
#include "src/commands/trace_replay.h"

enum { SIZES = 64, POLICIES = 8 };

struct sweep {
    const struct trace *trace;
    const struct trace_options *options;
    uint64_t total, tokens; /* experts of all layers; tokens counted */
    uint32_t n_sizes, slots[SIZES];
    uint32_t n_policies;
    const struct trace_policy *policies[POLICIES];
    struct replay_counts counts[POLICIES][SIZES], best[SIZES]; /* best: MIN */
};

/* ---- what is asked ---- */

static int choose_policies(struct sweep *s, struct error *e)
{
    const char *asked = s->options->policy;
    bool all = strcmp(asked, "all") == 0, known = all;
    for (const struct trace_policy *p = trace_policies; p->name != NULL; p++) {
        bool named = strcmp(asked, p->name) == 0, possible = p->ahead != AHEAD_SHADOW || s->trace->has_shadow;
        known |= named;
        if (named && !possible) {
            return error_set(e, ERROR_USAGE, "--policy %s: %s has no column shadow_ids", asked, s->options->path);
        }
        if (named || (all && possible)) {
            s->policies[s->n_policies++] = p;
        }
    }
    return known ? 0 : error_set(e, ERROR_USAGE, "--policy %s: no such policy; `sluice trace --help` lists them", asked);
}

/* ---- the sweep ---- */

static int sweep(struct sweep *s, struct error *e)
{
    const struct trace_policy *min = trace_policies;
    while (min[1].name != NULL) {
        min++;
    }
    int r = 0;
    for (uint32_t k = 0; r == 0 && k < s->n_sizes; k++) {
        struct replay_options o = {.experts = s->options->experts, .slots = s->slots[k], .half_life = s->options->half_life,
                                   .first_position = s->options->first_position, .cancel = s->options->cancel};
        r = trace_replay(s->trace, min, &o, &s->best[k], e);
        for (uint32_t i = 0; r == 0 && i < s->n_policies; i++) {
            if (s->policies[i] == min) {
                s->counts[i][k] = s->best[k];
            } else {
                r = trace_replay(s->trace, s->policies[i], &o, &s->counts[i][k], e);
            }
        }
    }
    return r;
}

/* ---- showing it ---- */

static double percent(const struct replay_counts *c) { return 100.0 * (double)c->hits / (double)c->uses; }
static double share(const struct sweep *s, uint32_t k) { return 100.0 * s->slots[k] / (double)s->total; }
static double per_token(const struct sweep *s, uint64_t n) { return (double)n / (double)s->tokens; }

static void text(const struct sweep *s, struct str *out)
{
    const struct trace *t = s->trace;
    str_printf(out, "%s: %u windows, %zu tokens, %u layers of %u experts, %u used; counted: %llu tokens\n", s->options->path, t->windows,
               trace_tokens(t), t->n_layers, s->options->experts, t->used, (unsigned long long)s->tokens);
    str_puts(out, "hits in percent, admissions per token, points below min\n\nslots      ");
    for (uint32_t k = 0; k < s->n_sizes; k++) {
        str_printf(out, "  %9u (%5.1f %%)", s->slots[k], share(s, k));
    }
    str_puts(out, "\n");
    for (uint32_t i = 0; i < s->n_policies; i++) {
        str_printf(out, "%-11s", s->policies[i]->name);
        for (uint32_t k = 0; k < s->n_sizes; k++) {
            const struct replay_counts *c = &s->counts[i][k];
            str_printf(out, "  %5.1f %6.1f %5.1f", percent(c), per_token(s, c->admitted), percent(&s->best[k]) - percent(c));
        }
        str_puts(out, "\n");
    }
}

static void json_result(const struct sweep *s, uint32_t i, uint32_t k, struct str *out)
{
    const struct replay_counts *c = &s->counts[i][k];
    str_printf(out, "  {\"policy\": \"%s\", \"slots\": %u, \"share\": %.6f, \"uses\": %llu, \"hits\": %llu, \"hit_ratio\": %.6f,", s->policies[i]->name,
               s->slots[k], share(s, k) / 100, (unsigned long long)c->uses, (unsigned long long)c->hits, percent(c) / 100);
    str_printf(out, " \"admitted\": %llu, \"evicted\": %llu, \"bypassed\": %llu, \"admitted_per_token\": %.4f,", (unsigned long long)c->admitted,
               (unsigned long long)c->evicted, (unsigned long long)(c->uses - c->hits - c->admitted), per_token(s, c->admitted));
    str_printf(out, " \"min_hit_ratio\": %.6f, \"regret_points\": %.4f, \"layer_hit_ratio\": [", percent(&s->best[k]) / 100,
               percent(&s->best[k]) - percent(c));
    for (uint32_t l = 0; l < s->trace->n_layers; l++) {
        str_printf(out, "%s%.6f", l > 0 ? ", " : "", (double)c->layer_hits[l] * s->trace->n_layers / (double)c->uses);
    }
    str_puts(out, "]}");
}

static void json(const struct sweep *s, struct str *out)
{
    const struct trace *t = s->trace;
    trace_json_head(t, s->options, s->tokens, out);
    str_puts(out, " \"layers\": [");
    for (uint32_t l = 0; l < t->n_layers; l++) {
        str_printf(out, "%s%u", l > 0 ? ", " : "", t->layers[l]);
    }
    str_puts(out, "],\n \"results\": [\n");
    for (uint32_t k = 0; k < s->n_sizes; k++) {
        for (uint32_t i = 0; i < s->n_policies; i++) {
            str_puts(out, k + i > 0 ? ",\n" : "");
            json_result(s, i, k, out);
        }
    }
    str_puts(out, "\n ]}\n");
}

/* A line per policy over the sizes in rising order; bounds are dashed. */
static int plot(const struct sweep *s, struct error *e)
{
    struct str out = {0};
    plot_begin(&out, "experts that stay", "hits");
    for (uint32_t i = 0; i < s->n_policies; i++) {
        double across[SIZES], up[SIZES];
        for (uint32_t k = 0; k < s->n_sizes; k++) {
            uint32_t at = k;
            for (; at > 0 && across[at - 1] > share(s, k) / 100; at--) {
                across[at] = across[at - 1];
                up[at] = up[at - 1];
            }
            across[at] = share(s, k) / 100;
            up[at] = percent(&s->counts[i][k]) / 100;
        }
        plot_line(&out, i, s->policies[i]->name, s->policies[i]->ahead == AHEAD_EXACT || s->policies[i]->ahead == AHEAD_ALL, across, up, s->n_sizes);
    }
    return plot_write(&out, s->options->plot, e);
}

int trace_simulate(const struct trace *t, const struct trace_options *o, struct error *e)
{
    struct str out = {0};
    struct sweep *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return error_nomem(e, "results", sizeof(*s));
    }
    s->trace = t;
    s->options = o;
    s->total = (uint64_t)t->n_layers * o->experts;
    s->tokens = replay_tokens(t, o->first_position);
    int r = trace_parse_slots("--cache", o->cache, s->total, s->slots, SIZES, &s->n_sizes, e);
    r = r < 0 ? r : choose_policies(s, e);
    r = r < 0 ? r : sweep(s, e);
    r = r < 0 || o->plot == NULL ? r : plot(s, e);
    if (r == 0) {
        (o->json ? json : text)(s, &out);
        r = arguments_print(&out, e);
    }
    free(s);
    return r;
}
