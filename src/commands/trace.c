/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice trace`: its command line. Must not know: what is in a trace. docs/trace.md. */
#include "src/commands/trace.h"

#include <stdio.h>
#include <string.h>

#include "common/attr.h"
#include "src/base/settings.h"
#include "src/base/str.h"
#include "src/commands/arguments.h"
#include "src/commands/commands.h"
#include "src/commands/trace_replay.h"

static const char help_text[] =
    "usage: sluice trace simulate TRACE.csv[.gz] [flags]\n"
    "       sluice trace report TRACE.csv[.gz] [flags]\n"
    "       sluice trace record -m MODEL --tokens-file FILE -o TRACE.csv[.gz] [--shadow | --step] [--events EVENTS[.gz]]\n"
    "       sluice trace play EVENTS[.gz] [flags]\n"
    "       sluice trace fit -m MODEL --tokens-file FILE [-o PREDICTORS]\n"
    "       sluice trace predict -m MODEL --tokens-file FILE [--predictors PREDICTORS] [flags]\n"
    "\n"
    "simulate plays a routing trace through the cache decisions of the engine: hit ratio, admissions per token and distance\n"
    "from the best that any policy could reach (Belady's MIN), per policy and cache size. report shows which experts are\n"
    "used: a heat map per layer, imbalance, experts of consecutive tokens, pairs of neighbouring layers.\n"
    "\n"
    "record writes such a trace from a model that runs over texts, and with --events what its cache of experts was told, what it read,\n"
    "and when. play takes that through the cache itself: as recorded, which must give the engine's own counters, or on a clock of its\n"
    "own, with another drive, cache or --prefetch. fit learns from texts what predictors can know of a model.\n"
    "predict runs all predictors beside the model and shows how many of the experts each one named, how early, and what the\n"
    "chances that are made of all of them are worth.\n"
    "\n"
    "simulate, report:\n"
    "  --experts N            routed experts per layer; default: the highest id of the trace + 1\n"
    "  --first-position N     positions below N of each window warm the cache and are not counted; default 0\n"
    "  --json                 figures as JSON\n"
    "\n"
    "simulate:\n"
    "  --cache LIST           slots, all layers together, or shares of all experts; default 5%,10%,20%,30%,50%,75%\n"
    "  --policy NAME          one of these; default all\n";

static const char help_rest[] =
    "  --half-life N          of popularity, in tokens, for all policies; default 64, odds-ahead 32\n"
    "  --plot FILE.svg        hits over the share of experts that stay, a line per policy\n"
    "\n"
    "report:\n"
    "  --top N                pairs of experts to list; default 10\n"
    "\n"
    "record, fit, predict (with the settings of `sluice run`):\n"
    "  -m PATH                model\n"
    "  --tokens-file FILE     texts as token ids: a JSON list, or a list of lists\n"
    "  -o FILE                what to write; fit's default: beside the model, model.sluice-predict or MODEL.gguf.sluice-predict\n"
    "  --shadow               record: with the experts that a shadow row predicts while the token before is computed\n"
    "  --step                 record: one token at a time, as an answer is computed; else texts are prompts\n"
    "  --events FILE          record: with what play takes; experts must not all fit in RAM (--expert-ram)\n"
    "  --predictors FILE      predict: what fit has written; default: the file beside the model, if there is one; off: nothing learned before\n"
    "  --first-position N     predict: positions below N of each text are learned from and not counted; default 0\n"
    "  --plot FILE.svg        predict: the chances and what happened, as a plot\n"
    "  --json                 predict: figures as JSON\n"
    "\n"
    "play (on a clock of its own with any of the first four):\n"
    "  --drive RATE[,US]      bytes per second, and microseconds before the first of them; default what was measured\n"
    "  --io-limit RATE        as of `sluice run`\n"
    "  --cache LIST           experts that stay, or shares of all; default what was recorded\n"
    "  --prefetch NAME        off, on, auto or all; default all. Hints are those that were recorded (record with --prefetch on)\n"
    "  --compute US[,US,US]   microseconds an expert takes, what is between layers, and asking what to hint; default what was measured\n"
    "  --json                 figures as JSON\n"
    "\n"
    "Columns of the file: window,position,layer,ids,weights and perhaps shadow_ids; docs/trace.md says what they hold.\n"
    "\n"
    "examples:\n"
    "  sluice trace simulate routing.csv.gz --cache 30,90,150 --first-position 66\n"
    "  sluice trace simulate routing.csv.gz --cache 10% --policy odds-ahead --json\n"
    "  sluice trace simulate routing.csv.gz --plot hits.svg\n"
    "  sluice trace report routing.csv --experts 256 --top 20\n"
    "  sluice trace record -m models/demo --tokens-file texts.json -o routing.csv.gz --shadow\n"
    "  sluice trace record -m models/demo --tokens-file texts.json -o routing.csv.gz --step --expert-ram 25% --prefetch on --events events.gz\n"
    "  sluice trace play events.gz\n"
    "  sluice trace play events.gz --drive 3G,80 --cache 10%,25%,50%\n"
    "  sluice trace fit -m model.gguf --tokens-file texts.json\n"
    "  sluice trace predict -m models/demo --tokens-file held-out.json --first-position 66 --plot chances.svg\n";

static const struct {
    const char *verb;
    int (*run)(int argc, char **argv, const volatile int *cancel, bool *ret_help, struct error *e);
} others[] = {{"record", trace_record}, {"play", trace_play}, {"fit", trace_fit}, {"predict", trace_predict}};

static int print_help(void)
{
    fputs(help_text, stdout);
    for (const struct trace_policy *p = trace_policies; p->name != NULL; p++) {
        printf("    %-20s %s\n", p->name, p->summary);
    }
    fputs(help_rest, stdout);
    return 0;
}

struct flag {
    const char *name;
    uint32_t *number, most; /* one of number and text */
    const char **text;
    bool simulate, report;  /* who takes it */
};

static int read_value(const struct flag *f, const char *value, struct error *e)
{
    uint64_t n;
    if (value == NULL) {
        return error_set(e, ERROR_USAGE, "%s needs a value; see `sluice trace --help`", f->name);
    }
    if (f->text != NULL) {
        *f->text = value;
        return 0;
    }
    if (!parse_u64(value, &n) || n > f->most || (n == 0 && f->most <= TRACE_EXPERTS)) {
        return error_set(e, ERROR_USAGE, "%s %s: expected a number from %d to %u", f->name, value, f->most <= TRACE_EXPERTS, f->most);
    }
    *f->number = (uint32_t)n;
    return 0;
}

/* The arguments after the verb. */
static int parse(char **argv, bool simulate, struct trace_options *o, bool *ret_help, struct error *e)
{
    const struct flag flags[] = {
        {"--experts", &o->experts, TRACE_EXPERTS, NULL, true, true},
        {"--first-position", &o->first_position, UINT32_MAX - 1, NULL, true, true},
        {"--half-life", &o->half_life, 1 << 20, NULL, true, false},
        {"--top", &o->top, 1 << 20, NULL, false, true},
        {"--cache", NULL, 0, &o->cache, true, false},
        {"--policy", NULL, 0, &o->policy, true, false},
        {"--plot", NULL, 0, &o->plot, true, false},
    };
    int r = 0;
    for (; r == 0 && *argv != NULL; argv++) {
        const struct flag *f = flags;
        while (f < flags + ARRAY_LEN(flags) && (strcmp(f->name, *argv) != 0 || !(simulate ? f->simulate : f->report))) {
            f++;
        }
        if (strcmp(*argv, "--help") == 0 || strcmp(*argv, "-h") == 0) {
            *ret_help = true;
        } else if (strcmp(*argv, "--json") == 0) {
            o->json = true;
        } else if (f < flags + ARRAY_LEN(flags)) {
            r = read_value(f, argv[1], e);
            argv += r == 0;
        } else if (**argv == '-') {
            r = error_set(e, ERROR_USAGE, "unknown flag %s of `trace %s`; see `sluice trace --help`", *argv, simulate ? "simulate" : "report");
        } else if (o->path != NULL) {
            r = error_set(e, ERROR_USAGE, "two traces, %s and %s: one at a time", o->path, *argv);
        } else {
            o->path = *argv;
        }
    }
    return r;
}

/* What the trace itself decides. */
static int check(const struct trace *t, struct trace_options *o, struct error *e)
{
    uint32_t last = 0;
    if (o->experts != 0 && o->experts < t->experts) {
        return error_set(e, ERROR_USAGE, "--experts %u: the trace has expert %u", o->experts, t->experts - 1);
    }
    o->experts = t->experts > o->experts ? t->experts : o->experts;
    for (size_t row = 0; row < t->n_rows; row++) {
        last = t->rows[row].position > last ? t->rows[row].position : last;
    }
    if (o->first_position > last) {
        return error_set(e, ERROR_USAGE, "--first-position %u: nothing is counted, the last position is %u", o->first_position, last);
    }
    return 0;
}

static int run(int argc, char **argv, const volatile int *cancel, struct error *e)
{
    const char *verb = argv[1];
    struct trace_options o = {.top = 10, .policy = "all", .cache = "5%,10%,20%,30%,50%,75%", .cancel = cancel};
    struct trace t;
    bool help = false;
    if (verb == NULL) {
        return error_set(e, ERROR_USAGE, "simulate, report, record, play, fit or predict? see `sluice trace --help`");
    }
    if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0) {
        return print_help();
    }
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        if (strcmp(verb, others[i].verb) == 0) {
            int r = others[i].run(argc - 1, argv + 1, cancel, &help, e);
            return r == 0 && help ? print_help() : r;
        }
    }
    bool simulate = strcmp(verb, "simulate") == 0;
    if (!simulate && strcmp(verb, "report") != 0) {
        return error_set(e, ERROR_USAGE, "%s: expected simulate, report, record, play, fit or predict; see `sluice trace --help`", verb);
    }
    int r = parse(argv + 2, simulate, &o, &help, e);
    if (r < 0 || help) {
        return r < 0 ? r : print_help();
    }
    if (o.path == NULL) {
        return error_set(e, ERROR_USAGE, "no trace given; see `sluice trace --help`");
    }
    r = trace_read(o.path, &t, e);
    if (r == 0) {
        r = check(&t, &o, e);
        r = r < 0 ? r : simulate ? trace_simulate(&t, &o, e) : trace_report(&t, &o, e);
        trace_deinit(&t);
    }
    return r;
}

void trace_json_head(const struct trace *t, const struct trace_options *o, uint64_t counted, struct str *out)
{
    str_puts(out, "{\"trace\": ");
    str_json(out, o->path, strlen(o->path));
    str_printf(out, ", \"windows\": %u, \"tokens\": %zu, \"counted_tokens\": %llu, \"first_position\": %u, \"experts\": %u, \"experts_used\": %u,\n",
               t->windows, trace_tokens(t), (unsigned long long)counted, o->first_position, o->experts, t->used);
}

int command_trace(int argc, char **argv, const volatile int *cancel)
{
    struct settings s = {0};
    struct error e = {0};
    int r = settings_init(&s, &e);
    r = r < 0 ? r : settings_read_environment(&s, &e);
    r = r < 0 ? r : run(argc, argv, cancel, &e);
    settings_deinit(&s);
    return arguments_finish("trace", r, &e);
}
