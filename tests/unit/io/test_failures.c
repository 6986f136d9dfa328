/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: every allocation and every read of opening, reading and writing fails once: an error, nothing lost, nothing leaked
 * (the sanitizer looks). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/container.h"
#include "io/gguf_write.h"
#include "io/reader.h"
#include "io/safetensors_write.h"
#include "tests/unit/base/fail.h"
#include "tests/unit/io/fault.h"
#include "tests/unit/io/io_test.h"

static const char *const models[] = {
    GOLDEN "/v3-fp8", GOLDEN "/v3-fp8/model-00002-of-000003.safetensors", GOLDEN "/v3-f32", GOLDEN "/gguf-q8_0-split",
    GOLDEN "/gguf-q4_0/model.gguf",
};

static void test_open_without_memory(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        for (int n = 1;; n++) {
            struct container *c = NULL;
            struct error e = {0};
            fail_allocation(n);
            int r = container_open(models[m], NULL, &c, &e);
            int happened = fail_happened();
            fail_allocation(0);
            if (r == 0) { /* shrinking a buffer may fail without harm */
                container_close(c);
            } else {
                check_error(&e, -ENOMEM, "out of memory", NULL);
                assert_null(c);
            }
            if (!happened) {
                break;
            }
            assert_true(n < 10000);
        }
    }
}

static void test_open_with_bad_disk(void **state)
{
    (void)state;
    static const int kinds[] = {EIO, FAULT_END};
    for (size_t m = 0; m < ARRAY_LEN(models) * 2; m++) {
        for (int n = 1;; n++) {
            struct container *c = NULL;
            struct error e = {0};
            fault_read(n, 1, kinds[m % 2]);
            int r = container_open(models[m / 2], NULL, &c, &e);
            int happened = fault_count();
            fault_read(0, 0, 0);
            if (r == 0) { /* looks at the kind of file and for joined parts may fail without harm */
                container_close(c);
            } else {
                assert_true(e.code == r && e.text[0] != '\0');
                check_error(&e, r, kinds[m % 2] == EIO ? "Input/output error" : "the file ends", NULL);
            }
            if (happened == 0) {
                assert_int_equal(r, 0);
                break;
            }
        }
    }
}

static int write_both(const char *folder, struct error *e)
{
    struct safetensors_writer *s = NULL;
    struct gguf_writer *g = NULL;
    int r = safetensors_writer_create(in(folder, "a.safetensors"), &s, e);
    r = r < 0 ? r : safetensors_writer_declare(s, "t", "U8", (uint64_t[]){3}, 1, e);
    r = r < 0 ? r : safetensors_writer_begin(s, e);
    r = r < 0 ? r : safetensors_writer_append(s, "abc", 3, e);
    r = r < 0 ? r : safetensors_writer_finish(s, false, e);
    safetensors_writer_destroy(s);
    r = r < 0 ? r : gguf_writer_create(in(folder, "a.gguf"), 64, &g, e);
    if (r == 0) {
        gguf_writer_string(g, "key", "value", 5);
        r = gguf_writer_tensor(g, "t", FORMAT_F32, (uint64_t[]){1}, 1, e);
    }
    r = r < 0 ? r : gguf_writer_begin(g, e);
    r = r < 0 ? r : gguf_writer_append(g, "abcd", 4, e);
    r = r < 0 ? r : gguf_writer_finish(g, false, e);
    gguf_writer_destroy(g);
    return r;
}

static void test_write_without_memory(void **state)
{
    for (int n = 1;; n++) {
        struct error e = {0};
        fail_allocation(n);
        int r = write_both(*state, &e);
        int happened = fail_happened();
        fail_allocation(0);
        assert_false(file_exists(in(*state, "a.safetensors.tmp")));
        assert_false(file_exists(in(*state, "a.gguf.tmp")));
        if (!happened) {
            assert_int_equal(r, 0);
            break;
        }
        check_error(&e, -ENOMEM, "out of memory", NULL);
    }
}

/* A failing allocation is no refusal of io_uring: it is told. */
static void test_reader_without_memory_or_threads(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        struct reader_options options = {.kind = (enum reader_kind)(round / 2), .depth = 4, .chunk = 1 << 20, .direct = true};
        bool memory = round % 2 == 0;
        for (int n = 1;; n++) {
            struct reader *r = NULL;
            struct error e = {0};
            memory ? fail_allocation(n) : fail_thread(n);
            int code = reader_create(&options, &r, &e);
            int happened = fail_happened();
            fail_allocation(0);
            fail_thread(0);
            if (!happened) {
                assert_int_equal(code, 0);
                reader_destroy(r);
                break;
            }
            assert_int_equal(code, memory ? -ENOMEM : -EAGAIN);
            assert_null(r);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_without_memory),
        cmocka_unit_test(test_open_with_bad_disk),
        cmocka_unit_test_setup_teardown(test_write_without_memory, folder_setup, folder_teardown),
        cmocka_unit_test(test_reader_without_memory_or_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
