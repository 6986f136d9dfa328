/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: merging against the plainest possible loop, on random merge tables. */
#include "src/model/bpe.h"

#include <string.h>

#include "tests/unit/model_text/text_test.h"

enum { MAX_LEN = 60, MAX_MERGES = 200 };

struct table {
    struct bpe_merge merges[MAX_MERGES];
    int n;
};

static size_t naive(const struct table *t, int32_t *ids, size_t n)
{
    for (;;) {
        const struct bpe_merge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            for (int k = 0; k < t->n; k++) {
                const struct bpe_merge *m = &t->merges[k];
                if (m->left == ids[i] && m->right == ids[i + 1] && (!best || m->rank < best->rank)) {
                    best = m;
                    at = i;
                }
            }
        }
        if (!best) {
            return n;
        }
        ids[at] = best->id;
        memmove(&ids[at + 1], &ids[at + 2], (n - at - 2) * sizeof *ids);
        n--;
    }
}

/* Merges of random tokens over `letters` letters, in an order that knows nothing of how they are made. */
static void random_table(struct table *t, struct bpe *b, uint32_t letters, uint32_t *seed)
{
    int32_t next = (int32_t)letters;
    t->n = 1 + (int)(test_random(seed) % (MAX_MERGES - 1));
    assert_int_equal(bpe_init(b, MAX_MERGES, NULL), 0);
    for (int i = 0; i < 256; i++) {
        b->byte_id[i] = i % (int)letters;
    }
    for (int i = 0; i < t->n;) {
        int32_t left = (int32_t)(test_random(seed) % (uint32_t)next), right = (int32_t)(test_random(seed) % (uint32_t)next);
        bool twice = false;
        for (int k = 0; k < i; k++) {
            twice |= t->merges[k].left == left && t->merges[k].right == right;
        }
        if (twice) {
            t->n--;
            continue;
        }
        uint32_t rank = (uint32_t)i * 7919 % 100003;
        t->merges[i] = (struct bpe_merge){ .left = left, .right = right, .rank = rank, .id = next++ };
        bpe_add_merge(b, left, right, rank, t->merges[i].id);
        i++;
    }
}

static void same_as_naive(void **state)
{
    (void)state;
    uint32_t seed = 1;
    struct bpe_scratch scratch = { 0 };
    for (int round = 0; round < 2000; round++) {
        struct table t;
        struct bpe b = { 0 };
        uint32_t letters = 1 + test_random(&seed) % 4;
        random_table(&t, &b, letters, &seed);
        for (int text = 0; text < 5; text++) {
            char piece[MAX_LEN];
            int32_t ids[MAX_LEN];
            size_t len = 1 + test_random(&seed) % MAX_LEN;
            for (size_t i = 0; i < len; i++) {
                piece[i] = (char)(test_random(&seed) % letters);
                ids[i] = piece[i];
            }
            size_t want = naive(&t, ids, len);
            struct token_list got = { 0 };
            assert_int_equal(bpe_encode(&b, &scratch, piece, len, &got, NULL), 0);
            assert_int_equal(got.n, want);
            assert_memory_equal(got.ids, ids, want * sizeof *ids);
            token_list_deinit(&got);
        }
        bpe_deinit(&b);
    }
    bpe_scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(same_as_naive) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
