/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: token_table.h. Must not know: texts, files. */
#include "src/tier/token_table.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/intmath.h"

enum { COUNT_BITS = 21, EXPERT_BITS = 12, LAYER_BITS = 10 };

static const uint64_t COUNT_MOST = (UINT64_C(1) << COUNT_BITS) - 1;

static uint64_t name_of(uint64_t item) { return item >> COUNT_BITS; }

static int by_name(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* One item for each name. */
static void join(struct token_counts *c)
{
    size_t n = 0;
    if (c->n == 0) {
        return;
    }
    qsort(c->items, c->n, sizeof(*c->items), by_name);
    for (size_t i = 1; i < c->n; i++) {
        if (name_of(c->items[i]) != name_of(c->items[n])) {
            c->items[++n] = c->items[i];
        } else {
            uint64_t sum = (c->items[n] & COUNT_MOST) + (c->items[i] & COUNT_MOST);
            c->items[n] = name_of(c->items[n]) << COUNT_BITS | min_u64(sum, COUNT_MOST);
        }
    }
    c->n = n + 1;
}

int token_counts_add(struct token_counts *c, uint32_t token, struct expert_key key, struct error *e)
{
    assert(token < TOKEN_TABLE_VOCAB && key.layer < TOKEN_TABLE_LAYERS && key.expert < TOKEN_TABLE_EXPERTS);
    bool full = c->n == c->room;
    if (full) {
        join(c);
    }
    if (full && c->n >= c->room / 2) {
        size_t room = c->room * 2 + 4096;
        uint64_t *items = realloc(c->items, room * sizeof(*items));
        if (items == NULL) {
            return error_nomem(e, "uses of experts by token", (uint64_t)room * sizeof(*items));
        }
        c->items = items;
        c->room = room;
    }
    uint64_t name = ((uint64_t)token << LAYER_BITS | key.layer) << EXPERT_BITS | key.expert;
    c->items[c->n++] = name << COUNT_BITS | 1;
    return 0;
}

void token_counts_deinit(struct token_counts *c)
{
    free(c->items);
    *c = (struct token_counts){0};
}

static void fill(struct token_table *t, const struct token_counts *c)
{
    size_t list = 0, lists = (size_t)t->vocab * t->layers;
    for (size_t i = 0; i < c->n; i++) {
        uint64_t name = name_of(c->items[i]);
        uint64_t token = name >> (LAYER_BITS + EXPERT_BITS), layer = name >> EXPERT_BITS & (TOKEN_TABLE_LAYERS - 1);
        assert(token < t->vocab && layer < t->layers);
        for (size_t mine = token * t->layers + layer; list <= mine; list++) {
            t->begin[list] = (uint32_t)i;
        }
        t->expert[i] = (uint16_t)(name & (TOKEN_TABLE_EXPERTS - 1));
        t->count[i] = (uint16_t)min_u64(c->items[i] & COUNT_MOST, UINT16_MAX);
    }
    for (; list <= lists; list++) {
        t->begin[list] = (uint32_t)c->n;
    }
}

int token_table_init(struct token_table *t, uint32_t vocab, uint32_t layers, uint64_t entries, struct account *account, struct error *e)
{
    size_t lists = (size_t)vocab * layers + 1;
    *t = (struct token_table){.vocab = vocab, .layers = layers};
    if (entries > UINT32_MAX) {
        return error_nomem(e, "token table", entries * (sizeof(*t->expert) + sizeof(*t->count)));
    }
    int r = buffer_init(&t->memory, account, PURPOSE_TABLES, lists * sizeof(*t->begin) + entries * (sizeof(*t->expert) + sizeof(*t->count)), e);
    t->begin = t->memory.data;
    t->expert = r == 0 ? (uint16_t *)(t->begin + lists) : NULL;
    t->count = r == 0 ? t->expert + entries : NULL;
    return r;
}

int token_table_make(struct token_table *t, uint32_t vocab, uint32_t layers, struct token_counts *c, struct error *e)
{
    join(c);
    int r = token_table_init(t, vocab, layers, c->n, NULL, e);
    if (r == 0) {
        fill(t, c);
    }
    return r;
}

void token_table_deinit(struct token_table *t)
{
    buffer_deinit(&t->memory);
    *t = (struct token_table){0};
}

void token_table_add_shares(const struct token_table *t, uint32_t token, uint32_t layer, float *ret)
{
    size_t list = (size_t)token * t->layers + layer;
    uint32_t all = 0;
    for (uint32_t i = t->begin[list]; i < t->begin[list + 1]; i++) {
        all += t->count[i];
    }
    for (uint32_t i = t->begin[list]; i < t->begin[list + 1]; i++) {
        ret[t->expert[i]] += (float)t->count[i] / (float)all;
    }
}
