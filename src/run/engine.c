/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: opening and closing an engine (engine.h): bind, plan, refuse or load, in this order. Must not know: arithmetic. */
#include "src/run/engine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "src/run/bulk_choice.h"
#include "src/run/engine_nodes.h"
#include "src/run/heats.h"
#include "src/run/prefetch.h"
#include "src/run/probe.h"
#include "src/run/profiles.h"
#include "src/run/step.h"
#include "src/tier/plan_input.h"

enum { EXPERT_REQUESTS = 1024 }; /* of a reader: some hundred experts, as a long prompt asks for at once */

/* Remembers for reports. */
static struct step_down *remember(struct engine *g, const char *what, const char *why)
{
    if (g->n_steps_down == STEPS_DOWN_MAX) {
        return NULL;
    }
    struct step_down *d = &g->steps_down[g->n_steps_down++];
    snprintf(d->what, sizeof(d->what), "%s", what);
    snprintf(d->why, sizeof(d->why), "%s", why);
    return d;
}

void engine_step_down(struct engine *g, const char *what, const char *fmt, ...)
{
    char why[sizeof(((struct step_down *)0)->why)];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    if (remember(g, what, why)) {
        log_print(&g->log, LOG_NOTICE, "%s: %s", what, why);
    }
}

bool engine_is_end(const struct engine *g, int32_t token)
{
    for (uint32_t i = 0; i < g->n_eos; i++) {
        if (g->eos[i] == token) {
            return true;
        }
    }
    return false;
}

/* ---- what the settings ask for ---- */

static enum kv_type kv_type_of(const char *name)
{
    enum kv_type t = KV_F32;
    while (t + 1 < KV_TYPE_COUNT && strcmp(kv_type_name(t), name) != 0) {
        t++;
    }
    return t;
}

static int refuse_plan_only(const struct settings *s, struct error *e)
{
    return s->machine == NULL ? 0 : error_set(e, ERROR_USAGE, "--machine %s: only sluice plan takes it; leave it out", s->machine);
}

static int choose_isa(struct engine *g, struct cpu_flags *flags, struct error *e)
{
    cpu_detect(flags);
    g->isa = cpu_isa_best(flags);
    if (strcmp(g->settings.isa, "auto") != 0) {
        if (!cpu_isa_by_name(g->settings.isa, &g->isa) || !cpu_isa_runs(g->isa, flags)) {
            return error_set(e, ERROR_USAGE, "--isa %s: this processor (%s) does not have it; the best it has is %s", g->settings.isa, flags->brand, cpu_isa_name(cpu_isa_best(flags)));
        }
    }
    cpu_ops_init(&g->ops, g->isa, flags);
    if (flags->amx_refused != 0) {
        engine_step_down(g, "amx", "not used: the system refuses tile registers to this process (%s)", strerror(flags->amx_refused));
    }
    g->act_f32 = strcmp(g->settings.activations, "f32") == 0;
    return 0;
}

/* What "auto" became because this build has nothing else: one line for people, an entry each for reports. */
static void announce_choices(struct engine *g)
{
    const struct settings *s = &g->settings;
    const struct {
        const char *what, *value, *why, *brief;
    } facts[] = {
        {"gpu", s->gpu, "none: this build has no GPU back end", "no GPU"},
        {"prefetch", g->plan.staging_slots > 0 ? "" : s->prefetch, "off: all experts are in RAM", "all experts in RAM"},
    };
    char line[160] = "";
    for (size_t i = 0; i < ARRAY_LEN(facts); i++) {
        if (strcmp(facts[i].value, "auto") == 0 && remember(g, facts[i].what, facts[i].why)) {
            size_t n = strlen(line);
            snprintf(line + n, sizeof(line) - n, "%s%s", n ? ", " : "", facts[i].brief);
        }
    }
    if (line[0]) {
        log_print(&g->log, LOG_NOTICE, "this build: %s", line);
    }
}

static void announce_notes(struct engine *g)
{
    for (uint32_t i = 0; i < g->shape->n_notes; i++) {
        log_print(&g->log, LOG_NOTICE, "%s", g->shape->notes[i]);
    }
    for (uint32_t i = 0; i < g->weights->n_notes; i++) {
        log_print(&g->log, LOG_NOTICE, "%s", g->weights->notes[i]);
    }
}

/* ---- steps of opening ---- */

static int open_model(struct engine *g, struct error *e)
{
    const struct settings *s = &g->settings;
    if (s->model == NULL) {
        return error_set(e, ERROR_USAGE, "no model given: -m PATH");
    }
    if (script_is_path(s->model)) {
        int r = script_open(s->model, &g->script, e);
        g->shape = r < 0 ? NULL : &g->script->shape;
        return r;
    }
    const struct bind_options bind = {
        .path = s->model,
        .mtp_from = s->mtp_from,
        .mirrors = s->model_mirror,
        .mtp = settings_drafts(s, &g->drafts_governed) > 0,
        .group_routing = strcmp(s->expert_groups, "off") != 0,
    };
    int r = weights_open(&bind, &g->weights, e);
    if (r < 0) {
        return r;
    }
    g->shape = &g->weights->shape;
    announce_notes(g);
    return 0;
}

static int choose_drafts(struct engine *g, struct error *e)
{
    g->drafts = settings_drafts(&g->settings, &g->drafts_governed);
    if (g->drafts == 0 || g->shape->mtp_layers > 0) {
        return 0;
    }
    g->drafts = 0;
    if (!g->drafts_governed) {
        return error_set(e, ERROR_USAGE, "--mtp %s: this model has no MTP layer to draft with; give --mtp-from PATH, a checkpoint of the same model that has it, or leave --mtp out",
                         g->settings.mtp);
    }
    engine_step_down(g, "mtp", "no drafts: this model has no MTP layer (--mtp-from PATH adds one)");
    return 0;
}

static int open_tokenizer(struct engine *g, struct error *e)
{
    const char *path = g->script ? g->script->tokenizer : g->settings.model;
    if (path == NULL) {
        return 0;
    }
    int r = tokenizer_open(path, g->settings.pre_tokenizer, &g->tokenizer, e);
    if (r == -ENOENT) {
        engine_step_down(g, "tokenizer", "none beside the model: only token ids in and out");
        return 0;
    }
    return r;
}

static void add_eos(struct engine *g, int32_t id)
{
    if (id >= 0 && (uint32_t)id < g->shape->vocab && !engine_is_end(g, id) && g->n_eos < ARRAY_LEN(g->eos)) {
        g->eos[g->n_eos++] = id;
    }
}

/* Ids that are tokens, and ids that end a generation. */
static int open_token_sets(struct engine *g, struct error *e)
{
    uint32_t words = (uint32_t)ceil_div_u64(g->shape->vocab, 32);
    g->real_tokens = calloc(words, sizeof(*g->real_tokens));
    if (!g->real_tokens) {
        return error_nomem(e, "token mask", words * 4ull);
    }
    for (uint32_t i = 0; i < g->shape->vocab; i++) {
        if (!g->tokenizer || tokenizer_has(g->tokenizer, (int32_t)i)) {
            g->real_tokens[i / 32] |= 1u << (i % 32);
        }
    }
    for (uint32_t i = 0; i < g->shape->n_eos; i++) {
        add_eos(g, g->shape->eos[i]);
    }
    size_t n = 0;
    const int32_t *ids = g->tokenizer ? tokenizer_eos(g->tokenizer, &n) : NULL;
    for (size_t i = 0; i < n; i++) {
        add_eos(g, ids[i]);
    }
    return 0;
}

static int make_plan(struct engine *g, uint32_t threads, struct error *e)
{
    struct plan_input in = {.shape = g->shape, .sessions = g->settings.parallel, .kv = kv_type_of(g->settings.kv_type), .context = g->settings.context, .ubatch = g->settings.ubatch, .ram_setting = g->settings.ram};
    if (g->weights) {
        plan_input_init(&in, g->weights, &g->settings, g->nodes.parts);
    }
    in.machine = &g->machine;
    in.tokenizer_bytes = g->tokenizer ? tokenizer_bytes(g->tokenizer) : 0;
    in.threads = threads;
    in.spare += g->spare;
    in.nodes = g->nodes.bind ? g->nodes.parts : 0;
    return plan_make(&in, &g->plan, e);
}

static int open_plan(struct engine *g, uint32_t *ret_threads, struct error *e)
{
    char why[160] = "as set";
    struct error first = {0};
    int r = probe_machine(&(struct probe_options){.topology = &g->nodes.use}, &g->machine, e);
    if (r < 0) {
        return r;
    }
    uint32_t threads = g->settings.threads ? g->settings.threads : probe_threads(&g->machine, why, sizeof(why));
    log_print(&g->log, LOG_INFO, "threads: %u (%s); kernels: %s", threads, why, cpu_isa_name(g->isa));
    *ret_threads = threads;
    r = make_plan(g, threads, &first);
    if (r == ERROR_DOES_NOT_FIT && g->plan.node_short && g->nodes.may_fall_back) {
        engine_nodes_join(g, first.text);
        return make_plan(g, threads, e);
    }
    if (e) {
        *e = first;
    }
    return r;
}

static int open_memory(struct engine *g, uint32_t threads, struct error *e)
{
    const struct shape *s = g->shape;
    g->ubatch = g->settings.ubatch;
    g->step_rows = g->ubatch + EXTRA_ROWS;
    g->context = g->plan.context;
    struct scratch_request req = {.rows = g->step_rows, .ubatch = g->ubatch, .context = g->context, .workers = threads};
    enum kv_type type = kv_type_of(g->settings.kv_type);
    struct kv_layout layout = {.type = type, .latent = s->kv_lora, .rope = s->rope, .row_bytes = kv_row_bytes(type, s->kv_lora, s->rope)};
    int r = g->script ? 0 : work_init(&g->work, &g->account, s, &req, e);
    r = r < 0 ? r : kv_pool_init(&g->kv, &g->account, layout, shape_all_layers(s), g->plan.kv_pages, e);
    engine_nodes_spread(g);
    r = r < 0 ? r : steps_init(g, e);
    if (r < 0 || g->script) {
        return r;
    }
    r = buffer_init(&g->cos_sin_memory, &g->account, PURPOSE_TABLES, (size_t)g->context * s->rope * sizeof(float), e);
    double *w = r == 0 ? malloc((s->rope / 2 + 1) * sizeof(*w)) : NULL;
    if (r < 0 || !w) {
        return r < 0 ? r : error_nomem(e, "rope frequencies", s->rope * 4ull);
    }
    g->cos_sin = g->cos_sin_memory.data;
    shape_rope_frequencies(s, w);
    for (uint32_t p = 0; p < g->context; p++) {
        shape_rope_row(s, w, p, g->cos_sin + (size_t)p * s->rope);
    }
    free(w);
    return 0;
}

/* The kind of reads is refused before anything is read; O_DIRECT when a file is opened, or not before it is read. */
static void announce_reader(struct engine *g, const struct reader *reader)
{
    bool mapped = strcmp(g->settings.io, "mmap") == 0;
    int code = reader_refused(reader, READER_DIRECT);
    const char *path = g->settings.model;
    if (reader_refused(reader, READER_KIND) != 0) {
        engine_step_down(g, "io", "%s is refused (%s): reads by pread threads", mapped ? "process_vm_readv" : "io_uring", strerror(reader_refused(reader, READER_KIND)));
    }
    if (reader_refused(reader, READER_FILES) != 0) {
        engine_step_down(g, "io files", "registering them with io_uring is refused (%s): reads by descriptor", strerror(reader_refused(reader, READER_FILES)));
    }
    for (uint32_t i = 0; i < g->weights->n_containers && !mapped; i++) { /* mapped files are not read by it */
        const struct file *f = &g->weights->containers[i]->files[0];
        for (uint32_t k = 0; k < f->n_copies; k++) {
            code = f->copies[k].direct_errno ? f->copies[k].direct_errno : code;
            path = f->copies[k].direct_errno ? f->copies[k].path : path;
        }
        if (f->direct_errno) {
            code = f->direct_errno;
            path = f->path;
        }
    }
    if (code != 0) {
        engine_step_down(g, "O_DIRECT", "%s: refused (%s): buffered reads, dropped from the page cache behind", path, strerror(code));
    }
}

static int open_weights(struct engine *g, const struct engine_hooks *hooks, struct reader *reader, struct error *e)
{
    int r = fingerprints_open(g->weights->containers, g->weights->n_containers, &g->fingerprints, e);
    if (r < 0) {
        return r;
    }
    struct loader loader = {.reader = reader, .account = &g->account, .nodes = g->nodes.parts, .node_os = g->nodes.bind ? g->nodes.use.node_os : NULL, .fingerprints = g->fingerprints, .pool = g->pool, .log = &g->log, .clock = g->clock, .cancel = g->cancel, .progress = hooks->progress, .progress_ctx = hooks->ctx};
    uint64_t start = clock_now_ns(&g->clock);
    struct store_options so = {.cached = g->plan.expert_slots, .staging = (uint32_t)g->plan.staging_slots, .reader = g->expert_reader, .requests = EXPERT_REQUESTS};
    loader.total = weights_resident_bytes(g->weights) + (g->expert_reader == NULL ? weights_expert_bytes(g->weights) : 0) + weights_scale_bytes(g->weights);
    r = resident_create(g->weights, &loader, &g->resident, e);
    r = r < 0 ? r : store_create(g->weights, &loader, &so, &g->counters, &g->store, e);
    announce_reader(g, reader);
    drives_finish(g, reader);
    g->load_bytes = loader.done;
    g->load_seconds = clock_seconds_since(&g->clock, start);
    char text[24];
    log_print(&g->log, LOG_INFO, "loaded %s in %.2f s: %.2f GB/s%s", format_bytes(text, g->load_bytes), g->load_seconds, 1e-9 * (double)g->load_bytes / (g->load_seconds > 0 ? g->load_seconds : 1), g->fingerprints ? ", fingerprints checked" : "");
    return r < 0 ? r : engine_nodes_verify(g, e);
}

static int open_blas(struct engine *g, const struct cpu_flags *flags, uint32_t threads, struct error *e)
{
    struct cpu_blas blas;
    int r = cpu_blas_open(&blas, &g->ops, flags, threads, e);
    if (r == 0) {
        log_print(&g->log, LOG_INFO, "OpenBLAS: %s, kernels for %s", blas.config, blas.core);
    }
    return r;
}

/* Threads that read are made before this one is pinned: they would stay on its core. */
static int open_pool_and_weights(struct engine *g, const struct engine_hooks *hooks, const struct cpu_flags *flags, uint32_t threads, struct error *e)
{
    struct reader_options ro = reader_options_of(&g->settings);
    g->io_budget = (struct read_rate){.limit = ro.limit, .clock = clock_system()};
    ro.budget = &g->io_budget;
    ro.copies = g->script ? 1 : g->drives.n;
    ro.depth = drives_flights(&g->drives);
    ro.chunk = g->drives.chunk;
    ro.direct = ro.fresh = ro.drop_behind = true;
    ro.requests = max_u32(ro.depth, LOAD_DEPTH);
    struct reader *reader = NULL;
    int r = g->script ? 0 : reader_create(&ro, &reader, e);
    if (r == 0 && g->plan.staging_slots > 0) {
        ro.fresh = false;
        ro.requests = EXPERT_REQUESTS;
        r = reader_create(&ro, &g->expert_reader, e);
    }
    if (r == 0 && !g->script && g->settings.ubatch > OPS_MAX_ROWS) { /* otherwise no row is bulk */
        r = open_blas(g, flags, threads, e);
    }
    r = r < 0 ? r : engine_nodes_pool(g, threads, e);
    r = r < 0 ? r : bulk_choose(g, e);
    r = r < 0 ? r : open_memory(g, threads, e);
    r = r < 0 || g->script ? r : open_weights(g, hooks, reader, e);
    reader_destroy(reader);
    return r;
}

static void hash_ref(XXH3_state_t *h, const struct weight_ref *w)
{
    uint64_t facts[4] = {w->rows, w->cols, w->format, w->bytes};
    XXH3_128bits_update(h, facts, sizeof(facts));
}

/* Of the shape and its rules, the tensor table and the norm weights: tells models of one shape apart without reading every weight.
 * MTP layers count as asked. */
static int fingerprint(const struct engine *g, uint32_t mtp_layers, char ret[FINGERPRINT], struct error *e)
{
    const struct shape *s = g->shape;
    XXH3_state_t *h = XXH3_createState();
    if (!h) {
        return error_nomem(e, "fingerprint", 1024);
    }
    XXH3_128bits_reset(h);
    uint32_t dims[] = {s->vocab, s->hidden, s->layers, mtp_layers, s->heads, s->kv_lora, s->nope, s->rope, s->v_head, s->experts, s->experts_used};
    double rules[] = {s->rope_theta, s->yarn, s->yarn_factor, s->yarn_beta_fast, s->yarn_beta_slow, s->yarn_original, s->yarn_truncate, s->rope_magnitude,
                      s->rope_half_split, s->attn_scale, (double)s->routed_factor, s->groups, s->groups_used, s->score, s->group, s->normalise, (double)s->rms_eps, (double)s->inner_eps};
    XXH3_128bits_update(h, dims, sizeof(dims));
    XXH3_128bits_update(h, rules, sizeof(rules));
    for (uint32_t l = 0; g->weights && l < s->layers + mtp_layers; l++) {
        for (uint32_t role = 0; role < ROLE_COUNT; role++) {
            hash_ref(h, &g->weights->layers[l].role[role]);
            const float *v = g->resident->layers[l].vector[role];
            if (v) {
                XXH3_128bits_update(h, v, g->weights->layers[l].role[role].cols * sizeof(float));
            }
        }
        if (g->weights->layers[l].experts) {
            hash_ref(h, &g->weights->layers[l].experts[0].gate);
        }
    }
    XXH128_hash_t d = XXH3_128bits_digest(h);
    snprintf(ret, FINGERPRINT, "%016llx%016llx", (unsigned long long)d.high64, (unsigned long long)d.low64);
    XXH3_freeState(h);
    return 0;
}

static int fingerprints(struct engine *g, struct error *e)
{
    int r = fingerprint(g, g->shape->mtp_layers, g->fingerprint, e);
    return r < 0 ? r : fingerprint(g, 0, g->main_fingerprint, e);
}

static int open_all(struct engine *g, const struct settings *settings, const struct engine_hooks *hooks, struct error *e)
{
    struct cpu_flags flags;
    struct machine described = {0}; /* by a profile */
    uint32_t threads;
    int r = settings_copy(settings, &g->settings, e);
    r = r < 0 ? r : profiles_apply(&g->settings, &described, e);
    drives_depth(&g->drives, &described);
    r = r < 0 ? r : refuse_plan_only(&g->settings, e);
    r = r < 0 ? r : choose_isa(g, &flags, e);
    r = r < 0 ? r : open_model(g, e);
    r = r < 0 ? r : choose_drafts(g, e);
    r = r < 0 ? r : engine_nodes_open(g, e);
    r = r < 0 ? r : open_tokenizer(g, e);
    r = r < 0 ? r : open_token_sets(g, e);
    r = r < 0 ? r : open_plan(g, &threads, e);
    if (r < 0) {
        return r;
    }
    g->tokens_prefill = counters_register(&g->counters, "tokens.prefill", "rows computed in feeds of more than one token");
    g->tokens_decode = counters_register(&g->counters, "tokens.decode", "rows computed one token at a time");
    g->drafts_made = counters_register(&g->counters, "draft.drafted", "rows computed ahead of a timeline");
    g->drafts_accepted = counters_register(&g->counters, "draft.accepted", "of them, rows that became part of it");
    g->weight_bytes = counters_register(&g->counters, "weights.bytes", "weight bytes read by kernels");
    announce_choices(g);
    r = g->script ? 0 : drives_init(g, e);
    r = r < 0 ? r : open_pool_and_weights(g, hooks, &flags, threads, e);
    r = r < 0 ? r : fingerprints(g, e);
    r = r < 0 || g->store == NULL ? r : prefetch_create(g, &g->prefetch, e);
    return r < 0 ? r : heats_open(g, e);
}

int engine_open(const struct settings *settings, const struct engine_hooks *hooks, struct engine **ret, struct error *e)
{
    struct engine *g = calloc(1, sizeof(*g));
    if (!g) {
        return error_nomem(e, "engine", sizeof(*g));
    }
    g->log = hooks->log;
    g->clock = hooks->clock.now_ns ? hooks->clock : clock_system();
    g->cancel = hooks->cancel;
    g->spare = hooks->spare;
    int r = open_all(g, settings, hooks, e);
    if (r < 0) {
        engine_close(g);
        return r;
    }
    g->open = true;
    *ret = g;
    return 0;
}

void engine_close(struct engine *g)
{
    if (!g) {
        return;
    }
    heats_close(g);
    prefetch_destroy(g->prefetch);
    steps_deinit(g);
    store_destroy(g->store);
    reader_destroy(g->expert_reader);
    resident_destroy(g->resident);
    kv_pool_deinit(&g->kv);
    buffer_deinit(&g->cos_sin_memory);
    work_deinit(&g->work);
    pool_destroy(g->pool);
    tokenizer_close(g->tokenizer);
    fingerprints_close(g->fingerprints);
    weights_close(g->weights);
    script_close(g->script);
    free(g->real_tokens);
    settings_deinit(&g->settings);
    free(g);
}
