/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice trace play`: its command line, and what is shown of an event file. Must not know: how one is played. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "src/base/str.h"
#include "src/commands/arguments.h"
#include "src/commands/events_play.h"
#include "src/commands/events_stages.h"
#include "src/commands/trace.h"
#include "src/commands/trace_replay.h"

enum { SIZES = 32, US_NS = 1000 };

struct playing {
    const char *path, *cache, *drive, *limit, *prefetch, *compute; /* as typed; NULL: not */
    bool json;
    const volatile int *cancel;
    struct events events;
    uint64_t counted[EVENTS_COUNTERS];
    struct events_setup setup; /* of all */
    uint32_t n_sizes, slots[SIZES];
    bool wanted[EVENTS_HINTS];
    struct events_outcome outcome[SIZES][EVENTS_HINTS];
};

/* ---- the command line ---- */

static int parse(struct playing *p, char **argv, bool *ret_help, struct error *e)
{
    const struct {
        const char *name, **text;
    } flags[] = {{"--cache", &p->cache}, {"--drive", &p->drive}, {"--io-limit", &p->limit}, {"--prefetch", &p->prefetch}, {"--compute", &p->compute}};
    for (; *argv != NULL; argv++) {
        size_t i = 0;
        while (i < ARRAY_LEN(flags) && strcmp(flags[i].name, *argv) != 0) {
            i++;
        }
        if (strcmp(*argv, "--help") == 0 || strcmp(*argv, "-h") == 0) {
            *ret_help = true;
            return 0;
        }
        if (strcmp(*argv, "--json") == 0) {
            p->json = true;
        } else if (i < ARRAY_LEN(flags) && argv[1] != NULL) {
            *flags[i].text = *++argv;
        } else if (i < ARRAY_LEN(flags)) {
            return error_set(e, ERROR_USAGE, "%s needs a value; see `sluice trace --help`", *argv);
        } else if (**argv == '-') {
            return error_set(e, ERROR_USAGE, "unknown flag %s of `trace play`; see `sluice trace --help`", *argv);
        } else if (p->path != NULL) {
            return error_set(e, ERROR_USAGE, "two event files, %s and %s: one at a time", p->path, *argv);
        } else {
            p->path = *argv;
        }
    }
    return p->path != NULL ? 0 : error_set(e, ERROR_USAGE, "no event file given; see `sluice trace --help`");
}

static bool clocked(const struct playing *p) { return p->cache != NULL || p->drive != NULL || p->limit != NULL || p->prefetch != NULL; }

/* "3G" or "3G,80" */
static int read_drive(struct playing *p, struct error *e)
{
    char rate[32];
    double us = 0;
    size_t n = strcspn(p->drive, ",");
    snprintf(rate, sizeof(rate), "%.*s", (int)min_u64(n, sizeof(rate)), p->drive);
    bool ok = n < sizeof(rate) && parse_size(rate, &p->setup.drive.rate) && p->setup.drive.rate > 0;
    if (!ok || (p->drive[n] == ',' && (!parse_double(p->drive + n + 1, &us) || us < 0 || us > 1e9))) {
        return error_set(e, ERROR_USAGE, "--drive %.40s: expected bytes per second, and perhaps a comma and microseconds", p->drive);
    }
    p->setup.drive.latency_ns = (uint64_t)(us * US_NS);
    return 0;
}

static int read_hints(struct playing *p, struct error *e)
{
    bool all = p->prefetch == NULL || strcmp(p->prefetch, "all") == 0, any = all;
    for (uint32_t i = 0; i < EVENTS_HINTS; i++) {
        p->wanted[i] = all || strcmp(p->prefetch, events_hints_names[i]) == 0;
        any |= p->wanted[i];
    }
    return any ? 0 : error_set(e, ERROR_USAGE, "--prefetch %s: expected off, on, auto or all", p->prefetch);
}

/* "100": an expert; "100,800,50": an expert, between layers, asking. */
static int read_times(struct playing *p, struct error *e)
{
    double *const at[] = {&p->setup.expert_ns, &p->setup.layer_ns, &p->setup.ask_ns};
    const char *text = p->compute;
    size_t n = 0;
    for (bool more = true; more && n < ARRAY_LEN(at); n++) {
        char word[32];
        size_t len = strcspn(text, ",");
        snprintf(word, sizeof(word), "%.*s", (int)min_u64(len, sizeof(word)), text);
        if (len >= sizeof(word) || !parse_double(word, at[n]) || *at[n] < 0 || *at[n] > 1e9) {
            break;
        }
        *at[n] *= US_NS;
        more = text[len] == ',';
        text += len + more;
        if (!more && n != 1) {
            return 0;
        }
    }
    return error_set(e, ERROR_USAGE, "--compute %.60s: expected microseconds of an expert, or of an expert, between layers and of asking", p->compute);
}

static int read_setup(struct playing *p, struct error *e)
{
    const struct events_setting *s = &p->events.setting;
    p->setup = (struct events_setup){.expert_ns = -1, .layer_ns = -1, .ask_ns = -1, .cancel = p->cancel};
    int r = p->drive != NULL ? read_drive(p, e) : 0;
    r = r < 0 ? r : read_hints(p, e);
    if (r == 0 && p->limit != NULL && (!parse_size(p->limit, &p->setup.limit) || p->setup.limit == 0)) {
        return error_set(e, ERROR_USAGE, "--io-limit %s: expected bytes per second", p->limit);
    }
    r = r < 0 || p->compute == NULL ? r : read_times(p, e);
    if (r == 0 && p->limit == NULL && p->drive == NULL) {
        uint64_t rate = events_drive_rate(&p->events);
        *(s->limit > 0 ? &p->setup.limit : &p->setup.drive.rate) = rate;
        r = rate > 0 ? 0 : error_set(e, ERROR_USAGE, "how fast is the drive? --drive RATE; in %s nothing was read", p->path);
    }
    p->n_sizes = 1;
    p->slots[0] = s->cached;
    uint64_t total = events_experts(&p->events);
    r = r < 0 || p->cache == NULL ? r : trace_parse_slots("--cache", p->cache, total, p->slots, SIZES, &p->n_sizes, e);
    for (uint32_t i = 0; r == 0 && i < p->n_sizes; i++) {
        r = p->slots[i] < total ? 0 : error_set(e, ERROR_USAGE, "--cache: %u experts are all, nothing would be read; expected fewer", p->slots[i]);
    }
    return r;
}

/* ---- as recorded ---- */

static void text_recorded(const struct playing *p, struct str *out)
{
    const struct events *x = &p->events;
    struct events_outcome o = events_recorded(x);
    double tokens = events_tokens(x);
    str_printf(out, "%s: %zu calls, %.0f tokens in %.3f s, %.1f %% of it waiting for experts; %u of %llu experts stay\n", p->path, x->n, tokens, o.seconds,
               o.seconds > 0 ? 100 * o.waiting / o.seconds : 0, x->setting.cached, (unsigned long long)events_experts(x));
    str_puts(out, "\ncounter                                 engine           played\n");
    for (uint32_t i = 0; i < EVENTS_EXACT; i++) {
        if (i >= EVENTS_LEADS && x->counted[i] == 0 && p->counted[i] == 0) {
            continue; /* no such hints */
        }
        str_printf(out, "%-30s %15llu  %15llu%s\n", events_counter(i), (unsigned long long)x->counted[i], (unsigned long long)p->counted[i], x->counted[i] == p->counted[i] ? "" : "  differ");
    }
}

static uint32_t differing(const struct playing *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < EVENTS_EXACT; i++) {
        n += p->counted[i] != p->events.counted[i];
    }
    return n;
}

static void json_counters(const uint64_t *counted, uint32_t n, struct str *out)
{
    str_puts(out, "{");
    for (uint32_t i = 0; i < n; i++) {
        str_printf(out, "%s\"%s\": %llu", i > 0 ? ", " : "", events_counter(i), (unsigned long long)counted[i]);
    }
    str_puts(out, "}");
}

static void json_recorded(const struct playing *p, struct str *out)
{
    const struct events *x = &p->events;
    struct events_outcome o = events_recorded(x);
    str_puts(out, "{\"events\": ");
    str_json(out, p->path, strlen(p->path));
    str_printf(out, ", \"calls\": %zu, \"tokens\": %.3f, \"experts\": %llu, \"cached\": %u, \"io_limit\": %llu, \"seconds\": %.9f, \"waiting_s\": %.9f,\n \"counted\": ", x->n, events_tokens(x),
               (unsigned long long)events_experts(x), x->setting.cached, (unsigned long long)x->setting.limit, o.seconds, o.waiting);
    json_counters(x->counted, EVENTS_COUNTERS, out);
    str_puts(out, ",\n \"played\": ");
    json_counters(p->counted, EVENTS_EXACT, out);
    str_printf(out, ",\n \"same\": %s", differing(p) == 0 ? "true" : "false");
}

/* ---- on a clock ---- */

static int play_all(struct playing *p, struct error *e)
{
    int r = 0;
    for (uint32_t k = 0; k < p->n_sizes; k++) {
        for (uint32_t i = 0; r == 0 && i < EVENTS_HINTS; i++) {
            struct events_setup s = p->setup;
            s.cached = p->slots[k];
            s.hints = (enum events_hints)i;
            r = p->wanted[i] ? events_play_clocked(&p->events, &s, &p->outcome[k][i], e) : 0;
        }
    }
    return r;
}

/* What the counters of an outcome say. */
struct figures {
    double hits, drive_bytes, useful, late, wasted, cancelled;
};

static struct figures figures_of(const struct events_outcome *o)
{
    const uint64_t *c = o->counted;
    const uint64_t *n = c + EVENTS_AHEAD;
    return (struct figures){.hits = (double)c[EVENTS_RAM_HITS] / (double)max_u64(c[EVENTS_RAM_HITS] + c[EVENTS_RAM_MISSES], 1), .drive_bytes = (double)c[EVENTS_DRIVE_BYTES],
                            .useful = (double)n[2 * AHEAD_USEFUL], .late = (double)n[2 * AHEAD_LATE], .wasted = (double)n[2 * AHEAD_WASTED], .cancelled = (double)n[2 * AHEAD_CANCELLED]};
}

static double share(double part, double all) { return all > 0 ? part / all : 0; } /* a clock may have stood still */

static double mean_ns(const struct playing *p) { return p->setup.expert_ns >= 0 ? p->setup.expert_ns : events_expert_ns(&p->events); }

static uint64_t drive_of(const struct playing *p)
{
    uint64_t line = p->setup.drive.rate, limit = p->setup.limit;
    return line == 0 ? limit : limit == 0 ? line : min_u64(line, limit);
}

static void text_clocked(const struct playing *p, struct str *out)
{
    double tokens = events_tokens(&p->events);
    str_printf(out, "\non a clock of its own: %.1f us for an expert, a drive of %.1f MB/s\n\n"
                    "experts          prefetch  tokens/s  waiting    hits  MB/token  useful    late  wasted  cancelled\n", mean_ns(p) / US_NS, 1e-6 * (double)drive_of(p));
    for (uint32_t k = 0; k < p->n_sizes; k++) {
        for (uint32_t i = 0; i < EVENTS_HINTS; i++) {
            const struct events_outcome *o = &p->outcome[k][i];
            struct figures f = figures_of(o);
            if (p->wanted[i]) {
                str_printf(out, "%6u (%5.1f %%)  %-8s %9.3f  %5.1f %%  %5.1f %% %9.3f %7.0f %7.0f %7.0f %10.0f\n", p->slots[k], 100.0 * p->slots[k] / (double)events_experts(&p->events), events_hints_names[i],
                           share(tokens, o->seconds), 100 * share(o->waiting, o->seconds), 100 * f.hits, 1e-6 * f.drive_bytes / tokens, f.useful, f.late, f.wasted, f.cancelled);
            }
        }
    }
}

static void json_clocked(const struct playing *p, struct str *out)
{
    const char *comma = "";
    str_printf(out, ",\n \"expert_us\": %.6f, \"drive\": %llu, \"latency_us\": %.3f, \"limit\": %llu, \"results\": [", mean_ns(p) / US_NS,
               (unsigned long long)p->setup.drive.rate, (double)p->setup.drive.latency_ns / US_NS, (unsigned long long)p->setup.limit);
    for (uint32_t k = 0; k < p->n_sizes; k++) {
        for (uint32_t i = 0; i < EVENTS_HINTS; i++) {
            const struct events_outcome *o = &p->outcome[k][i];
            if (p->wanted[i]) {
                str_printf(out, "%s\n  {\"cached\": %u, \"prefetch\": \"%s\", \"seconds\": %.9f, \"waiting_s\": %.9f, \"tokens_s\": %.6f, \"counted\": ", comma, p->slots[k], events_hints_names[i],
                           o->seconds, o->waiting, share(events_tokens(&p->events), o->seconds));
                json_counters(o->counted, EVENTS_COUNTERS, out);
                str_puts(out, "}");
                comma = ",";
            }
        }
    }
    str_puts(out, "\n ]");
}

/* ---- all of it ---- */

static int show(struct playing *p, struct error *e)
{
    struct str out = {0};
    struct events_stages *stages = NULL;
    int r = events_stages_create(&p->events, &stages, e);
    if (r < 0) {
        return r;
    }
    (p->json ? json_recorded : text_recorded)(p, &out);
    (p->json ? events_stages_json : events_stages_text)(stages, &out);
    if (clocked(p)) {
        (p->json ? json_clocked : text_clocked)(p, &out);
    }
    str_puts(&out, p->json ? "}\n" : "");
    events_stages_destroy(stages);
    r = arguments_print(&out, e);
    uint32_t n = differing(p);
    return r < 0 || n == 0 ? r : error_set(e, ERROR_FORMAT, "%s: %u counters are not the engine's: the file is damaged, or of another version of this program", p->path, n);
}

int trace_play(int argc, char **argv, const volatile int *cancel, bool *ret_help, struct error *e)
{
    struct playing *p = calloc(1, sizeof(*p));
    (void)argc;
    if (p == NULL) {
        return error_nomem(e, "figures", sizeof(*p));
    }
    p->cancel = cancel;
    int r = parse(p, argv + 1, ret_help, e);
    if (r == 0 && !*ret_help) {
        r = events_read(p->path, &p->events, e);
        r = r < 0 ? r : events_play(&p->events, p->counted, e);
        if (r == 0 && clocked(p)) {
            r = read_setup(p, e);
            r = r < 0 ? r : play_all(p, e);
        }
        r = r < 0 ? r : show(p, e);
    }
    events_deinit(&p->events);
    free(p);
    return r;
}
