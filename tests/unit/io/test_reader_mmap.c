/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of what only mapped files can meet: cut while mapped, pages that do not come or are dropped before the copy, a copy that the system
 * refuses. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/reader.h"
#include "tests/unit/io/fault.h"
#include "tests/unit/io/io_test.h"

enum { BYTES = 300000, CUT = 100000, PAGE = 4096, TMPFS = 0x01021994 }; /* CUT is within a page */

struct fixture {
    char *folder;
    uint8_t *content, *data; /* [BYTES] */
    struct file file;
};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    folder_setup((void **)&x->folder);
    x->content = malloc(BYTES);
    x->data = calloc(1, BYTES);
    uint64_t seed = 3;
    for (size_t i = 0; i < BYTES; i++) {
        x->content[i] = (uint8_t)next_random(&seed);
    }
    write_bytes(in(x->folder, "data"), x->content, BYTES);
    assert_int_equal(file_open(in(x->folder, "data"), &x->file, NULL), 0);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    fault_hold(0);
    fault_read(0, 0, 0);
    file_close(&x->file);
    free(x->content);
    free(x->data);
    folder_teardown((void **)&x->folder);
    free(x);
    return 0;
}

static struct reader *create(void)
{
    struct reader *r;
    assert_int_equal(reader_create(&(struct reader_options){.kind = READER_MMAP, .depth = 1, .chunk = 1 << 20, .direct = true}, &r, NULL), 0);
    if (reader_refused(r, READER_KIND) != 0) {
        reader_destroy(r);
        skip();
    }
    return r;
}

static void submit(struct reader *r, const struct fixture *x)
{
    assert_int_equal(reader_submit(r, &(struct read_request){.file = &x->file, .bytes = BYTES, .data = x->data, .tag = 7}), 0);
}

static struct read_result collect(struct reader *r)
{
    struct read_result result;
    assert_int_equal(reader_collect(r, &result, -1), 1);
    return result;
}

/* The reader has the mapping and has not copied yet. */
static void test_cut_while_mapped(void **state)
{
    struct fixture *x = *state;
    struct reader *r = create();
    fault_read(0, 0, 0);
    fault_hold(1);
    submit(r, x);
    while (fault_holding() == 0) {
        usleep(100);
    }
    assert_int_equal(truncate(in(x->folder, "data"), CUT), 0);
    fault_hold(0);
    struct read_result result = collect(r);
    assert_int_equal(result.status, -ENODATA);
    assert_int_equal(result.file_offset, CUT);
    assert_int_equal(result.bytes, CUT);
    assert_memory_equal(x->data, x->content, CUT);
    reader_destroy(r);
}

static void test_cut_before(void **state)
{
    struct fixture *x = *state;
    struct reader *r = create();
    static const off_t sizes[] = {CUT, 4096, 0};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(truncate(in(x->folder, "data"), sizes[i]), 0);
        submit(r, x);
        struct read_result result = collect(r);
        assert_int_equal(result.status, -ENODATA);
        assert_int_equal(result.bytes, sizes[i]);
    }
    reader_destroy(r);
}

/* A page inside the file that the drive does not give. */
static void test_missing_page(void **state)
{
    struct fixture *x = *state;
    struct reader *r = create();
    fault_read(1, 1, EFAULT);
    submit(r, x);
    struct read_result result = collect(r);
    assert_int_equal(result.status, -EIO);
    assert_int_equal(result.file_offset, 0);
    submit(r, x);
    assert_int_equal(collect(r).status, 0);
    assert_memory_equal(x->data, x->content, BYTES);
    reader_destroy(r);
}

/* Pages of the file in the page cache. */
static size_t cached(const struct file *f)
{
    unsigned char there[BYTES / PAGE + 1];
    void *map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, f->fd, 0);
    size_t n = 0;
    assert_int_equal(mincore(map, BYTES, there), 0);
    for (size_t i = 0; i < sizeof there; i++) {
        n += there[i] & 1;
    }
    munmap(map, BYTES);
    return n;
}

static void drop(const struct file *f)
{
    for (int i = 0; cached(f) > 0 && i < 1000; i++) { /* what is on its way stays */
        posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
        usleep(1000);
    }
    assert_int_equal(cached(f), 0);
}

/* A page that is gone before it is copied - a neighbour's read dropped the one that both share - brings no others with it. */
static void test_nothing_beyond(void **state)
{
    struct fixture *x = *state;
    struct statfs fs;
    struct reader *r = create();
    if (fstatfs(x->file.fd, &fs) != 0 || fs.f_type == TMPFS) {
        reader_destroy(r);
        skip();
    }
    fsync(x->file.fd);
    fault_read(0, 0, 0);
    fault_hold(1);
    assert_int_equal(reader_submit(r, &(struct read_request){.file = &x->file, .offset = 32 * PAGE, .bytes = 4 * PAGE, .data = x->data, .tag = 7}), 0);
    while (fault_holding() == 0) {
        usleep(100);
    }
    drop(&x->file);
    fault_hold(0);
    assert_int_equal(collect(r).status, 0);
    assert_memory_equal(x->data, x->content + 32 * PAGE, 4 * PAGE);
    reader_destroy(r);
    assert_int_equal(cached(&x->file), 0);
}

/* A filter on system calls: pread threads take over, and the reason is known. */
static void test_copy_refused(void **state)
{
    struct fixture *x = *state;
    struct reader *r;
    fault_read(1, 1, EPERM);
    assert_int_equal(reader_create(&(struct reader_options){.kind = READER_MMAP, .depth = 2, .chunk = 1 << 20, .direct = true}, &r, NULL), 0);
    assert_int_equal(reader_refused(r, READER_KIND), EPERM);
    assert_string_equal(reader_name(r), "pread, O_DIRECT");
    submit(r, x);
    assert_int_equal(collect(r).status, 0);
    assert_memory_equal(x->data, x->content, BYTES);
    reader_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cut_while_mapped, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_before, setup, teardown),
        cmocka_unit_test_setup_teardown(test_missing_page, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_beyond, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
