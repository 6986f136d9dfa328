/* SPDX-License-Identifier: Apache-2.0 */
/* Heat and cache decisions against a naive model that keeps all history and a list in the order of admission; calibration against
 * counts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "src/tier/calibrate.h"
#include "src/tier/evict.h"
#include "src/tier/heat.h"

enum { LAYERS = 3, EXPERTS = 12, KEYS = LAYERS * EXPERTS, VISITS = 600 };

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static struct expert_key key_of(uint32_t i) { return (struct expert_key){(uint16_t)(i / EXPERTS), (uint16_t)(i % EXPERTS)}; }
static uint32_t index_of(struct expert_key k) { return (uint32_t)k.layer * EXPERTS + k.expert; }

/* n distinct experts of a layer, low ones more often, in random order. */
static uint32_t draw(uint64_t *rng, uint32_t layer, uint32_t n, struct expert_key *keys)
{
    bool taken[EXPERTS] = {false};
    for (uint32_t i = 0; i < n;) {
        uint32_t x = min_u32(next_random(rng) % EXPERTS, next_random(rng) % EXPERTS);
        if (!taken[x]) {
            taken[x] = true;
            keys[i++] = (struct expert_key){(uint16_t)layer, (uint16_t)x};
        }
    }
    return n;
}

/* ---- heat ---- */

static double naive_heat(const uint64_t *uses, uint32_t n, uint64_t now, double half_life)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += exp2(-(double)(now - uses[i]) / half_life);
    }
    return sum;
}

static void test_heat_is_the_decayed_sum_of_uses(void **state)
{
    (void)state;
    static uint64_t uses[KEYS][VISITS];
    uint32_t n[KEYS] = {0};
    uint64_t rng = 1;
    struct heat h;
    assert_int_equal(heat_init(&h, LAYERS, EXPERTS, 7, NULL), 0);
    for (uint64_t now = 1; now <= VISITS * 40; now += 1 + next_random(&rng) % 80) { /* over several spans of 512 half-lives */
        uint32_t x = next_random(&rng) % KEYS;
        heat_advance(&h, now);
        if (n[x] < VISITS) {
            heat_use(&h, key_of(x), 1);
            uses[x][n[x]++] = now;
        }
        for (uint32_t i = 0; i < KEYS; i++) {
            double expected = naive_heat(uses[i], n[i], now, 7);
            assert_true(fabs(heat_value(&h, key_of(i)) - expected) <= 1e-12 * expected + 1e-150);
        }
    }
    heat_deinit(&h);
}

/* Used in every third visit for millions of them: the value is that of the geometric series, to the last digits, at the end too. */
static void test_heat_does_not_drift(void **state)
{
    (void)state;
    const struct expert_key key = {0, 1};
    struct heat h;
    assert_int_equal(heat_init(&h, 1, 2, 320, NULL), 0);
    double steady = 1 / heat_per_use(&h, 3);
    for (uint64_t visit = 1; visit < 6000000; visit += 3) {
        heat_advance(&h, visit);
        heat_use(&h, key, 1);
        if (visit > 20000) {
            double error = heat_value(&h, key) / steady - 1;
            assert_true(error < 1e-11 && error > -1e-11);
        }
    }
    heat_advance(&h, 6000000 + 320);
    assert_true(fabs(heat_value(&h, key) / steady - 0.5) < 0.01);
    heat_advance(&h, UINT64_C(1) << 60);
    assert_true(heat_value(&h, key) == 0);
    heat_use(&h, key, 1);
    assert_true(heat_value(&h, key) == 1);
    heat_clear(&h);
    assert_true(heat_value(&h, key) == 0 && h.now == 0);
    heat_deinit(&h);
}

static void test_equal_histories_are_exactly_equal(void **state)
{
    (void)state;
    struct heat h;
    uint64_t rng = 5;
    assert_int_equal(heat_init(&h, 1, 2, 3, NULL), 0);
    for (uint64_t visit = 1; visit < 100000; visit += 1 + next_random(&rng) % 9) {
        heat_advance(&h, visit);
        heat_use(&h, (struct expert_key){0, 0}, 1);
        heat_use(&h, (struct expert_key){0, 1}, 1);
        assert_true(heat_weight(&h, (struct expert_key){0, 0}) == heat_weight(&h, (struct expert_key){0, 1}));
    }
    heat_deinit(&h);
}

/* ---- decisions ---- */

/* Everything by history and lists. */
struct naive {
    enum evict_policy policy;
    uint32_t slots, cycle, half_life, n;
    uint32_t list[KEYS];                /* in the cache, in the order of admission */
    uint64_t uses[KEYS][VISITS];
    uint32_t n_uses[KEYS];
    uint64_t expected[KEYS];
    double chance[KEYS];
    uint64_t now;
};

/* Two numbers, compared one after the other. */
static void naive_worth(const struct naive *m, uint32_t x, double ret[2])
{
    double heat = naive_heat(m->uses[x], m->n_uses[x], m->now, m->half_life);
    bool ahead = m->expected[x] > m->now && m->chance[x] > 0;
    ret[0] = 0;
    if (m->policy == EVICT_ODDS) {
        double rate = heat * (1 - exp2(-(double)m->cycle / m->half_life));
        double distance = ahead ? (double)(m->expected[x] - m->now) / m->cycle : 1;
        ret[1] = ((ahead ? m->chance[x] : rate) + rate / 2) / (distance + 0.5);
    } else if (ahead) {
        ret[0] = 1;
        ret[1] = -(double)m->expected[x];
    } else {
        ret[1] = m->policy == EVICT_LFU ? heat : m->n_uses[x] > 0 ? (double)m->uses[x][m->n_uses[x] - 1] : 0;
    }
}

static bool naive_above(const double a[2], const double b[2]) { return a[0] != b[0] ? a[0] > b[0] : a[1] > b[1]; }

static uint32_t naive_find(const struct naive *m, uint32_t x)
{
    uint32_t i = 0;
    while (i < m->n && m->list[i] != x) {
        i++;
    }
    return i;
}

/* KEYS: nobody may leave. */
static uint32_t naive_victim(const struct naive *m)
{
    uint32_t victim = KEYS;
    for (uint32_t i = 0; i < m->n; i++) {
        uint32_t x = m->list[i];
        double a[2], b[2];
        if (m->n_uses[x] > 0 && m->uses[x][m->n_uses[x] - 1] == m->now) {
            continue;
        }
        naive_worth(m, x, a);
        if (victim == KEYS || (naive_worth(m, victim, b), naive_above(b, a))) {
            victim = x;
        }
    }
    return victim;
}

static void naive_remove(struct naive *m, uint32_t x)
{
    uint32_t i = naive_find(m, x);
    memmove(m->list + i, m->list + i + 1, (--m->n - i) * sizeof(m->list[0]));
}

/* Returns whether x is let in; *ret_victim: who left for it, or KEYS. */
static bool naive_admit(struct naive *m, uint32_t x, uint32_t *ret_victim)
{
    *ret_victim = KEYS;
    if (m->n == m->slots) {
        uint32_t victim = naive_victim(m);
        double a[2], b[2];
        if (victim == KEYS) {
            return false;
        }
        naive_worth(m, x, a);
        naive_worth(m, victim, b);
        b[1] *= m->policy == EVICT_ODDS ? 1.2 : 1;
        if (m->policy != EVICT_LRU && !naive_above(a, b)) {
            return false;
        }
        naive_remove(m, victim);
        *ret_victim = victim;
    }
    m->list[m->n++] = x;
    return true;
}

struct play {
    struct naive naive;
    struct heat heat;
    struct evict cache;
    uint32_t slot_of[KEYS]; /* by the answers so far */
    uint64_t rng;
};

static void check_same_contents(const struct play *p)
{
    bool taken[KEYS] = {false};
    uint32_t n = 0;
    for (uint32_t x = 0; x < KEYS; x++) {
        uint32_t slot = p->cache.entries[x].slot;
        assert_int_equal(slot, p->slot_of[x]);
        assert_int_equal(slot != EVICT_NO_SLOT, naive_find(&p->naive, x) < p->naive.n);
        if (slot != EVICT_NO_SLOT) {
            assert_true(slot < p->naive.slots && !taken[slot]);
            taken[slot] = true;
            n++;
        }
    }
    assert_int_equal(n, p->naive.n);
}

/* Expectations of the next cycle, some revised, some withdrawn, some for visits that are past. */
static void expect_some(struct play *p, bool fine)
{
    for (uint32_t i = next_random(&p->rng) % 6; i > 0; i--) {
        uint32_t x = next_random(&p->rng) % KEYS;
        float chance = fine ? (float)(next_random(&p->rng) % 1000) / 1000 : (float)(next_random(&p->rng) % 4 > 0);
        uint64_t at = p->naive.now + next_random(&p->rng) % (2 * LAYERS);
        evict_expect(&p->cache, key_of(x), at, chance);
        p->naive.expected[x] = at;
        p->naive.chance[x] = (double)chance;
    }
}

static void check_answer(struct play *p, struct expert_key key, const struct evict_answer *a)
{
    uint32_t victim, x = index_of(key);
    bool in = naive_admit(&p->naive, x, &victim);
    assert_int_equal(a->slot != EVICT_NO_SLOT, in);
    assert_int_equal(a->evicted, victim != KEYS);
    if (a->evicted) {
        assert_int_equal(index_of(a->victim), victim);
        assert_int_equal(a->slot, p->slot_of[victim]);
        p->slot_of[victim] = EVICT_NO_SLOT;
    }
    if (in) {
        p->slot_of[x] = a->slot;
    }
}

static void play_visit(struct play *p, uint64_t visit)
{
    struct expert_key keys[EXPERTS], missed[EXPERTS];
    struct evict_answer answers[EXPERTS];
    uint32_t slots[EXPERTS], n_missed = 0;
    uint32_t n = draw(&p->rng, (uint32_t)(visit % LAYERS), 1 + next_random(&p->rng) % 5, keys);
    p->naive.now = visit;
    heat_advance(&p->heat, visit);
    evict_visit(&p->cache, visit, keys, n, slots);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t x = index_of(keys[i]);
        assert_int_equal(slots[i], p->slot_of[x]);
        heat_use(&p->heat, keys[i], 1);
        p->naive.uses[x][p->naive.n_uses[x]++] = visit;
        if (slots[i] == EVICT_NO_SLOT) {
            missed[n_missed++] = keys[i];
        }
    }
    expect_some(p, p->naive.policy == EVICT_ODDS);
    evict_admit(&p->cache, missed, n_missed, answers);
    for (uint32_t i = 0; i < n_missed; i++) {
        check_answer(p, missed[i], &answers[i]);
    }
    if (p->naive.n > 0 && next_random(&p->rng) % 16 == 0) { /* a read failed */
        uint32_t x = p->naive.list[next_random(&p->rng) % p->naive.n];
        evict_drop(&p->cache, key_of(x));
        naive_remove(&p->naive, x);
        p->slot_of[x] = EVICT_NO_SLOT;
    }
    check_same_contents(p);
}

static void play(enum evict_policy policy, uint32_t slots, uint32_t half_life, uint64_t seed)
{
    static struct play p;
    memset(&p, 0, sizeof(p));
    p.rng = seed;
    p.naive.policy = policy;
    p.naive.slots = slots;
    p.naive.cycle = LAYERS;
    p.naive.half_life = half_life;
    memset(p.slot_of, 0xff, sizeof(p.slot_of));
    assert_int_equal(heat_init(&p.heat, LAYERS, EXPERTS, half_life, NULL), 0);
    struct evict_options o = {.policy = policy, .slots = slots, .layers = LAYERS, .experts = EXPERTS, .cycle = LAYERS, .heat = &p.heat};
    assert_int_equal(evict_init(&p.cache, &o, NULL), 0);
    for (uint64_t visit = 1; visit < VISITS; visit++) {
        play_visit(&p, visit);
    }
    evict_deinit(&p.cache);
    heat_deinit(&p.heat);
}

static void test_decisions_are_those_of_the_naive_model(void **state)
{
    (void)state;
    const uint32_t slots[] = {0, 1, 2, 5, 11, 20, KEYS - 1, KEYS};
    const enum evict_policy policies[] = {EVICT_LRU, EVICT_LFU, EVICT_ODDS};
    for (uint32_t i = 0; i < ARRAY_LEN(policies); i++) {
        for (uint32_t k = 0; k < ARRAY_LEN(slots); k++) {
            for (uint64_t seed = 0; seed < 4; seed++) {
                play(policies[i], slots[k], seed % 2 == 0 ? 37 : 5, seed + 100 * k);
            }
        }
    }
}

/* Slots are taken from 0 up, then those of who leaves; a second run after a clear gives the same numbers. */
static void test_slots_are_numbered_and_clear_starts_again(void **state)
{
    (void)state;
    const struct expert_key first[] = {{0, 3}, {0, 1}}, second[] = {{1, 0}};
    struct evict_options o = {.policy = EVICT_LRU, .slots = 2, .layers = 2, .experts = 4, .cycle = 2};
    struct evict c;
    struct evict_answer a[2];
    uint32_t slots[2];
    assert_int_equal(evict_init(&c, &o, NULL), 0);
    for (int run = 0; run < 2; run++) {
        evict_visit(&c, 1, first, 2, slots);
        assert_true(slots[0] == EVICT_NO_SLOT && slots[1] == EVICT_NO_SLOT);
        evict_admit(&c, first, 2, a);
        assert_true(a[0].slot == 0 && a[1].slot == 1 && !a[0].evicted && !a[1].evicted);
        evict_visit(&c, 2, second, 1, slots);
        evict_admit(&c, second, 1, a);
        assert_true(a[0].slot == 0 && a[0].evicted && a[0].victim.expert == 3);
        evict_clear(&c);
    }
    evict_deinit(&c);
}

/* ---- calibration ---- */

/* A set that names 2 of 8, right in three of four cases: the chance is that share once enough is seen. */
static void test_chance_is_the_share_that_came_true(void **state)
{
    (void)state;
    struct calibration c;
    uint64_t rng = 9;
    uint32_t named_used = 0;
    const uint32_t rounds = 4000;
    assert_int_equal(calibration_init(&c, 1, 8, 2, NULL), 0);
    for (uint32_t i = 0; i < rounds; i++) {
        uint16_t a = (uint16_t)(next_random(&rng) % 8), b = (uint16_t)((a + 1 + next_random(&rng) % 7) % 8);
        uint16_t set[] = {a, b}, used[] = {a, b};
        if (next_random(&rng) % 4 == 0) {
            used[0] = (uint16_t)((b + 1 + (a == (b + 1) % 8)) % 8); /* neither a nor b */
        }
        named_used += 1 + (used[0] == a);
        calibration_set(&c, 0, set, 2);
        calibration_outcome(&c, 0, used, 2);
    }
    uint16_t set[] = {3, 5};
    double rate = 2.0 / 8, share = named_used / (2.0 * rounds);
    assert_true(fabs(calibration_chance(&c, (struct expert_key){0, 3}, rate) - rate) < 1e-12); /* no set: the rate */
    calibration_set(&c, 0, set, 2);
    assert_true(fabs(calibration_chance(&c, (struct expert_key){0, 3}, rate) - share) < 0.01);
    assert_true(fabs(calibration_chance(&c, (struct expert_key){0, 4}, rate) - (1 - share) * 2 / 6) < 0.01);
    for (double r = -1; r <= 3; r += 0.25) { /* whatever the rate */
        double p = calibration_chance(&c, (struct expert_key){0, 3}, r);
        assert_true(p > 0 && p < 1);
    }
    calibration_forget_sets(&c);
    assert_true(fabs(calibration_chance(&c, (struct expert_key){0, 3}, rate) - rate) < 1e-12);
    calibration_deinit(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heat_is_the_decayed_sum_of_uses),
        cmocka_unit_test(test_heat_does_not_drift),
        cmocka_unit_test(test_equal_histories_are_exactly_equal),
        cmocka_unit_test(test_decisions_are_those_of_the_naive_model),
        cmocka_unit_test(test_slots_are_numbered_and_clear_starts_again),
        cmocka_unit_test(test_chance_is_the_share_that_came_true),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
