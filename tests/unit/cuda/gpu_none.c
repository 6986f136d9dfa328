/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of the build without GPUs: none is found, none opens, nothing crashes. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "cuda/gpu.h"

static void has_no_devices(void **state)
{
    (void)state;
    struct gpu_device *d = NULL;
    struct error e = { 0 };
    assert_int_equal(gpu_count(), 0);
    assert_int_equal(gpu_open(0, &d, &e), -ENODEV);
    assert_null(d);
    assert_non_null(strstr(e.text, "--gpu none"));
    assert_null(gpu_device_ops(NULL));
}

static void answers_enodev(void **state)
{
    (void)state;
    struct gpu_stream *s = NULL;
    struct gpu_event *ev = NULL;
    struct gpu_buffer *b = NULL;
    struct gpu_info info;
    void *host = NULL;
    bool done = false;
    assert_int_equal(gpu_read_info(NULL, &info, NULL), -ENODEV);
    assert_int_equal(gpu_stream_create(NULL, &s, NULL), -ENODEV);
    assert_int_equal(gpu_stream_synchronise(NULL, NULL), -ENODEV);
    assert_int_equal(gpu_stream_wait_event(NULL, NULL), -ENODEV);
    assert_int_equal(gpu_event_create(NULL, &ev, NULL), -ENODEV);
    assert_int_equal(gpu_event_record(NULL, NULL), -ENODEV);
    assert_int_equal(gpu_event_done(NULL, &done), -ENODEV);
    assert_int_equal(gpu_buffer_create(NULL, 1, &b, NULL), -ENODEV);
    assert_int_equal(gpu_pinned_create(NULL, 1, &host, NULL), -ENODEV);
    assert_int_equal(gpu_upload(NULL, NULL, 0, NULL, 0), -ENODEV);
    assert_int_equal(gpu_download(NULL, NULL, NULL, 0, 0), -ENODEV);
    assert_int_equal(gpu_copy(NULL, NULL, 0, NULL, 0, 0), -ENODEV);
    assert_int_equal(gpu_buffer_bytes(NULL), 0);
    assert_null(gpu_buffer_address(NULL));
    assert_null(s);
    assert_null(ev);
    assert_null(b);
    assert_null(host);
    gpu_pinned_destroy(NULL, NULL);
    gpu_buffer_destroy(NULL);
    gpu_event_destroy(NULL);
    gpu_stream_destroy(NULL);
    gpu_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(has_no_devices), cmocka_unit_test(answers_enodev) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
