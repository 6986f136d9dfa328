/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of error.h and log.h. */
#include "tests/unit/base/fail.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/log.h"

static void stores_code_and_text(void **state)
{
    (void)state;
    struct error e = { 0 };
    assert_int_equal(error_set(&e, ERROR_FORMAT, "a.gguf: %d", 7), ERROR_FORMAT);
    assert_int_equal(e.code, ERROR_FORMAT);
    assert_string_equal(e.text, "a.gguf: 7");
    assert_int_equal(error_set(NULL, -EIO, "x"), -EIO);
    assert_int_equal(error_set(&e, -EIO, "again %s", e.text), -EIO); /* may read what it replaces */
    assert_string_equal(e.text, "again a.gguf: 7");
}

static void prefixes(void **state)
{
    (void)state;
    struct error e = { 0 };
    error_set(&e, -EIO, "read failed");
    assert_int_equal(error_prefix(&e, ERROR_FORMAT, "tensor %s", "a"), -EIO);
    assert_string_equal(e.text, "tensor a: read failed");
    assert_int_equal(error_prefix(NULL, ERROR_FORMAT, "x"), ERROR_FORMAT);
    struct error empty = { 0 };
    assert_int_equal(error_prefix(&empty, ERROR_FORMAT, "x"), ERROR_FORMAT);
    assert_int_equal(empty.code, ERROR_FORMAT);
}

static void is_one_line_and_cut(void **state)
{
    (void)state;
    struct error e = { 0 };
    error_set(&e, ERROR_FORMAT, "name \"%s\"", "a\nb\x1b[31m");
    assert_string_equal(e.text, "name \"a?b?[31m\"");

    char big[4000];
    memset(big, 'x', sizeof(big));
    memcpy(big + sizeof(e.text) - 2, "\xC3\xA9", 3); /* two bytes, of which one fits */
    error_set(&e, ERROR_FORMAT, "%s", big);
    assert_int_equal(strlen(e.text), sizeof(e.text) - 2);
    for (int i = 0; i < 3; i++) {
        error_prefix(&e, ERROR_FORMAT, "%s", big);
    }
    assert_int_equal(strlen(e.text), sizeof(e.text) - 2);
}

static void nomem_and_exit_status(void **state)
{
    (void)state;
    struct error e = { 0 };
    assert_int_equal(error_nomem(&e, "kv cache", 4096), -ENOMEM);
    assert_string_equal(e.text, "out of memory: kv cache (4096 bytes)");
    assert_int_equal(error_exit_status(0), 0);
    assert_int_equal(error_exit_status(-EIO), 1);
    assert_int_equal(error_exit_status(ERROR_FORMAT), 1);
    assert_int_equal(error_exit_status(ERROR_USAGE), 2);
    assert_int_equal(error_exit_status(ERROR_DOES_NOT_FIT), 3);
    assert_int_equal(error_exit_status(ERROR_INTERRUPTED), 130);
}

struct sink {
    int lines;
    char last[2100];
};

static void sink_write(void *ctx, enum log_level level, const char *line)
{
    (void)level;
    struct sink *s = ctx;
    s->lines++;
    snprintf(s->last, sizeof(s->last), "%s", line);
}

static void log_levels(void **state)
{
    (void)state;
    struct sink s = { 0 };
    struct log l = { .level = LOG_NOTICE, .write = sink_write, .ctx = &s };
    log_print(&l, LOG_INFO, "not shown");
    assert_int_equal(s.lines, 0);
    log_print(&l, LOG_NOTICE, "shown %d\n", 1);
    assert_int_equal(s.lines, 1);
    assert_string_equal(s.last, "shown 1?");
    log_print(NULL, LOG_ERROR, "nowhere");
    char big[3000];
    memset(big, 'y', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    log_print(&l, LOG_ERROR, "%s", big);
    assert_int_equal(strlen(s.last), 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stores_code_and_text), cmocka_unit_test(prefixes),
        cmocka_unit_test(is_one_line_and_cut),  cmocka_unit_test(nomem_and_exit_status),
        cmocka_unit_test(log_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
