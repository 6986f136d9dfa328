/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of the reader that brings no bytes: when reads end on its clock, in which order, and what it is told to end. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "io/reader_model.h"

enum { MB = 1000000, MS = 1000000 };

static const struct file nothing = {.path = (char *)"nothing", .fd = -1, .direct_fd = -1, .direct_align = 4096, .size = 1 << 30};

struct drive {
    struct clock_manual clock;
    struct reader *reader;
};

/* Chunks of 1 MB, 1 GB/s: one takes a millisecond. */
static void open_drive(struct drive *d, uint32_t depth, uint64_t latency_ns, uint64_t limit)
{
    struct error e = {0};
    const struct reader_options o = {.depth = depth, .requests = 64, .chunk = MB, .limit = limit};
    const struct drive_model m = {.rate = limit > 0 ? 0 : 1000 * MB, .latency_ns = latency_ns};
    d->clock.ns = 1000 * (uint64_t)MS;
    assert_int_equal(reader_model_create(&o, &m, &d->clock, &d->reader, &e), 0);
}

static void submit(struct reader *r, uint64_t tag, uint64_t megabytes, enum read_priority priority)
{
    /* Nobody writes there: the addresses only have to differ. */
    const struct read_request q = {.file = &nothing, .offset = tag * 16 * MB, .bytes = megabytes * MB, .data = (void *)(uintptr_t)(4096 + tag * 17 * MB), .tag = tag, .priority = priority};
    assert_int_equal(reader_submit(r, &q), 0);
}

/* Waits for the next; it comes after so many milliseconds. */
static void expect(struct drive *d, uint64_t tag, double after_ms, int status)
{
    struct read_result got;
    uint64_t since = d->clock.ns;
    assert_int_equal(reader_collect(d->reader, &got, -1), 1);
    assert_int_equal(got.tag, tag);
    assert_int_equal(got.status, status);
    assert_int_equal(d->clock.ns - since, (uint64_t)(after_ms * MS + 0.5));
}

static void expect_none(struct drive *d, int timeout_ms)
{
    struct read_result got;
    uint64_t since = d->clock.ns;
    assert_int_equal(reader_collect(d->reader, &got, timeout_ms), 0);
    assert_int_equal(d->clock.ns - since, (uint64_t)timeout_ms * MS);
}

static void test_bytes_go_over_one_line(void **state)
{
    struct drive d;
    (void)state;
    open_drive(&d, 8, 0, 0);
    submit(d.reader, 1, 3, READ_DEMAND);
    submit(d.reader, 2, 1, READ_DEMAND);
    expect_none(&d, 0);
    expect(&d, 1, 3, 0);
    expect(&d, 2, 1, 0);
    submit(d.reader, 3, 2, READ_DEMAND);
    expect_none(&d, 1);
    reader_model_pass(d.reader, 5 * MS); /* while nobody waits */
    expect(&d, 3, 0, 0);
    struct reader_load load = reader_load(d.reader);
    assert_int_equal(load.bytes, 6 * MB);
    assert_int_equal(load.demand_ns, 6 * MS);
    reader_destroy(d.reader);
}

static void test_depth_hides_latency(void **state)
{
    struct drive d;
    (void)state;
    open_drive(&d, 1, 2 * MS, 0);
    submit(d.reader, 1, 2, READ_DEMAND);
    expect(&d, 1, 6, 0);
    reader_destroy(d.reader);
    open_drive(&d, 2, 2 * MS, 0);
    submit(d.reader, 1, 4, READ_DEMAND);
    expect(&d, 1, 7, 0); /* chunks end at 3 and 4; then the next two begin, and end at 6 and 7 */
    reader_destroy(d.reader);
}

static void test_a_limit_lets_chunks_begin(void **state)
{
    struct drive d;
    (void)state;
    open_drive(&d, 8, 0, 100 * MB);
    submit(d.reader, 1, 3, READ_DEMAND);
    expect(&d, 1, 19, 0); /* at once but for the millisecond that idle time earns, after 9, after 19 */
    reader_destroy(d.reader);
}

static void test_who_waits_goes_first_and_guesses_are_given_up(void **state)
{
    struct drive d;
    (void)state;
    open_drive(&d, 2, 0, 0);
    submit(d.reader, 1, 4, READ_PREDICTED); /* one chunk at a time */
    submit(d.reader, 2, 2, READ_DEMAND);
    assert_int_equal(reader_cancel(d.reader, 1), 0);
    expect(&d, 1, 1, -ECANCELED); /* the chunk that had begun ends */
    expect(&d, 2, 2, 0);
    assert_int_equal(reader_cancel(d.reader, 1), -ENOENT);
    expect_none(&d, 0);
    reader_destroy(d.reader);
}

static void test_told(void **state)
{
    struct error e = {0};
    struct drive d = {{0}, NULL};
    struct read_result got;
    (void)state;
    assert_int_equal(reader_model_create_told(&(struct reader_options){.requests = 64}, &d.reader, &e), 0);
    for (uint64_t tag = 1; tag <= 40; tag++) {
        submit(d.reader, tag, 3, tag % 2 == 0 ? READ_DEMAND : READ_PREDICTED);
    }
    assert_int_equal(reader_cancel(d.reader, 7), -ENOENT); /* all are in flight */
    assert_int_equal(reader_collect(d.reader, &got, 100), 0);
    assert_int_equal(reader_model_finish(d.reader, 7 * 16 * MB, 9 * 16 * MB, 0), 2);
    assert_int_equal(reader_model_finish(d.reader, 3 * 16 * MB, 3 * 16 * MB + 1, -EIO), 1);
    assert_int_equal(reader_model_finish(d.reader, 3 * 16 * MB, 3 * 16 * MB + 1, 0), 0);
    uint64_t seen = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(reader_collect(d.reader, &got, 0), 1);
        assert_int_equal(got.status, got.tag == 3 ? -EIO : 0);
        assert_int_equal(got.bytes, got.tag == 3 ? 0 : 3 * MB);
        seen |= 1ull << got.tag;
    }
    assert_int_equal(seen, 1ull << 3 | 1ull << 7 | 1ull << 8);
    assert_int_equal(reader_collect(d.reader, &got, 0), 0);
    reader_destroy(d.reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_go_over_one_line),
        cmocka_unit_test(test_depth_hides_latency),
        cmocka_unit_test(test_a_limit_lets_chunks_begin),
        cmocka_unit_test(test_who_waits_goes_first_and_guesses_are_given_up),
        cmocka_unit_test(test_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
