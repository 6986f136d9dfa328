/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: public API: engines and what they tell about themselves. Must not compute. */
#include <stdlib.h>
#include <string.h>

#include "src/place/report.h"
#include "src/run/api.h"
#include "src/run/prefetch.h"

static void log_line(void *ctx, enum log_level level, const char *line)
{
    const struct sluice_engine *g = ctx;
    g->hooks.log(g->hooks.ctx, (enum sluice_log_level)level, line);
}

static void progress(void *ctx, uint64_t done, uint64_t total, double seconds)
{
    const struct sluice_engine *g = ctx;
    g->hooks.progress(g->hooks.ctx, done, total, seconds);
}

int sluice_engine_open(const struct sluice_options *o, const struct sluice_open_hooks *hooks, volatile int *cancel, struct sluice_engine **ret, struct sluice_error *error)
{
    struct error e = {0};
    struct sluice_engine *g = calloc(1, sizeof(*g));
    if (!g) {
        return api_status(error_nomem(&e, "engine", sizeof(*g)), &e, error);
    }
    g->hooks = hooks ? *hooks : (struct sluice_open_hooks){0};
    struct engine_hooks h = {.ctx = g};
    /* The flag is written by a signal handler or another thread as a plain int; lock-free atomics of int share its layout. */
    h.cancel = (const atomic_int *)(volatile void *)cancel;
    h.progress = g->hooks.progress ? progress : NULL;
    if (g->hooks.log) {
        h.log = (struct log){.level = (enum log_level)g->hooks.log_level, .write = log_line, .ctx = g};
    }
    int r = engine_open(&o->settings, &h, &g->engine, &e);
    if (r < 0) {
        free(g);
        return api_status(r, &e, error);
    }
    g->tokenizer.tokenizer = g->engine->tokenizer;
    *ret = g;
    return api_status(0, &e, error);
}

void sluice_engine_close(struct sluice_engine *engine)
{
    if (engine) {
        engine_close(engine->engine);
        free(engine);
    }
}

void sluice_engine_info(const struct sluice_engine *engine, struct sluice_model_info *ret)
{
    const struct engine *g = engine->engine;
    const struct shape *s = g->shape;
    *ret = (struct sluice_model_info){
        .vocab = s->vocab, .hidden = s->hidden, .layers = s->layers, .mtp_layers = s->mtp_layers, .experts = s->experts,
        .experts_used = s->experts ? s->experts_used : 0, .first_moe_layer = s->layers, .context = g->context, .ubatch = g->ubatch,
        .threads = pool_workers(g->pool), .copies = g->drives.n, .read_depth = g->drives.depth,
        .read_chunk = g->drives.chunk, .read_source = g->drives.source, .kv_type = kv_type_name(g->kv.layout.type), .activations = g->act_f32 ? "f32" : "int8",
        .isa = cpu_isa_name(g->isa), .kv_bytes_per_token = g->plan.kv_token_bytes, .bytes_per_token = g->plan.speed.ram_bytes,
        .load_bytes = g->load_bytes, .load_seconds = g->load_seconds,
    };
    memcpy(ret->family, s->family, sizeof(ret->family));
    for (uint32_t l = s->layers; l-- > 0;) {
        ret->first_moe_layer = shape_layer_is_moe(s, l) ? l : ret->first_moe_layer;
    }
}

const struct sluice_tokenizer *sluice_engine_tokenizer(const struct sluice_engine *engine)
{
    return engine->tokenizer.tokenizer ? &engine->tokenizer : NULL;
}

bool sluice_engine_is_end(const struct sluice_engine *engine, int32_t id)
{
    return engine_is_end(engine->engine, id);
}

char *sluice_engine_plan_json(const struct sluice_engine *engine)
{
    struct str s = {0};
    report_json(&engine->engine->plan, engine->engine->shape, NULL, &s);
    return str_take(&s, NULL);
}

static void json_text(struct str *s, const char *text)
{
    str_json(s, text, strlen(text));
}

char *sluice_engine_settings_json(const struct sluice_engine *engine)
{
    const struct settings *t = &engine->engine->settings;
    struct str s = {0}, value = {0};
    str_puts(&s, "{");
    for (uint32_t i = 0; i < settings_count(); i++) {
        str_puts(&s, i ? ", " : "");
        json_text(&s, settings_info(i)->name);
        str_puts(&s, ": {\"value\": ");
        value.len = 0;
        settings_value(t, i, &value);
        str_json(&s, value.data ? value.data : "", value.len);
        str_puts(&s, ", \"source\": ");
        json_text(&s, setting_source_name(t->source[i]));
        str_puts(&s, "}");
    }
    str_puts(&s, "}");
    s.failed |= value.failed;
    str_deinit(&value);
    return str_take(&s, NULL);
}

char *sluice_engine_counters_json(const struct sluice_engine *engine)
{
    const struct counters *c = &engine->engine->counters;
    struct str s = {0};
    str_puts(&s, "{");
    for (uint32_t i = 0; i < c->n; i++) {
        str_printf(&s, "%s\"%s\": %llu", i ? ", " : "", c->item[i].name, (unsigned long long)counter_get(&c->item[i]));
    }
    str_puts(&s, "}");
    return str_take(&s, NULL);
}

char *sluice_engine_steps_down_json(const struct sluice_engine *engine)
{
    const struct engine *g = engine->engine;
    struct str s = {0};
    str_puts(&s, "[");
    for (uint32_t i = 0; i < g->n_steps_down; i++) {
        str_puts(&s, i ? ", {\"what\": " : "{\"what\": ");
        json_text(&s, g->steps_down[i].what);
        str_puts(&s, ", \"why\": ");
        json_text(&s, g->steps_down[i].why);
        str_puts(&s, "}");
    }
    str_puts(&s, "]");
    return str_take(&s, NULL);
}

char *sluice_engine_memory_json(const struct sluice_engine *engine)
{
    const struct account *a = &engine->engine->account;
    struct str s = {0};
    str_puts(&s, "{\"purposes\": {");
    for (int i = 0; i < PURPOSE_COUNT; i++) {
        str_puts(&s, i ? ", " : "");
        json_text(&s, purpose_name((enum purpose)i));
        str_printf(&s, ": %llu", (unsigned long long)a->bytes[i]);
    }
    str_printf(&s, "}, \"total\": %llu, \"huge_pages_advised\": %llu, \"placement\": ", (unsigned long long)account_total(a), (unsigned long long)a->huge_bytes);
    placement_json(&engine->engine->placement, &s);
    str_puts(&s, "}");
    return str_take(&s, NULL);
}

char *sluice_engine_predictions_json(const struct sluice_engine *engine)
{
    struct str s = {0};
    prefetch_json(engine->engine->prefetch, &s);
    return str_take(&s, NULL);
}

uint64_t sluice_engine_counter(const struct sluice_engine *engine, const char *name)
{
    const struct counter *c = counters_find(&engine->engine->counters, name);
    return c ? counter_get(c) : 0;
}
