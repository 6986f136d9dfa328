/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the pool of latent KV pages (64 positions, all layers, reference-counted) and page tables with copy on write.
 * Must not know: attention, sessions' tokens. One owner: the thread that drives steps. */
#ifndef SLUICE_RUN_KV_H
#define SLUICE_RUN_KV_H

#include <stdint.h>

#include "common/error.h"
#include "common/ops.h"
#include "src/base/alloc.h"

struct kv_pool {
    struct kv_layout layout;
    uint32_t layers;     /* MTP layers included */
    uint32_t pages, free_pages;
    size_t layer_bytes;  /* KV_PAGE rows of one layer */
    size_t page_bytes;   /* layers * layer_bytes */
    uint32_t *refs;      /* [pages] */
    uint32_t *free_list; /* [pages], the first free_pages are free */
    struct buffer memory;
};

int kv_pool_init(struct kv_pool *p, struct account *account, struct kv_layout layout, uint32_t layers, uint32_t pages, struct error *e);
void kv_pool_deinit(struct kv_pool *p);

/* Rows of `layer` in `page`. */
static inline void *kv_page_rows(const struct kv_pool *p, uint32_t page, uint32_t layer)
{
    return (unsigned char *)p->memory.data + (size_t)page * p->page_bytes + (size_t)layer * p->layer_bytes;
}

/* Pages of one timeline; entry k holds positions [64k, 64k + 64). */
struct kv_table {
    struct kv_pool *pool;
    uint32_t *page; /* [capacity] */
    uint32_t n, capacity;
};

int kv_table_init(struct kv_table *t, struct kv_pool *pool, uint32_t positions, struct error *e);
void kv_table_deinit(struct kv_table *t); /* accepts an all-zero table */

/* Makes positions [first, first + n) writable: takes pages from the pool, copies shared ones. first <= 64 * t->n.
 * On failure (pool empty: ERROR_DOES_NOT_FIT with both numbers) the table still serves positions < first. */
int kv_table_prepare(struct kv_table *t, uint32_t first, uint32_t n, struct error *e);

/* Drops pages that hold no position < length. */
void kv_table_truncate(struct kv_table *t, uint32_t length);

/* `ret` (initialised, empty) shares all pages of t. */
void kv_table_share(const struct kv_table *t, struct kv_table *ret);

static inline void *kv_table_row(const struct kv_table *t, uint32_t layer, uint32_t position)
{
    return (unsigned char *)kv_page_rows(t->pool, t->page[position / KV_PAGE], layer) + (size_t)(position % KV_PAGE) * t->pool->layout.row_bytes;
}

#endif
