/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the dense weights in two buffers (weights, FP8 scales), laid out by one walk over the roles that measuring and
 * loading share. Must not know: arithmetic. */
#include "src/tier/resident.h"

#include <stdlib.h>

#include "src/tier/slot.h"

struct entry {
    const struct weight_ref *ref;
    enum role role;
    uint32_t layer;
    uint64_t at, scale_at; /* in the two buffers */
};

/* entries == NULL: only sizes are counted. */
struct layout {
    struct entry *entries;
    size_t n;
    uint64_t bytes, scale_bytes, idle;
};

struct resident_storage {
    struct buffer weights, scales;
};

static bool head_is_tied(const struct weights *w) { return w->head.file == w->embed.file && w->head.offset == w->embed.offset; }

static void add(struct layout *l, const struct weight_ref *ref, enum role role, uint32_t layer, bool idle)
{
    bool vector = role_is_vector(role);
    struct entry x = {ref, role, layer, vector ? align_up_u64(l->bytes, SLOT_ALIGN) : slot_start(l->bytes, ref), slot_scale_start(l->scale_bytes)};
    uint64_t bytes = vector ? ref->cols * sizeof(float) : ref->bytes;
    if (l->entries != NULL) {
        l->entries[l->n] = x;
    }
    l->n++;
    l->bytes = x.at + bytes;
    l->scale_bytes = x.scale_at + slot_scale_bytes(ref);
    l->idle += idle ? bytes : 0;
}

static void add_all(struct layout *l, const struct weights *w)
{
    bool tied = head_is_tied(w);
    add(l, &w->embed, ROLE_EMBED, 0, !tied);
    if (!tied) {
        add(l, &w->head, ROLE_HEAD, 0, false);
    }
    add(l, &w->final_norm, ROLE_FINAL_NORM, 0, false);
    for (uint32_t i = 0; i < shape_all_layers(&w->shape); i++) {
        for (int role = 0; role < ROLE_COUNT; role++) {
            const struct weight_ref *ref = &w->layers[i].role[role];
            if (ref->rows > 0 && role != ROLE_MTP_EMBED && role != ROLE_MTP_HEAD) { /* copies are not loaded */
                add(l, ref, (enum role)role, i, i >= w->shape.layers);
            }
        }
    }
}

void resident_measure(const struct weights *w, struct resident_sizes *ret)
{
    struct layout l = {0};
    add_all(&l, w);
    *ret = (struct resident_sizes){align_up_u64(l.bytes, SLOT_PAGE), align_up_u64(l.scale_bytes, SLOT_PAGE), l.idle};
}

/* Points the role's view or vector into the buffers. */
static void set_target(struct resident *r, const struct entry *x, unsigned char *data, float *scale)
{
    const float *vector = (const float *)(const void *)data;
    struct matrix_view view = role_is_vector(x->role) ? (struct matrix_view){0} : slot_view(x->ref, data, scale);
    if (x->role == ROLE_EMBED) {
        r->embed = r->head = view; /* a head of its own follows and takes its place */
    } else if (x->role == ROLE_HEAD) {
        r->head = view;
    } else if (x->role == ROLE_FINAL_NORM) {
        r->final_norm = vector;
    } else if (role_is_vector(x->role)) {
        r->layers[x->layer].vector[x->role] = vector;
    } else {
        r->layers[x->layer].matrix[x->role] = view;
    }
}

/* Lists of what to read: matrices, and vectors and scales as floats. */
struct reads {
    struct load_item *matrices;       /* [entries] */
    struct load_floats_item *floats;  /* [entries] */
    size_t n_matrices, n_floats;
};

static int read_all(struct resident *r, const struct layout *l, struct loader *loader, struct error *e)
{
    struct resident_storage *storage = r->storage;
    struct reads reads = {.matrices = calloc(l->n, sizeof(*reads.matrices)), .floats = calloc(l->n, sizeof(*reads.floats))};
    int ret = reads.matrices != NULL && reads.floats != NULL ? 0 : error_nomem(e, "list of reads", l->n * sizeof(*reads.matrices));
    for (size_t i = 0; ret == 0 && i < l->n; i++) {
        const struct entry *x = &l->entries[i];
        unsigned char *data = (unsigned char *)storage->weights.data + x->at;
        float *scale = load_scale_count(x->ref) > 0 ? (float *)(void *)((unsigned char *)storage->scales.data + x->scale_at) : NULL;
        set_target(r, x, data, scale);
        if (role_is_vector(x->role)) {
            reads.floats[reads.n_floats++] = (struct load_floats_item){*x->ref, (float *)(void *)data, false};
            continue;
        }
        reads.matrices[reads.n_matrices++] = (struct load_item){*x->ref, data};
        if (scale != NULL) {
            reads.floats[reads.n_floats++] = (struct load_floats_item){*x->ref, scale, true};
        }
    }
    ret = ret < 0 ? ret : load_floats(loader, reads.floats, reads.n_floats, e);
    ret = ret < 0 ? ret : load_matrices(loader, reads.matrices, reads.n_matrices, e);
    free(reads.matrices);
    free(reads.floats);
    return ret;
}

static int allocate(struct resident *r, const struct weights *w, const struct layout *l, struct loader *loader, struct error *e)
{
    struct resident_storage *storage = r->storage = calloc(1, sizeof(*storage));
    r->layers = calloc(shape_all_layers(&w->shape), sizeof(*r->layers));
    if (storage == NULL || r->layers == NULL) {
        return error_nomem(e, "table of dense weights", shape_all_layers(&w->shape) * sizeof(*r->layers));
    }
    int ret = buffer_init(&storage->weights, loader->account, PURPOSE_RESIDENT, l->bytes, e);
    return ret < 0 ? ret : buffer_init(&storage->scales, loader->account, PURPOSE_SCALES, l->scale_bytes, e);
}

int resident_create(const struct weights *w, struct loader *loader, struct resident **ret, struct error *e)
{
    struct layout l = {0};
    add_all(&l, w);
    struct layout filled = {.entries = calloc(l.n, sizeof(*filled.entries))};
    struct resident *r = calloc(1, sizeof(*r));
    int code = filled.entries != NULL && r != NULL ? 0 : error_nomem(e, "table of dense weights", l.n * sizeof(*filled.entries));
    if (code == 0) {
        add_all(&filled, w);
        code = allocate(r, w, &filled, loader, e);
    }
    code = code < 0 ? code : read_all(r, &filled, loader, e);
    free(filled.entries);
    if (code < 0) {
        resident_destroy(r);
        return code;
    }
    *ret = r;
    return 0;
}

void resident_destroy(struct resident *r)
{
    if (r == NULL) {
        return;
    }
    struct resident_storage *storage = r->storage;
    if (storage != NULL) {
        buffer_deinit(&storage->weights);
        buffer_deinit(&storage->scales);
    }
    free(storage);
    free(r->layers);
    free(r);
}
