/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the dense weights in a buffer per memory node and one for FP8 scales, laid out by one walk over the roles that measuring
 * and loading share. Must not know: arithmetic. */
#include "src/tier/resident.h"

#include <stdlib.h>

#include "src/tier/slot.h"
#include "src/tier/verify.h"

struct entry {
    const struct weight_ref *ref;
    enum role role;
    uint32_t layer;
    struct slot_place place;
    uint64_t vector_at; /* vectors, as float32 in node 0's buffer */
};

/* entries == NULL: only sizes are counted. */
struct layout {
    const struct shape *shape;
    struct entry *entries;
    size_t n;
    struct slot_cursor cursor;
    uint64_t idle;
};

static bool head_is_tied(const struct weights *w) { return w->head.file == w->embed.file && w->head.offset == w->embed.offset; }

/* Rows that one task reads stay on one node: those of a head where heads are computed one by one, else tiles. */
static uint32_t granule_of(const struct shape *s, enum role role, const struct weight_ref *ref)
{
    switch (role) {
    case ROLE_KV_B:
        return s->nope + s->v_head;
    case ROLE_K_B:
        return s->kv_lora;
    case ROLE_V_B:
        return s->v_head;
    default:
        return weight_tile_rows(ref->rows, ref->cols);
    }
}

static void add(struct layout *l, const struct weight_ref *ref, enum role role, uint32_t layer, bool idle)
{
    struct entry x = {.ref = ref, .role = role, .layer = layer};
    uint64_t bytes = ref->bytes;
    if (role_is_vector(role)) {
        bytes = ref->cols * sizeof(float);
        x.vector_at = slot_take_vector(&l->cursor, ref->cols);
    } else {
        x.place = slot_take(&l->cursor, ref, granule_of(l->shape, role, ref));
    }
    if (l->entries != NULL) {
        l->entries[l->n] = x;
    }
    l->n++;
    l->idle += idle ? bytes : 0;
}

static void add_all(struct layout *l, const struct weights *w)
{
    bool tied = head_is_tied(w);
    l->shape = &w->shape;
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

void resident_measure(const struct weights *w, uint32_t nodes, struct resident_sizes *ret)
{
    struct layout l = {.cursor.nodes = nodes};
    add_all(&l, w);
    *ret = (struct resident_sizes){.scales = slot_scales_bytes(&l.cursor), .idle = l.idle};
    for (uint32_t k = 0; k < nodes; k++) {
        ret->node[k] = slot_node_bytes(&l.cursor, k);
        ret->weights += ret->node[k];
    }
}

/* Points the role's view or vector into the buffers. */
static void set_target(struct resident *r, const struct entry *x)
{
    if (role_is_vector(x->role)) {
        const float *vector = slot_vector(r->storage, x->vector_at);
        if (x->role == ROLE_FINAL_NORM) {
            r->final_norm = vector;
        } else {
            r->layers[x->layer].vector[x->role] = vector;
        }
        return;
    }
    struct weight_view view = slot_view(r->storage, x->ref, &x->place);
    if (x->role == ROLE_EMBED) {
        r->embed = r->head = view; /* a head of its own follows and takes its place */
    } else if (x->role == ROLE_HEAD) {
        r->head = view;
    } else {
        r->layers[x->layer].matrix[x->role] = view;
    }
}

/* Lists of what to read: matrices, and vectors and scales as floats. */
struct reads {
    struct load_item *matrices;       /* [entries * nodes] */
    struct load_floats_item *floats;  /* [entries] */
    size_t n_matrices, n_floats;
};

struct check {
    const struct slot_buffers *buffers;
    const struct layout *layout;
    const struct fingerprints *fingerprints;
};

/* Vectors and scales are checked as they are loaded. */
static int check_entry(const void *ctx, uint32_t i, struct error *e)
{
    const struct check *c = ctx;
    const struct entry *x = &c->layout->entries[i];
    if (role_is_vector(x->role)) {
        return 0;
    }
    struct weight_view v = slot_view(c->buffers, x->ref, &x->place);
    return fingerprints_check_matrix(c->fingerprints, x->ref, &v, e);
}

static int read_all(struct resident *r, const struct layout *l, struct loader *loader, struct error *e)
{
    const struct slot_buffers *b = r->storage;
    uint32_t nodes = l->cursor.nodes;
    struct reads reads = {.matrices = calloc(l->n * nodes, sizeof(*reads.matrices)), .floats = calloc(l->n, sizeof(*reads.floats))};
    int ret = reads.matrices != NULL && reads.floats != NULL ? 0 : error_nomem(e, "list of reads", l->n * nodes * sizeof(*reads.matrices));
    for (size_t i = 0; ret == 0 && i < l->n; i++) {
        const struct entry *x = &l->entries[i];
        set_target(r, x);
        if (role_is_vector(x->role)) {
            reads.floats[reads.n_floats++] = (struct load_floats_item){*x->ref, slot_vector(b, x->vector_at), false};
            continue;
        }
        reads.n_matrices += slot_reads(b, x->ref, &x->place, &reads.matrices[reads.n_matrices]);
        if (x->ref->scale != NULL) {
            reads.floats[reads.n_floats++] = (struct load_floats_item){*x->ref, slot_scales(b, &x->place), true};
        }
    }
    ret = ret < 0 ? ret : load_floats(loader, reads.floats, reads.n_floats, e);
    ret = ret < 0 ? ret : load_matrices(loader, reads.matrices, reads.n_matrices, e);
    const struct check check = {b, l, loader->fingerprints};
    ret = ret < 0 || loader->fingerprints == NULL ? ret : verify_all(loader, (uint32_t)l->n, check_entry, &check, e);
    free(reads.matrices);
    free(reads.floats);
    return ret;
}

static int allocate(struct resident *r, const struct weights *w, const struct layout *l, const struct loader *loader, struct error *e)
{
    r->storage = calloc(1, sizeof(struct slot_buffers));
    r->layers = calloc(shape_all_layers(&w->shape), sizeof(*r->layers));
    if (r->storage == NULL || r->layers == NULL) {
        return error_nomem(e, "table of dense weights", shape_all_layers(&w->shape) * sizeof(*r->layers));
    }
    return slot_buffers_init(r->storage, &l->cursor, loader, PURPOSE_RESIDENT, e);
}

int resident_create(const struct weights *w, struct loader *loader, struct resident **ret, struct error *e)
{
    struct layout l = {.cursor.nodes = loader->nodes};
    add_all(&l, w);
    struct layout filled = {.entries = calloc(l.n, sizeof(*filled.entries)), .cursor.nodes = loader->nodes};
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
    if (r->storage != NULL) {
        slot_buffers_deinit(r->storage);
    }
    free(r->storage);
    free(r->layers);
    free(r);
}
