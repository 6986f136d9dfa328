/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: trials of `sluice tune` as lines and as JSON. Must not know: how they were run. */
#include <stdio.h>
#include <string.h>

#include "src/commands/tune.h"
#include "src/run/probe_rates.h"

static double median(const struct tune_sample *s, uint32_t n, enum tune_goal goal)
{
    double values[TUNE_SAMPLES_MAX];
    for (uint32_t i = 0; i < n; i++) {
        values[i] = s[i].tok_s[goal];
    }
    return rate_of(values, n).median;
}

double tune_speed(const struct tune_record *r, enum tune_goal goal) { return median(r->sample, r->n, goal); }

static const char *goal_name(enum tune_goal goal) { return goal == TUNE_DECODE ? "decode" : "prompt"; }

void tune_trial_text(const struct tune_trial *t, struct str *out)
{
    const struct tune_pairs *p = &t->pairs;
    enum tune_goal goal = t->tried.goal;
    char what[40];
    snprintf(what, sizeof(what), "%.20s %.12s", t->tried.setting, t->tried.value);
    str_printf(out, "%-16s ", what);
    if (t->refused[0] != '\0') {
        str_printf(out, "not measured: %s", t->refused);
        return;
    }
    str_printf(out, "%s %8.2f -> %8.2f tok/s, x%.3f +-%.3f, %u pair%s: %s", goal_name(goal), median(p->best, p->n, goal), median(p->trial, p->n, goal), t->judgement.ratio,
               t->judgement.spread, p->n, p->n == 1 ? "" : "s", tune_verdict_name(t->judgement.verdict));
    if (t->judgement.verdict == TUNE_SLOWS_OTHER) {
        str_printf(out, " (%s x%.3f)", goal_name(goal == TUNE_DECODE ? TUNE_PROMPT : TUNE_DECODE), t->judgement.other);
    }
}

/* ---- JSON ---- */

static void put_samples(const char *name, const struct tune_sample *s, uint32_t n, enum tune_goal goal, struct str *out)
{
    str_printf(out, "\"%s\": [", name);
    for (uint32_t i = 0; i < n; i++) {
        str_printf(out, "%s%.6g", i > 0 ? ", " : "", s[i].tok_s[goal]);
    }
    str_puts(out, "]");
}

static void put_trial(const struct tune_trial *t, struct str *out)
{
    const struct tune_pairs *p = &t->pairs;
    str_printf(out, "{\"setting\": \"%s\", \"value\": \"%s\", \"goal\": \"%s\", ", t->tried.setting, t->tried.value, goal_name(t->tried.goal));
    if (t->refused[0] != '\0') {
        str_puts(out, "\"verdict\": \"not measured\", \"why\": ");
        str_json(out, t->refused, strlen(t->refused));
        str_puts(out, "}");
        return;
    }
    put_samples("best_tok_s", p->best, p->n, t->tried.goal, out);
    str_puts(out, ", ");
    put_samples("trial_tok_s", p->trial, p->n, t->tried.goal, out);
    str_printf(out, ", \"ratio\": %.6g, \"spread\": %.6g, \"other_ratio\": ", t->judgement.ratio, t->judgement.spread);
    if (t->judgement.other > 0) {
        str_printf(out, "%.6g", t->judgement.other);
    } else {
        str_puts(out, "null");
    }
    str_printf(out, ", \"verdict\": \"%s\"}", tune_verdict_name(t->judgement.verdict));
}

static void put_settings(const struct settings *s, struct str *out)
{
    const char *separator = "";
    str_puts(out, "{");
    for (uint32_t i = 0; i < settings_count(); i++) {
        struct str value = {0};
        settings_typed(s, i, &value);
        if (s->source[i] != SOURCE_DEFAULT && !value.failed) {
            str_printf(out, "%s\"%s\": ", separator, settings_info(i)->name);
            str_json(out, value.data, value.len);
            separator = ", ";
        }
        out->failed |= value.failed;
        str_deinit(&value);
    }
    str_puts(out, "}");
}

void tune_json(const struct tune_options *o, const struct tune_result *r, struct str *out)
{
    str_puts(out, "{\n  \"file\": ");
    str_json(out, o->out, strlen(o->out));
    str_puts(out, ",\n  \"settings\": ");
    put_settings(&r->best, out);
    str_puts(out, ",\n  ");
    put_samples("decode_tok_s", r->record.sample, o->decode_n > 0 ? r->record.n : 0, TUNE_DECODE, out);
    str_puts(out, ",\n  ");
    put_samples("prefill_tok_s", r->record.sample, o->prompt_n > 0 ? r->record.n : 0, TUNE_PROMPT, out);
    str_puts(out, ",\n  \"trials\": [");
    for (uint32_t i = 0; i < r->n_trials; i++) {
        str_puts(out, i > 0 ? ",\n    " : "\n    ");
        put_trial(&r->trial[i], out);
    }
    str_printf(out, "],\n  \"left_out\": %u\n}\n", r->n_left_out);
}
