/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: how often every layer chose an expert for a token id: counting over texts, and the finished table.
 * Must not know: texts, files. */
#ifndef SLUICE_TIER_TOKEN_TABLE_H
#define SLUICE_TIER_TOKEN_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "src/base/alloc.h"
#include "src/tier/key.h"

enum { TOKEN_TABLE_VOCAB = 1 << 21, TOKEN_TABLE_LAYERS = 1 << 10, TOKEN_TABLE_EXPERTS = 1 << 12 }; /* ids are below these */

/* All zero is a valid empty one. */
struct token_counts {
    uint64_t *items; /* [n] token, layer, expert and count, from the high bits down; sorted and joined when room runs out */
    size_t n, room;
};

int token_counts_add(struct token_counts *c, uint32_t token, struct expert_key key, struct error *e); /* one use */
void token_counts_deinit(struct token_counts *c);

struct token_table {
    uint32_t vocab, layers;
    uint32_t *begin;  /* [vocab * layers + 1] first entry of each (token, layer) */
    uint16_t *expert; /* [begin[vocab * layers]] */
    uint16_t *count;  /* the same; stops at 65535 */
    struct buffer memory; /* of all three */
};

/* Room for so many entries, all zero. account: may be NULL. */
int token_table_init(struct token_table *t, uint32_t vocab, uint32_t layers, uint64_t entries, struct account *account, struct error *e);

/* From everything counted; `c` is joined on the way. */
int token_table_make(struct token_table *t, uint32_t vocab, uint32_t layers, struct token_counts *c, struct error *e);
void token_table_deinit(struct token_table *t); /* accepts an all-zero one */

/* Adds each expert's share of what this layer chose for this token to ret [experts]; nothing for a token that was not seen. */
void token_table_add_shares(const struct token_table *t, uint32_t token, uint32_t layer, float *ret);

#endif
