/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: slot.h. Must not know: which weights there are. */
#include "src/tier/slot.h"

#include <string.h>

#include "common/intmath.h"

enum { DIRECT_BYTES = 1 << 20 };

/* Where a part starts in a page-aligned buffer whose first `at` bytes are taken. Large ones keep their file position modulo a
 * page, so that O_DIRECT reads go straight into place; kernels need no alignment. */
static uint64_t part_start(uint64_t at, uint64_t file_offset, uint64_t bytes)
{
    return bytes < DIRECT_BYTES ? align_up_u64(at, SLOT_ALIGN) : at + ((file_offset - at) & (SLOT_PAGE - 1));
}

static uint64_t row_bytes(const struct weight_ref *ref) { return ref->bytes / ref->rows; }

struct slot_place slot_take(struct slot_cursor *c, const struct weight_ref *ref, uint32_t granule)
{
    struct slot_place p = {.scale_at = align_up_u64(c->scales, SLOT_ALIGN)};
    for (uint32_t k = 0, begin = 0; k < c->nodes; begin = p.end[k++]) {
        p.end[k] = weight_part_end(ref->rows, granule, c->nodes, k);
        uint64_t bytes = (p.end[k] - begin) * row_bytes(ref);
        p.at[k] = part_start(c->node[k], ref->offset + begin * row_bytes(ref), bytes);
        c->node[k] = p.at[k] + bytes;
    }
    c->scales = p.scale_at + load_scale_count(ref) * sizeof(float);
    return p;
}

uint64_t slot_take_vector(struct slot_cursor *c, size_t n)
{
    uint64_t at = align_up_u64(c->node[0], SLOT_ALIGN);
    c->node[0] = at + n * sizeof(float);
    return at;
}

uint64_t slot_node_bytes(const struct slot_cursor *c, uint32_t node) { return align_up_u64(c->node[node], SLOT_PAGE); }
uint64_t slot_scales_bytes(const struct slot_cursor *c) { return align_up_u64(c->scales, SLOT_PAGE); }

int slot_buffers_init(struct slot_buffers *b, const struct slot_cursor *c, const struct loader *loader, enum purpose purpose, struct error *e)
{
    memset(b, 0, sizeof(*b));
    b->nodes = c->nodes;
    int r = loader->bare ? buffer_init_bare(&b->scales, c->scales, e) : buffer_init(&b->scales, loader->account, PURPOSE_SCALES, c->scales, e);
    for (uint32_t k = 0; k < c->nodes && r == 0; k++) {
        r = loader->bare ? buffer_init_bare(&b->node[k], c->node[k], e) : buffer_init_node(&b->node[k], loader->account, purpose, c->node[k], loader->node_os != NULL ? loader->node_os[k] : -1, e);
    }
    return r;
}

void slot_buffers_deinit(struct slot_buffers *b)
{
    for (uint32_t k = 0; k < b->nodes; k++) {
        buffer_deinit(&b->node[k]);
    }
    buffer_deinit(&b->scales);
}

struct weight_view slot_view(const struct slot_buffers *b, const struct weight_ref *ref, const struct slot_place *p)
{
    struct weight_view v = {
        .parts = b->nodes, .rows = ref->rows, .cols = ref->cols, .row_bytes = (size_t)row_bytes(ref), .format = ref->format,
        .scale = ref->scale != NULL ? slot_scales(b, p) : NULL,
        .scale_cols = ref->scale != NULL ? (uint32_t)ceil_div_u64(ref->cols, FORMAT_SCALE_BLOCK) : 0,
    };
    for (uint32_t k = 0; k < b->nodes; k++) {
        v.data[k] = (const unsigned char *)b->node[k].data + p->at[k];
        v.end[k] = p->end[k];
    }
    return v;
}

float *slot_vector(const struct slot_buffers *b, uint64_t at) { return (float *)(void *)((unsigned char *)b->node[0].data + at); }
float *slot_scales(const struct slot_buffers *b, const struct slot_place *p) { return (float *)(void *)((unsigned char *)b->scales.data + p->scale_at); }

size_t slot_reads(const struct slot_buffers *b, const struct weight_ref *ref, const struct slot_place *p, struct load_item *items)
{
    size_t n = 0;
    for (uint32_t k = 0, begin = 0; k < b->nodes; begin = p->end[k++]) {
        if (p->end[k] > begin) {
            items[n++] = (struct load_item){*ref, begin * row_bytes(ref), (p->end[k] - begin) * row_bytes(ref), (unsigned char *)b->node[k].data + p->at[k]};
        }
    }
    return n;
}
