/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the merge table and the merging of one pre-token's bytes, in O(n log n). Must not know: texts of tokens, files,
 * patterns. Algorithm: docs/tokenizer.md. */
#ifndef SLUICE_MODEL_BPE_H
#define SLUICE_MODEL_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "src/model/tokenizer.h"

struct bpe_merge {
    int32_t left, right; /* left < 0: free slot */
    uint32_t rank;
    int32_t id; /* of the merged token */
};

struct bpe {
    int32_t byte_id[256];    /* id of the token of one byte, -1: none */
    struct bpe_merge *slots; /* [mask + 1] open addressing */
    size_t mask;
};

int bpe_init(struct bpe *b, size_t merges, struct error *e);
void bpe_deinit(struct bpe *b);

/* At most as many as bpe_init was told. A pair that is already there takes the new rank, as in the reference. */
void bpe_add_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id);

struct bpe_symbol {
    int32_t id;
    uint32_t prev, next;
    uint32_t rank : 31; /* of the merge with the next symbol; all ones if there is none, or this one is swallowed */
    uint32_t queued : 1; /* that merge is in the heap */
};

/* Work space of one encode call, reused from piece to piece. */
struct bpe_scratch {
    struct bpe_symbol *symbols; /* [cap] */
    uint64_t *heap;             /* [2 * cap] */
    size_t cap;
};
void bpe_scratch_deinit(struct bpe_scratch *s);

/* Appends the ids of one piece (any bytes, at most UINT32_MAX - 1 of them). */
int bpe_encode(const struct bpe *b, struct bpe_scratch *s, const char *piece, size_t len, struct token_list *out, struct error *e);

#endif
