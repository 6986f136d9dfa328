/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: events_stages.h. Must not know: who shows it. */
#include "src/commands/events_stages.h"

#include <stdlib.h>

enum stage {
    STAGE_BETWEEN, /* from the end of the lease before to the begin: attention, router, what is not experts */
    STAGE_ASK,     /* from the begin to the first time experts are waited for: routers are asked ahead, hints */
    STAGE_WAIT,    /* for experts */
    STAGE_COMPUTE, /* experts */
    STAGES,
};

static const char *const stage_names[STAGES] = {"between", "asking", "waiting", "computing"};

struct events_stages {
    const struct events *events;
    uint32_t n[EVENTS_LAYERS];              /* visits of a layer */
    double *ns[EVENTS_LAYERS][STAGES];      /* [n], rising */
    double *all;
};

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Where each lease is: begun in which layer, what its visit took so far. */
struct open_visit {
    bool open;
    uint16_t layer;
    uint64_t begun_ns, asked_ns;
    double between, wait, compute;
};

static void close_visit(struct events_stages *s, struct open_visit *v)
{
    uint32_t at = s->n[v->layer]++;
    s->ns[v->layer][STAGE_BETWEEN][at] = v->between;
    s->ns[v->layer][STAGE_ASK][at] = v->asked_ns > v->begun_ns ? (double)(v->asked_ns - v->begun_ns) : 0;
    s->ns[v->layer][STAGE_WAIT][at] = v->wait;
    s->ns[v->layer][STAGE_COMPUTE][at] = v->compute;
    v->open = false;
}

static void measure(struct events_stages *s)
{
    struct open_visit visits[STORE_LEASES] = {{0}};
    uint64_t before = 0, ended = s->events->item[0].at_ns; /* the call, the lease */
    for (size_t i = 0; i < s->events->n; i++) {
        const struct event *x = &s->events->item[i];
        struct open_visit *v = &visits[x->lease];
        uint64_t gap = i == 0 ? 0 : x->at_ns - before;
        before = x->at_ns + x->took_ns;
        if (x->kind == STORE_BEGIN) {
            *v = (struct open_visit){.open = true, .layer = x->layer, .begun_ns = x->at_ns, .between = (double)(x->at_ns - ended)};
        } else if (x->kind == STORE_NEXT && v->open) {
            v->asked_ns = v->asked_ns == 0 ? x->at_ns : v->asked_ns;
            v->wait += (double)x->took_ns;
        } else if (x->kind == STORE_RELEASE && v->open) {
            v->compute += (double)gap;
        } else if (x->kind == STORE_END && v->open) {
            close_visit(s, v);
            ended = before;
        }
    }
}

int events_stages_create(const struct events *x, struct events_stages **ret, struct error *e)
{
    struct events_stages *s = calloc(1, sizeof(*s));
    size_t begins = 0, at = 0;
    uint32_t visits[EVENTS_LAYERS] = {0};
    for (size_t i = 0; i < x->n; i++) {
        if (x->item[i].kind == STORE_BEGIN) {
            visits[x->item[i].layer]++;
            begins++;
        }
    }
    double *all = calloc(begins * STAGES + 1, sizeof(*all));
    if (s == NULL || all == NULL) {
        free(s);
        free(all);
        return error_nomem(e, "times of stages", begins * STAGES * sizeof(*all));
    }
    s->events = x;
    s->all = all;
    for (uint32_t layer = 0; layer < EVENTS_LAYERS; layer++) {
        for (int k = 0; k < STAGES; k++, at += visits[layer]) {
            s->ns[layer][k] = all + at;
        }
    }
    measure(s);
    for (uint32_t layer = 0; layer < EVENTS_LAYERS; layer++) {
        for (int k = 0; k < STAGES; k++) {
            qsort(s->ns[layer][k], s->n[layer], sizeof(double), rising);
        }
    }
    *ret = s;
    return 0;
}

void events_stages_destroy(struct events_stages *s)
{
    if (s != NULL) {
        free(s->all);
        free(s);
    }
}

/* Of 100 as many are at most this, in microseconds: the nearest one that was measured. */
static double percentile(const struct events_stages *s, uint32_t layer, int stage, uint32_t of_100)
{
    uint32_t n = s->n[layer];
    return 1e-3 * s->ns[layer][stage][(uint32_t)(((uint64_t)n * of_100 + 99) / 100) - 1];
}

void events_stages_text(const struct events_stages *s, struct str *out)
{
    str_puts(out, "\nmicroseconds of a layer as recorded: median, 99th of 100\n\nlayer  visits           between            asking           waiting         computing\n");
    for (uint32_t layer = 0; layer < EVENTS_LAYERS; layer++) {
        if (s->n[layer] > 0) {
            str_printf(out, "%5u %7u", layer, s->n[layer]);
            for (int k = 0; k < STAGES; k++) {
                str_printf(out, "  %7.0f %8.0f", percentile(s, layer, k, 50), percentile(s, layer, k, 99));
            }
            str_puts(out, "\n");
        }
    }
}

void events_stages_json(const struct events_stages *s, struct str *out)
{
    const char *comma = "";
    str_puts(out, ",\n \"stages\": [");
    for (uint32_t layer = 0; layer < EVENTS_LAYERS; layer++) {
        if (s->n[layer] == 0) {
            continue;
        }
        str_printf(out, "%s\n  {\"layer\": %u, \"visits\": %u", comma, layer, s->n[layer]);
        for (int k = 0; k < STAGES; k++) {
            str_printf(out, ", \"%s_us\": {\"p50\": %.3f, \"p99\": %.3f}", stage_names[k], percentile(s, layer, k, 50), percentile(s, layer, k, 99));
        }
        str_puts(out, "}");
        comma = ",";
    }
    str_puts(out, "\n ]");
}
