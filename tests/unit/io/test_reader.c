/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of the reader contract, the same for io_uring, pread and mmap: bytes, edges, faults, priorities, order of life. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/intmath.h"
#include "io/reader.h"
#include "tests/unit/io/fault.h"
#include "tests/unit/io/io_test.h"

enum { FILE_BYTES = 3 * 1024 * 1024 + 777, GUARD = 64, TMPFS = 0x01021994 };

struct fixture {
    enum reader_kind kind;
    bool apart; /* of the next reader */
    char *folder;
    uint8_t *content; /* [FILE_BYTES] */
    struct file file;
};

static int setup(void **state, enum reader_kind kind)
{
    struct fixture *x = calloc(1, sizeof *x);
    x->kind = kind;
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

static int setup_uring(void **state) { return setup(state, READER_URING); }
static int setup_pread(void **state) { return setup(state, READER_PREAD); }
static int setup_mmap(void **state) { return setup(state, READER_MMAP); }

static int teardown(void **state)
{
    struct fixture *x = *state;
    fault_hold(0);
    fault_read(0, 0, 0);
    fault_submit(0, 0, 0);
    file_close(&x->file);
    free(x->content);
    folder_teardown((void **)&x->folder);
    free(x);
    return 0;
}

static struct reader *create_with(const struct fixture *x, struct reader_options o)
{
    struct reader *r;
    struct error e = {0};
    o.kind = x->kind;
    o.apart = x->apart;
    if (reader_create(&o, &r, &e) < 0) {
        fail_msg("%s", e.text);
    }
    if (reader_refused(r, READER_KIND) != 0) {
        reader_destroy(r);
        skip(); /* this system does not have it */
    }
    return r;
}

static struct reader *create(const struct fixture *x, uint32_t depth, uint64_t chunk, bool direct)
{
    return create_with(x, (struct reader_options){.depth = depth, .chunk = chunk, .direct = direct});
}

static struct read_result collect(struct reader *r)
{
    struct read_result result;
    assert_int_equal(reader_collect(r, &result, -1), 1);
    return result;
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
    struct reader *r = create(x, depth, chunk, direct);
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
        struct reader *r = create(x, 2, 1 << 20, direct);
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
    struct fixture *x = *state;
    static const char *const names[][2] = {
        [READER_URING] = {"io_uring, buffered", "io_uring, O_DIRECT"},
        [READER_PREAD] = {"pread, buffered", "pread, O_DIRECT"},
        [READER_MMAP] = {"mmap", "mmap"},
    };
    struct reader *r;
    struct error e = {0};
    assert_int_equal(reader_create(&(struct reader_options){.depth = 0, .chunk = 1}, &r, &e), ERROR_USAGE);
    assert_int_equal(reader_create(&(struct reader_options){.depth = 257, .chunk = 1}, &r, &e), ERROR_USAGE);
    assert_int_equal(reader_create(&(struct reader_options){.depth = 1, .chunk = 0}, &r, &e), ERROR_USAGE);
    check_error(&e, ERROR_USAGE, "chunk 0", NULL);
    assert_int_equal(reader_create(&(struct reader_options){.depth = 8, .requests = 7, .chunk = 1}, &r, &e), ERROR_USAGE);
    check_error(&e, ERROR_USAGE, "requests 7", NULL);
    r = create(x, 1, 1, false);
    assert_string_equal(reader_name(r), names[x->kind][0]);
    reader_destroy(r);
    r = create(x, 256, 1, true);
    assert_string_equal(reader_name(r), names[x->kind][1]);
    reader_destroy(r);
}

static void test_destroy_in_flight(void **state)
{
    struct fixture *x = *state;
    uint8_t *data = malloc(FILE_BYTES);
    struct reader *r = create(x, 8, 64 << 10, false);
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
    struct reader *r = create(x, 1, 64 << 10, false);
    fault_read(5, 1, EIO);
    struct read_result result = read_one(r, &x->file, 100, FILE_BYTES - 100, data);
    assert_int_equal(fault_count(), 1);
    assert_int_equal(result.status, -EIO);
    assert_int_equal(result.file_offset, 4 * (64 << 10));
    assert_int_equal(result.bytes, 4 * (64 << 10) - 100);
    result = read_one(r, &x->file, 100, FILE_BYTES - 100, data);
    assert_int_equal(result.status, 0);
    assert_memory_equal(data, x->content + 100, FILE_BYTES - 100);
    fault_read(1, x->kind == READER_URING ? 2 : 1, EAGAIN); /* a ring is asked again where it may wait */
    assert_int_equal(read_one(r, &x->file, 0, 10, data).status, -EAGAIN);
    assert_int_equal(read_one(r, &x->file, 0, 10, data).status, 0);
    reader_destroy(r);
    /* Several threads, several requests: one fails, the others are whole. */
    r = create(x, 4, 64 << 10, false);
    fault_read(20, 1, EIO);
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
            struct reader *r = create(x, 3, 256 << 10, direct);
            fault_read(2, 9, kinds[k]);
            memset(data, 0, FILE_BYTES);
            struct read_result result = read_one(r, &x->file, 1, FILE_BYTES - 1, data);
            assert_true(fault_count() > 0);
            assert_int_equal(result.status, 0);
            assert_memory_equal(data, x->content + 1, FILE_BYTES - 1);
            reader_destroy(r);
        }
    }
    struct reader *r = create(x, 1, 1 << 20, false);
    fault_read(1, 1, FAULT_END);
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
    struct reader *r = create(x, 1, 1 << 20, true);
    assert_int_equal(reader_refused(r, READER_DIRECT), 0);
    fault_read(1, 1, EINVAL);
    struct read_result result = read_one(r, &x->file, 0, FILE_BYTES, data);
    assert_int_equal(result.status, 0);
    assert_memory_equal(data, x->content, FILE_BYTES);
    assert_int_equal(reader_refused(r, READER_DIRECT), EINVAL);
    assert_non_null(strstr(reader_name(r), ", buffered (O_DIRECT refused by the file system)"));
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
        struct reader *r = create_with(x, (struct reader_options){.depth = 2, .chunk = 256 << 10, .direct = direct, .drop_behind = !direct});
        posix_fadvise(x->file.fd, 0, 0, POSIX_FADV_DONTNEED);
        assert_int_equal(read_one(r, &x->file, 0, FILE_BYTES, data).status, 0);
        assert_true(cached(&x->file) < 25);
        reader_destroy(r);
    }
    free(data);
}

/* ---- many requests ---- */

enum { UNIT = 64 << 10 }; /* the smallest chunk */

/* A reader of one chunk at a time whose first read does not come back before fault_hold(0), and with it a request of two chunks
 * (tag 100), of which the first is in flight. */
static struct reader *create_busy(const struct fixture *x, uint8_t *data)
{
    struct reader *r = create_with(x, (struct reader_options){.depth = 1, .requests = 64, .chunk = UNIT});
    fault_read(0, 0, 0);
    fault_hold(1);
    const struct read_request q = {.file = &x->file, .bytes = 2 * UNIT, .data = data, .tag = 100, .priority = READ_BACKGROUND};
    assert_int_equal(reader_submit(r, &q), 0);
    while (fault_holding() == 0) {
        usleep(100);
    }
    return r;
}

static void test_priorities(void **state)
{
    struct fixture *x = *state;
    uint8_t *data = malloc(FILE_BYTES);
    struct reader *r = create_busy(x, data);
    static const enum read_priority order[] = {READ_BACKGROUND, READ_PREDICTED, READ_DEMAND, READ_PREDICTED, READ_DEMAND};
    static const uint64_t expected[] = {2, 4, 1, 3, 100, 0};
    for (uint64_t i = 0; i < ARRAY_LEN(order); i++) {
        uint64_t at = (2 * i + 2) * UNIT;
        assert_int_equal(reader_submit(r, &(struct read_request){.file = &x->file, .offset = at, .bytes = UNIT + 1, .data = data + at, .tag = i, .priority = order[i]}), 0);
    }
    fault_hold(0);
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        struct read_result result = collect(r);
        assert_int_equal(result.status, 0);
        assert_int_equal(result.tag, expected[i]);
    }
    reader_destroy(r);
    assert_memory_equal(data, x->content, 2 * UNIT);
    free(data);
}

static void test_cancel(void **state)
{
    struct fixture *x = *state;
    uint8_t *data = malloc(FILE_BYTES);
    struct reader *r = create_busy(x, data);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(reader_submit(r, &(struct read_request){.file = &x->file, .offset = i, .bytes = UNIT, .data = data + (2 + i) * UNIT, .tag = i}), 0);
    }
    assert_int_equal(reader_cancel(r, 1), 0);
    assert_int_equal(reader_cancel(r, 100), 0);
    assert_int_equal(reader_cancel(r, 100), -ENOENT);
    assert_int_equal(reader_cancel(r, 7), -ENOENT);
    fault_hold(0);
    for (int i = 0; i < 4; i++) {
        struct read_result result = collect(r);
        bool taken_back = result.tag == 1 || result.tag == 100;
        assert_int_equal(result.status, taken_back ? -ECANCELED : 0);
        assert_int_equal(result.bytes, result.tag == 1 ? 0 : UNIT);
    }
    assert_memory_equal(data, x->content, UNIT);
    assert_memory_equal(data + 2 * UNIT, x->content, UNIT);
    assert_memory_equal(data + 4 * UNIT, x->content + 2, UNIT);
    assert_int_equal(reader_cancel(r, 0), -ENOENT);
    reader_destroy(r);
    free(data);
}

enum { NEIGHBOURS = 12, NEIGHBOUR = 5000 };

/* Requests that follow one another in the file and in memory; which of them failed, as bits. */
static unsigned read_neighbours(struct fixture *x, int fault_first, int fault_times, int *ret_reads)
{
    uint8_t *data = calloc(1, FILE_BYTES);
    struct reader *r = create_busy(x, data);
    fault_read(fault_first, fault_times, EIO);
    uint8_t *to = data + 3 * UNIT;
    for (uint64_t i = 0; i < NEIGHBOURS; i++) {
        assert_int_equal(reader_submit(r, &(struct read_request){.file = &x->file, .offset = 77 + i * NEIGHBOUR, .bytes = NEIGHBOUR, .data = to + i * NEIGHBOUR, .tag = i}), 0);
    }
    fault_hold(0);
    unsigned failed = 0;
    for (int i = 0; i < NEIGHBOURS + 1; i++) {
        struct read_result result = collect(r);
        if (result.status != 0) {
            assert_int_equal(result.status, -EIO);
            failed |= 1u << result.tag;
        } else if (result.tag != 100) {
            assert_memory_equal(to + result.tag * NEIGHBOUR, x->content + 77 + result.tag * NEIGHBOUR, NEIGHBOUR);
        }
    }
    *ret_reads = fault_calls();
    reader_destroy(r);
    free(data);
    return failed;
}

/* They are read together; a failure costs the one whose own read fails. */
static void test_neighbours(void **state)
{
    int reads;
    assert_int_equal(read_neighbours(*state, 0, 0, &reads), 0);
    assert_int_equal(reads, 3);
    assert_int_equal(read_neighbours(*state, 2, 1, &reads), 0);
    assert_int_equal(reads, 3 + NEIGHBOURS);
    unsigned failed = read_neighbours(*state, 2, 2, &reads);
    assert_true(failed != 0 && (failed & (failed - 1)) == 0);
    ((struct fixture *)*state)->apart = true;
    assert_int_equal(read_neighbours(*state, 0, 0, &reads), 0);
    assert_int_equal(reads, 2 + NEIGHBOURS);
}

/* Reads the file with progress; returns whether some came before the end. */
static bool read_in_parts(struct fixture *x, uint32_t depth, uint8_t *data)
{
    struct reader *r = create(x, depth, UNIT, true);
    uint64_t before = 0;
    struct read_result result;
    memset(data, 0, FILE_BYTES);
    assert_int_equal(reader_submit(r, &(struct read_request){.file = &x->file, .offset = 5, .bytes = FILE_BYTES - 5, .data = data, .tag = 1, .progress = true}), 0);
    while ((result = collect(r)).more) {
        assert_true(result.status == 0 && result.bytes >= before && result.bytes < FILE_BYTES - 5);
        assert_memory_equal(data + before, x->content + 5 + before, (size_t)(result.bytes - before));
        before = result.bytes;
    }
    assert_int_equal(result.status, 0);
    assert_int_equal(result.bytes, FILE_BYTES - 5);
    assert_memory_equal(data, x->content + 5, FILE_BYTES - 5);
    reader_destroy(r);
    return before > 0;
}

/* What is done before anybody collects is reported at once, so a busy machine may show no part before the whole. */
static void test_progress(void **state)
{
    uint8_t *data = malloc(FILE_BYTES);
    for (uint32_t depth = 1; depth < 8; depth += 3) {
        uint32_t round = 0;
        while (!read_in_parts(*state, depth, data)) {
            assert_true(round++ < 1000);
        }
    }
    free(data);
}

/* ---- descriptors ---- */

static void test_closed_descriptor(void **state)
{
    struct fixture *x = *state;
    uint8_t data[64];
    struct reader *r = create(x, 2, 1 << 20, false);
    struct file closed = x->file;
    closed.fd = dup(x->file.fd);
    close(closed.fd);
    assert_int_equal(read_one(r, &closed, 0, 64, data).status, -EBADF);
    assert_int_equal(read_one(r, &x->file, 0, 64, data).status, 0);
    reader_destroy(r);
}

/* A file that is closed, and another that gets its number; more files than are registered. */
static void test_reused_descriptors(void **state)
{
    struct fixture *x = *state;
    uint8_t data[64];
    struct reader *r = create(x, 2, 1 << 20, false);
    for (int i = 0; i < 4; i++) {
        struct file f;
        char name[16];
        snprintf(name, sizeof(name), "f%d", i);
        write_bytes(in(x->folder, name), x->content + i, 64);
        assert_int_equal(file_open(in(x->folder, name), &f, NULL), 0);
        assert_int_equal(read_one(r, &f, 0, 64, data).status, 0);
        assert_memory_equal(data, x->content + i, 64);
        file_close(&f);
    }
    struct file many[300];
    for (int i = 0; i < 300; i++) {
        many[i] = x->file;
        many[i].fd = dup(x->file.fd);
        assert_true(many[i].fd >= 0);
        assert_int_equal(read_one(r, &many[i], (uint64_t)i, 64, data).status, 0);
        assert_memory_equal(data, x->content + i, 64);
    }
    for (int i = 0; i < 300; i++) {
        close(many[i].fd);
    }
    reader_destroy(r);
}

/* Reads into registered memory, beside it and over its edge; memory that is not there is refused, and reads go on. */
static void test_registered_memory(void **state)
{
    struct fixture *x = *state;
    for (int fresh = 0; fresh < 2; fresh++) {
        struct reader *r = create_with(x, (struct reader_options){.depth = 4, .chunk = UNIT, .direct = true, .fresh = fresh});
        size_t bytes = align_up_u64(FILE_BYTES, 4096);
        uint8_t *data = aligned_alloc(4096, 2 * bytes);
        memset(data, 0, 2 * bytes);
        reader_register(r, data, bytes);
        for (size_t skew = 0; skew < 3; skew++) {
            uint8_t *to = data + skew * bytes / 2;
            assert_int_equal(read_one(r, &x->file, 0, FILE_BYTES, to).status, 0);
            assert_memory_equal(to, x->content, FILE_BYTES);
        }
        assert_int_equal(reader_refused(r, READER_MEMORY), 0);
        reader_register(r, (void *)(uintptr_t)4096, bytes);
        assert_int_equal(reader_refused(r, READER_MEMORY), x->kind == READER_URING ? EFAULT : 0);
        assert_int_equal(read_one(r, &x->file, 0, FILE_BYTES, data).status, 0);
        assert_memory_equal(data, x->content, FILE_BYTES);
        reader_destroy(r);
        free(data);
    }
}

/* ---- io_uring alone ---- */

/* No descriptor for the ring: pread threads take over, and the reason is known. */
static void test_ring_refused(void **state)
{
    struct fixture *x = *state;
    uint8_t data[64];
    struct reader *r;
    struct rlimit old, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = (struct rlimit){3, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int code = reader_create(&(struct reader_options){.depth = 4, .chunk = 1 << 20, .direct = true}, &r, NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(code, 0);
    assert_int_equal(reader_refused(r, READER_KIND), EMFILE);
    assert_string_equal(reader_name(r), "pread, O_DIRECT");
    assert_int_equal(read_one(r, &x->file, 1, 64, data).status, 0);
    assert_memory_equal(data, x->content + 1, 64);
    reader_destroy(r);
}

/* A submission is refused for the moment: tried again. For good: what was not taken fails, nothing hangs. */
static void test_submission_refused(void **state)
{
    struct fixture *x = *state;
    uint8_t *data = malloc(FILE_BYTES);
    struct reader *r = create(x, 4, UNIT, false);
    static const int passing[] = {EAGAIN, EBUSY, EINTR};
    for (size_t i = 0; i < ARRAY_LEN(passing); i++) {
        fault_submit(1, 20, passing[i]);
        assert_int_equal(read_one(r, &x->file, 3, FILE_BYTES - 3, data).status, 0);
        assert_memory_equal(data, x->content + 3, FILE_BYTES - 3);
    }
    fault_submit(3, 1, EPERM);
    assert_int_equal(read_one(r, &x->file, 0, FILE_BYTES, data).status, -EPERM);
    assert_int_equal(read_one(r, &x->file, 0, 10, data).status, -EPERM);
    reader_destroy(r);
    r = create_busy(x, data); /* what is asked for while the kernel is asked is not forgotten */
    fault_submit(1, 1, EPERM);
    assert_int_equal(reader_submit(r, &(struct read_request){.file = &x->file, .bytes = 10, .data = data + 2 * UNIT}), 0);
    fault_hold(0);
    assert_int_equal(collect(r).status, -EPERM);
    assert_int_equal(collect(r).status, -EPERM);
    reader_destroy(r);
    free(data);
}

int main(void)
{
#define URING(test) {#test " (io_uring)", test, setup_uring, teardown, NULL}
#define DIRECT(test) {#test " (pread)", test, setup_pread, teardown, NULL}, URING(test)
#define ALL(test) {#test " (mmap)", test, setup_mmap, teardown, NULL}, DIRECT(test)
    const struct CMUnitTest tests[] = {
        ALL(test_bytes), ALL(test_edges), ALL(test_options), ALL(test_destroy_in_flight), ALL(test_device_error), ALL(test_interrupted_and_short),
        DIRECT(test_direct_refused), ALL(test_drop_behind), ALL(test_priorities), ALL(test_cancel), ALL(test_neighbours), ALL(test_progress),
        ALL(test_closed_descriptor), ALL(test_reused_descriptors), ALL(test_registered_memory), URING(test_ring_refused), URING(test_submission_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
