/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of the reader that fails by rule: what it does is what its header says, so that other tests can rely on it. */
#include "tests/unit/io/reader_faulty.h"

#include <errno.h>
#include <stdlib.h>

#include "common/attr.h"
#include "tests/unit/io/io_test.h"

enum { UNIT = 4096, UNITS = 6 };

struct fixture {
    char *folder;
    struct file file;
    uint8_t *content, *data; /* [UNITS * UNIT] */
};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    folder_setup((void **)&x->folder);
    x->content = malloc(UNITS * UNIT);
    x->data = calloc(UNITS, UNIT);
    uint64_t seed = 5;
    for (size_t i = 0; i < UNITS * UNIT; i++) {
        x->content[i] = (uint8_t)next_random(&seed);
    }
    write_bytes(in(x->folder, "data"), x->content, UNITS * UNIT);
    assert_int_equal(file_open(in(x->folder, "data"), &x->file, NULL), 0);
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

static struct reader *create(const struct faulty_rule *rules, uint32_t n, uint32_t depth)
{
    struct reader *r;
    const struct reader_options o = {.depth = depth, .requests = UNITS};
    assert_int_equal(reader_faulty_create(&o, rules, n, &r, NULL), 0);
    return r;
}

/* Unit i with tag 100 + i. */
static int submit(struct reader *r, const struct fixture *x, uint64_t i)
{
    return reader_submit(r, &(struct read_request){.file = &x->file, .offset = i * UNIT, .bytes = UNIT, .data = x->data + i * UNIT, .tag = 100 + i});
}

static struct read_result collect(struct reader *r)
{
    struct read_result result;
    assert_int_equal(reader_collect(r, &result, -1), 1);
    return result;
}

static void check_unit(const struct fixture *x, struct read_result result, uint64_t unit, int status, uint64_t bytes)
{
    assert_int_equal(result.tag, 100 + unit);
    assert_int_equal(result.status, status);
    assert_int_equal(result.bytes, bytes);
    assert_int_equal(result.file_offset, unit * UNIT + (status < 0 ? bytes : 0));
    assert_memory_equal(x->data + unit * UNIT, x->content + unit * UNIT, bytes);
    for (uint64_t at = bytes; at < UNIT; at++) {
        assert_int_equal(x->data[unit * UNIT + at], 0xa5);
    }
}

static void test_failures(void **state)
{
    struct fixture *x = *state;
    const struct faulty_rule rules[] = {
        {FAULTY_FAIL, .file = &x->file, .at = UNIT + 100, .status = -EIO, .times = 1},
        {FAULTY_FAIL, .at = 3 * UNIT - 1, .status = -ENODATA, .skip = 1, .times = 2},
        {FAULTY_FAIL, .at = 3 * UNIT, .status = -ECANCELED},
        {FAULTY_FAIL, .file = &(struct file){0}, .at = 0, .status = -EIO},
    };
    struct reader *r = create(rules, ARRAY_LEN(rules), 2);
    for (int round = 0; round < 4; round++) {
        for (uint64_t i = 0; i < 4; i++) {
            assert_int_equal(submit(r, x, i), 0);
        }
        check_unit(x, collect(r), 0, 0, UNIT);
        check_unit(x, collect(r), 1, round == 0 ? -EIO : 0, round == 0 ? 100 : UNIT);
        bool hit = round == 1 || round == 2;
        check_unit(x, collect(r), 2, hit ? -ENODATA : 0, hit ? UNIT - 1 : UNIT);
        check_unit(x, collect(r), 3, -ECANCELED, 0);
    }
    reader_destroy(r);
}

/* Unit 0 is late; with one chunk in flight the others wait behind it and can be taken back. */
static void test_late(void **state)
{
    struct fixture *x = *state;
    const struct faulty_rule rule = {FAULTY_LATE, .at = 7, .times = 2};
    struct read_result result;
    struct reader *r = create(&rule, 1, 2);
    assert_int_equal(submit(r, x, 0), 0);
    assert_int_equal(submit(r, x, 1), 0);
    check_unit(x, collect(r), 1, 0, UNIT);
    assert_int_equal(reader_collect(r, &result, 0), 0);
    assert_int_equal(reader_collect(r, &result, 5), 0);
    assert_int_equal(reader_cancel(r, 100), -ENOENT);
    reader_faulty_release(r);
    check_unit(x, collect(r), 0, 0, UNIT);
    reader_destroy(r);

    r = create(&rule, 1, 1);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(submit(r, x, i), 0);
    }
    assert_int_equal(reader_cancel(r, 101), 0);
    result = collect(r);
    assert_int_equal(result.tag, 101);
    assert_int_equal(result.status, -ECANCELED);
    reader_faulty_release(r);
    check_unit(x, collect(r), 0, 0, UNIT);
    check_unit(x, collect(r), 2, 0, UNIT);
    assert_int_equal(reader_collect(r, &result, -1), 0); /* nothing will come */
    assert_int_equal(submit(r, x, 0), 0);
    reader_destroy(r); /* with one that is late */
}

/* For so many seconds of the clock; each must be sound. */
static void read_for(struct reader *r, const struct fixture *x, struct clock_manual *time, uint64_t rate, uint64_t tenths)
{
    uint64_t end = time->ns + tenths * 100000000;
    reader_faulty_pace(r, time, rate);
    while (time->ns < end) {
        assert_int_equal(submit(r, x, 1), 0);
        check_unit(x, collect(r), 1, 0, UNIT);
    }
}

/* A drive that is ten times slower for two seconds is reported once; one that is for a second, or that is half as fast, is not. */
static void test_slow_drive(void **state)
{
    struct fixture *x = *state;
    struct clock_manual time = {.ns = 1};
    struct reader *r;
    const struct reader_options o = {.depth = 1, .requests = UNITS, .clock = clock_manual_as_clock(&time)};
    assert_int_equal(reader_faulty_create(&o, NULL, 0, &r, NULL), 0);
    read_for(r, x, &time, 1000000, 30);
    read_for(r, x, &time, 550000, 30);
    read_for(r, x, &time, 100000, 8);
    read_for(r, x, &time, 1000000, 10);
    assert_int_equal(reader_slowness(r, 0).n, 0);
    read_for(r, x, &time, 100000, 20);
    read_for(r, x, &time, 1000000, 20);
    struct reader_slowness s = reader_slowness(r, 0);
    assert_int_equal(s.n, 1);
    assert_in_range((uint64_t)s.rate, 90000, 110000);
    assert_in_range((uint64_t)s.usual, 900000, 1100000);
    read_for(r, x, &time, 100000, 600); /* however long */
    assert_int_equal(reader_slowness(r, 0).n, 2);
    assert_int_equal(reader_slowness(r, 1).n, 0);
    reader_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_late, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slow_drive, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
