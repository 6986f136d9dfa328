/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the command line of `sluice bench`. docs/performance.md. Must not know: how anything is measured. */
#include "src/commands/bench.h"

#include <stdio.h>
#include <string.h>

#include "src/commands/arguments.h"
#include "src/commands/commands.h"
#include "src/run/probe_rates.h"
#include "src/run/profiles.h"
#include "src/run/step.h"

static const char help_text[] =
    "usage: sluice bench -m MODEL [-p LIST] [-n LIST] [settings] [--json | --csv]\n"
    "       sluice bench --kernels [--isa NAME] [--type LIST] [--json]\n"
    "       sluice bench --replay TRACE -m MODEL [--cache LIST] [-n TOKENS] [--json]\n"
    "\n"
    "Speed of prompts and of decoding, each beside what the machine can do at best: memory reads and multiply-adds are measured\n"
    "before and after every repeat, which is compared with these and no others; where the machine's memory is shared and drifts,\n"
    "many short repeats (-n 16 -r 9) compare best. Tokens are random; with --mtp on or --mtp N they are the likeliest, with drafts.\n"
    "`sluice synth` makes a model to try a machine with.\n"
    "--kernels runs each operation alone, on all threads and on one, from memory and from cache; it needs no model.\n"
    "\n"
    "tests (LIST: numbers with commas, 0 leaves a test out):\n"
    "  -p, --n-prompt LIST     tokens of a prompt [512]\n"
    "  -n, --n-gen LIST        tokens decoded one by one [128]\n"
    "  -d, --n-depth LIST      positions that are there already [0]\n"
    "  --rows LIST             timelines that decode together, each its own tokens [1]\n"
    "  -t, --threads LIST      worker threads; several open the model again for each [as for sluice run]\n"
    "  -r, --repetitions N     repeats, of which the median counts [3]\n"
    "  --no-warmup             the first repeat meets cold caches\n"
    "output:\n"
    "  --json                  list of results, one for each test\n"
    "  --csv                   the same as lines\n"
    "  --quiet                 no progress, no messages\n"
    "kernels:\n"
    "  --kernels               operations instead of a model\n"
    "  --type LIST             weight formats, as q4_k,q8_0 [all]\n"
    "replay:\n"
    "  --replay TRACE          no products: what the tokens of a routing trace (docs/trace.md) miss is read from MODEL, for each policy\n"
    "  --cache LIST            experts that stay in RAM, as shares of all or numbers [10%,30%,50%]\n"
    "Settings are those of `sluice run`: --ram, -ub, -c, -ctk, --isa, --numa, --bulk, ...\n"
    "Exit status: 0 done, 1 failed, 2 usage, 3 does not fit, 130 interrupted.\n"
    "\n"
    "examples:\n"
    "  sluice synth --shape v3 --dense 1 --moe 2 --type q4_k --attn-type q8_0 -o v3.gguf && sluice bench -m v3.gguf\n"
    "  sluice bench -m model.gguf -p 512,2048 -n 128 -r 5 --json\n"
    "  sluice bench -m model.gguf -p 0 -n 64 --rows 1,2,4,8\n"
    "  sluice bench --kernels --isa avx2 --type q4_k,q8_0\n"
    "  sluice bench --replay trace.csv.gz -m v3.gguf --cache 10%,30% -n 40\n";

/* Increasing order is not asked for; a list as "512,2048". */
static int read_list(const char *flag, const char *text, uint32_t most, struct bench_list *ret, struct error *e)
{
    struct bench_list list = {0};
    for (const char *at = text;; at++) {
        char word[24];
        uint64_t value;
        size_t len = strcspn(at, ",");
        snprintf(word, sizeof(word), "%.*s", len < sizeof(word) ? (int)len : 0, at);
        if (list.n == BENCH_LIST_MAX || !parse_u64(word, &value) || value > most) {
            return error_set(e, ERROR_USAGE, "%s %s: expected up to %d numbers from 0 to %u with commas between", flag, text, BENCH_LIST_MAX, most);
        }
        list.value[list.n++] = (uint32_t)value;
        at += len;
        if (*at == '\0') {
            break;
        }
    }
    *ret = list;
    return 0;
}

struct list_flag {
    const char *name, *alias;
    struct bench_list *list;
    uint32_t most;
};

static int read_lists(struct bench_options *o, const char *const *texts, const struct list_flag *flags, size_t n, struct error *e)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++) {
        r = texts[i] == NULL ? 0 : read_list(flags[i].name, texts[i], flags[i].most, flags[i].list, e);
    }
    for (uint32_t i = 0; r == 0 && i < o->rows.n; i++) {
        r = o->rows.value[i] > 0 ? 0 : error_set(e, ERROR_USAGE, "--rows: 0 timelines decode nothing; leave decoding out with -n 0");
    }
    return r;
}

/* Flags of models that were given with --kernels. */
static int check_no_lists(const struct bench_options *o, const char *const *texts, const struct list_flag *flags, size_t n, struct error *e)
{
    for (size_t i = 0; i < n; i++) {
        bool one_count = flags[i].list == &o->threads && o->threads.n == 1;
        if (texts[i] != NULL && !one_count) {
            return error_set(e, ERROR_USAGE, "--kernels %s %s: operations have no prompts, tokens or timelines, and one number of threads", flags[i].name, texts[i]);
        }
    }
    return 0;
}

static int read_repeats(const char *text, uint32_t *ret, struct error *e)
{
    uint64_t value;
    if (text == NULL) {
        return 0;
    }
    if (!parse_u64(text, &value) || value < 1 || value > RATES_SAMPLES_MAX) {
        return error_set(e, ERROR_USAGE, "-r %s: expected a number from 1 to %d", text, RATES_SAMPLES_MAX);
    }
    *ret = (uint32_t)value;
    return 0;
}

/* A replay has one length, and no tests. */
static int check_replay_lists(const struct bench_options *o, const char *const *texts, const struct list_flag *flags, size_t n, struct error *e)
{
    for (size_t i = 0; i < n; i++) {
        if (texts[i] != NULL && flags[i].list != &o->generated) {
            return error_set(e, ERROR_USAGE, "--replay %s: computes nothing; leave out %s", o->replay, flags[i].name);
        }
        if (texts[i] != NULL && (o->generated.n > 1 || o->generated.value[0] == 0)) {
            return error_set(e, ERROR_USAGE, "--replay %s: -n %s: expected one number of tokens, at least 1", o->replay, texts[i]);
        }
    }
    return 0;
}

static int check(const struct bench_options *o, struct error *e)
{
    if (o->json && o->csv) {
        return error_set(e, ERROR_USAGE, "--json and --csv: give one of them");
    }
    if (o->kernels && o->csv) {
        return error_set(e, ERROR_USAGE, "--kernels --csv: operations are printed as a table or with --json");
    }
    if (o->kernels && o->settings.model != NULL && o->settings.source[settings_find_flag("-m")] == SOURCE_FLAG) {
        return error_set(e, ERROR_USAGE, "--kernels needs no model: leave out -m, or leave out --kernels");
    }
    if (!o->kernels && o->types != NULL) {
        return error_set(e, ERROR_USAGE, "--type names formats for --kernels; a model has the formats of its file");
    }
    if (o->replay != NULL && (o->kernels || o->csv)) {
        return error_set(e, ERROR_USAGE, "--replay %s: is a test of its own; leave out %s", o->replay, o->kernels ? "--kernels" : "--csv");
    }
    if (o->replay == NULL && o->cache != NULL) {
        return error_set(e, ERROR_USAGE, "--cache %s: belongs to --replay; --expert-ram says how many experts of a model stay", o->cache);
    }
    if (!o->kernels && o->settings.model == NULL) {
        return error_set(e, ERROR_USAGE, "no model given: -m PATH; `sluice synth` makes one, `sluice bench --kernels` needs none; see `sluice bench --help`");
    }
    return 0;
}

static int parse(int argc, char **argv, struct bench_options *o, bool *ret_help, struct error *e)
{
    const struct list_flag lists[] = {
        {"-p", "--n-prompt", &o->prompts, 1 << 24}, {"-n", "--n-gen", &o->generated, 1 << 24}, {"-d", "--n-depth", &o->depths, 1 << 24},
        {"--rows", "--rows", &o->rows, STEP_FEEDS_MAX}, {"-t", "--threads", &o->threads, 1024}};
    const char *texts[ARRAY_LEN(lists)] = {NULL}, *repeats = NULL;
    struct argument own[2 * ARRAY_LEN(lists) + 11] = {
        {"--json", &o->json, NULL},       {"--csv", &o->csv, NULL},    {"--no-warmup", &o->cold, NULL}, {"--quiet", &o->quiet, NULL},
        {"--kernels", &o->kernels, NULL}, {"--type", NULL, &o->types}, {"-r", NULL, &repeats},          {"--repetitions", NULL, &repeats},
        {"--replay", NULL, &o->replay},   {"--cache", NULL, &o->cache}};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        own[10 + 2 * i] = (struct argument){lists[i].name, NULL, &texts[i]};
        own[11 + 2 * i] = (struct argument){lists[i].alias, NULL, &texts[i]};
    }
    int r = arguments_read_all(argc, argv, own, &o->settings, ret_help, e);
    if (r < 0 || *ret_help) {
        return r;
    }
    r = profiles_apply(&o->settings, NULL, e);
    r = r < 0 ? r : read_lists(o, texts, lists, ARRAY_LEN(lists), e);
    r = r < 0 || !o->kernels ? r : check_no_lists(o, texts, lists, ARRAY_LEN(lists), e);
    r = r < 0 || o->replay == NULL ? r : check_replay_lists(o, texts, lists, ARRAY_LEN(lists), e);
    o->generated_set = texts[1] != NULL;
    r = r < 0 ? r : read_repeats(repeats, &o->repeats, e);
    return r < 0 ? r : check(o, e);
}

int command_bench(int argc, char **argv, const volatile int *cancel)
{
    struct bench_options o = {.prompts = {{512}, 1}, .generated = {{128}, 1}, .depths = {{0}, 1}, .rows = {{1}, 1}, .repeats = 3};
    struct error e = {0};
    bool help = false;
    int r = settings_init(&o.settings, &e);
    r = r < 0 ? r : parse(argc, argv, &o, &help, &e);
    if (r == 0) {
        r = help ? (fputs(help_text, stdout), 0) : o.kernels ? bench_kernels(&o, cancel, &e) : o.replay != NULL ? bench_replay(&o, cancel, &e) : bench_model(&o, cancel, &e);
    }
    settings_deinit(&o.settings);
    return arguments_finish("bench", r, &e);
}
