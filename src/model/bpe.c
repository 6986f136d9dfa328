/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the merge table and the merging of one pre-token's bytes. Must not know: texts of tokens, files, patterns. */
#include "src/model/bpe.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t NO_SYMBOL = UINT32_MAX;
enum { NO_RANK = INT32_MAX };

static size_t slot_of(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    return (size_t)(h >> 32 ^ h >> 15) & b->mask;
}

static struct bpe_merge *find_slot(const struct bpe *b, int32_t left, int32_t right)
{
    for (size_t i = slot_of(b, left, right);; i = (i + 1) & b->mask) {
        struct bpe_merge *m = &b->slots[i];
        if (m->left < 0 || (m->left == left && m->right == right)) {
            return m;
        }
    }
}

int bpe_init(struct bpe *b, size_t merges, struct error *e)
{
    size_t slots = 16;
    while (slots < 2 * merges) {
        slots *= 2;
    }
    b->slots = malloc(slots * sizeof *b->slots);
    if (!b->slots) {
        return error_nomem(e, "merge table", slots * sizeof *b->slots);
    }
    memset(b->slots, 0xff, slots * sizeof *b->slots);
    memset(b->byte_id, 0xff, sizeof b->byte_id);
    b->mask = slots - 1;
    return 0;
}

void bpe_deinit(struct bpe *b)
{
    free(b->slots);
    b->slots = NULL;
}

void bpe_add_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    *find_slot(b, left, right) = (struct bpe_merge){ .left = left, .right = right, .rank = rank, .id = id };
}

void bpe_scratch_deinit(struct bpe_scratch *s)
{
    free(s->symbols);
    free(s->heap);
    *s = (struct bpe_scratch){ 0 };
}

static int scratch_reserve(struct bpe_scratch *s, size_t n, struct error *e)
{
    if (n <= s->cap) {
        return 0;
    }
    size_t cap = n < 64 ? 64 : n + n / 4;
    bpe_scratch_deinit(s);
    s->symbols = malloc(cap * sizeof *s->symbols);
    s->heap = malloc(2 * cap * sizeof *s->heap);
    if (!s->symbols || !s->heap) {
        bpe_scratch_deinit(s);
        return error_nomem(e, "merging a piece of text", cap * (sizeof *s->symbols + 2 * sizeof *s->heap));
    }
    s->cap = cap;
    return 0;
}

/* The heap holds rank << 32 | position: the lowest rank first, the leftmost of equal ranks. */
static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t key = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (heap[child] >= key) {
            break;
        }
        heap[i] = heap[child];
    }
    heap[i] = key;
}

static void sift_up(uint64_t *heap, size_t i)
{
    uint64_t key = heap[i];
    for (size_t parent; i > 0 && heap[parent = (i - 1) / 2] > key; i = parent) {
        heap[i] = heap[parent];
    }
    heap[i] = key;
}

static void set_rank(const struct bpe *b, struct bpe_symbol *symbols, uint32_t at)
{
    struct bpe_symbol *s = &symbols[at];
    const struct bpe_merge *m = s->next == NO_SYMBOL ? NULL : find_slot(b, s->id, symbols[s->next].id);
    s->rank = m && m->left >= 0 ? m->rank : NO_RANK;
    s->queued = 0;
}

/* Only a merge that goes before both of its neighbours can be the next one of all, so only those are queued: the heap
 * stays small in a run of one letter. */
static size_t queue_if_first(const struct bpe_scratch *s, size_t n, uint32_t at)
{
    struct bpe_symbol *symbol = at == NO_SYMBOL ? NULL : &s->symbols[at];
    if (!symbol || symbol->rank == NO_RANK || symbol->queued ||
        (symbol->prev != NO_SYMBOL && s->symbols[symbol->prev].rank <= symbol->rank) || s->symbols[symbol->next].rank < symbol->rank) {
        return n;
    }
    symbol->queued = 1;
    s->heap[n] = (uint64_t)symbol->rank << 32 | at;
    sift_up(s->heap, n);
    return n + 1;
}

/* Ranks are unique per pair, so an entry whose rank is still that of its position is not stale. A position is queued once
 * per pair it has had: len at first and two more per merge, each of which removes an entry; 2 * len are enough. */
static void merge_all(const struct bpe *b, const struct bpe_scratch *s, uint32_t len)
{
    struct bpe_symbol *symbols = s->symbols;
    size_t n = 0;
    for (uint32_t i = 0; i < len; i++) {
        n = queue_if_first(s, n, i);
    }
    while (n > 0) {
        uint64_t top = s->heap[0];
        s->heap[0] = s->heap[--n];
        sift_down(s->heap, n, 0);
        uint32_t at = (uint32_t)top, next = symbols[at].next;
        if (symbols[at].rank != top >> 32) {
            continue;
        }
        symbols[at].id = find_slot(b, symbols[at].id, symbols[next].id)->id;
        symbols[at].next = symbols[next].next;
        symbols[next].rank = NO_RANK;
        set_rank(b, symbols, at);
        if (symbols[at].next != NO_SYMBOL) {
            symbols[symbols[at].next].prev = at;
        }
        uint32_t prev = symbols[at].prev;
        if (prev != NO_SYMBOL) {
            set_rank(b, symbols, prev);
            n = queue_if_first(s, n, symbols[prev].prev);
        }
        n = queue_if_first(s, n, prev);
        n = queue_if_first(s, n, at);
        n = queue_if_first(s, n, symbols[at].next);
    }
}

int bpe_encode(const struct bpe *b, struct bpe_scratch *s, const char *piece, size_t len, struct token_list *out, struct error *e)
{
    if (len == 0) {
        return 0;
    }
    if (len >= NO_SYMBOL) {
        return error_set(e, ERROR_USAGE, "a piece of text of %zu bytes without a break is too long, at most %u", len, NO_SYMBOL - 1);
    }
    int rc = scratch_reserve(s, len, e);
    if (rc < 0) {
        return rc;
    }
    for (uint32_t i = (uint32_t)len; i-- > 0;) {
        s->symbols[i] = (struct bpe_symbol){ .id = b->byte_id[(unsigned char)piece[i]],
                                             .prev = i ? i - 1 : NO_SYMBOL,
                                             .next = i + 1 < len ? i + 1 : NO_SYMBOL };
        set_rank(b, s->symbols, i);
    }
    merge_all(b, s, (uint32_t)len);
    for (uint32_t i = 0; i != NO_SYMBOL; i = s->symbols[i].next) {
        if (token_list_push(out, s->symbols[i].id) < 0) {
            return error_nomem(e, "list of tokens", (out->n + 1) * sizeof *out->ids);
        }
    }
    return 0;
}
