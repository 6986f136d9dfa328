/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of files, whole-file and positional writing and the two writers. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/container.h"
#include "io/file.h"
#include "io/file_part.h"
#include "io/file_write.h"
#include "io/gguf_write.h"
#include "io/safetensors_write.h"
#include "tests/unit/io/io_test.h"

static void test_open(void **state)
{
    const char *path = in(*state, "a"), *folder = *state;
    struct file f = {0};
    struct error e = {0};
    file_close(&f);
    write_text(path, "0123456789");
    assert_int_equal(file_open(path, &f, &e), 0);
    assert_int_equal(f.size, 10);
    assert_true(f.direct_fd >= 0 || f.direct_errno != 0);
    assert_true(f.direct_align >= 512 && (f.direct_align & (f.direct_align - 1)) == 0);
    char data[8] = {0};
    assert_int_equal(file_read_at(&f, 3, data, 5, &e), 0);
    assert_string_equal(data, "34567");
    assert_int_equal(file_read_at(&f, 8, data, 5, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, path, "wanted 5 bytes at offset 8, the file ends after 2", NULL);
    file_close(&f);
    file_close(&f);
    assert_int_equal(file_open(in(folder, "no"), &f, &e), -ENOENT);
    check_error(&e, -ENOENT, "/no: cannot open: No such file", NULL);
    assert_int_equal(file_open(folder, &f, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, "not a regular file", NULL);
    assert_int_equal(mkfifo(in(folder, "pipe"), 0600), 0);
    assert_int_equal(file_open(in(folder, "pipe"), &f, &e), ERROR_FORMAT);
    assert_true(file_is_folder(folder));
    assert_false(file_is_folder(path));
    assert_true(file_exists(path));
    assert_false(file_exists(in(folder, "no")));
}

static void test_whole_files(void **state)
{
    const char *path = in(*state, "a"), *tmp = in(*state, "a.tmp");
    struct error e = {0};
    char *data;
    size_t n;
    assert_int_equal(file_write_all(path, "old", 3, &e), 0);
    assert_int_equal(file_write_all(path, "newer", 5, &e), 0);
    assert_false(file_exists(tmp));
    assert_int_equal(file_read_all(path, 5, &data, &n, &e), 0);
    assert_int_equal(n, 5);
    assert_string_equal(data, "newer");
    free(data);
    assert_int_equal(file_read_all(path, 4, &data, &n, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, path, "has 5 bytes, at most 4", NULL);
    assert_int_equal(file_write_all(path, NULL, 0, &e), 0);
    assert_int_equal(file_read_all(path, 4, &data, &n, &e), 0);
    assert_int_equal(n, 0);
    free(data);
    assert_int_equal(file_write_all(in(*state, "no/a"), "x", 1, &e), -ENOENT);
    check_error(&e, -ENOENT, "cannot create", NULL);
    assert_int_equal(file_write_all("/dev/null", "x", 1, &e), ERROR_USAGE);
}

static void test_listing(void **state)
{
    struct error e = {0};
    char **names;
    size_t n;
    write_text(in(*state, "b.x"), "");
    write_text(in(*state, "a.x"), "");
    write_text(in(*state, "a.y"), "");
    assert_int_equal(file_list_folder(*state, ".x", &names, &n, &e), 0);
    assert_int_equal(n, 2);
    assert_string_equal(names[0], "a.x");
    assert_string_equal(names[1], "b.x");
    file_free_list(names, n);
    assert_int_equal(file_list_folder(*state, ".z", &names, &n, &e), 0);
    assert_int_equal(n, 0);
    file_free_list(names, n);
    assert_int_equal(file_list_folder(in(*state, "no"), "", &names, &n, &e), -ENOENT);
    char *path = file_join("a/", "b");
    assert_string_equal(path, "a/b");
    free(path);
    path = file_join("a", "b");
    assert_string_equal(path, "a/b");
    free(path);
}

/* The disk is full (a limit on the file's size): the old file stays, nothing is left behind. */
static void test_full_disk(void **state)
{
    const char *path = in(*state, "a"), *tmp = in(*state, "a.tmp");
    struct error e = {0};
    struct rlimit old, small;
    char *block = calloc(1, 3 << 20);
    write_text(path, "old");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){.rlim_cur = 1 << 20, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int r = file_write_all(path, block, 3 << 20, &e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(r, -EFBIG);
    check_error(&e, -EFBIG, path, "writing failed after", NULL);
    assert_false(file_exists(tmp));
    struct bytes b = read_bytes(path);
    assert_int_equal(b.len, 3);
    bytes_free(&b);
    free(block);
}

static void test_safetensors_writer(void **state)
{
    const char *path = in(*state, "w.safetensors"), *tmp = in(*state, "w.safetensors.tmp");
    struct safetensors_writer *w;
    struct error e = {0};
    const float logits[6] = {1, -2.5f, 3, 4, 5, 6};
    const int32_t ids[2] = {7, 9};
    assert_int_equal(safetensors_writer_create(path, &w, &e), 0);
    assert_int_equal(safetensors_writer_declare(w, "logits", "F32", (uint64_t[]){2, 3}, 2, &e), 0);
    assert_int_equal(safetensors_writer_declare(w, "router.\"1\".ids", "I32", (uint64_t[]){1, 2}, 2, &e), 0);
    assert_int_equal(safetensors_writer_declare(w, "none", "F32", (uint64_t[]){0, 2}, 2, &e), 0);
    assert_int_equal(safetensors_writer_declare(w, "bad", "Q4", (uint64_t[]){1}, 1, &e), ERROR_USAGE);
    safetensors_writer_destroy(w);
    assert_false(file_exists(tmp));
    assert_int_equal(safetensors_writer_create(path, &w, &e), 0);
    assert_int_equal(safetensors_writer_declare(w, "logits", "F32", (uint64_t[]){2, 3}, 2, &e), 0);
    assert_int_equal(safetensors_writer_declare(w, "router.\"1\".ids", "I32", (uint64_t[]){1, 2}, 2, &e), 0);
    assert_int_equal(safetensors_writer_declare(w, "none", "F32", (uint64_t[]){0, 2}, 2, &e), 0);
    assert_int_equal(safetensors_writer_begin(w, &e), 0);
    assert_int_equal(safetensors_writer_append(w, logits, 4, &e), 0);
    assert_int_equal(safetensors_writer_append(w, logits + 1, 20, &e), 0);
    assert_int_equal(safetensors_writer_append(w, ids, 9, &e), ERROR_USAGE);
    assert_int_equal(safetensors_writer_finish(w, false, &e), ERROR_USAGE);
    check_error(&e, ERROR_USAGE, "24 bytes of data written, 32 were declared", NULL);
    assert_int_equal(safetensors_writer_append(w, ids, 8, &e), 0);
    assert_false(file_exists(path));
    assert_int_equal(safetensors_writer_finish(w, false, &e), 0);
    safetensors_writer_destroy(w);
    safetensors_writer_destroy(NULL);

    struct container *c;
    assert_int_equal(container_open(path, NULL, &c, &e), 0);
    assert_int_equal(c->n_tensors, 3);
    const struct tensor *t = container_find(c, "router.\"1\".ids");
    assert_int_equal(t->dims[1], 2);
    int32_t back[2];
    assert_int_equal(file_read_at(&c->files[0], t->offset, back, sizeof back, &e), 0);
    assert_memory_equal(back, ids, sizeof ids);
    assert_int_equal(container_find(c, "logits")->offset % 8, 0);
    container_close(c);
}

/* The writer gives the bytes of the format's description. */
static void test_gguf_writer_example(void **state)
{
    const char *path = in(*state, "w.gguf");
    struct gguf_writer *w;
    struct error e = {0};
    uint8_t q8[68];
    for (int b = 0; b < 2; b++) {
        memcpy(q8 + b * 34, "\x00\x3c", 2);
        for (int i = 0; i < 32; i++) {
            q8[b * 34 + 2 + i] = (uint8_t)(b * 32 + i);
        }
    }
    assert_int_equal(gguf_writer_create(path, 32, &w, &e), 0);
    gguf_writer_string(w, "general.architecture", "deepseek2", 9);
    gguf_writer_integer(w, "deepseek2.block_count", GGUF_U32, 61);
    gguf_writer_array(w, "a.list", GGUF_U32, (uint32_t[]){7, 9}, NULL, 2);
    assert_int_equal(gguf_writer_tensor(w, "n", FORMAT_F32, (uint64_t[]){3}, 1, &e), 0);
    assert_int_equal(gguf_writer_tensor(w, "w", FORMAT_Q8_0, (uint64_t[]){2, 32}, 2, &e), 0);
    assert_int_equal(gguf_writer_begin(w, &e), 0);
    assert_int_equal(gguf_writer_append(w, (float[]){1, 2, 3}, 12, &e), 0);
    assert_int_equal(gguf_writer_append(w, q8, 40, &e), 0);
    assert_int_equal(gguf_writer_append(w, q8, 40, &e), ERROR_USAGE);
    assert_int_equal(gguf_writer_finish(w, false, &e), ERROR_USAGE);
    assert_int_equal(gguf_writer_append(w, q8 + 40, 28, &e), 0);
    assert_int_equal(gguf_writer_finish(w, false, &e), 0);
    gguf_writer_destroy(w);
    gguf_writer_destroy(NULL);
    struct bytes want = {0};
    put_hex(&want, "47475546 03000000 0200000000000000 0300000000000000 1400000000000000"
                   "67656e6572616c2e617263686974656374757265 08000000 0900000000000000 646565707365656b32"
                   "1500000000000000 646565707365656b322e626c6f636b5f636f756e74 04000000 3d000000"
                   "0600000000000000 612e6c697374 09000000 04000000 0200000000000000 07000000 09000000"
                   "0100000000000000 6e 01000000 0300000000000000 00000000 0000000000000000"
                   "0100000000000000 77 02000000 2000000000000000 0200000000000000 08000000 2000000000000000 0000"
                   "0000803f 00000040 00004040 0000000000000000000000000000000000000000");
    put(&want, q8, sizeof q8);
    put_hex(&want, "00000000 00000000000000000000000000000000 0000000000000000");
    struct bytes got = read_bytes(path);
    assert_int_equal(got.len, 0x160);
    assert_int_equal(want.len, 0x160);
    assert_memory_equal(got.data, want.data, 0x160);
    bytes_free(&got);
    bytes_free(&want);
}

/* Every kind of value written and read back, then copied value by value to a second file: the same bytes. */
static void test_gguf_round_trip(void **state)
{
    const char *first = in(*state, "1.gguf"), *second = in(*state, "2.gguf");
    struct gguf_writer *w;
    struct error e = {0};
    assert_int_equal(gguf_writer_create(first, 64, &w, &e), 0);
    gguf_writer_integer(w, "i", GGUF_I8, (uint64_t)-3);
    gguf_writer_float(w, "k", GGUF_F32, 2.5);
    gguf_writer_float(w, "l", GGUF_F64, -1e300);
    gguf_writer_integer(w, "m", GGUF_BOOL, 1);
    gguf_writer_array(w, "n", GGUF_STRING, NULL, (struct gguf_string[]){{"x", 1}, {"", 0}}, 2);
    gguf_writer_string(w, "o", "text", 4);
    assert_int_equal(gguf_writer_tensor(w, "t", FORMAT_BF16, (uint64_t[]){2, 3, 5, 8}, 4, &e), 0);
    assert_int_equal(gguf_writer_tensor(w, "bad", FORMAT_Q4_K, (uint64_t[]){100}, 1, &e), ERROR_USAGE);
    assert_int_equal(gguf_writer_tensor(w, "bad", FORMAT_F8_E4M3, (uint64_t[]){128}, 1, &e), ERROR_USAGE);
    assert_int_equal(gguf_writer_begin(w, &e), 0);
    assert_int_equal(gguf_writer_finish(w, true, &e), 0);
    gguf_writer_destroy(w);

    struct container_options options = {.allow_header_only = true};
    struct container *c;
    assert_int_equal(container_open(first, &options, &c, &e), 0);
    assert_true(c->header_only);
    const struct tensor *t = container_find(c, "t");
    assert_int_equal(t->n_dims, 4);
    assert_int_equal(t->dims[0], 2);
    assert_int_equal(t->dims[3], 8);
    assert_int_equal(t->bytes, 480);
    assert_int_equal(t->offset % 64, 0);
    assert_int_equal(gguf_writer_create(second, 32, &w, &e), 0);
    for (size_t i = 0; i < c->meta.n; i++) {
        gguf_writer_value(w, &c->meta.values[i]);
    }
    assert_int_equal(gguf_writer_tensor(w, "t", t->format, t->dims, t->n_dims, &e), 0);
    container_close(c);
    assert_int_equal(gguf_writer_begin(w, &e), 0);
    assert_int_equal(gguf_writer_finish(w, true, &e), 0);
    gguf_writer_destroy(w);
    assert_int_equal(container_open(second, &options, &c, &e), 0);
    assert_null(gguf_find(&c->meta, "general.alignment"));
    assert_int_equal(gguf_find(&c->meta, "i")->v.i, -3);
    assert_true(gguf_find(&c->meta, "l")->v.f == -1e300);
    assert_int_equal(gguf_find(&c->meta, "n")->count, 2);
    assert_int_equal(gguf_find(&c->meta, "n")->strings[0].data[0], 'x');
    container_close(c);
}

/* Ranges of every alignment in any order, from buffers that agree with the offset and from some that do not. */
static void test_file_part(void **state)
{
    enum { BYTES = 50000, RANGE = 7001 };
    const char *path = in(*state, "p"), *part = in(*state, "p.part");
    char *name = file_part_name(path), *data = malloc(BYTES), *back = NULL;
    unsigned char *buffer = aligned_alloc(FILE_PART_ALIGN, 4 * FILE_PART_ALIGN);
    struct file_part f = {0};
    struct error e = {0};
    size_t len;
    assert_string_equal(name, part);
    for (int i = 0; i < BYTES; i++) {
        data[i] = (char)(i * 7 + i / 256);
    }
    file_part_close(&f);
    assert_int_equal(file_part_open(&f, path, BYTES, true, &e), -ENOENT);
    assert_int_equal(file_part_open(&f, path, BYTES, false, &e), 0);
    for (int i = (BYTES - 1) / RANGE; i >= 0; i--) {
        size_t at = (size_t)i * RANGE, n = BYTES - at < RANGE ? BYTES - at : RANGE;
        unsigned char *p = buffer + (i % 3 == 0 ? 1 : at % FILE_PART_ALIGN);
        memcpy(p, data + at, n);
        assert_int_equal(file_part_write(&f, at, p, n, &e), 0);
    }
    assert_int_equal(file_part_sync(&f, &e), 0);
    file_part_close(&f);
    assert_int_equal(file_part_open(&f, path, BYTES + 1, true, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, "has 50000 bytes, an interrupted run would have left 50001", NULL);
    assert_int_equal(file_part_open(&f, path, BYTES, true, &e), 0);
    file_part_close(&f);
    assert_false(file_exists(path));
    assert_int_equal(file_part_publish(path, &e), 0);
    assert_false(file_exists(part));
    assert_int_equal(file_read_all(path, BYTES, &back, &len, &e), 0);
    assert_int_equal(len, BYTES);
    assert_memory_equal(back, data, BYTES);
    assert_int_equal(file_part_publish(path, &e), -ENOENT);
    assert_int_equal(file_part_open(&f, in(*state, "none/p"), 1, false, &e), -ENOENT);
    write_text(part, "x");
    file_part_remove(path);
    assert_false(file_exists(part));
    free(back);
    free(data);
    free(buffer);
    free(name);
}

int main(void)
{
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(test_open),      WITH_FOLDER(test_whole_files),        WITH_FOLDER(test_listing),
        WITH_FOLDER(test_full_disk), WITH_FOLDER(test_safetensors_writer), WITH_FOLDER(test_gguf_writer_example),
        WITH_FOLDER(test_gguf_round_trip), WITH_FOLDER(test_file_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
