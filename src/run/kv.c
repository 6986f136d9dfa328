/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: KV pages and page tables (kv.h). Must not know: attention. */
#include "src/run/kv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"

int kv_pool_init(struct kv_pool *p, struct account *account, struct kv_layout layout, uint32_t layers, uint32_t pages, struct error *e)
{
    memset(p, 0, sizeof(*p));
    p->layout = layout;
    p->layers = layers;
    p->layer_bytes = align_up_u64(layout.row_bytes * KV_PAGE, 64);
    p->page_bytes = p->layer_bytes * layers;
    p->pages = pages;
    p->refs = calloc(pages ? pages : 1, sizeof(*p->refs));
    p->free_list = malloc((pages ? pages : 1) * sizeof(*p->free_list));
    int r = p->refs && p->free_list ? 0 : error_nomem(e, "KV page lists", (unsigned long long)pages * 8);
    if (r == 0) {
        r = buffer_init(&p->memory, account, PURPOSE_KV, p->page_bytes * pages, e);
    }
    if (r < 0) {
        kv_pool_deinit(p);
        return r;
    }
    for (uint32_t i = 0; i < pages; i++) {
        p->free_list[i] = pages - 1 - i; /* page 0 is taken first */
    }
    p->free_pages = pages;
    return 0;
}

void kv_pool_deinit(struct kv_pool *p)
{
    buffer_deinit(&p->memory);
    free(p->refs);
    free(p->free_list);
    memset(p, 0, sizeof(*p));
}

static void page_drop(struct kv_pool *p, uint32_t page)
{
    if (--p->refs[page] == 0) {
        p->free_list[p->free_pages++] = page;
    }
}

int kv_table_init(struct kv_table *t, struct kv_pool *pool, uint32_t positions, struct error *e)
{
    memset(t, 0, sizeof(*t));
    t->pool = pool;
    t->capacity = (uint32_t)ceil_div_u64(positions, KV_PAGE);
    t->page = malloc((t->capacity ? t->capacity : 1) * sizeof(*t->page));
    if (!t->page) {
        t->pool = NULL;
        return error_nomem(e, "KV page table", (unsigned long long)t->capacity * sizeof(*t->page));
    }
    return 0;
}

void kv_table_deinit(struct kv_table *t)
{
    if (t->pool) {
        kv_table_truncate(t, 0);
    }
    free(t->page);
    memset(t, 0, sizeof(*t));
}

static int page_take(struct kv_pool *p, uint32_t *ret_page, struct error *e)
{
    if (p->free_pages == 0) {
        return error_set(e, ERROR_DOES_NOT_FIT, "KV pool: all %u pages of %u positions are in use; close a session, shorten it, or start with a larger -c", p->pages, KV_PAGE);
    }
    *ret_page = p->free_list[--p->free_pages];
    p->refs[*ret_page] = 1;
    return 0;
}

int kv_table_prepare(struct kv_table *t, uint32_t first, uint32_t n, struct error *e)
{
    if (n == 0) {
        return 0;
    }
    struct kv_pool *p = t->pool;
    uint32_t last = (first + n - 1) / KV_PAGE;
    for (uint32_t k = first / KV_PAGE; k <= last; k++) {
        uint32_t fresh = 0;
        if (k < t->n && p->refs[t->page[k]] == 1) {
            continue;
        }
        int r = page_take(p, &fresh, e);
        if (r < 0) {
            return r;
        }
        if (k < t->n) {
            memcpy(kv_page_rows(p, fresh, 0), kv_page_rows(p, t->page[k], 0), p->page_bytes);
            page_drop(p, t->page[k]);
        } else {
            t->n = k + 1;
        }
        t->page[k] = fresh;
    }
    return 0;
}

void kv_table_truncate(struct kv_table *t, uint32_t length)
{
    uint32_t keep = (uint32_t)ceil_div_u64(length, KV_PAGE);
    while (t->n > keep) {
        page_drop(t->pool, t->page[--t->n]);
    }
}

void kv_table_share(const struct kv_table *t, struct kv_table *ret)
{
    for (uint32_t k = 0; k < t->n; k++) {
        ret->page[k] = t->page[k];
        t->pool->refs[t->page[k]]++;
    }
    ret->n = t->n;
}
