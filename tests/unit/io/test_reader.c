/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of the reader contract: bytes, edges, faults, order of life. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/reader.h"
#include "tests/unit/io/fault.h"
#include "tests/unit/io/io_test.h"

enum { FILE_BYTES = 3 * 1024 * 1024 + 777, GUARD = 64, TMPFS = 0x01021994 };

struct fixture {
    char *folder;
    uint8_t *content; /* [FILE_BYTES] */
    struct file file;
};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    folder_setup((void **)&x->folder);
    x->content = malloc(FILE_BYTES);
    uint64_t seed = 1;
    for (size_t i = 0; i < FILE_BYTES; i++) {
        x->content[i] = (uint8_t)next_random(&seed);
    }
    write_bytes(in(x->folder, "data"), x->content, FILE_BYTES);
    assert_int_equal(file_open(in(x->folder, "data"), &x->file, NULL), 0);
    fsync(x->file.fd);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    fault_pread(0, 0, 0);
    file_close(&x->file);
    free(x->content);
    folder_teardown((void **)&x->folder);
    free(x);
    return 0;
}

static struct reader *create(uint32_t depth, uint64_t chunk, bool direct)
{
    struct reader *r;
    struct error e = {0};
    if (reader_create(&(struct reader_options){.depth = depth, .chunk = chunk, .direct = direct}, &r, &e) < 0) {
        fail_msg("%s", e.text);
    }
    return r;
}

static struct read_result read_one(struct reader *r, const struct file *f, uint64_t offset, uint64_t bytes, void *data)
{
    struct read_result result;
    assert_int_equal(reader_submit(r, &(struct read_request){.file = f, .offset = offset, .bytes = bytes, .data = data, .tag = 7}), 0);
    assert_int_equal(reader_collect(r, &result, -1), 1);
    assert_int_equal(result.tag, 7);
    return result;
}

/* Many requests at once, at odd places, into odd addresses: the right bytes and not one more. */
static void check_bytes(struct fixture *x, uint32_t depth, uint64_t chunk, bool direct)
{
    struct reader *r = create(depth, chunk, direct);
    struct read_request *q = calloc(depth, sizeof *q);
    uint8_t **buffers = calloc(depth, sizeof *buffers);
    uint64_t seed = depth * 31 + chunk;
    for (int round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < depth; i++) {
            uint64_t bytes = next_random(&seed) % (i % 3 == 0 ? 600000 : 9000);
            uint64_t offset = i % 4 == 0 ? FILE_BYTES - bytes : next_random(&seed) % (FILE_BYTES - bytes);
            uint64_t skew = i % 2 == 0 ? offset % 4096 : next_random(&seed) % 4096; /* in step with the file, or not */
            buffers[i] = aligned_alloc(4096, (size_t)(bytes + skew + 2 * GUARD + 8191) / 4096 * 4096);
            memset(buffers[i], 0xa5, (size_t)(bytes + skew + 2 * GUARD));
            q[i] = (struct read_request){.file = &x->file, .offset = offset, .bytes = bytes, .data = buffers[i] + skew, .tag = i};
            assert_int_equal(reader_submit(r, &q[i]), 0);
        }
        assert_int_equal(reader_submit(r, &q[0]), -EAGAIN);
        for (uint32_t n = 0; n < depth; n++) {
            struct read_result result;
            assert_int_equal(reader_collect(r, &result, -1), 1);
            const struct read_request *done = &q[result.tag];
            const uint8_t *data = done->data;
            assert_int_equal(result.status, 0);
            assert_int_equal(result.bytes, done->bytes);
            assert_memory_equal(data, x->content + done->offset, (size_t)done->bytes);
            for (size_t g = 0; g < GUARD; g++) {
                assert_int_equal(data[done->bytes + g], 0xa5);
                assert_true(data - g - 1 < buffers[result.tag] || data[-(ptrdiff_t)g - 1] == 0xa5);
            }
            free(buffers[result.tag]);
        }
    }
    free(q);
    free(buffers);
    reader_destroy(r);
}

static void test_bytes(void **state)
{
    static const uint32_t depths[] = {1, 3, 64};
    static const uint64_t chunks[] = {1, 128 << 10, 8 << 20};
    for (size_t d = 0; d < ARRAY_LEN(depths); d++) {
        for (size_t c = 0; c < ARRAY_LEN(chunks); c++) {
            check_bytes(*state, depths[d], chunks[c], false);
            check_bytes(*state, depths[d], chunks[c], true);
        }
    }
}

static void test_edges(void **state)
{
    struct fixture *x = *state;
    uint8_t data[64];
    for (int direct = 0; direct < 2; direct++) {
        struct reader *r = create(2, 1 << 20, direct);
        struct read_result result;
        assert_int_equal(reader_collect(r, &result, 0), 0);
        assert_int_equal(reader_collect(r, &result, 20), 0);
        result = read_one(r, &x->file, 5, 0, data);
        assert_int_equal(result.status, 0);
        result = read_one(r, &x->file, FILE_BYTES - 1, 1, data);
        assert_int_equal(result.status, 0);
        assert_int_equal(data[0], x->content[FILE_BYTES - 1]);
        result = read_one(r, &x->file, FILE_BYTES - 10, 20, data);
        assert_int_equal(result.status, -ENODATA);
        assert_int_equal(result.file_offset, FILE_BYTES);
        assert_int_equal(result.bytes, 10);
        result = read_one(r, &x->file, FILE_BYTES + 100000, 20, data);
        assert_int_equal(result.status, -ENODATA);
        assert_int_equal(result.bytes, 0);
        result = read_one(r, &x->file, 100, 64, data);
        assert_int_equal(result.status, 0);
        assert_memory_equal(data, x->content + 100, 64);
        reader_destroy(r);
    }
    reader_destroy(NULL);
}

static void test_options(void **state)
{
    (void)state;
    struct reader *r;
    struct error e = {0};
    assert_int_equal(reader_create(&(struct reader_options){.depth = 0, .chunk = 1}, &r, &e), ERROR_USAGE);
    assert_int_equal(reader_create(&(struct reader_options){.depth = 257, .chunk = 1}, &r, &e), ERROR_USAGE);
    assert_int_equal(reader_create(&(struct reader_options){.depth = 1, .chunk = 0}, &r, &e), ERROR_USAGE);
    check_error(&e, ERROR_USAGE, "chunk 0", NULL);
    r = create(1, 1, false);
    assert_string_equal(reader_name(r), "pread, buffered");
    reader_destroy(r);
    r = create(256, 1, true);
    assert_string_equal(reader_name(r), "pread, O_DIRECT");
    reader_destroy(r);
}

static void test_destroy_in_flight(void **state)
{
    struct fixture *x = *state;
    uint8_t *data = malloc(FILE_BYTES);
    struct reader *r = create(8, 64 << 10, false);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(reader_submit(r, &(struct read_request){.file = &x->file, .bytes = FILE_BYTES / 8, .data = data + i * (FILE_BYTES / 8)}), 0);
    }
    reader_destroy(r);
    free(data);
}

/* The n-th read fails: the request says so, with the place; the next request is served. */
static void test_device_error(void **state)
{
    struct fixture *x = *state;
    uint8_t *data = malloc(FILE_BYTES);
    struct reader *r = create(1, 64 << 10, false);
    fault_pread(5, 1, EIO);
    struct read_result result = read_one(r, &x->file, 100, FILE_BYTES - 100, data);
    assert_int_equal(fault_count(), 1);
    assert_int_equal(result.status, -EIO);
    assert_int_equal(result.file_offset, 4 * (64 << 10));
    assert_int_equal(result.bytes, 4 * (64 << 10) - 100);
    result = read_one(r, &x->file, 100, FILE_BYTES - 100, data);
    assert_int_equal(result.status, 0);
    assert_memory_equal(data, x->content + 100, FILE_BYTES - 100);
    fault_pread(1, 1, EAGAIN);
    assert_int_equal(read_one(r, &x->file, 0, 10, data).status, -EAGAIN);
    reader_destroy(r);
    /* Several threads, several requests: one fails, the others are whole. */
    r = create(4, 64 << 10, false);
    fault_pread(20, 1, EIO);
    int failed = 0;
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(reader_submit(r, &(struct read_request){.file = &x->file, .offset = i, .bytes = 700000, .data = data + i * 700000, .tag = i}), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(reader_collect(r, &result, -1), 1);
        failed += result.status == -EIO;
        assert_true(result.status == -EIO || memcmp(data + result.tag * 700000, x->content + result.tag, 700000) == 0);
    }
    assert_int_equal(failed, 1);
    reader_destroy(r);
    free(data);
}

static void test_interrupted_and_short(void **state)
{
    struct fixture *x = *state;
    uint8_t *data = malloc(FILE_BYTES);
    static const int kinds[] = {EINTR, FAULT_SHORT};
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        for (int direct = 0; direct < 2; direct++) {
            struct reader *r = create(3, 256 << 10, direct);
            fault_pread(2, 9, kinds[k]);
            memset(data, 0, FILE_BYTES);
            struct read_result result = read_one(r, &x->file, 1, FILE_BYTES - 1, data);
            assert_true(fault_count() > 0);
            assert_int_equal(result.status, 0);
            assert_memory_equal(data, x->content + 1, FILE_BYTES - 1);
            reader_destroy(r);
        }
    }
    struct reader *r = create(1, 1 << 20, false);
    fault_pread(1, 1, FAULT_END);
    assert_int_equal(read_one(r, &x->file, 0, 10, data).status, -ENODATA);
    reader_destroy(r);
    free(data);
}

/* O_DIRECT was allowed at open and is refused at the read: buffered from then on, and said so. */
static void test_direct_refused(void **state)
{
    struct fixture *x = *state;
    if (x->file.direct_fd < 0) {
        skip();
    }
    uint8_t *data = malloc(FILE_BYTES);
    struct reader *r = create(1, 1 << 20, true);
    assert_int_equal(reader_direct_refused(r), 0);
    fault_pread(1, 1, EINVAL);
    struct read_result result = read_one(r, &x->file, 0, FILE_BYTES, data);
    assert_int_equal(result.status, 0);
    assert_memory_equal(data, x->content, FILE_BYTES);
    assert_int_equal(reader_direct_refused(r), EINVAL);
    assert_string_equal(reader_name(r), "pread, buffered (O_DIRECT refused by the file system)");
    reader_destroy(r);
    free(data);
}

/* Share of the file in the page cache, per cent. */
static int cached(const struct file *f)
{
    size_t pages = (f->size + 4095) / 4096, n = 0;
    unsigned char *there = calloc(1, pages);
    void *map = mmap(NULL, f->size, PROT_READ, MAP_SHARED, f->fd, 0);
    assert_int_equal(mincore(map, f->size, there), 0);
    for (size_t i = 0; i < pages; i++) {
        n += there[i] & 1;
    }
    munmap(map, f->size);
    free(there);
    return (int)(n * 100 / pages);
}

static void test_drop_behind(void **state)
{
    struct fixture *x = *state;
    struct statfs fs;
    if (fstatfs(x->file.fd, &fs) != 0 || fs.f_type == TMPFS) {
        skip();
    }
    uint8_t *data = malloc(FILE_BYTES);
    for (int direct = 0; direct < 2; direct++) {
        struct reader *r;
        assert_int_equal(reader_create(&(struct reader_options){.depth = 2, .chunk = 256 << 10, .direct = direct, .drop_behind = !direct}, &r, NULL), 0);
        posix_fadvise(x->file.fd, 0, 0, POSIX_FADV_DONTNEED);
        assert_int_equal(read_one(r, &x->file, 0, FILE_BYTES, data).status, 0);
        assert_true(cached(&x->file) < 25);
        reader_destroy(r);
    }
    free(data);
}

int main(void)
{
#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_FILE(test_bytes),          WITH_FILE(test_edges),        WITH_FILE(test_options),
        WITH_FILE(test_destroy_in_flight), WITH_FILE(test_device_error), WITH_FILE(test_interrupted_and_short),
        WITH_FILE(test_direct_refused), WITH_FILE(test_drop_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
