/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of copies of a model: which are taken for copies, which one a chunk is read from, what happens when one fails. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/attr.h"
#include "io/container.h"
#include "io/mirror.h"
#include "io/reader.h"
#include "tests/unit/io/io_test.h"
#include "io/read_queue.h"
#include "tests/unit/io/reader_faulty.h"

enum { UNIT = 64 << 10, UNITS = 40, MS = 1000000, SECOND = 1000000000 };

/* ---- which copy ---- */

static void test_rates_decide(void **state)
{
    (void)state;
    struct read_copies c = {0};
    uint64_t now = SECOND, bytes[2] = {0}, ends[2] = {0};
    for (int i = 0; i < 4000; i++) { /* two drives of 3 and 1 MB a millisecond, each one chunk at a time behind the other */
        uint32_t k = read_copies_choose(&c, 2, 1000000, 0, now);
        while (c.copy[0].in_flight + c.copy[1].in_flight >= 16000000) { /* as many as a reader lets begin */
            uint32_t first = c.copy[1].in_flight == 0 || (c.copy[0].in_flight > 0 && ends[0] <= ends[1]) ? 0 : 1;
            now = ends[first] > now ? ends[first] : now;
            read_copies_end(&c, first, 1000000, 1000000, now);
            ends[first] = now + (first == 0 ? MS / 3 : MS);
            k = read_copies_choose(&c, 2, 1000000, 0, now);
        }
        if (c.copy[k].in_flight == 0) {
            ends[k] = now + (k == 0 ? MS / 3 : MS);
        }
        read_copies_begin(&c, k, 1000000, now);
        bytes[k] += 1000000;
    }
    assert_in_range(bytes[0], 2800 * 1000000ull, 3200 * 1000000ull); /* three quarters */
}

static void finish_read(struct read_copies *c, uint32_t i, uint64_t bytes, uint64_t ns, uint64_t *now)
{
    read_copies_begin(c, i, bytes, *now);
    *now += ns;
    read_copies_end(c, i, bytes, bytes, *now);
}

static void test_one_at_a_time(void **state)
{
    (void)state;
    struct read_copies c = {0};
    uint64_t now = SECOND;
    assert_int_equal(read_copies_choose(&c, 2, 1000, 0, now), 0);
    finish_read(&c, 0, 1000, MS, &now);
    assert_int_equal(read_copies_choose(&c, 2, 1000, 0, now), 1); /* not measured: tried */
    finish_read(&c, 1, 1000, 10 * MS, &now);
    assert_int_equal(read_copies_choose(&c, 2, 1000, 0, now), 0);
    assert_int_equal(read_copies_choose(&c, 2, 1000, 1, now), 1);
    assert_int_equal(read_copies_choose(&c, 2, 1000, 3, now), 2);
    now += 2ull * SECOND; /* perhaps it is faster by now */
    finish_read(&c, 0, 1000, MS, &now);
    assert_int_equal(read_copies_choose(&c, 2, 1000, 0, now), 1);
    for (int i = 0; i < 2000; i++) {
        finish_read(&c, 1, 1000, MS / 10, &now); /* the past fades */
    }
    assert_int_equal(read_copies_choose(&c, 2, 1000, 0, now), 1);
    for (int i = 0; i < 20; i++) {
        read_copies_failed(&c, 1);
    }
    finish_read(&c, 0, 1000, MS, &now);
    assert_int_equal(read_copies_choose(&c, 2, 1000, 0, now), 0);
}

/* ---- readers ---- */

struct fixture {
    char *folder, *mirror;
    struct file file;
    uint8_t *content, *data; /* [UNITS * UNIT] */
};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    folder_setup((void **)&x->folder);
    folder_setup((void **)&x->mirror);
    x->content = malloc(UNITS * UNIT);
    x->data = calloc(UNITS, UNIT);
    uint64_t seed = 9;
    for (size_t i = 0; i < UNITS * UNIT; i++) {
        x->content[i] = (uint8_t)next_random(&seed);
    }
    write_bytes(in(x->folder, "data"), x->content, UNITS * UNIT);
    write_bytes(in(x->mirror, "data"), x->content, UNITS * UNIT);
    assert_int_equal(file_open(in(x->folder, "data"), &x->file, NULL), 0);
    x->file.copies = calloc(1, sizeof *x->file.copies);
    assert_int_equal(file_open(in(x->mirror, "data"), x->file.copies, NULL), 0);
    x->file.n_copies = 1;
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
    folder_teardown((void **)&x->mirror);
    free(x);
    return 0;
}

/* Every read of the file fails from now on. */
static void break_file(const struct file *f)
{
    int blind = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_true(blind >= 0 && dup2(blind, f->fd) >= 0 && (f->direct_fd < 0 || dup2(blind, f->direct_fd) >= 0));
    close(blind);
}

/* Reads everything, 8 units at a request; returns the first status that is not 0. */
static int read_all(const struct fixture *x, struct reader *r)
{
    struct read_result result;
    int status = 0;
    memset(x->data, 0, UNITS * UNIT);
    for (uint64_t i = 0; i < UNITS / 8; i++) {
        assert_int_equal(reader_submit(r, &(struct read_request){.file = &x->file, .offset = i * 8 * UNIT, .bytes = 8 * UNIT, .data = x->data + i * 8 * UNIT, .tag = i}), 0);
    }
    for (uint64_t i = 0; i < UNITS / 8; i++) {
        assert_int_equal(reader_collect(r, &result, -1), 1);
        status = status == 0 ? result.status : status;
    }
    return status;
}

static struct reader *create(enum reader_kind kind, bool direct)
{
    const struct reader_options o = {.kind = kind, .depth = 16, .chunk = UNIT, .direct = direct, .copies = 2};
    struct reader *r;
    assert_int_equal(reader_create(&o, &r, NULL), 0);
    return r;
}

/* `broken` -1: none, 0: the file, 1: its copy, 2: both. */
static void check_kind(enum reader_kind kind, bool direct, int broken)
{
    struct fixture *x;
    setup((void **)&x);
    struct reader *r = create(kind, direct);
    if (broken == 0 || broken == 2) {
        break_file(&x->file);
    }
    if (broken > 0) {
        break_file(x->file.copies);
    }
    int status = read_all(x, r);
    struct reader_load load = reader_load(r);
    if (broken == 2) {
        assert_true(status < 0);
    } else {
        assert_int_equal(status, 0);
        assert_memory_equal(x->data, x->content, UNITS * UNIT);
        assert_int_equal(load.copy_bytes[0] + load.copy_bytes[1], UNITS * UNIT);
    }
    for (int i = 0; i < 2 && broken < 2; i++) {
        struct reader_fault fault = reader_fault(r, (uint32_t)i);
        assert_true(broken == i ? fault.n > 0 && fault.status < 0 && load.copy_bytes[i] == 0 : fault.n == 0 && load.copy_bytes[i] > 0);
        assert_true(fault.n == 0 || fault.file == (i == 0 ? &x->file : x->file.copies));
    }
    reader_destroy(r);
    teardown((void **)&x);
}

static void test_readers(void **state)
{
    (void)state;
    for (enum reader_kind kind = READER_URING; kind <= READER_MMAP; kind++) {
        for (int direct = 0; direct < 2; direct++) {
            for (int broken = -1; broken <= 2; broken++) {
                check_kind(kind, direct, broken);
            }
        }
    }
}

/* One that has become shorter: whichever chunk it is asked for, and it is tried once, lies behind its end. */
static void test_short_copy(void **state)
{
    struct fixture *x = *state;
    struct reader *r = create(READER_PREAD, false);
    assert_int_equal(truncate(in(x->mirror, "data"), 100), 0);
    assert_int_equal(read_all(x, r), 0);
    assert_memory_equal(x->data, x->content, UNITS * UNIT);
    assert_int_equal(reader_fault(r, 1).status, -ENODATA);
    reader_destroy(r);
}

/* The model's file is cut and partly written anew: what it brought before a read failed is no part of the copy's bytes. */
static void test_rewritten_and_cut(void **state)
{
    struct fixture *x = *state;
    struct read_queue q;
    struct read_result result;
    uint64_t wait_ns, half = UNITS * UNIT / 2;
    uint8_t *other = malloc(half);
    assert_int_equal(read_queue_init(&q, &(struct reader_options){.depth = 1, .requests = 4, .chunk = UNITS * UNIT, .copies = 2}, NULL), 0);
    assert_int_equal(read_queue_submit(&q, &(struct read_request){.file = &x->file, .bytes = UNITS * UNIT, .data = x->data}), 0);
    struct read_flight *f = read_queue_take(&q, false, &wait_ns);
    assert_true(f != NULL && other != NULL && f->chunk.file == &x->file && f->chunk.bytes == UNITS * UNIT);
    memset(other, 'X', half);
    write_bytes(in(x->folder, "data"), other, half);
    int status;
    do {
        for (status = 1; status > 0;) {
            struct read_step step = read_chunk_step(&f->chunk, NULL);
            status = read_chunk_answer(&f->chunk, &step, pread(step.fd, step.data, step.bytes, (off_t)step.offset));
        }
    } while (status < 0 && read_queue_other_copy(&q, f, status, false));
    read_queue_book(&q, f, status);
    assert_true(read_queue_collect(&q, &result));
    assert_int_equal(result.status, 0);
    assert_memory_equal(x->data, x->content, UNITS * UNIT);
    read_queue_deinit(&q);
    free(other);
}

/* Of joined requests, too, none keeps what a cut and rewritten file brought. */
static void test_joined_and_rewritten(void **state)
{
    struct fixture *x = *state;
    struct read_queue q;
    struct read_result result;
    uint64_t wait_ns;
    struct file alone = x->file;
    uint8_t other[UNIT + 10] = {0};
    alone.n_copies = 0;
    assert_int_equal(read_queue_init(&q, &(struct reader_options){.depth = 1, .requests = 4, .chunk = 8 * UNIT, .copies = 1}, NULL), 0);
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(read_queue_submit(&q, &(struct read_request){.file = &alone, .offset = i * UNIT, .bytes = UNIT, .data = x->data + i * UNIT, .tag = i}), 0);
    }
    write_bytes(in(x->folder, "data"), other, sizeof(other));
    for (struct read_flight *f; (f = read_queue_take(&q, false, &wait_ns)) != NULL;) {
        int status = 1;
        while (status > 0) {
            struct read_step step = read_chunk_step(&f->chunk, NULL);
            status = read_chunk_answer(&f->chunk, &step, pread(step.fd, step.data, step.bytes, (off_t)step.offset));
        }
        read_queue_book(&q, f, status);
    }
    for (int i = 0; i < 2; i++) {
        assert_true(read_queue_collect(&q, &result));
        assert_true(result.status < 0);
    }
    read_queue_deinit(&q);
}

/* In the middle of a chunk: what has come is kept, the rest comes from the other copy; where both fail it is an error. */
static void test_fails_in_the_middle(void **state)
{
    struct fixture *x = *state;
    const struct faulty_rule rules[] = {
        {.kind = FAULTY_FAIL, .file = &x->file, .at = 3 * UNIT + 1000, .status = -EIO},
        {.kind = FAULTY_FAIL, .file = &x->file, .at = 30 * UNIT, .status = -EIO},
        {.kind = FAULTY_FAIL, .file = x->file.copies, .at = 31 * UNIT, .status = -EIO},
    };
    struct reader *r;
    struct read_result result;
    assert_int_equal(reader_faulty_create(&(struct reader_options){.depth = 1, .requests = 8}, rules, ARRAY_LEN(rules), &r, NULL), 0);
    assert_int_equal(reader_submit(r, &(struct read_request){.file = &x->file, .offset = UNIT, .bytes = 4 * UNIT, .data = x->data, .tag = 1}), 0);
    assert_int_equal(reader_collect(r, &result, -1), 1);
    assert_int_equal(result.status, 0);
    assert_memory_equal(x->data, x->content + UNIT, 4 * UNIT);
    struct reader_fault fault = reader_fault(r, 0);
    assert_true(fault.n == 1 && fault.status == -EIO && fault.offset == 3 * UNIT + 1000 && fault.file == &x->file);
    struct reader_load load = reader_load(r);
    assert_int_equal(load.copy_bytes[0], 2 * UNIT + 1000);
    assert_int_equal(load.copy_bytes[1], 2 * UNIT - 1000);
    for (int i = 0; i < 2; i++) { /* each copy is asked first once */
        assert_int_equal(reader_submit(r, &(struct read_request){.file = &x->file, .offset = 29 * UNIT, .bytes = 4 * UNIT, .data = x->data, .tag = 2}), 0);
        assert_int_equal(reader_collect(r, &result, -1), 1);
        assert_int_equal(result.status, -EIO);
    }
    reader_destroy(r);
}

/* ---- what is a copy ---- */

enum { HEADER = 4096, DATA = 1 << 20 };

/* A model of one tensor. */
static void write_model(const char *path, const char *name, uint8_t fill)
{
    struct bytes b = {0};
    char header[HEADER];
    memset(header, ' ', sizeof header);
    int n = snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", name, DATA / 4, DATA);
    header[n] = ' ';
    put_u64(&b, HEADER);
    put(&b, header, HEADER);
    uint8_t *data = malloc(DATA);
    memset(data, fill, DATA);
    put(&b, data, DATA);
    write_bytes(path, b.data, b.len);
    free(data);
    bytes_free(&b);
}

static int try_mirror(const char *model, const char *folders, uint32_t *ret_copies, char note[400], struct error *e)
{
    struct container *c;
    assert_int_equal(container_open(model, NULL, &c, e), 0);
    int r = mirror_open(c, folders, e);
    *ret_copies = c->files[0].n_copies;
    if (r == 0) {
        mirror_note(c, 0, note, 400);
    }
    container_close(c);
    return r;
}

static void test_what_is_a_copy(void **state)
{
    struct fixture *x = *state;
    struct error e = {0};
    uint32_t copies;
    char note[400], both[600];
    const char *model = strdup(in(x->folder, "model.safetensors")), *copy = strdup(in(x->mirror, "model.safetensors"));
    write_model(model, "a", 1);
    assert_int_equal(try_mirror(model, x->mirror, &copies, note, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, "--model-mirror", copy, "missing", NULL);
    write_model(copy, "a", 1);
    assert_int_equal(try_mirror(model, x->mirror, &copies, note, &e), 0);
    assert_int_equal(copies, 1);
    assert_non_null(strstr(note, "same device")); /* both lie in the folder for temporary files */
    const char *second = strdup(in(x->mirror, "second")), *second_copy = strdup(in(x->mirror, "second/model.safetensors"));
    assert_int_equal(mkdir(second, 0700), 0);
    write_model(second_copy, "a", 1);
    snprintf(both, sizeof both, "%s,%s", x->mirror, second);
    assert_int_equal(try_mirror(model, both, &copies, note, &e), 0);
    assert_int_equal(copies, 2);
    assert_int_equal(unlink(second_copy), 0);
    assert_int_equal(symlink(copy, second_copy), 0);
    assert_int_equal(try_mirror(model, both, &copies, note, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, "--model-mirror", second_copy, "is the same file as", copy, NULL);
    unlink(second_copy);
    rmdir(second);
    free((char *)second);
    free((char *)second_copy);
    assert_int_equal(truncate(copy, DATA), 0);
    assert_int_equal(try_mirror(model, x->mirror, &copies, note, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, "--model-mirror", copy, "has 1048576 bytes, the model's file has 1052680", NULL);
    write_model(copy, "b", 1);
    assert_int_equal(try_mirror(model, x->mirror, &copies, note, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, copy, "the header differs from the model's file at byte 10", NULL);
    write_model(copy, "a", 2);
    assert_int_equal(try_mirror(model, x->mirror, &copies, note, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, copy, "weights differ from the model's file at byte 4104", NULL);
    assert_int_equal(try_mirror(model, x->folder, &copies, note, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, model, "own file", NULL);
    assert_int_equal(try_mirror(model, copy, &copies, note, &e), ERROR_USAGE);
    check_error(&e, ERROR_USAGE, "--model-mirror", copy, "no such folder", NULL);
    free((char *)model);
    free((char *)copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates_decide),
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_readers),
        cmocka_unit_test_setup_teardown(test_short_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rewritten_and_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(test_joined_and_rewritten, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fails_in_the_middle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_a_copy, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
