/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: how a matrix lies in the buffers of a tier - its rows spread over those of the memory nodes, placed for direct reads, FP8
 * scales in a buffer of their own - and the view of it. Must not know: which weights there are. */
#ifndef SLUICE_TIER_SLOT_H
#define SLUICE_TIER_SLOT_H

#include <stddef.h>
#include <stdint.h>

#include "common/view.h"
#include "src/base/alloc.h"
#include "src/model/names.h"
#include "src/tier/load.h"

enum { SLOT_ALIGN = 64, SLOT_PAGE = 4096 };

/* Buffers of one kind of weights. */
struct slot_buffers {
    uint32_t nodes;
    struct buffer node[WEIGHT_NODES_MAX]; /* [nodes] */
    struct buffer scales;                 /* float32 */
};

/* First free bytes of such buffers. */
struct slot_cursor {
    uint32_t nodes;
    uint64_t node[WEIGHT_NODES_MAX], scales;
};

/* Where a matrix lies: part k at byte at[k] of node k's buffer, rows up to end[k]; its scales at byte scale_at of theirs. */
struct slot_place {
    uint64_t at[WEIGHT_NODES_MAX], scale_at;
    uint32_t end[WEIGHT_NODES_MAX];
};

/* Takes the place of the next matrix; measuring and filling walk the same way. `granule`: rows that stay together. */
struct slot_place slot_take(struct slot_cursor *c, const struct weight_ref *ref, uint32_t granule);

/* Takes room for n floats on node 0; returns where. */
uint64_t slot_take_vector(struct slot_cursor *c, size_t n);

/* Bytes that slot_buffers_init allocates for what was taken: of a node, and of the scales. */
uint64_t slot_node_bytes(const struct slot_cursor *c, uint32_t node);
uint64_t slot_scales_bytes(const struct slot_cursor *c);

int slot_buffers_init(struct slot_buffers *b, const struct slot_cursor *c, const struct loader *loader, enum purpose purpose, struct error *e);
void slot_buffers_deinit(struct slot_buffers *b);

struct weight_view slot_view(const struct slot_buffers *b, const struct weight_ref *ref, const struct slot_place *p);
float *slot_vector(const struct slot_buffers *b, uint64_t at);                     /* what slot_take_vector gave */
float *slot_scales(const struct slot_buffers *b, const struct slot_place *p);

/* Writes the reads of the matrix at `p` to items, one per part that has rows, at most b->nodes; returns how many. */
size_t slot_reads(const struct slot_buffers *b, const struct weight_ref *ref, const struct slot_place *p, struct load_item *items);

#endif
