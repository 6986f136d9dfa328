/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: running `sluice tune`: which engine is open, samples in turn, the order of trials, the budget. Must not know: what wins
 * (tune_judge), what is tried (tune_candidates), how results are written. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/intmath.h"
#include "io/file.h"
#include "src/commands/arguments.h"
#include "src/commands/bench_run.h"
#include "src/commands/measure.h"
#include "src/commands/tune.h"
#include "src/run/probe.h"
#include "src/tier/cost_input.h"

struct tuner {
    const struct tune_options *o;
    const volatile int *cancel;
    struct clock clock;
    uint64_t start; /* when the first engine was opened */
    bool progress, announced, likely;
    struct engine *engine;         /* one at a time: weights take the machine's memory */
    const struct settings *opened; /* for these; NULL: none is open */
    struct tune_list list;
    struct tune_record record;     /* of the settings of a trial */
    struct tune_result result;
};

/* ---- messages ---- */

static void clear(const struct tuner *t)
{
    if (t->progress) {
        fputs("\r\033[K", stderr);
    }
}

static void log_line(void *ctx, enum log_level level, const char *line)
{
    (void)level;
    clear(ctx);
    fprintf(stderr, "sluice tune: %s\n", line);
}

static double seconds(const struct tuner *t) { return clock_seconds_since(&t->clock, t->start); }

/* Time of a trial, as those so far took; the start was one sample of the two of every pair. */
static double trial_seconds(const struct tuner *t, double start_s)
{
    uint32_t done = t->result.n_trials;
    return done > 0 ? (seconds(t) - start_s) / done : 2 * start_s;
}

static void show(const struct tuner *t, const char *what, double left_s)
{
    if (t->progress) {
        fprintf(stderr, "\r\033[K%s", what);
        if (left_s > 0) {
            fprintf(stderr, ", about %.0f:%02.0f left", floor(left_s / 60), fmod(left_s, 60));
        }
    }
}

static int print_line(const struct tuner *t, struct str *line, struct error *e)
{
    clear(t);
    str_puts(line, "\n");
    if (t->o->json) {
        str_deinit(line);
        return 0;
    }
    return arguments_print(line, e);
}

/* ---- the open engine ---- */

static void shut(struct tuner *t)
{
    engine_close(t->engine);
    t->engine = NULL;
    t->opened = NULL;
}

/* Steps down are told once: of the start. */
static int open_for(struct tuner *t, const struct settings *s, struct error *e)
{
    const struct engine_hooks hooks = {
        .log = {.level = t->o->quiet || t->announced ? LOG_ERROR : LOG_WARN, .write = log_line, .ctx = t},
        .cancel = (const atomic_int *)(const volatile void *)t->cancel, /* as in measure.c */
    };
    if (t->opened == s) {
        return 0;
    }
    shut(t);
    int r = engine_open(s, &hooks, &t->engine, e);
    if (r < 0) {
        return r;
    }
    t->opened = s;
    t->announced = true;
    uint32_t need = max_u32(t->o->decode_n, t->o->prompt_n);
    if (t->engine->weights == NULL) {
        return error_set(e, ERROR_USAGE, "%s: a scripted model computes nothing that could be measured", s->model);
    }
    if (t->engine->context < need) {
        return error_set(e, ERROR_USAGE, "a context of %u is less than the %u positions of a test; give a larger -c, or fewer tokens with -p and -n", t->engine->context, need);
    }
    struct bench_run b = {.engine = t->engine, .repeats = 1};
    return bench_warm_up(&b, e);
}

/* ---- samples ---- */

static int take_goal(struct tuner *t, enum tune_goal goal, struct tune_sample *ret, struct tune_record *record, struct error *e)
{
    bool decode = goal == TUNE_DECODE;
    struct bench_run b = {.engine = t->engine, .repeats = decode ? TUNE_REPEATS : 1};
    const struct bench_test test = {.prompt_n = decode ? 0 : t->o->prompt_n, .decode_n = decode ? t->o->decode_n : 0, .rows = 1, .likely = t->likely};
    struct bench_row row;
    ret->tok_s[goal] = 0;
    if (test.prompt_n + test.decode_n == 0) {
        return 0;
    }
    cost_input_init(&b.cost, t->engine->weights);
    int r = bench_test_run(&b, &test, &row, e);
    if (r == 0) {
        ret->tok_s[goal] = bench_speed(&row).median;
        record->hits += decode ? row.hits : 0;
        record->misses += decode ? row.misses : 0;
    }
    return r;
}

/* Into the record of the settings too. */
static int take_sample(struct tuner *t, const struct settings *s, struct tune_record *record, struct tune_sample *ret, struct error *e)
{
    struct tune_sample sample;
    int r = open_for(t, s, e);
    for (int goal = 0; r == 0 && goal < TUNE_GOALS; goal++) {
        r = take_goal(t, (enum tune_goal)goal, &sample, record, e);
    }
    if (r == 0) {
        const struct plan *p = &t->engine->plan;
        record->expert_share = p->experts > 0 ? (double)p->expert_slots / (double)p->experts : 0;
        record->sample[record->n++] = sample;
        *ret = sample;
    }
    return r;
}

/* ---- a trial ---- */

/* A B, B A, A B: neighbours in time are compared, drift of either direction cancels, and an engine that is open stays for two. */
static int take_pair(struct tuner *t, const struct settings *tried, struct tune_pairs *p, struct error *e)
{
    bool best_first = t->opened != tried;
    int r = 0;
    for (int k = 0; r == 0 && k < 2; k++) {
        bool best = (k == 0) == best_first;
        r = best ? take_sample(t, &t->result.best, &t->result.record, &p->best[p->n], e) : take_sample(t, tried, &t->record, &p->trial[p->n], e);
    }
    p->n += r == 0;
    return r;
}

static int run_pairs(struct tuner *t, const struct settings *tried, struct tune_trial *trial, double left_s, struct error *e)
{
    int r = 0;
    while (r == 0 && trial->pairs.n < t->o->rounds && (trial->pairs.n == 0 || !tune_hopeless(&trial->pairs, trial->tried.goal))) {
        char what[120];
        snprintf(what, sizeof(what), "trial %u of %u: %s %s, pair %u of %u", t->result.n_trials + 1, t->list.n, trial->tried.setting, trial->tried.value, trial->pairs.n + 1,
                 t->o->rounds);
        show(t, what, left_s);
        r = take_pair(t, tried, &trial->pairs, e);
    }
    return r;
}

/* The settings of a trial that won are the best from now on; the engine that is open for them stays. */
static void keep(struct tuner *t, struct settings *tried)
{
    struct settings *best = &t->result.best;
    bool open = t->opened == tried;
    if (!open) {
        shut(t);
    }
    settings_deinit(best);
    *best = *tried;
    *tried = (struct settings){0};
    t->opened = open ? best : NULL;
    t->result.record = t->record;
}

/* Settings that this machine refuses are no reason to stop. */
static int note_refusal(int code, struct tune_trial *trial, struct error *e)
{
    if (code != ERROR_DOES_NOT_FIT && code != ERROR_USAGE) {
        return code;
    }
    snprintf(trial->refused, sizeof(trial->refused), "%.199s", e->text);
    text_one_line(trial->refused);
    *e = (struct error){0};
    return 0;
}

static int try_one(struct tuner *t, const struct tune_candidate *c, double left_s, struct error *e)
{
    struct tune_trial *trial = &t->result.trial[t->result.n_trials];
    struct settings tried;
    struct str line = {0};
    *trial = (struct tune_trial){.tried = *c};
    t->record = (struct tune_record){.n = 0};
    int r = settings_copy(&t->result.best, &tried, e);
    if (r < 0) {
        return r;
    }
    r = settings_set(&tried, c->setting, c->value, SOURCE_FLAG, e);
    r = r < 0 ? r : run_pairs(t, &tried, trial, left_s, e);
    r = r < 0 ? note_refusal(r, trial, e) : 0;
    if (r == 0) {
        trial->judgement = trial->refused[0] == '\0' ? tune_judge(&trial->pairs, c->goal) : (struct tune_judgement){.verdict = TUNE_NO_FASTER};
        t->result.n_trials++;
        tune_trial_text(trial, &line);
        if (trial->judgement.verdict == TUNE_WINS) {
            keep(t, &tried);
        }
        r = print_line(t, &line, e);
    }
    if (t->opened == &tried) {
        shut(t);
    }
    settings_deinit(&tried);
    return r;
}

static int try_all(struct tuner *t, double start_s, struct error *e)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < t->list.n; i++) {
        double one_s = trial_seconds(t, start_s), left_s = one_s * (t->list.n - i);
        if (seconds(t) + one_s > t->o->budget) {
            struct str line = {0};
            t->result.n_left_out = t->list.n - i;
            str_printf(&line, "%u of %u settings are not tried: a trial takes about %.0f s, which the %.0f s of --budget do not hold any more", t->result.n_left_out,
                       t->list.n, one_s, t->o->budget);
            return print_line(t, &line, e);
        }
        r = try_one(t, &t->list.of[i], fmin(left_s, t->o->budget - seconds(t)), e);
    }
    return r;
}

/* ---- start and end ---- */

static int measure(struct tuner *t, struct error *e)
{
    struct machine *m = &t->result.machine;
    show(t, "measuring the machine", 0);
    int r = probe_machine(NULL, m, e);
    r = r < 0 ? r : measure_machine(NULL, 0, t->cancel, m, e);
    if (r == ERROR_DOES_NOT_FIT) { /* memory is short: the profile has no rates */
        const struct log log = {.level = t->o->quiet ? LOG_ERROR : LOG_WARN, .write = log_line, .ctx = t};
        log_print(&log, LOG_WARN, "rates of the machine stay unknown: %s", e->text);
        *e = (struct error){0};
        r = 0;
    }
    return r;
}

/* What only an open model tells. */
static int learn(struct tuner *t, struct error *e)
{
    const struct engine *g = t->engine;
    char why[120];
    const struct tune_facts f = {
        .threads = pool_workers(g->pool), .auto_threads = probe_threads(&g->machine, why, sizeof(why)),
        .nodes = g->nodes.use.nodes, .spread = g->nodes.parts > 1,
        .streams = store_streams(g->store), .drafts = g->drafts > 0,
        .prompt_n = t->o->prompt_n, .decodes = t->o->decode_n > 0,
    };
    tune_candidates(&f, &t->result.best, &t->list);
    return f.streams ? measure_drive(g->weights->containers[0]->files[0].path, t->cancel, &t->result.machine, e) : 0;
}

static int measure_start(struct tuner *t, struct error *e)
{
    struct tune_sample sample = {{0}};
    struct str line = {0};
    show(t, "measuring the start", 0);
    int r = open_for(t, &t->result.best, e);
    if (r < 0) {
        return r;
    }
    t->likely = t->engine->drafts > 0;
    r = learn(t, e);
    r = r < 0 ? r : take_sample(t, &t->result.best, &t->result.record, &sample, e);
    if (r < 0) {
        return r;
    }
    str_puts(&line, "start           ");
    for (int goal = 0; goal < TUNE_GOALS; goal++) {
        if (sample.tok_s[goal] > 0) {
            str_printf(&line, " %s %8.2f tok/s", goal == TUNE_DECODE ? "decode" : "prompt", sample.tok_s[goal]);
        }
    }
    str_printf(&line, "; %u settings to try", t->list.n);
    return print_line(t, &line, e);
}

static int today(char out[12], struct error *e)
{
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) == NULL || strftime(out, 12, "%Y-%m-%d", &utc) != 10) {
        return error_set(e, -EINVAL, "the clock of this machine gives no date");
    }
    return 0;
}

/* The profile as text: of the start it tells whether there will be one. */
static int describe(const struct tuner *t, struct str *ret, struct error *e)
{
    char date[12];
    struct profile *p = calloc(1, sizeof(*p));
    int r = p == NULL ? error_nomem(e, "profile", sizeof(*p)) : today(date, e);
    r = r < 0 ? r : tune_profile(t->o, &t->result, date, p, e);
    r = r < 0 ? r : tune_profile_text(t->o, p, ret, e);
    free(p);
    return r;
}

static int finish(const struct tuner *t, struct error *e)
{
    struct str text = {0}, out = {0};
    int r = describe(t, &text, e);
    r = r < 0 ? r : file_write_all(t->o->out, text.data, text.len, e);
    str_deinit(&text);
    if (r < 0) {
        return r;
    }
    if (t->o->json) {
        tune_json(t->o, &t->result, &out);
        return arguments_print(&out, e);
    }
    uint32_t won = 0;
    for (uint32_t i = 0; i < t->result.n_trials; i++) {
        won += t->result.trial[i].judgement.verdict == TUNE_WINS;
    }
    str_printf(&out, "%u of %u settings tried won; the best is in %s", won, t->result.n_trials, t->o->out);
    return print_line(t, &out, e);
}

static int check_profile(const struct tuner *t, struct error *e)
{
    struct str text = {0};
    int r = describe(t, &text, e);
    str_deinit(&text);
    return r;
}

static int run(struct tuner *t, struct error *e)
{
    int r = settings_copy(&t->o->settings, &t->result.best, e);
    r = r < 0 ? r : measure(t, e);
    r = r < 0 ? r : check_profile(t, e);
    t->start = clock_now_ns(&t->clock);
    r = r < 0 ? r : measure_start(t, e);
    if (r < 0) {
        return r;
    }
    r = try_all(t, seconds(t), e);
    shut(t);
    clear(t);
    struct error told = {0};
    int written = finish(t, &told);
    if (written < 0) {
        *e = told;
        return written;
    }
    return r == ERROR_INTERRUPTED ? error_set(e, r, "interrupted; %s has the best so far", t->o->out) : r;
}

int tune_model(const struct tune_options *o, const volatile int *cancel, struct error *e)
{
    struct tuner *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return error_nomem(e, "results", sizeof(*t));
    }
    t->o = o;
    t->cancel = cancel;
    t->clock = clock_system();
    t->progress = !o->quiet && isatty(STDERR_FILENO) == 1;
    int r = run(t, e);
    clear(t);
    shut(t);
    settings_deinit(&t->result.best);
    free(t);
    return r;
}
