/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: writing event files while a model runs: one line a call, kept in memory until some are together. Must not know: what is
 * made of them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "io/file.h"
#include "src/base/str.h"
#include "src/commands/events.h"
#include "src/run/engine.h"

enum { TOGETHER = 1 << 18 };

struct events_recorder {
    struct engine *engine;
    struct store_observer observer;
    char path[4096], part[4096];
    gzFile file;
    struct str text;
    uint64_t start_ns, enter_ns; /* of the first call; of this one */
    bool batch_open, failed;
};

static void write_out(struct events_recorder *r)
{
    bool ok = !r->text.failed && gzwrite(r->file, r->text.data, (unsigned)r->text.len) == (int)r->text.len;
    r->failed |= r->text.len > 0 && !ok;
    r->text.len = 0;
}

static void end_batch(struct events_recorder *r)
{
    str_puts(&r->text, r->batch_open ? "\n" : "");
    r->batch_open = false;
}

/* ---- what the store tells ---- */

static void on_enter(void *ctx)
{
    struct events_recorder *r = ctx;
    r->enter_ns = clock_now_ns(&r->engine->clock);
    r->start_ns = r->start_ns == 0 ? r->enter_ns : r->start_ns;
}

static void on_collect(void *ctx)
{
    struct events_recorder *r = ctx;
    end_batch(r);
    str_puts(&r->text, "come");
    r->batch_open = true;
}

static void on_arrive(void *ctx, struct expert_key key, int status)
{
    struct events_recorder *r = ctx;
    str_printf(&r->text, " %u %u %d", key.layer, key.expert, -status);
}

static void put_hints(struct str *text, const struct store_call *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t bits;
        memcpy(&bits, &c->hints[i].probability, sizeof(bits));
        str_printf(text, " %u %u %u %u %u", c->hints[i].key.layer, c->hints[i].key.expert, c->hints[i].ahead, bits, c->hints[i].lead);
    }
}

static void put_expected(struct str *text, const struct store_call *c)
{
    str_printf(text, " %u %u", c->layer, c->ahead);
    for (uint32_t i = 0; i < c->n; i++) {
        str_printf(text, " %u", c->chances[i]);
    }
}

static void put_visit(struct str *text, const struct store_visit *v)
{
    str_printf(text, " %u %d", v->keys[0].layer, v->passing);
    for (uint32_t i = 0; i < v->n; i++) {
        str_printf(text, " %u %u", v->keys[i].expert, v->rows != NULL ? v->rows[i] : 1);
    }
}

static void on_leave(void *ctx, const struct store_call *c)
{
    struct events_recorder *r = ctx;
    uint64_t now = clock_now_ns(&r->engine->clock);
    end_batch(r);
    str_printf(&r->text, "%s %llu %llu", events_calls[c->kind], (unsigned long long)(r->enter_ns - r->start_ns), (unsigned long long)(now - r->enter_ns));
    if (c->kind != STORE_HINT && c->kind != STORE_EXPECT) {
        str_printf(&r->text, " %u", c->lease);
    }
    if (c->kind == STORE_BEGIN) {
        put_visit(&r->text, c->visit);
    } else if (c->kind == STORE_HINT) {
        put_hints(&r->text, c);
    } else if (c->kind == STORE_EXPECT) {
        put_expected(&r->text, c);
    } else if (c->kind == STORE_NEXT) {
        str_printf(&r->text, " %u %u", c->max, c->n);
    } else if (c->kind == STORE_RELEASE) {
        str_printf(&r->text, " %u", c->n);
    }
    str_puts(&r->text, "\n");
    if (r->text.len >= TOGETHER) {
        write_out(r);
    }
}

/* ---- the setting ---- */

static bool same_size(const struct expert_refs *a, const struct expert_refs *b)
{
    return a->gate.bytes == b->gate.bytes && a->up.bytes == b->up.bytes && a->down.bytes == b->down.bytes;
}

static int put_layer(struct events_recorder *r, uint32_t layer, struct error *e)
{
    const struct weights *w = r->engine->weights;
    const struct expert_refs *x = w->layers[layer].experts;
    for (uint32_t i = 1; x != NULL && i < w->shape.experts; i++) {
        if (!same_size(&x[0], &x[i])) {
            return error_set(e, ERROR_FORMAT, "layer %u: experts 0 and %u differ in size; --events needs layers whose experts are alike", layer, i);
        }
    }
    if (x != NULL) {
        const struct weight_ref *ref[EXPERT_PARTS] = {&x->gate, &x->up, &x->down};
        str_printf(&r->text, "layer %u", layer);
        for (int part = 0; part < EXPERT_PARTS; part++) {
            str_printf(&r->text, " %llu %llu", (unsigned long long)ref[part]->bytes, (unsigned long long)load_scale_count(ref[part]));
        }
        str_puts(&r->text, "\n");
    }
    return 0;
}

static int put_setting(struct events_recorder *r, struct error *e)
{
    const struct engine *g = r->engine;
    const struct shape *s = g->shape;
    struct store_options o = store_options_of(g->store);
    str_printf(&r->text, "sluice-events 2\nstore %u %u %u %u %u %u %llu %u %u %u %llu %llu\n", s->layers, s->mtp_layers, s->dense_layers, s->moe_layer_freq, s->experts, s->experts_used,
               (unsigned long long)o.cached, o.staging, o.requests / (EXPERT_PARTS * g->nodes.parts), drives_flights(&g->drives), (unsigned long long)g->drives.chunk, (unsigned long long)g->settings.io_limit);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < shape_all_layers(s); i++) {
        rc = put_layer(r, i, e);
    }
    return rc;
}

static uint64_t count_of(const struct engine *g, const char *name)
{
    const struct counter *c = counters_find(&g->counters, name);
    return c != NULL ? counter_get(c) : 0;
}

static int check(const struct engine *g, struct error *e)
{
    if (g->store == NULL || !store_streams(g->store)) {
        return error_set(e, ERROR_USAGE, "--events: all experts are in RAM, nothing is read; give less, with --expert-ram");
    }
    if (g->settings.heat != NULL) {
        return error_set(e, ERROR_USAGE, "--events: with --heat what is in RAM depends on earlier runs; leave --heat out");
    }
    if (shape_all_layers(g->shape) > EVENTS_LAYERS || g->shape->experts > EVENTS_EXPERTS) {
        return error_set(e, ERROR_FORMAT, "--events: %u layers of %u experts, at most %d of %d", shape_all_layers(g->shape), g->shape->experts, EVENTS_LAYERS, EVENTS_EXPERTS);
    }
    return count_of(g, "expert.ram.hits") + count_of(g, "expert.ram.misses") == 0 ? 0 : error_set(e, -EBUSY, "--events: experts have been used already");
}

/* ---- begin and end ---- */

static int open_file(struct events_recorder *r, const char *path, struct error *e)
{
    if (snprintf(r->part, sizeof(r->part), "%s.tmp", path) >= (int)sizeof(r->part)) {
        r->part[0] = '\0'; /* not ours */
        return error_set(e, ERROR_USAGE, "--events: a path of more than %zu bytes", sizeof(r->part) - 5);
    }
    strcpy(r->path, path);
    errno = 0;
    r->file = gzopen(r->part, file_has_suffix(path, ".gz") ? "wbe6" : "wbeT"); /* T: as it is */
    int code = errno != 0 ? errno : ENOMEM;
    if (r->file == NULL) {
        r->part[0] = '\0';
        return error_set(e, -code, "%s.tmp: %s", path, strerror(code));
    }
    return 0;
}

int events_record_begin(struct engine *g, const char *path, struct events_recorder **ret, struct error *e)
{
    int rc = check(g, e);
    if (rc < 0) {
        return rc;
    }
    struct events_recorder *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return error_nomem(e, "recorder of events", sizeof(*r));
    }
    r->engine = g;
    r->observer = (struct store_observer){on_enter, on_collect, on_arrive, on_leave, r};
    rc = open_file(r, path, e);
    rc = rc < 0 ? rc : put_setting(r, e);
    if (rc < 0) {
        events_record_end(r, false, NULL);
        return rc;
    }
    store_observe(g->store, &r->observer);
    *ret = r;
    return 0;
}

static int finish(struct events_recorder *r, struct error *e)
{
    for (uint32_t i = 0; i < EVENTS_COUNTERS; i++) {
        str_printf(&r->text, "counted %llu\n", (unsigned long long)count_of(r->engine, events_counter(i)));
    }
    write_out(r);
    if (gzclose(r->file) != Z_OK || r->failed) {
        r->file = NULL;
        return error_set(e, r->text.failed ? -ENOMEM : -EIO, "%s: %s", r->part, r->text.failed ? "out of memory" : "cannot be written");
    }
    r->file = NULL;
    return rename(r->part, r->path) == 0 ? 0 : error_set(e, -errno, "%s: %s", r->path, strerror(errno));
}

int events_record_end(struct events_recorder *r, bool keep, struct error *e)
{
    int rc = 0;
    if (r == NULL) {
        return 0;
    }
    store_observe(r->engine->store, NULL);
    if (keep) {
        rc = finish(r, e);
    }
    if (r->file != NULL) {
        gzclose(r->file);
    }
    if ((!keep || rc < 0) && r->part[0] != '\0') {
        unlink(r->part);
    }
    str_deinit(&r->text);
    free(r);
    return rc;
}
