/* SPDX-License-Identifier: Apache-2.0 */
/* The lease contract of the expert store: all experts in RAM, and any part of them. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <errno.h>

#include "tests/unit/io/reader_faulty.h"
#include "tests/unit/tier/fixture.h"

static int begin(struct store *s, const struct expert_key *keys, uint32_t n, struct lease **ret, struct error *e)
{
    return store_begin(s, &(struct store_visit){.keys = keys, .n = n}, ret, e);
}

static void check_store(uint32_t nodes)
{
    struct fixture f = {0};
    open_model(&f, DEMO);
    f.loader.nodes = nodes;
    const struct weights *w = f.weights;
    struct store *s;
    struct error e = {0};
    assert_int_equal(create_all(&f, &s, &e), 0);
    struct store_sizes sizes;
    store_measure(w, nodes, &sizes);
    assert_int_equal(f.account.bytes[PURPOSE_EXPERTS], sizes.all);
    assert_int_equal(f.account.bytes[PURPOSE_SCALES], sizes.scales);
    assert_true(f.account.bytes[PURPOSE_TABLES] > 0 && f.account.bytes[PURPOSE_TABLES] <= sizes.tables);
    uint64_t used = 0;
    for (uint32_t i = w->shape.dense_layers; i < shape_all_layers(&w->shape); i++) {
        struct expert_key keys[64];
        struct expert_view views[64];
        struct lease *l;
        uint32_t n;
        for (uint16_t j = 0; j < 64; j++) {
            keys[j] = (struct expert_key){(uint16_t)i, j};
        }
        assert_int_equal(begin(s, keys, 64, &l, &e), 0);
        assert_int_equal(store_next(l, NULL, views, 64, &n, &e), 0);
        assert_int_equal(n, 64);
        for (uint32_t j = 0; j < 64; j++) {
            assert_int_equal(views[j].key.expert, j);
            assert_int_equal(views[j].where, TIER_RAM);
            assert_matrix(&w->layers[i].experts[j].gate, &views[j].gate);
            assert_matrix(&w->layers[i].experts[j].up, &views[j].up);
            assert_matrix(&w->layers[i].experts[j].down, &views[j].down);
            used += w->layers[i].experts[j].gate.bytes * 3 + 3 * 2 * sizeof(float);
        }
        store_release(l, views, n);
        store_end(l);
    }
    assert_int_equal(counter_get(counters_find(&f.counters, "expert.ram.hits")), 6 * 64);
    assert_int_equal(counter_get(counters_find(&f.counters, "expert.ram.bytes")), used);
    store_destroy(s);
    close_model(&f);
}

static void test_store(void **state)
{
    (void)state;
    check_store(1);
    check_store(2);
    check_store(WEIGHT_NODES_MAX);
}

static void test_leases(void **state)
{
    (void)state;
    struct fixture f = {0};
    open_model(&f, DEMO);
    struct store *s;
    struct error e = {0};
    assert_int_equal(create_all(&f, &s, &e), 0);
    struct lease *open[STORE_LEASES], *l;
    struct expert_key keys[] = {{1, 3}, {1, 5}, {1, 63}};
    struct expert_view views[3];
    uint32_t n;

    assert_int_equal(begin(s, keys, 3, &l, &e), 0); /* in waves */
    assert_int_equal(store_next(l, NULL, views, 2, &n, &e), 0);
    assert_int_equal(n, 2);
    assert_int_equal(views[0].key.expert, 3);
    store_release(l, views, 1);
    assert_int_equal(store_next(l, NULL, views, 2, &n, &e), 0);
    assert_int_equal(n, 1);
    assert_int_equal(views[0].key.expert, 63);
    assert_int_equal(store_next(l, NULL, views, 2, &n, &e), 0);
    assert_int_equal(n, 0);
    store_end(l); /* with two experts still held */

    atomic_int cancel = 1;
    assert_int_equal(begin(s, keys, 3, &l, &e), 0);
    assert_int_equal(store_next(l, &cancel, views, 2, &n, &e), ERROR_INTERRUPTED);
    cancel = 0;
    assert_int_equal(store_next(l, &cancel, views, 3, &n, &e), 0);
    assert_int_equal(n, 3);
    store_end(l);

    for (uint32_t i = 0; i < STORE_LEASES; i++) {
        assert_int_equal(begin(s, keys, 1, &open[i], &e), 0);
    }
    assert_true(STORE_LEASES >= 8);
    assert_int_equal(begin(s, keys, 1, &l, &e), -EBUSY);
    store_end(open[2]);
    assert_int_equal(begin(s, keys, 1, &l, &e), 0);
    assert_ptr_equal(l, open[2]);
    for (uint32_t i = 0; i < STORE_LEASES; i++) {
        store_end(open[i]);
    }

    static const struct expert_key bad[][2] = {
        {{1, 5}, {1, 5}}, {{1, 5}, {1, 3}}, {{1, 5}, {2, 6}}, {{1, 5}, {1, 64}}, {{0, 1}, {0, 2}}, {{7, 1}, {7, 2}}, {{65535, 1}, {65535, 65535}}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        e = (struct error){0};
        assert_int_equal(begin(s, bad[i], 2, &l, &e), -EINVAL);
        assert_true(e.text[0] != '\0');
    }
    assert_int_equal(begin(s, keys, 0, &l, &e), -EINVAL);
    store_hint(s, &(struct prediction){{1, 3}, 0.5f, 1, HINT_LAYER}, 1);
    store_destroy(s);
    close_model(&f);
}

/* ---- streaming ---- */

enum { FIRST = 1, LAYERS = 6, EXPERTS = 64, REQUESTS = 64 }; /* of the demo model: layers with experts, the MTP layer's included */

struct streaming {
    struct fixture f;
    struct store *store;
    uint32_t random;
};

static uint64_t count(const struct streaming *t, const char *name) { return counter_get(counters_find(&t->f.counters, name)); }

static uint32_t below(struct streaming *t, uint32_t n)
{
    t->random = t->random * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)t->random * n >> 32);
}

/* The reader of a loader and a store, which keep REQUESTS open at once. */
static void open_store_with(struct streaming *t, struct reader *r, uint64_t cached, uint32_t staging, uint32_t nodes)
{
    struct error e = {0};
    reader_destroy(t->f.reader);
    t->f.loader.nodes = nodes;
    t->f.loader.reader = t->f.reader = r;
    struct store_options o = {.cached = cached, .staging = staging, .reader = t->f.reader, .requests = REQUESTS};
    if (store_create(t->f.weights, &t->f.loader, &o, &t->f.counters, &t->store, &e) != 0) {
        fail_msg("%s", e.text);
    }
    assert_true(store_streams(t->store));
}

static void open_store(struct streaming *t, uint64_t cached, uint32_t staging, uint32_t nodes)
{
    struct reader *r;
    assert_int_equal(reader_create(&(struct reader_options){.depth = 4, .requests = REQUESTS, .chunk = 1 << 20}, &r, NULL), 0);
    open_store_with(t, r, cached, staging, nodes);
}

static void assert_expert(const struct fixture *f, const struct expert_view *v)
{
    const struct expert_refs *x = &f->weights->layers[v->key.layer].experts[v->key.expert];
    assert_matrix(&x->gate, &v->gate);
    assert_matrix(&x->up, &v->up);
    assert_matrix(&x->down, &v->down);
}

/* n random experts of a layer, rising. */
static void choose(struct streaming *t, uint16_t layer, uint32_t n, struct expert_key *keys)
{
    bool chosen[EXPERTS] = {0};
    for (uint32_t k = 0; k < n;) {
        uint32_t x = below(t, EXPERTS);
        k += !chosen[x];
        chosen[x] = true;
    }
    for (uint16_t x = 0, k = 0; x < EXPERTS; x++) {
        if (chosen[x]) {
            keys[k++] = (struct expert_key){layer, x};
        }
    }
}

/* Every expert of the lease comes once, with the bytes of the file. */
static void drain(struct streaming *t, struct lease *l, uint32_t n, uint32_t wave)
{
    struct expert_view views[EXPERTS];
    struct error e = {0};
    uint32_t got, sum = 0;
    bool seen[EXPERTS] = {0};
    do {
        if (store_next(l, NULL, views, wave, &got, &e) != 0) {
            fail_msg("%s", e.text);
        }
        for (uint32_t i = 0; i < got; i++) {
            assert_false(seen[views[i].key.expert]);
            seen[views[i].key.expert] = true;
            assert_expert(&t->f, &views[i]);
        }
        store_release(l, views, got);
        sum += got;
    } while (got > 0);
    assert_int_equal(sum, n);
    store_end(l);
}

static void test_any_part_stays(void **state)
{
    (void)state;
    static const struct {
        uint32_t cached, staging, nodes;
    } budgets[] = {{0, 1, 1}, {0, 3, 2}, {1, 1, 1}, {7, 2, 1}, {40, 12, 1}, {40, 12, 3}, {383, 1, 1}, {383, 9, 2}, {200, 64, 8}};
    for (size_t b = 0; b < ARRAY_LEN(budgets); b++) {
        struct streaming t = {.random = (uint32_t)b};
        open_model(&t.f, DEMO);
        open_store(&t, budgets[b].cached, budgets[b].staging, budgets[b].nodes);
        uint64_t asked = 0;
        for (uint32_t step = 0; step < 60; step++) {
            struct expert_key keys[EXPERTS];
            struct lease *l;
            uint32_t n = step % 16 == 7 ? EXPERTS : 1 + below(&t, 12);
            choose(&t, (uint16_t)(FIRST + step % LAYERS), n, keys);
            assert_int_equal(store_begin(t.store, &(struct store_visit){.keys = keys, .n = n, .passing = n == EXPERTS}, &l, NULL), 0);
            drain(&t, l, n, 1 + below(&t, EXPERTS));
            asked += n;
        }
        assert_int_equal(count(&t, "expert.ram.hits") + count(&t, "expert.ram.misses"), asked);
        uint64_t hits = count(&t, "expert.ram.hits");
        assert_true(budgets[b].cached == 0 ? hits == 0 : budgets[b].cached < 40 || hits > 0);
        assert_true(count(&t, "expert.ram.admitted") >= min_u32(budgets[b].cached, 40));
        store_destroy(t.store);
        close_model(&t.f);
    }
}

/* What stays is not read again, and the same visits give the same state. */
static void test_decisions_repeat(void **state)
{
    (void)state;
    uint64_t hits[2], admitted[2];
    for (int run = 0; run < 2; run++) {
        struct streaming t = {.random = 5};
        open_model(&t.f, DEMO);
        open_store(&t, 30, 4 + 8 * (uint32_t)run, 1); /* whatever the staging */
        for (uint32_t step = 0; step < 90; step++) {
            struct expert_key keys[6];
            struct lease *l;
            choose(&t, (uint16_t)(FIRST + step % LAYERS), 6, keys);
            assert_int_equal(begin(t.store, keys, 6, &l, NULL), 0);
            drain(&t, l, 6, 6);
        }
        hits[run] = count(&t, "expert.ram.hits");
        admitted[run] = count(&t, "expert.ram.admitted");
        store_destroy(t.store);
        close_model(&t.f);
    }
    assert_true(hits[0] > 0 && hits[0] == hits[1] && admitted[0] == admitted[1]);
}

/* A second lease finds no slot while the first holds all, and gets them afterwards. */
static void test_two_leases(void **state)
{
    (void)state;
    struct streaming t = {.random = 9};
    open_model(&t.f, DEMO);
    open_store(&t, 0, 2, 1);
    struct expert_key a[] = {{1, 3}, {1, 9}}, b[] = {{2, 4}, {2, 5}};
    struct expert_view views[2], others[2];
    struct lease *first, *second;
    struct error e = {0};
    uint32_t n, m;
    assert_int_equal(begin(t.store, a, 2, &first, &e), 0);
    for (n = 0; n < 2; n += m) {
        assert_int_equal(store_next(first, NULL, views + n, 2 - n, &m, &e), 0);
    }
    assert_int_equal(begin(t.store, b, 2, &second, &e), 0);
    assert_int_equal(store_next(second, NULL, others, 2, &m, &e), -EBUSY);
    assert_expert(&t.f, &views[0]);
    store_release(first, views, 2);
    drain(&t, second, 2, 2);
    store_end(first);

    assert_int_equal(begin(t.store, a, 2, &first, &e), 0); /* ended while it is read: the next ones find their slots */
    store_end(first);
    assert_int_equal(begin(t.store, b, 2, &second, &e), 0);
    drain(&t, second, 2, 2);
    atomic_int cancel = 1;
    assert_int_equal(begin(t.store, a, 2, &first, &e), 0);
    assert_int_equal(store_next(first, &cancel, views, 2, &n, &e), ERROR_INTERRUPTED);
    store_end(first);
    store_destroy(t.store);
    close_model(&t.f);
}

/* Advice is read ahead into idle slots, found by the lease it was for, and given up when its visit is past. */
static void test_hints(void **state)
{
    (void)state;
    struct streaming t = {.random = 11};
    open_model(&t.f, DEMO);
    open_store(&t, 0, 4, 1);
    struct expert_key keys[] = {{2, 4}, {2, 5}, {2, 60}}, other[] = {{1, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 5}, {1, 6}, {1, 7}, {1, 8}};
    struct prediction p[] = {{{2, 4}, 0.9f, 1, HINT_LAYER}, {{2, 5}, 0.8f, 1, HINT_LAYER}, {{2, 6}, 0.7f, 1, HINT_LAYER}, {{2, 7}, 0.6f, 1, HINT_LAYER}, {{2, 8}, 0.5f, 1, HINT_LAYER}};
    struct lease *l;
    store_hint(t.store, p, 5); /* a quarter of the slots takes none */
    assert_int_equal(begin(t.store, keys, 3, &l, NULL), 0);
    drain(&t, l, 3, 3);
    assert_int_equal(count(&t, "prefetch.useful") + count(&t, "prefetch.late"), 2);
    assert_int_equal(count(&t, "prefetch.wasted") + count(&t, "prefetch.cancelled"), 0); /* this was their visit */
    assert_int_equal(begin(t.store, other, 8, &l, NULL), 0);
    drain(&t, l, 8, 8);
    for (int i = 0; i < 1000 && count(&t, "prefetch.wasted") + count(&t, "prefetch.cancelled") == 0; i++) { /* its read may take a while to end */
        assert_int_equal(begin(t.store, other, 8, &l, NULL), 0);
        drain(&t, l, 8, 8);
    }
    assert_int_equal(count(&t, "prefetch.wasted") + count(&t, "prefetch.cancelled"), 1); /* what was not begun costs nothing */
    assert_int_equal(count(&t, "prefetch.begun"), 3);
    store_hint(t.store, p, 5);
    store_destroy(t.store); /* with reads in flight */
    close_model(&t.f);
}

static void visit(struct streaming *t, const struct store_visit *v)
{
    struct lease *l;
    assert_int_equal(store_begin(t->store, v, &l, NULL), 0);
    drain(t, l, v->n, EXPERTS);
}

/* Two groups of a layer's experts, room for one of them: what is said of the next visit decides who stays, and what that spares is
 * counted. Nothing is read for it. */
static void test_expected_experts_stay(void **state)
{
    (void)state;
    struct streaming t = {.random = 3};
    struct expert_key keys[2][4];
    uint8_t chances[2][EXPERTS] = {{0}};
    open_model(&t.f, DEMO);
    open_store(&t, 4, 8, 1);
    for (uint16_t i = 0; i < 8; i++) {
        keys[i / 4][i % 4] = (struct expert_key){2, i};
        chances[i / 4][i] = 255;
    }
    for (uint32_t step = 0; step < 12; step++) { /* as hot as each other */
        visit(&t, &(struct store_visit){.keys = keys[step % 2], .n = 4});
    }
    uint64_t read = count(&t, "expert.nvme.hits");
    store_compare(t.store, true);
    for (uint32_t step = 0; step < 8; step++) { /* in pairs: 0 0 1 1 0 0 1 1, and the next is said before each */
        store_expect(t.store, 2, 2, chances[(step + 1) / 2 % 2]);
        assert_int_equal(count(&t, "expert.nvme.hits"), read);
        visit(&t, &(struct store_visit){.keys = keys[step / 2 % 2], .n = 4});
        read = count(&t, "expert.nvme.hits");
    }
    assert_in_range(store_spared(t.store), 4, 16);
    store_compare(t.store, false);
    visit(&t, &(struct store_visit){.keys = keys[0], .n = 4});
    assert_int_equal(store_spared(t.store), 0);
    store_destroy(t.store);
    close_model(&t.f);
}

/* All experts of every layer, as a long prompt uses them. */
static void visit_prompt(struct streaming *t, uint32_t rows_each)
{
    struct expert_key keys[EXPERTS];
    uint32_t rows[EXPERTS];
    for (uint16_t layer = FIRST; layer < FIRST + LAYERS; layer++) {
        for (uint16_t x = 0; x < EXPERTS; x++) {
            keys[x] = (struct expert_key){layer, x};
            rows[x] = rows_each;
        }
        visit(t, &(struct store_visit){.keys = keys, .rows = rows, .n = EXPERTS, .passing = true});
    }
}

/* Rows of a prompt take free slots, of which a layer gets its share, and move nobody out; they count a quarter. */
static void test_prompts_move_nobody_out(void **state)
{
    (void)state;
    enum { USED = 6, SLOTS = USED * LAYERS, SHARE = SLOTS / (LAYERS - 1) }; /* a token visits one layer less, the MTP layer's aside */
    struct streaming t = {.random = 19};
    struct expert_key keys[EXPERTS];
    open_model(&t.f, DEMO);
    open_store(&t, SLOTS, 4, 1);
    for (uint32_t round = 0; round < 3; round++) { /* an answer */
        for (uint16_t layer = FIRST; layer < FIRST + LAYERS; layer++) {
            for (uint16_t k = 0; k < USED; k++) {
                keys[k] = (struct expert_key){layer, (uint16_t)(10 * k + layer)};
            }
            visit(&t, &(struct store_visit){.keys = keys, .n = USED});
        }
    }
    uint64_t hits = count(&t, "expert.ram.hits");
    assert_int_equal(hits, 2 * SLOTS);
    visit_prompt(&t, 100);
    visit_prompt(&t, 100);
    assert_int_equal(count(&t, "expert.ram.admitted"), SLOTS);
    assert_int_equal(count(&t, "expert.ram.hits"), hits + 2 * SLOTS);
    store_destroy(t.store);

    open_store(&t, SLOTS, 4, 1); /* nobody is there */
    for (uint16_t x = 0; x < EXPERTS; x++) {
        keys[x] = (struct expert_key){FIRST, x};
    }
    uint64_t before = count(&t, "expert.ram.admitted");
    visit(&t, &(struct store_visit){.keys = keys, .n = EXPERTS, .passing = true});
    assert_int_equal(count(&t, "expert.ram.admitted") - before, SHARE);
    visit_prompt(&t, 1);
    assert_int_equal(count(&t, "expert.ram.admitted") - before, SLOTS);
    store_destroy(t.store);

    open_store(&t, 1, 4, 1);
    const struct expert_key a = {FIRST, 3}, b = {FIRST, 9};
    for (uint32_t i = 0; i < 3; i++) {
        visit(&t, &(struct store_visit){.keys = &a, .n = 1});
    }
    visit(&t, &(struct store_visit){.keys = &b, .rows = &(uint32_t){3}, .n = 1, .passing = true});
    visit(&t, &(struct store_visit){.keys = &b, .n = 1}); /* used 1 3/4 times, the other 3 times */
    hits = count(&t, "expert.ram.hits");
    visit(&t, &(struct store_visit){.keys = &a, .n = 1});
    assert_int_equal(count(&t, "expert.ram.hits"), hits + 1);
    store_destroy(t.store);
    close_model(&t.f);
}

/* What was popular is read before it is asked for, and stays. */
static void test_warm(void **state)
{
    (void)state;
    static float uses[LAYERS + FIRST][EXPERTS];
    struct streaming t = {.random = 17};
    open_model(&t.f, DEMO);
    open_store(&t, 12, 4, 1);
    struct expert_key keys[6] = {{2, 1}, {2, 7}, {2, 20}, {2, 21}, {2, 40}, {2, 63}};
    struct lease *l;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(begin(t.store, keys, 6, &l, NULL), 0);
        drain(&t, l, 6, 6);
    }
    store_uses(t.store, &uses[0][0]);
    assert_true(uses[2][1] > 2.9f && uses[2][1] < 3.0f && uses[2][1] == uses[2][63] && uses[2][2] == 0 && uses[6][1] == 0);
    store_destroy(t.store);

    open_store(&t, 12, 4, 1);
    assert_int_equal(store_warm(t.store, &uses[0][0], LAYERS + FIRST - 1, NULL), 0); /* the MTP layer has not been counted */
    uint64_t before = count(&t, "expert.ram.admitted");
    assert_int_equal(begin(t.store, keys, 6, &l, NULL), 0);
    drain(&t, l, 6, 6);
    assert_int_equal(count(&t, "expert.ram.admitted"), before); /* they stay already */
    assert_int_equal(begin(t.store, keys, 6, &l, NULL), 0);
    uint64_t hits = count(&t, "expert.ram.hits");
    drain(&t, l, 6, 6);
    assert_int_equal(count(&t, "expert.ram.hits"), hits + 6);
    store_destroy(t.store);
    close_model(&t.f);
}

/* What is read after the file was written to is no weight, wherever that was: the header may be another by now. */
static void test_changed_file(void **state)
{
    (void)state;
    struct streaming t = {.random = 17};
    open_copy(&t.f);
    open_store(&t, 5, 4, 1);
    const struct weight_ref *up = &t.f.weights->layers[3].experts[17].up;
    struct expert_key keys[] = {{3, 17}};
    struct expert_view views[1];
    struct error e = {0};
    struct lease *l;
    uint32_t n;
    struct timespec later[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = up->file->changed_ns / 1000000000 + 1}};
    assert_int_equal(utimensat(AT_FDCWD, up->file->path, later, 0), 0);
    assert_int_equal(begin(t.store, keys, 1, &l, &e), 0);
    assert_int_equal(store_next(l, NULL, views, 1, &n, &e), -ESTALE);
    assert_non_null(strstr(e.text, up->file->path));
    assert_non_null(strstr(e.text, "was changed while it is in use"));
    assert_non_null(strstr(e.text, "layer 3, expert 17"));
    store_end(l);
    store_destroy(t.store);
    close_copy(&t.f);
}

/* Damage is named when an expert is read for the first time, costs that lease alone, and never becomes weights. */
static void test_damaged_expert(void **state)
{
    (void)state;
    static const unsigned char code[] = {0xff}, sound[] = {0x12};
    struct streaming t = {.random = 13};
    open_copy(&t.f);
    open_store(&t, 5, 4, 1);
    const struct weight_ref *up = &t.f.weights->layers[3].experts[17].up, *last = &t.f.weights->layers[3].experts[18].down;
    overwrite(up->file->path, up->offset + 5 * up->cols + 40, code, 1);
    struct expert_key keys[] = {{3, 16}, {3, 17}};
    struct expert_view views[2];
    struct error e = {0};
    struct lease *l;
    uint32_t n;
    int r = begin(t.store, keys, 2, &l, &e);
    do {
        r = r < 0 ? r : store_next(l, NULL, views, 2, &n, &e);
    } while (r == 0 && n > 0);
    assert_int_equal(r, ERROR_FORMAT);
    assert_non_null(strstr(e.text, up->name));
    assert_non_null(strstr(e.text, "row 5, column 40"));
    store_end(l);
    overwrite(up->file->path, up->offset + 5 * up->cols + 40, sound, 1);
    assert_int_equal(begin(t.store, keys, 2, &l, &e), 0);
    drain(&t, l, 2, 2);

    struct expert_key gone[] = {{3, 18}};
    assert_int_equal(truncate(last->file->path, (off_t)(last->offset + last->bytes / 2)), 0);
    assert_int_equal(begin(t.store, gone, 1, &l, &e), 0);
    assert_int_equal(store_next(l, NULL, views, 1, &n, &e), -ENODATA);
    assert_non_null(strstr(e.text, last->file->path));
    assert_non_null(strstr(e.text, "layer 3, expert 18"));
    store_end(l);
    store_destroy(t.store);
    close_copy(&t.f);
}

/* A read that fails costs the lease that asks for it; one that is late keeps nobody else waiting. */
static void test_failed_and_late_reads(void **state)
{
    (void)state;
    struct streaming t = {0};
    open_model(&t.f, DEMO);
    const struct weight_ref *down = &t.f.weights->layers[2].experts[10].down, *gate = &t.f.weights->layers[2].experts[11].gate;
    const struct faulty_rule rules[] = {{FAULTY_FAIL, .file = down->file, .at = down->offset + 9, .status = -EIO, .times = 1},
                                        {FAULTY_LATE, .file = gate->file, .at = gate->offset, .times = 1}};
    const struct expert_key keys[] = {{2, 10}, {2, 11}, {2, 12}};
    struct expert_view views[4];
    struct reader *r;
    struct lease *l;
    struct error e = {0};
    uint32_t n;
    assert_int_equal(reader_faulty_create(&(struct reader_options){.depth = REQUESTS, .requests = REQUESTS}, rules, 2, &r, NULL), 0);
    open_store_with(&t, r, 5, 4, 1);
    assert_int_equal(begin(t.store, keys, 3, &l, &e), 0);
    assert_int_equal(store_next(l, NULL, views, 4, &n, &e), -EIO);
    assert_non_null(strstr(e.text, down->name));
    assert_non_null(strstr(e.text, "layer 2, expert 10"));
    store_end(l);
    assert_int_equal(begin(t.store, keys, 2, &l, &e), 0);
    assert_int_equal(store_next(l, NULL, views, 4, &n, &e), 0);
    assert_int_equal(n, 1);
    assert_int_equal(views[0].key.expert, 10);
    assert_expert(&t.f, &views[0]);
    reader_faulty_release(r);
    assert_int_equal(store_next(l, NULL, views, 4, &n, &e), 0);
    assert_int_equal(n, 1);
    assert_int_equal(views[0].key.expert, 11);
    assert_expert(&t.f, &views[0]);
    store_end(l);
    store_destroy(t.store);
    close_model(&t.f);
}

/* A hinted read that fails gives up its claim, however often the hint comes again before its visit is past. */
static void test_hints_that_fail(void **state)
{
    (void)state;
    struct streaming t = {0};
    open_model(&t.f, DEMO);
    const struct weight_ref *down = &t.f.weights->layers[2].experts[10].down;
    const struct faulty_rule rules[] = {{FAULTY_FAIL, .file = down->file, .at = down->offset + 9, .status = -EIO}};
    struct reader *r;
    struct lease *l;
    assert_int_equal(reader_faulty_create(&(struct reader_options){.depth = REQUESTS, .requests = REQUESTS}, rules, 1, &r, NULL), 0);
    open_store_with(&t, r, 5, 4, 1);
    assert_int_equal(begin(t.store, &(struct expert_key){1, 3}, 1, &l, NULL), 0);
    drain(&t, l, 1, 1);
    for (int i = 0; i < 1000; i++) { /* far more than there are slots */
        store_hint(t.store, &(struct prediction){{2, 10}, 0.9f, 1, HINT_LAYER}, 1);
    }
    assert_in_range(count(&t, "prefetch.wasted"), 999, 1000); /* the last one may not have come yet */
    assert_int_equal(begin(t.store, &(struct expert_key){2, 11}, 1, &l, NULL), 0);
    drain(&t, l, 1, 1);
    store_destroy(t.store);
    close_model(&t.f);
}

/* Of a lead, or of all: begun, useful, late, wasted, cancelled. Bytes go with them. */
static void assert_ahead(const struct streaming *t, uint32_t lead, const uint32_t want[AHEAD_OUTCOMES])
{
    const uint64_t each = 3 * 16384 + 3 * 2 * sizeof(float); /* bytes of an expert of the demo model */
    for (int o = 0; o < AHEAD_OUTCOMES; o++) {
        assert_int_equal(count(t, ahead_counter_name(lead, (enum ahead_outcome)o, false)), want[o]);
        assert_int_equal(count(t, ahead_counter_name(lead, (enum ahead_outcome)o, true)), want[o] * each);
    }
}

/* Every read that was begun for a hint comes to one end, counted by lead and layer. */
static void test_what_comes_of_hints(void **state)
{
    (void)state;
    enum { RULES = 4 };
    static const struct expert_key slow[RULES] = {{2, 10}, {3, 10}, {4, 10}, {5, 10}};
    struct faulty_rule rules[RULES];
    struct streaming t = {0};
    struct reader *r;
    struct lease *l;
    open_model(&t.f, DEMO);
    for (int i = 0; i < RULES; i++) { /* all but one come with their last matrix, or fail there; {3, 10} with its first */
        const struct expert_refs *x = &t.f.weights->layers[slow[i].layer].experts[slow[i].expert];
        const struct weight_ref *ref = i == 1 ? &x->gate : &x->down;
        rules[i] = (struct faulty_rule){i == 3 ? FAULTY_FAIL : FAULTY_LATE, .file = ref->file, .at = ref->offset, .status = i == 3 ? -EIO : 0, .times = 1};
    }
    assert_int_equal(reader_faulty_create(&(struct reader_options){.depth = 1, .requests = REQUESTS}, rules, RULES, &r, NULL), 0);
    open_store_with(&t, r, 5, 8, 1);
    const struct store_visit resident = {.keys = &(struct expert_key){1, 1}, .n = 1};
    for (int i = 0; i < 2; i++) { /* to be asked for without a read */
        visit(&t, &resident);
    }
    store_hint(t.store, &(struct prediction){{2, 4}, 0.9f, 1, HINT_START}, 1);
    visit(&t, &(struct store_visit){.keys = &(struct expert_key){2, 4}, .n = 1});
    assert_ahead(&t, HINT_START, (const uint32_t[]){1, 1, 0, 0, 0});

    store_hint(t.store, &(struct prediction){{2, 10}, 0.9f, 1, HINT_LAYER}, 1);
    assert_int_equal(begin(t.store, &(struct expert_key){2, 10}, 1, &l, NULL), 0);
    assert_ahead(&t, HINT_LAYER, (const uint32_t[]){1, 0, 1, 0, 0});
    reader_faulty_release(r);
    drain(&t, l, 1, 1);

    store_hint(t.store, (const struct prediction[]){{{3, 5}, 0.9f, 1, HINT_TOKEN}, {{5, 10}, 0.9f, 3, HINT_TOKEN}}, 2); /* nobody asks for the first, the other fails */
    for (int i = 0; i < 2; i++) {
        visit(&t, &resident);
    }
    assert_ahead(&t, HINT_TOKEN, (const uint32_t[]){2, 0, 0, 2, 0});

    store_hint(t.store, (const struct prediction[]){{{3, 10}, 0.9f, 1, HINT_LAYER}, {{3, 11}, 0.9f, 1, HINT_LAYER}}, 2); /* the second waits behind the first */
    for (int i = 0; i < 3; i++) {
        visit(&t, &resident);
    }
    assert_ahead(&t, HINT_LAYER, (const uint32_t[]){3, 0, 1, 0, 1});
    reader_faulty_release(r);
    visit(&t, &resident);
    assert_ahead(&t, HINT_LAYER, (const uint32_t[]){3, 0, 1, 0, 2});

    store_hint(t.store, &(struct prediction){{4, 10}, 0.9f, 1, HINT_CHUNK}, 1); /* asked for when it was given up, and comes all the same */
    for (int i = 0; i < 2; i++) {
        visit(&t, &resident);
    }
    assert_ahead(&t, HINT_CHUNK, (const uint32_t[]){1, 0, 0, 0, 0});
    assert_int_equal(begin(t.store, &(struct expert_key){4, 10}, 1, &l, NULL), 0);
    reader_faulty_release(r);
    drain(&t, l, 1, 1);
    assert_ahead(&t, HINT_CHUNK, (const uint32_t[]){1, 0, 1, 0, 0});
    assert_ahead(&t, HINT_LEADS, (const uint32_t[]){7, 1, 2, 2, 2});

    const struct ahead *a = store_ahead(t.store);
    assert_int_equal(a->cells[HINT_LAYER * a->layers + 2].n[AHEAD_LATE], 1);
    assert_int_equal(a->cells[HINT_LAYER * a->layers + 3].n[AHEAD_CANCELLED], 2);
    assert_int_equal(a->cells[HINT_TOKEN * a->layers + 5].n[AHEAD_WASTED], 1);
    store_destroy(t.store);
    close_model(&t.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store),          cmocka_unit_test(test_leases), cmocka_unit_test(test_any_part_stays), cmocka_unit_test(test_decisions_repeat),
        cmocka_unit_test(test_expected_experts_stay),
        cmocka_unit_test(test_two_leases),     cmocka_unit_test(test_hints),  cmocka_unit_test(test_damaged_expert), cmocka_unit_test(test_changed_file),
        cmocka_unit_test(test_warm),           cmocka_unit_test(test_prompts_move_nobody_out),
        cmocka_unit_test(test_failed_and_late_reads), cmocka_unit_test(test_hints_that_fail),
        cmocka_unit_test(test_what_comes_of_hints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
