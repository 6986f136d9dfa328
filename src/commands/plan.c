/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice plan`: the plan of a model on this or a recorded machine, without reading a weight. docs/plan.md.
 * Must not know: how sums are made (src/place). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/container.h"
#include "io/file.h"
#include "io/mirror.h"
#include "src/base/settings.h"
#include "src/commands/arguments.h"
#include "src/commands/commands.h"
#include "src/commands/measure.h"
#include "src/commands/measure_decode.h"
#include "src/commands/trace_replay.h"
#include "src/model/bind.h"
#include "src/model/tokenizer.h"
#include "src/place/report.h"
#include "src/run/nodes.h"
#include "src/run/probe.h"
#include "src/run/profiles.h"
#include "src/tier/plan_input.h"

static const char help_text[] =
    "usage: sluice plan -m MODEL [--profile FILE|NAME] [--machine FILE.json] [--trace FILE.csv] [settings] [--json]\n"
    "       sluice plan --record [-m MODEL]\n"
    "\n"
    "Where every byte goes and whether it fits, before a weight is read. Works on files whose tensors are not there yet\n"
    "(`sluice synth --header-only`). --machine plans for a recorded machine; `sluice plan --record` measures this one for\n"
    "about 2 s, with -m also the drive of the model (a file of 64 MiB or more) and its kernels, and prints it: speeds are predicted from such a file.\n"
    "--profile plans for the machine that a profile describes, with its settings; with --machine, its settings on that machine.\n"
    "--trace says how often experts are found in RAM by a recorded routing of this model (`sluice trace record`) instead of a published curve.\n"
    "--ram lowers the limit of the machine and never raises it.\n"
    "Settings are those of `sluice run`: --ram, -c, -ctk, -ub, -t, --expert-ram, --mtp, ...\n"
    "Exit status: 0 fits, 3 does not fit (the plan is printed all the same), 1 failed, 2 usage.\n"
    "\n"
    "examples:\n"
    "  sluice plan -m DeepSeek-V3-Q4_K_M-00001-of-00009.gguf\n"
    "  sluice plan -m DeepSeek-V3/ -c 16384 -ctk q8_0 --json\n"
    "  sluice plan --record -m model.gguf > server.json && sluice plan -m model.gguf --machine server.json\n"
    "  sluice synth --shape v3 --header-only -o v3.gguf && sluice plan -m v3.gguf --profile desktop-24g-gpu-192g-gen5\n";

struct options {
    struct settings settings;
    struct profile *profile; /* NULL: none */
    const char *trace;       /* file; NULL: none */
    bool json, record, help;
};

static int parse(int argc, char **argv, struct options *o, struct error *e)
{
    const struct argument own[] = {{"--json", &o->json, NULL}, {"--record", &o->record, NULL}, {0}};
    int r = settings_read_environment(&o->settings, e);
    for (int i = 1; r == 0 && i < argc; i++) {
        int index = settings_find_flag(argv[i]);
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            o->help = true;
        } else if (strcmp(argv[i], "--json") == 0) {
            o->json = true;
        } else if (strcmp(argv[i], "--record") == 0) {
            o->record = true;
        } else if (strcmp(argv[i], "--trace") == 0 && i + 1 < argc) {
            o->trace = argv[++i];
        } else if (strcmp(argv[i], "--trace") == 0) {
            r = error_set(e, ERROR_USAGE, "--trace needs a value: FILE.csv");
        } else if (index < 0) {
            r = arguments_refuse(argv[i], own, true, e);
        } else if (i + 1 == argc) {
            r = error_set(e, ERROR_USAGE, "%s needs a value: %s", argv[i], settings_info((uint32_t)index)->value);
        } else {
            r = settings_set(&o->settings, settings_info((uint32_t)index)->name, argv[++i], SOURCE_FLAG, e);
        }
    }
    if (r == 0 && !o->help && !o->record && o->settings.model == NULL) {
        r = error_set(e, ERROR_USAGE, "no model given: -m PATH; see `sluice plan --help`");
    }
    return r;
}

static int open_profile(struct options *o, struct error *e)
{
    if (o->settings.profile == NULL) {
        return 0;
    }
    o->profile = malloc(sizeof(*o->profile));
    if (o->profile == NULL) {
        return error_nomem(e, "profile", sizeof(*o->profile));
    }
    int r = profiles_open(o->settings.profile, o->profile, e);
    return r < 0 ? r : profile_apply(o->profile, &o->settings, e);
}

static int probe_this(const struct settings *s, struct machine *ret, struct nodes *ret_nodes, struct error *e)
{
    struct topology t;
    int r = topology_read(&t, e);
    r = r < 0 ? r : nodes_choose(&t, s->numa, ret_nodes, e);
    return r < 0 ? r : probe_machine(&(struct probe_options){.topology = &ret_nodes->use}, ret, e);
}

/* A recorded machine has all its nodes. */
static int choose_recorded(const struct settings *s, const struct machine *m, struct nodes *ret, struct error *e)
{
    bool automatic = strcmp(s->numa, "auto") == 0 || strcmp(s->numa, "numactl") == 0, off = strcmp(s->numa, "off") == 0;
    if (!automatic && !off && strcmp(s->numa, "on") != 0 && strcmp(s->numa, "distribute") != 0) {
        return error_set(e, ERROR_USAGE, "--numa %s: a recorded machine is planned as a whole; it takes auto, on or off", s->numa);
    }
    *ret = (struct nodes){.parts = off || m->nodes > WEIGHT_NODES_MAX ? 1 : max_u32(m->nodes, 1), .may_fall_back = automatic};
    ret->bind = ret->parts > 1;
    return 0;
}

/* A recorded machine, that of the profile, or this one. */
static int read_machine(const struct options *o, struct machine *ret, struct nodes *ret_nodes, struct error *e)
{
    const struct settings *s = &o->settings;
    if (s->machine == NULL && o->profile != NULL && o->profile->has_machine) {
        *ret = o->profile->machine;
        return choose_recorded(s, ret, ret_nodes, e);
    }
    if (s->machine == NULL) {
        return probe_this(s, ret, ret_nodes, e);
    }
    char *text;
    size_t len;
    int r = file_read_all(s->machine, 1 << 20, &text, &len, e);
    if (r < 0) {
        return r;
    }
    r = machine_from_json(text, len, s->machine, ret, e);
    free(text);
    return r < 0 ? r : choose_recorded(s, ret, ret_nodes, e);
}

/* 0 bytes where there is no tokenizer; one that cannot be read is told, the plan goes on. */
static int tokenizer_size(const struct settings *s, uint64_t *ret_bytes, struct error *e)
{
    struct tokenizer *t;
    int r = tokenizer_open(s->model, s->pre_tokenizer, &t, e);
    *ret_bytes = 0;
    if (r == 0) {
        *ret_bytes = tokenizer_bytes(t);
        tokenizer_close(t);
    } else if (r != -ENOENT && r != -ENOMEM) {
        fprintf(stderr, "sluice plan: the tokenizer is left out of the sums: %s\n", e->text);
    }
    return r == -ENOMEM ? r : 0;
}

/* Speeds of models that are larger than memory need the rate. */
static void tell_no_drive(const struct container *c)
{
    if (c == NULL) {
        fputs("sluice plan: the drive is not measured; -m FILE, a model on it, adds its rate\n", stderr);
    } else {
        fprintf(stderr, "sluice plan: the drive is not measured: %s is smaller than 64 MiB or its file system refuses O_DIRECT; name a larger file\n", c->files[0].path);
    }
}

/* Facts and rates of this machine, and of the drive that a model lies on if there is one. */
static int measure_this(const char *model, const volatile int *cancel, struct machine *ret, struct error *e)
{
    struct container_options options = {0};
    struct container *c = NULL;
    int r = model != NULL ? container_open(model, &options, &c, e) : 0;
    r = r < 0 ? r : probe_machine(NULL, ret, e);
    if (r == 0 && isatty(STDERR_FILENO) == 1) {
        fputs("measuring...\r", stderr);
    }
    r = r < 0 ? r : measure_machine(c != NULL ? c->files[0].path : NULL, 0, cancel, ret, e);
    if (isatty(STDERR_FILENO) == 1) {
        fputs("\033[K", stderr);
    }
    if (r == 0 && ret->nvme_read_gb_s <= 0) {
        tell_no_drive(c);
    }
    container_close(c);
    return r;
}

/* The kernels of a model that this build can run. */
static int measure_kernels(const struct settings *s, const volatile int *cancel, struct machine *m, struct error *e)
{
    struct bind_options bind = arguments_bind(s);
    struct weights *w;
    bind.allow_header_only = true;
    int r = weights_open(&bind, &w, e);
    if (r == 0) {
        r = measure_decode(w, cancel, m, e);
        weights_close(w);
    }
    return r;
}

/* A recorded machine without rates is still one: too little memory to measure is told, not fatal. */
static int record(const struct settings *s, const volatile int *cancel, struct error *e)
{
    struct machine m;
    struct str out = {0};
    int r = measure_this(s->model, cancel, &m, e);
    r = r == 0 && s->model != NULL ? measure_kernels(s, cancel, &m, e) : r;
    if (r == ERROR_DOES_NOT_FIT) {
        fprintf(stderr, "sluice plan: %s\n", e->text);
        r = 0;
    }
    if (r < 0) {
        return r;
    }
    machine_to_json(&m, &out);
    str_puts(&out, "\n");
    return arguments_print(&out, e);
}

/* As set, or the default with its reason. */
static uint32_t choose_threads(const struct options *o, const struct machine *m, struct str *out)
{
    if (o->settings.threads > 0) {
        return o->settings.threads;
    }
    char why[120];
    uint32_t threads = probe_threads(m, why, sizeof(why));
    if (!o->json) {
        str_printf(out, "threads: %u (%s)\n", threads, why);
    }
    return threads;
}

/* As the engine plans: an automatic choice of nodes that cannot hold their shares is given up, which is told. */
static int plan_on_nodes(const struct options *o, const struct weights *w, struct plan_input *in, struct nodes *n, struct plan *ret, struct error *e)
{
    struct plan_input spread;
    plan_input_init(&spread, w, &o->settings, n->parts);
    spread.machine = in->machine;
    spread.threads = in->threads;
    spread.tokenizer_bytes = in->tokenizer_bytes;
    spread.nodes = n->bind ? n->parts : 0;
    spread.hits = in->hits;
    int r = plan_make(&spread, ret, e);
    if (r == ERROR_DOES_NOT_FIT && ret->node_short && n->may_fall_back) {
        fprintf(stderr, "sluice plan: the system places the weights: %s\n", e->text);
        nodes_join(n);
        return plan_on_nodes(o, w, in, n, ret, e);
    }
    return r;
}

/* Share of uses that find their expert in so many slots, from an empty cache, by the rule that the engine keeps experts by. */
static int replay_hits(const struct trace *t, uint32_t experts, uint64_t slots, const volatile int *cancel, double *ret, struct error *e)
{
    struct replay_counts counts;
    struct replay_options o = {.experts = experts, .slots = (uint32_t)min_u64(slots, UINT32_MAX), .cancel = cancel};
    int r = trace_replay(t, trace_policy_find("odds"), &o, &counts, e);
    *ret = r == 0 && counts.uses > 0 ? (double)counts.hits / (double)counts.uses : 0;
    return r;
}

static int check_trace(const struct options *o, const struct trace *t, const struct shape *s, struct error *e)
{
    uint32_t layers = 0;
    for (uint32_t l = 0; l < s->layers; l++) {
        layers += shape_layer_is_moe(s, l);
    }
    if (t->n_layers != layers || t->used != s->experts_used || t->experts > s->experts) {
        return error_set(e, ERROR_FORMAT, "%s: routing of another model (%u layers, %u of at least %u experts; this one has %u layers, %u of %u): record one with `sluice trace record`", o->trace,
                         t->n_layers, t->used, t->experts, layers, s->experts_used, s->experts);
    }
    return 0;
}

/* Hits at the slots of a plan and with one GiB more. Experts of the MTP layer, which a trace does not hold, have their share of the slots. */
static int replay_points(const struct trace *t, const struct shape *s, const struct plan *p, const volatile int *cancel, struct hits *ret, struct error *e)
{
    uint64_t slot_bytes = p->bytes[PURPOSE_EXPERTS] / (p->expert_slots + p->staging_slots), main_experts = (uint64_t)t->n_layers * s->experts;
    const uint64_t slots[HITS_POINTS] = {p->expert_slots, p->expert_slots + (UINT64_C(1) << 30) / max_u64(slot_bytes, 1)};
    struct hits h = {0};
    for (uint32_t i = 0; i < HITS_POINTS; i++) {
        bool inside = slots[i] > 0 && slots[i] < p->experts && (i == 0 || slots[i] > slots[i - 1]);
        double hit = 0, least = h.n > 0 ? h.point[h.n - 1].hit : 0;
        int r = inside ? replay_hits(t, s->experts, slots[i] * main_experts / p->experts, cancel, &hit, e) : 0;
        if (r < 0) {
            return r;
        }
        if (inside) {
            h.point[h.n].share = (double)slots[i] / (double)p->experts;
            h.point[h.n++].hit = fmax(hit, least);
        }
    }
    *ret = h;
    return 0;
}

static int hits_of_trace(const struct options *o, const struct shape *s, const struct plan *p, const volatile int *cancel, struct hits *ret, struct error *e)
{
    struct trace t;
    int r = trace_read(o->trace, &t, e);
    if (r < 0) {
        return r;
    }
    r = check_trace(o, &t, s, e);
    r = r == 0 && p->staging_slots > 0 ? replay_points(&t, s, p, cancel, ret, e) : r;
    trace_deinit(&t);
    return r;
}

/* The slots first, then how often they hit. */
static int plan_all(const struct options *o, const struct weights *w, struct plan_input *in, struct nodes *n, const volatile int *cancel, struct plan *ret, struct error *e)
{
    in->hits = profile_hits(o->profile);
    int r = plan_on_nodes(o, w, in, n, ret, e);
    if (o->trace == NULL || r < 0) {
        return r;
    }
    r = hits_of_trace(o, &w->shape, ret, cancel, &in->hits, e);
    return r < 0 ? r : plan_on_nodes(o, w, in, n, ret, e);
}

static int plan_model(const struct options *o, const struct weights *w, const volatile int *cancel, struct error *e)
{
    struct machine m;
    struct nodes nodes;
    struct plan p;
    struct str out = {0};
    uint64_t tokenizer = 0;
    int r = read_machine(o, &m, &nodes, e);
    r = r < 0 ? r : tokenizer_size(&o->settings, &tokenizer, e);
    if (r < 0) {
        return r;
    }
    struct plan_input in = {.machine = &m, .threads = choose_threads(o, &m, &out), .tokenizer_bytes = tokenizer};
    int verdict = plan_all(o, w, &in, &nodes, cancel, &p, e);
    if (verdict < 0 && verdict != ERROR_DOES_NOT_FIT) { /* a setting is wrong: there is no plan */
        str_deinit(&out);
        return verdict;
    }
    if (o->json) {
        report_json(&p, &w->shape, o->profile, &out);
    } else {
        report_text(&p, &w->shape, o->profile, &out);
    }
    struct error write_error = {0};
    r = arguments_print(&out, &write_error);
    if (r < 0) {
        *e = write_error;
        return r;
    }
    return verdict;
}

/* Copies that make nothing faster. */
static void tell_mirrors(const struct container *c)
{
    for (uint32_t i = 0; i < c->files[0].n_copies; i++) {
        char note[400];
        mirror_note(c, i, note, sizeof(note));
        if (note[0] != '\0') {
            fprintf(stderr, "sluice plan: %s\n", note);
        }
    }
}

static int open_and_plan(struct options *o, const volatile int *cancel, struct error *e)
{
    int r = open_profile(o, e);
    if (r < 0) {
        return r;
    }
    struct bind_options bind = arguments_bind(&o->settings);
    bind.allow_header_only = true;
    bind.mirrors = o->settings.model_mirror;
    struct weights *w;
    r = weights_open(&bind, &w, e);
    if (r == 0) {
        tell_mirrors(w->containers[0]);
        r = plan_model(o, w, cancel, e);
        weights_close(w);
    }
    return r;
}

int command_plan(int argc, char **argv, const volatile int *cancel)
{
    struct options o = {0};
    struct error e = {0};
    int r = settings_init(&o.settings, &e);
    r = r < 0 ? r : parse(argc, argv, &o, &e);
    if (r == 0) {
        r = o.help ? (fputs(help_text, stdout), 0) : o.record ? record(&o.settings, cancel, &e) : open_and_plan(&o, cancel, &e);
    }
    settings_deinit(&o.settings);
    free(o.profile);
    return arguments_finish("plan", r, &e);
}
