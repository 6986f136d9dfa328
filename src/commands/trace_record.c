/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice trace record`: the routing of a running model as a CSV file (docs/trace.md). Must not know: what is made of it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "io/file.h"
#include "src/commands/events.h"
#include "src/commands/trace.h"
#include "src/commands/trace_csv.h"
#include "src/commands/trace_model.h"

struct record {
    struct trace_model *model;
    bool shadow, step; /* step: one token at a time */
    const char *events; /* path; NULL: none */
    uint32_t layers, used, experts;
    int32_t *ids;    /* [longest][layers][used] */
    float *weights;  /* the same */
    int32_t *guess;  /* the same: what the shadow row chose */
    bool *guessed;   /* [longest] */
    int32_t *drafts; /* [longest] */
    float *chances;  /* [longest] */
    gzFile file;
};

static size_t at(const struct record *r, uint32_t layer, uint32_t position) { return ((size_t)position * r->layers + layer) * r->used; }

static void on_route(void *ctx, uint32_t layer, uint32_t position, const int32_t *ids, const float *weights)
{
    struct record *r = ctx;
    if (layer < r->layers) {
        memcpy(r->ids + at(r, layer, position), ids, r->used * sizeof(*ids));
        memcpy(r->weights + at(r, layer, position), weights, r->used * sizeof(*weights));
    }
}

/* The best scores as rising ids. */
static void on_scores(void *ctx, const struct session *s, enum foresight source, uint32_t layer, uint32_t position, const float *scores)
{
    struct record *r = ctx;
    int32_t *guess = r->guess + at(r, layer, position);
    uint32_t n = 0;
    (void)s;
    (void)source;
    for (uint32_t x = 0; x < r->experts; x++) {
        uint32_t better = 0;
        for (uint32_t y = 0; y < r->experts && better < r->used; y++) {
            better += scores[y] > scores[x] || (scores[y] == scores[x] && y < x);
        }
        if (better < r->used && n < r->used) {
            guess[n++] = (int32_t)x;
        }
    }
    r->guessed[position] = true;
}

/* ---- the file ---- */

static void put_list(struct str *line, const int32_t *ids, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        str_printf(line, "%s%d", k > 0 ? " " : "", (int)ids[k]);
    }
}

static int write_line(struct record *r, struct str *line, const char *path, struct error *e)
{
    bool ok = !line->failed && gzwrite(r->file, line->data, (unsigned)line->len) == (int)line->len;
    line->len = 0;
    return ok ? 0 : error_set(e, line->failed ? -ENOMEM : -EIO, "%s: %s", path, line->failed ? "out of memory" : "cannot be written");
}

static int write_text(struct record *r, size_t window, const struct trace_text *t, const char *path, struct error *e)
{
    const struct shape *s = r->model->engine->shape;
    struct str line = {0};
    int rc = 0;
    for (uint32_t p = 0; rc == 0 && p < t->n; p++) {
        for (uint32_t l = 0; rc == 0 && l < r->layers; l++) {
            if (!shape_layer_is_moe(s, l)) {
                continue;
            }
            str_printf(&line, "%zu,%u,%u,", window, p, l);
            put_list(&line, r->ids + at(r, l, p), r->used);
            for (uint32_t k = 0; k < r->used; k++) {
                str_printf(&line, "%c%.4f", k > 0 ? ' ' : ',', (double)r->weights[at(r, l, p) + k]);
            }
            str_puts(&line, r->shadow ? "," : "");
            put_list(&line, r->guess + at(r, l, p), r->shadow && r->guessed[p] ? r->used : 0);
            str_puts(&line, "\n");
            rc = write_line(r, &line, path, e);
        }
    }
    str_deinit(&line);
    return rc;
}

static int run_text(struct record *r, const struct trace_text *t, struct error *e)
{
    const struct session_hooks hooks = {.on_route = on_route, .ctx = r};
    memset(r->guessed, 0, t->n * sizeof(*r->guessed));
    if (!r->shadow) {
        return r->step ? trace_model_step(r->model, t, &hooks, false, NULL, e) : trace_model_feed(r->model, t, &hooks, false, e);
    }
    int rc = trace_model_drafts(r->model, t, r->drafts, r->chances, e);
    return rc < 0 ? rc : trace_model_step(r->model, t, &hooks, false, r->drafts, e);
}

static int run_texts(struct record *r, const char *path, struct error *e)
{
    static const char head[] = "window,position,layer,ids,weights", shadow[] = ",shadow_ids";
    struct str line = {0};
    struct foresee *foresee = NULL;
    const struct foresee_options watch = {.wanted = 1u << FORESEE_SHADOW, .on_scores = on_scores, .ctx = r};
    str_printf(&line, "%s%s\n", head, r->shadow ? shadow : "");
    int rc = write_line(r, &line, path, e);
    str_deinit(&line);
    for (size_t i = 0; rc == 0 && i < r->model->texts.n; i++) {
        const struct trace_text *t = &r->model->texts.item[i];
        rc = r->shadow ? foresee_create(r->model->engine, &watch, &foresee, e) : 0;
        rc = rc < 0 ? rc : run_text(r, t, e);
        foresee_destroy(foresee);
        foresee = NULL;
        rc = rc < 0 ? rc : write_text(r, i, t, path, e);
    }
    return rc;
}

/* Written beside and renamed: an old trace stays whole. */
static int write_file(struct record *r, const char *path, struct error *e)
{
    char part[4096];
    if (snprintf(part, sizeof(part), "%s.tmp", path) >= (int)sizeof(part)) {
        return error_set(e, ERROR_USAGE, "-o: a path of more than %zu bytes", sizeof(part) - 5);
    }
    errno = 0;
    r->file = gzopen(part, file_has_suffix(path, ".gz") ? "wbe9" : "wbeT"); /* T: as it is */
    if (r->file == NULL) {
        int code = errno != 0 ? errno : ENOMEM;
        return error_set(e, -code, "%s: %s", part, strerror(code));
    }
    int rc = run_texts(r, path, e);
    if (gzclose(r->file) != Z_OK && rc == 0) {
        rc = error_set(e, -EIO, "%s: cannot be written", part);
    }
    if (rc == 0 && rename(part, path) != 0) {
        rc = error_set(e, -errno, "%s: %s", path, strerror(errno));
    }
    if (rc < 0) {
        unlink(part);
    }
    return rc;
}

static int record(struct record *r, const char *path, struct error *e)
{
    const struct shape *s = r->model->engine->shape;
    if (r->shadow && s->mtp_layers == 0) {
        return error_set(e, ERROR_USAGE, "--shadow: no MTP layer that could draft is loaded; leave out --mtp off, or bind one with --mtp-from PATH");
    }
    if (s->layers > TRACE_LAYERS || s->experts > TRACE_EXPERTS) {
        return error_set(e, ERROR_FORMAT, "%u layers, %u experts: a trace holds at most %d and %d", s->layers, s->experts, TRACE_LAYERS, TRACE_EXPERTS);
    }
    r->layers = s->layers;
    r->used = s->experts_used;
    r->experts = s->experts;
    size_t longest = r->model->texts.longest, n = longest * r->layers * r->used;
    r->ids = calloc(n, sizeof(*r->ids));
    r->weights = calloc(n, sizeof(*r->weights));
    r->guess = calloc(n, sizeof(*r->guess));
    r->guessed = calloc(longest, sizeof(*r->guessed));
    r->drafts = calloc(longest, sizeof(*r->drafts));
    r->chances = calloc(longest, sizeof(*r->chances));
    bool ok = r->ids && r->weights && r->guess && r->guessed && r->drafts && r->chances;
    struct events_recorder *events = NULL;
    int rc = ok ? 0 : error_nomem(e, "routing of a text", n * sizeof(*r->ids));
    rc = rc < 0 || r->events == NULL ? rc : events_record_begin(r->model->engine, r->events, &events, e);
    rc = rc < 0 ? rc : write_file(r, path, e);
    int end = events_record_end(events, rc == 0, e);
    return rc < 0 ? rc : end;
}

int trace_record(int argc, char **argv, const volatile int *cancel, bool *ret_help, struct error *e)
{
    struct trace_model m = {0};
    struct record r = {.model = &m};
    const char *out = NULL;
    const struct argument own[] = {{"-o", NULL, &out}, {"--shadow", &r.shadow, NULL}, {"--step", &r.step, NULL}, {"--events", NULL, &r.events}, {0}};
    int rc = trace_model_arguments(&m, argc, argv, own, ret_help, e);
    if (rc == 0 && !*ret_help && out == NULL) {
        rc = error_set(e, ERROR_USAGE, "where to? -o FILE.csv or FILE.csv.gz; see `sluice trace --help`");
    }
    if (rc == 0 && !*ret_help) {
        rc = trace_model_open(&m, cancel, e);
        rc = rc < 0 ? rc : record(&r, out, e);
    }
    free(r.ids);
    free(r.weights);
    free(r.guess);
    free(r.guessed);
    free(r.drafts);
    free(r.chances);
    trace_model_deinit(&m);
    return rc;
}
