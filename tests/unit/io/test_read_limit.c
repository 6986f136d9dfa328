/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of the limit of bytes per second, with a clock that moves only when told: the budget, which chunk it lets begin, and
 * readers of every kind under it. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/attr.h"
#include "io/read_queue.h"
#include "tests/unit/io/io_test.h"

enum { UNIT = 64 << 10, MS = 1000000, SECOND = 1000000000 };

static void test_budget(void **state)
{
    (void)state;
    struct clock_manual time = {.ns = SECOND};
    struct read_rate r = {.limit = 1000, .clock = clock_manual_as_clock(&time)};
    assert_int_equal(read_rate_wait_ns(&r), 0);
    read_rate_take(&r, 501);
    assert_int_equal(read_rate_wait_ns(&r), 500 * MS); /* 501 ms, of which the millisecond before is paid */
    time.ns += 200 * MS;
    assert_int_equal(read_rate_wait_ns(&r), 300 * MS);
    time.ns += 300 * MS;
    assert_int_equal(read_rate_wait_ns(&r), 0);
    read_rate_take(&r, 1000);
    read_rate_take(&r, 1000); /* debts add up */
    assert_int_equal(read_rate_wait_ns(&r), 2000ll * MS);
    time.ns += 60ull * SECOND; /* a pause earns a millisecond, no more */
    read_rate_take(&r, 1000);
    assert_int_equal(read_rate_wait_ns(&r), 999 * MS);
    struct read_rate none = {0};
    read_rate_take(&none, 1ull << 32);
    assert_int_equal(read_rate_wait_ns(&none), 0);
}

/* Over any time, no more than the limit and one chunk. */
static void test_rate_of_many(void **state)
{
    (void)state;
    struct clock_manual time = {.ns = SECOND};
    struct read_rate r = {.limit = 500ull << 20, .clock = clock_manual_as_clock(&time)};
    uint64_t bytes = 0, start = time.ns;
    while (time.ns - start < SECOND) {
        uint64_t wait = read_rate_wait_ns(&r);
        time.ns += wait + (wait > 0 ? 50000 : 0); /* wake-ups are late */
        read_rate_take(&r, 1 << 20);
        bytes += 1 << 20;
    }
    assert_in_range(bytes, 499ull << 20, 502ull << 20);
}

/* What waits is chosen when the limit lets a chunk begin, so a demand that came meanwhile goes first. */
static void test_demand_first(void **state)
{
    (void)state;
    static const struct file file = {.fd = -1, .direct_fd = -1, .size = 100 * UNIT, .direct_align = 4096};
    static char data[8 * UNIT];
    struct clock_manual time = {.ns = SECOND};
    struct reader_options o = {.depth = 10, .requests = 10, .chunk = UNIT, .limit = UNIT, .clock = clock_manual_as_clock(&time)};
    struct read_queue q;
    uint64_t wait;
    assert_int_equal(read_queue_init(&q, &o, NULL), 0);
    static const enum read_priority order[] = {READ_PREDICTED, READ_PREDICTED, READ_DEMAND};
    static const uint64_t expected[] = {0, 2, 0, 1, 1};
    for (uint64_t i = 0; i < ARRAY_LEN(expected); i++) {
        if (i < 2) { /* the second predicted one and the demand come while the first chunk is paid for */
            assert_int_equal(read_queue_submit(&q, &(struct read_request){.file = &file, .offset = 10 * i * UNIT, .bytes = 2 * UNIT, .data = data + 2 * i * UNIT, .tag = i, .priority = order[i]}), 0);
        }
        if (i == 1) {
            assert_int_equal(read_queue_submit(&q, &(struct read_request){.file = &file, .offset = 50 * UNIT, .bytes = UNIT, .data = data + 6 * UNIT, .tag = 2, .priority = order[2]}), 0);
            assert_null(read_queue_take(&q, false, &wait));
            assert_int_equal(wait, SECOND - MS);
        }
        time.ns += i > 0 ? SECOND : 0;
        struct read_flight *f = read_queue_take(&q, false, &wait);
        assert_non_null(f);
        assert_int_equal(f->slot->request.tag, expected[i]);
    }
    assert_null(read_queue_take(&q, false, &wait));
    assert_int_equal(wait, 0); /* nothing is left */
    read_queue_deinit(&q);
}

/* What one reader takes the other one waits for. */
static void test_one_budget_for_two(void **state)
{
    (void)state;
    static const struct file file = {.fd = -1, .direct_fd = -1, .size = 100 * UNIT, .direct_align = 4096};
    static char data[8 * UNIT];
    struct clock_manual time = {.ns = SECOND};
    struct read_rate budget = {.limit = UNIT, .clock = clock_manual_as_clock(&time)};
    struct reader_options o = {.depth = 4, .requests = 4, .chunk = UNIT, .budget = &budget};
    struct read_queue q[2];
    uint64_t wait;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(read_queue_init(&q[i], &o, NULL), 0);
        assert_int_equal(read_queue_submit(&q[i], &(struct read_request){.file = &file, .bytes = 4 * UNIT, .data = data + 4 * i * UNIT, .tag = 1}), 0);
    }
    for (int i = 0; i < 8; i++) {
        assert_non_null(read_queue_take(&q[i % 2], false, &wait));
        assert_null(read_queue_take(&q[1 - i % 2], false, &wait));
        assert_int_equal(wait, i < 7 ? SECOND - MS : 0); /* the last one has nothing left */
        time.ns += SECOND;
    }
    read_queue_deinit(&q[0]);
    read_queue_deinit(&q[1]);
}

/* Guesses keep to half of the flights; who waits takes the others at once. */
static void test_half_for_guesses(void **state)
{
    (void)state;
    static const struct file file = {.fd = -1, .direct_fd = -1, .size = 100 * UNIT, .direct_align = 4096};
    static char data[12 * UNIT];
    struct reader_options o = {.depth = 4, .requests = 8, .chunk = UNIT};
    struct read_queue q;
    uint64_t wait;
    assert_int_equal(read_queue_init(&q, &o, NULL), 0);
    for (uint64_t i = 0; i < 2; i++) {
        enum read_priority priority = i == 0 ? READ_PREDICTED : READ_DEMAND;
        assert_int_equal(read_queue_submit(&q, &(struct read_request){.file = &file, .offset = 20 * i * UNIT, .bytes = 4 * UNIT, .data = data + 4 * i * UNIT, .tag = i, .priority = priority}), 0);
        struct read_flight *f;
        uint32_t n = 0;
        while ((f = read_queue_take(&q, false, &wait)) != NULL) {
            assert_int_equal(f->slot->request.tag, i);
            n++;
        }
        assert_int_equal(n, 2);
    }
    read_queue_deinit(&q);
}

/* ---- readers ---- */

struct fixture {
    char *folder;
    struct file file;
    _Atomic uint64_t ns; /* threads look at it */
    uint8_t *content, *data; /* [4 * UNIT] */
};

static uint64_t read_time(void *ctx) { return atomic_load((_Atomic uint64_t *)ctx); }

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    folder_setup((void **)&x->folder);
    x->content = malloc(4 * UNIT);
    x->data = calloc(4, UNIT);
    uint64_t seed = 9;
    for (size_t i = 0; i < 4 * UNIT; i++) {
        x->content[i] = (uint8_t)next_random(&seed);
    }
    write_bytes(in(x->folder, "data"), x->content, 4 * UNIT);
    assert_int_equal(file_open(in(x->folder, "data"), &x->file, NULL), 0);
    x->ns = SECOND;
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    file_close(&x->file);
    free(x->content);
    free(x->data);
    folder_teardown((void **)&x->folder);
    free(x);
    return 0;
}

/* A chunk in ten milliseconds by the manual clock: while it stands, the second chunk waits, however long that is. */
static void check_kind(struct fixture *x, enum reader_kind kind)
{
    struct reader_options o = {.kind = kind, .depth = 4, .chunk = UNIT, .limit = 100 * UNIT, .clock = {read_time, &x->ns}, .apart = true};
    struct reader *r;
    struct read_result result;
    assert_int_equal(reader_create(&o, &r, NULL), 0);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(reader_submit(r, &(struct read_request){.file = &x->file, .offset = i * UNIT, .bytes = UNIT, .data = x->data + i * UNIT, .tag = i}), 0);
    }
    assert_int_equal(reader_collect(r, &result, -1), 1);
    assert_int_equal(result.tag, 0);
    x->ns += 10 * MS;
    assert_int_equal(reader_collect(r, &result, -1), 1);
    assert_int_equal(result.tag, 1);
    assert_int_equal(reader_collect(r, &result, 0), 0);
    assert_int_equal(reader_cancel(r, 2), 0); /* has not begun */
    assert_int_equal(reader_collect(r, &result, -1), 1);
    assert_int_equal(result.tag, 2);
    assert_int_equal(result.status, -ECANCELED);
    assert_int_equal(reader_collect(r, &result, 10), 0);
    assert_memory_equal(x->data, x->content, 2 * UNIT);
    reader_destroy(r); /* with one that waits */
}

static void test_readers(void **state)
{
    for (enum reader_kind kind = READER_URING; kind <= READER_MMAP; kind++) {
        check_kind(*state, kind);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_rate_of_many),
        cmocka_unit_test(test_demand_first),
        cmocka_unit_test(test_one_budget_for_two),
        cmocka_unit_test(test_half_for_guesses),
        cmocka_unit_test_setup_teardown(test_readers, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
