/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: trace_predict.h. Must not know: how it was measured. */
#include "src/commands/trace_predict.h"

#include <stdbool.h>
#include <string.h>

/* A line of the table: a list of a recall. */
struct line {
    const char *name, *lead;
    const struct recall *recall;
    uint32_t list;
};

enum { LINES = PREDICT_LISTS + 1 };

static bool has_rows(const struct line *l)
{
    uint64_t rows = 0;
    for (uint32_t layer = 0; layer < l->recall->layers; layer++) {
        rows += recall_at(l->recall, l->list, layer)->rows;
    }
    return rows > 0;
}

/* Those that said something, by lead, fused last. Returns how many. */
static uint32_t lines_of(const struct predict_report *r, struct line ret[LINES])
{
    const struct recall *recall = predict_recall(r->predict);
    uint32_t n = 0;
    for (uint32_t lead = 0; lead < LEADS; lead++) {
        for (uint32_t i = 0; i < PREDICTORS; i++) {
            ret[n] = (struct line){predictor_name((enum predictor)i), lead_name((enum lead)lead), recall, i};
            n += predictor_lead((enum predictor)i) == lead && has_rows(&ret[n]);
        }
        ret[n] = (struct line){"shadow-row-if-right", lead_name((enum lead)lead), r->exact, 0};
        n += lead == LEAD_TOKEN && has_rows(&ret[n]);
        ret[n] = (struct line){"fused", lead_name((enum lead)lead), recall, PREDICTORS + lead};
        n += has_rows(&ret[n]);
    }
    return n;
}

enum share { RECALL, GATE_RECALL, PRECISION, SHARES };

static double share_of(const struct line *l, const struct recall_cell *c, enum share s, uint32_t budget)
{
    return s == RECALL ? recall_plain(l->recall, c, budget) : s == GATE_RECALL ? recall_weighted(c, budget) : recall_precision(l->recall, c, budget);
}

/* Over layers that have rows. */
static double mean(const struct line *l, enum share s, uint32_t budget)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t layer = 0; layer < l->recall->layers; layer++) {
        const struct recall_cell *c = recall_at(l->recall, l->list, layer);
        if (c->rows > 0) {
            sum += share_of(l, c, s, budget);
            n++;
        }
    }
    return sum / n;
}

/* ---- text ---- */

static void text_line(const struct line *l, struct str *out)
{
    str_printf(out, "%-20s %-14s", l->name, l->lead);
    for (uint32_t b = 0; b < RECALL_BUDGETS; b++) {
        str_printf(out, "  %3.0f/%-3.0f", 100 * mean(l, RECALL, b), 100 * mean(l, GATE_RECALL, b));
    }
    str_puts(out, " ");
    for (uint32_t layer = 0; layer < l->recall->layers; layer++) {
        const struct recall_cell *c = recall_at(l->recall, l->list, layer);
        if (c->rows > 0) {
            str_printf(out, " %3.0f", 100 * recall_plain(l->recall, c, 1));
        }
    }
    str_puts(out, "\n");
}

static void text_calibration(const struct predict_report *r, enum lead lead, struct str *out)
{
    const struct predict_calibration *c = predict_calibration(r->predict, lead);
    uint64_t n = 0;
    for (uint32_t i = 0; i < PREDICT_BINS; i++) {
        n += c->n[i];
    }
    if (n == 0) {
        return;
    }
    str_printf(out, "%-14s %.4f ", lead_name(lead), c->square / (double)n);
    for (uint32_t i = 0; i < PREDICT_BINS; i++) {
        if (c->n[i] == 0) {
            str_puts(out, "      -");
        } else {
            str_printf(out, "  %2.0f/%-2.0f", 100 * c->chance[i] / (double)c->n[i], 100 * (double)c->used[i] / (double)c->n[i]);
        }
    }
    str_puts(out, "\n");
}

void predict_report_text(const struct predict_report *r, struct str *out)
{
    const struct recall *recall = predict_recall(r->predict);
    struct line lines[LINES];
    uint32_t n = lines_of(r, lines);
    str_printf(out, "%zu texts, counted from position %u; %u of %u experts are used", r->texts, r->first_position, recall->used, recall->experts);
    if (r->drafted > 0) {
        str_printf(out, "; drafts right: %.1f %%", 100 * (double)r->right / (double)r->drafted);
    }
    str_printf(out, "; learned before: %s", r->learned != NULL ? r->learned : "nothing");
    str_puts(out, "\nrecall of used experts in percent, plain/weighted by gate, mean over layers; plain by layer at the second budget\n\n");
    str_printf(out, "%-20s %-14s", "predictor", "lead");
    for (uint32_t b = 0; b < RECALL_BUDGETS; b++) {
        str_printf(out, "  best %-2u", recall->budget[b]);
    }
    str_puts(out, "  by layer\n");
    for (uint32_t i = 0; i < n; i++) {
        text_line(&lines[i], out);
    }
    str_puts(out, "\nfused chances: Brier score, then chance/used in percent for chances from 0 to 10 %, to 20 %, ...\n\n");
    for (uint32_t lead = 0; lead < LEADS; lead++) {
        text_calibration(r, (enum lead)lead, out);
    }
}

/* ---- JSON ---- */

/* Of one layer, or (NULL) the means. */
static void json_shares(const struct line *l, const struct recall_cell *c, struct str *out)
{
    static const char *const names[SHARES] = {"recall", "gate_recall", "precision"};
    for (uint32_t s = 0; s < SHARES; s++) {
        str_printf(out, "%s\"%s\": [", s > 0 ? ", " : "", names[s]);
        for (uint32_t b = 0; b < RECALL_BUDGETS; b++) {
            str_printf(out, "%s%.6f", b > 0 ? ", " : "", c != NULL ? share_of(l, c, (enum share)s, b) : mean(l, (enum share)s, b));
        }
        str_puts(out, "]");
    }
}

static void json_line(const struct line *l, struct str *out)
{
    const char *between = "";
    str_printf(out, "  {\"name\": \"%s\", \"lead\": \"%s\", ", l->name, l->lead);
    json_shares(l, NULL, out);
    str_puts(out, ", \"layers\": [");
    for (uint32_t layer = 0; layer < l->recall->layers; layer++) {
        const struct recall_cell *c = recall_at(l->recall, l->list, layer);
        if (c->rows == 0) {
            continue;
        }
        str_printf(out, "%s\n   {\"layer\": %u, \"rows\": %llu, ", between, layer, (unsigned long long)c->rows);
        json_shares(l, c, out);
        str_puts(out, "}");
        between = ",";
    }
    str_puts(out, "]}");
}

static void json_calibration(const struct predict_calibration *c, const char *lead, struct str *out)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < PREDICT_BINS; i++) {
        n += c->n[i];
    }
    str_printf(out, "  {\"lead\": \"%s\", \"brier\": %.6f, \"bins\": [", lead, n > 0 ? c->square / (double)n : 0.0);
    for (uint32_t i = 0; i < PREDICT_BINS; i++) {
        str_printf(out, "%s{\"n\": %llu, \"chance\": %.6f, \"used\": %.6f}", i > 0 ? ", " : "", (unsigned long long)c->n[i],
                   c->n[i] > 0 ? c->chance[i] / (double)c->n[i] : 0.0, c->n[i] > 0 ? (double)c->used[i] / (double)c->n[i] : 0.0);
    }
    str_puts(out, "]}");
}

void predict_report_json(const struct predict_report *r, struct str *out)
{
    const struct recall *recall = predict_recall(r->predict);
    struct line lines[LINES];
    uint32_t n = lines_of(r, lines);
    str_puts(out, "{\"learned\": ");
    str_json(out, r->learned != NULL ? r->learned : "", r->learned != NULL ? strlen(r->learned) : 0);
    str_printf(out, ", \"texts\": %zu, \"first_position\": %u, \"experts\": %u, \"experts_used\": %u, \"drafted\": %llu, \"drafts_right\": %llu, \"budgets\": [",
               r->texts, r->first_position, recall->experts, recall->used, (unsigned long long)r->drafted, (unsigned long long)r->right);
    for (uint32_t b = 0; b < RECALL_BUDGETS; b++) {
        str_printf(out, "%s%u", b > 0 ? ", " : "", recall->budget[b]);
    }
    str_puts(out, "],\n \"predictors\": [\n");
    for (uint32_t i = 0; i < n; i++) {
        str_puts(out, i > 0 ? ",\n" : "");
        json_line(&lines[i], out);
    }
    str_puts(out, "\n ],\n \"calibration\": [\n");
    for (uint32_t lead = 0; lead < LEADS; lead++) {
        str_puts(out, lead > 0 ? ",\n" : "");
        json_calibration(predict_calibration(r->predict, (enum lead)lead), lead_name((enum lead)lead), out);
    }
    str_puts(out, "\n ]}\n");
}
