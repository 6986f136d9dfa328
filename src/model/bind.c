/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: opening a checkpoint as a weights table: containers, shape, MTP layer from here or elsewhere, byte sums.
 * Must not know: how one tensor is checked (binder.c), residency, kernels. */
#include "src/model/bind.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"
#include "io/mirror.h"
#include "src/model/binder.h"
#include "src/model/path_hint.h"

enum { CONFIG_LIMIT = 16 << 20, MAX_CONTAINERS = 2 };

/* ---- shape of a container ---- */

static int shape_from_folder(const char *folder, struct shape *ret, struct error *e)
{
    char *path = file_join(folder, "config.json"), *generation_path = file_join(folder, "generation_config.json");
    char *config = NULL, *generation = NULL;
    size_t len = 0, generation_len = 0;
    int r = 0;
    if (path == NULL || generation_path == NULL) {
        r = error_nomem(e, "path", strlen(folder));
    }
    if (r == 0) {
        r = file_read_all(path, CONFIG_LIMIT, &config, &len, e);
    }
    if (r == 0 && file_exists(generation_path)) {
        r = file_read_all(generation_path, CONFIG_LIMIT, &generation, &generation_len, e);
    }
    if (r == 0) {
        r = shape_from_config(config, len, generation, generation_len, path, ret, e);
    }
    free(generation);
    free(config);
    free(generation_path);
    free(path);
    return r;
}

static int shape_of(const struct container *c, bool group_routing, struct shape *ret, struct error *e)
{
    return c->kind == CONTAINER_GGUF ? shape_from_gguf(&c->meta, c->path, group_routing, ret, e)
                                     : shape_from_folder(c->folder, ret, e);
}

/* Number of layers from `layers` on that have a tensor, as highest index + 1 - layers. */
static uint32_t mtp_layers_there(const struct container *c, uint32_t layers)
{
    uint32_t n = 0;
    for (size_t i = 0; i < c->n_tensors; i++) {
        int32_t layer = names_layer(c->tensors[i].name);
        if (layer >= (int32_t)layers) {
            n = max_u32(n, (uint32_t)layer - layers + 1);
        }
    }
    return n;
}

/* ---- an MTP layer from elsewhere ---- */

static bool want_mtp(void *ctx, const char *tensor_name)
{
    const uint32_t *layers = ctx;
    return names_layer(tensor_name) >= (int32_t)*layers;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-5 * fabs(a); }

/* Everything an MTP layer shares with the main model. */
static int check_agreement(const struct shape *a, const struct shape *b, const char *path, struct error *e)
{
    const struct {
        const char *name;
        double a, b;
    } fields[] = {
        { "vocabulary", a->vocab, b->vocab },
        { "hidden size", a->hidden, b->hidden },
        { "number of layers", a->layers, b->layers },
        { "heads", a->heads, b->heads },
        { "q_lora", a->q_lora, b->q_lora },
        { "kv_lora", a->kv_lora, b->kv_lora },
        { "nope dimension", a->nope, b->nope },
        { "rope dimension", a->rope, b->rope },
        { "value dimension", a->v_head, b->v_head },
        { "experts", a->experts, b->experts },
        { "experts per token", a->experts_used, b->experts_used },
        { "expert width", a->expert_width, b->expert_width },
        { "shared width", a->shared_width, b->shared_width },
        { "groups", a->groups, b->groups },
        { "groups kept", a->groups_used, b->groups_used },
        { "kind of group score", a->group, b->group },
        { "kind of score", a->score, b->score },
        { "routed factor", a->routed_factor, b->routed_factor },
        { "normalisation", a->normalise, b->normalise },
        { "rotary layout", a->rope_half_split, b->rope_half_split },
        { "rope theta", a->rope_theta, b->rope_theta },
        { "YaRN", a->yarn, b->yarn },
        { "YaRN factor", a->yarn_factor, b->yarn_factor },
        { "YaRN original context", a->yarn_original, b->yarn_original },
        { "YaRN beta_fast", a->yarn_beta_fast, b->yarn_beta_fast },
        { "YaRN beta_slow", a->yarn_beta_slow, b->yarn_beta_slow },
        { "rotary magnitude", a->rope_magnitude, b->rope_magnitude },
        { "attention scale", a->attn_scale, b->attn_scale },
        { "norm epsilon", a->rms_eps, b->rms_eps },
    };
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        if (!near(fields[i].a, fields[i].b)) {
            return error_set(e, ERROR_FORMAT,
                             "%s: %s is %g, the main model has %g; --mtp-from needs a checkpoint of the same model", path,
                             fields[i].name, fields[i].b, fields[i].a);
        }
    }
    return 0;
}

static bool has_own_shape(const struct container *c)
{
    if (c->kind == CONTAINER_GGUF) {
        return true;
    }
    char *path = file_join(c->folder, "config.json");
    bool there = path != NULL && file_exists(path);
    free(path);
    return there;
}

/* Opens it as containers[1]; sets shape.mtp_layers. */
static int open_mtp_source(struct weights *w, const struct bind_options *o, struct error *e)
{
    uint32_t layers = w->shape.layers;
    struct container_options options = { .allow_header_only = o->allow_header_only, .want = want_mtp, .want_ctx = &layers };
    int r = container_open(o->mtp_from, &options, &w->containers[1], e);
    if (r != 0) {
        return error_prefix(e, r, "--mtp-from");
    }
    const struct container *c = w->containers[1];
    w->n_containers = 2;
    w->header_only = w->header_only || c->header_only;
    uint32_t there = mtp_layers_there(c, layers);
    if (has_own_shape(c)) {
        struct shape own;
        r = shape_of(c, o->group_routing, &own, e);
        r = r != 0 ? error_prefix(e, r, "--mtp-from") : check_agreement(&w->shape, &own, o->mtp_from, e);
        if (r == 0) {
            there = there > 0 ? own.mtp_layers : 0;
        }
    } else {
        weights_note(w, "--mtp-from has no config.json: the main model's dimensions and rules are assumed for the MTP layer");
    }
    if (r == 0 && there == 0) {
        r = error_set(e, ERROR_FORMAT,
                      "%s: holds no MTP layer (layer %u; num_nextn_predict_layers or nextn_predict_layers at least 1); "
                      "--mtp-from needs a checkpoint that has it, for instance the original one",
                      o->mtp_from, layers);
    }
    if (r == 0) {
        w->shape.mtp_layers = there;
        r = shape_check(&w->shape, o->mtp_from, e);
    }
    return r;
}

/* Settles shape.mtp_layers. */
static int settle_mtp(struct weights *w, const struct bind_options *o, struct error *e)
{
    if (!o->mtp) {
        w->shape.mtp_layers = 0;
        return 0;
    }
    if (o->mtp_from != NULL) {
        return open_mtp_source(w, o, e);
    }
    if (w->shape.mtp_layers > 0 && mtp_layers_there(w->containers[0], w->shape.layers) == 0) {
        weights_note(w, "the MTP layer that the configuration names is not in this checkpoint: no drafting (--mtp-from adds it)");
        w->shape.mtp_layers = 0;
    }
    return 0;
}

/* ---- binding ---- */

/* Binds the main layers, and the MTP layers unless they come from elsewhere. */
static int bind_main(struct weights *w, struct problems *p, struct error *e)
{
    struct binder b;
    const struct container *c = w->containers[0];
    uint32_t end = w->n_containers > 1 ? w->shape.layers : shape_all_layers(&w->shape);
    int r = binder_init(&b, w, c, p, e);
    if (r == 0) {
        binder_model(&b);
    }
    for (uint32_t l = 0; r == 0 && l < end; l++) {
        r = binder_layer(&b, l, e);
    }
    if (r == 0) {
        r = problems_result(p, c->path, binder_first_unused(&b), e);
    }
    if (r == 0) {
        binder_notes(&b, 0, end);
    }
    binder_deinit(&b);
    return r;
}

static int bind_mtp_source(struct weights *w, struct problems *p, struct error *e)
{
    struct binder b;
    const struct container *c = w->containers[1];
    int r = binder_init(&b, w, c, p, e);
    for (uint32_t l = w->shape.layers; r == 0 && l < shape_all_layers(&w->shape); l++) {
        r = binder_layer(&b, l, e);
    }
    if (r == 0) {
        r = problems_result(p, c->path, NULL, e);
    }
    if (r == 0) {
        binder_notes(&b, w->shape.layers, shape_all_layers(&w->shape));
    }
    binder_deinit(&b);
    return r;
}

static int open_into(struct weights *w, const struct bind_options *o, struct error *e)
{
    struct container_options options = { .allow_header_only = o->allow_header_only };
    w->containers = calloc(MAX_CONTAINERS, sizeof(struct container *));
    if (w->containers == NULL) {
        return error_nomem(e, "containers", MAX_CONTAINERS * sizeof(struct container *));
    }
    int r = container_open(o->path, &options, &w->containers[0], e);
    if (r != 0) {
        return r;
    }
    w->n_containers = 1;
    w->header_only = w->containers[0]->header_only;
    r = o->mirrors != NULL ? mirror_open(w->containers[0], o->mirrors, e) : 0;
    r = r < 0 ? r : shape_of(w->containers[0], o->group_routing, &w->shape, e);
    if (r == 0) {
        r = settle_mtp(w, o, e);
    }
    if (r != 0) {
        return r;
    }
    w->layers = calloc(shape_all_layers(&w->shape), sizeof(*w->layers));
    if (w->layers == NULL) {
        return error_nomem(e, "layer table", shape_all_layers(&w->shape) * sizeof(*w->layers));
    }
    struct problems problems = { 0 };
    r = bind_main(w, &problems, e);
    if (r == 0 && w->n_containers > 1) {
        r = bind_mtp_source(w, &problems, e);
    }
    return r;
}

int weights_open(const struct bind_options *options, struct weights **ret, struct error *e)
{
    struct weights *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        return error_nomem(e, "weights table", sizeof(*w));
    }
    int r = open_into(w, options, e);
    if (r != 0) {
        weights_close(w);
        return r == -ENOENT ? path_hint(options->path, r, e) : r;
    }
    *ret = w;
    return 0;
}

void weights_close(struct weights *w)
{
    if (w == NULL) {
        return;
    }
    for (uint32_t l = 0; w->layers != NULL && l < shape_all_layers(&w->shape); l++) {
        free(w->layers[l].experts);
    }
    free(w->layers);
    for (uint32_t i = 0; w->containers != NULL && i < w->n_containers; i++) {
        container_close(w->containers[i]);
    }
    free(w->containers);
    free(w);
}

/* ---- sums ---- */

static uint64_t scale_bytes(const struct weight_ref *ref)
{
    if (ref->scale == NULL) {
        return 0;
    }
    return ceil_div_u64(ref->rows, FORMAT_SCALE_BLOCK) * ceil_div_u64(ref->cols, FORMAT_SCALE_BLOCK) * sizeof(float);
}

struct sums {
    uint64_t resident, scales, experts, max_expert;
};

static void add_resident(struct sums *s, const struct weight_ref *ref)
{
    s->resident += ref->bytes;
    s->scales += scale_bytes(ref);
}

static struct sums sum(const struct weights *w)
{
    struct sums s = { 0 };
    add_resident(&s, &w->embed);
    add_resident(&s, &w->final_norm);
    if (!w->shape.tied_head) {
        add_resident(&s, &w->head);
    }
    for (uint32_t l = 0; l < shape_all_layers(&w->shape); l++) {
        for (unsigned role = 0; role < ROLE_COUNT; role++) {
            add_resident(&s, &w->layers[l].role[role]);
        }
        for (uint32_t i = 0; w->layers[l].experts != NULL && i < w->shape.experts; i++) {
            const struct expert_refs *x = &w->layers[l].experts[i];
            uint64_t bytes = x->gate.bytes + x->up.bytes + x->down.bytes;
            s.experts += bytes;
            s.max_expert = max_u64(s.max_expert, bytes);
            s.scales += scale_bytes(&x->gate) + scale_bytes(&x->up) + scale_bytes(&x->down);
        }
    }
    return s;
}

uint64_t weights_resident_bytes(const struct weights *w) { return sum(w).resident; }
uint64_t weights_scale_bytes(const struct weights *w) { return sum(w).scales; }
uint64_t weights_expert_bytes(const struct weights *w) { return sum(w).experts; }
uint64_t weights_max_expert_bytes(const struct weights *w) { return sum(w).max_expert; }
