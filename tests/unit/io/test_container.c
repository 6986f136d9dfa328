/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of opening whole models: every way to name one, and every fault of a set. Fixtures are the golden models. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/container.h"
#include "io/gguf_write.h"
#include "tests/unit/io/io_test.h"

static const char split_parts[3][32] = {"model-00001-of-00003.gguf", "model-00002-of-00003.gguf", "model-00003-of-00003.gguf"};
static const char fp8_shards[3][48] = {"model-00001-of-000003.safetensors", "model-00002-of-000003.safetensors",
                                       "model-00003-of-000003.safetensors"};
static const char index_name[] = "model.safetensors.index.json";

static struct container *open_ok(const char *path, const struct container_options *options)
{
    struct container *c;
    struct error e = {0};
    if (container_open(path, options, &c, &e) < 0) {
        fail_msg("%s: %s", path, e.text);
    }
    return c;
}

static void opens(const char *path, size_t tensors, uint32_t files)
{
    struct container *c = open_ok(path, NULL);
    assert_int_equal(c->n_tensors, tensors);
    assert_int_equal(c->n_files, files);
    assert_false(c->header_only);
    container_close(c);
}

/* Fails with a one-line message that holds all the texts. */
#define refused(path, ...)                                                                                                               \
    do {                                                                                                                                 \
        struct container *refused_c;                                                                                                     \
        struct error refused_e = {0};                                                                                                    \
        int refused_r = container_open(path, NULL, &refused_c, &refused_e);                                                              \
        assert_true(refused_r < 0);                                                                                                      \
        check_error(&refused_e, refused_r, __VA_ARGS__, NULL);                                                                           \
    } while (0)

static void test_golden(void **state)
{
    (void)state;
    opens(GOLDEN "/v3", 269, 2);
    opens(GOLDEN "/v3/model-00002-of-00002.safetensors", 269, 2);
    opens(GOLDEN "/v3/" "model.safetensors.index.json", 269, 2);
    opens(GOLDEN "/v3-fp8", 145, 3);
    for (int i = 0; i < 3; i++) {
        opens(in(GOLDEN "/v3-fp8", fp8_shards[i]), 145, 3);
        opens(in(GOLDEN "/gguf-q8_0-split", split_parts[i]), 34, 3);
    }
    opens(GOLDEN "/v3-fp8/expect.safetensors", 16, 1);
    opens(GOLDEN "/v3-f32", 53, 1);
    opens(GOLDEN "/v3-f32/model.safetensors", 53, 1);
    opens(GOLDEN "/gguf-q8_0-split", 34, 3);
    opens(GOLDEN "/gguf-f32", 34, 1);
    opens(GOLDEN "/kq-iq1/model.gguf", 21, 1);
}

static void test_tensors(void **state)
{
    (void)state;
    struct container *c = open_ok(GOLDEN "/v3-fp8", NULL);
    char where[256];
    assert_int_equal(c->kind, CONTAINER_SAFETENSORS);
    assert_string_equal(c->folder, GOLDEN "/v3-fp8");
    const struct tensor *t = container_find(c, "model.layers.0.self_attn.kv_a_proj_with_mqa.weight");
    assert_non_null(t);
    assert_int_equal(t->format, FORMAT_F8_E4M3);
    assert_string_equal(t->type_name, "F8_E4M3");
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[1], 144);
    assert_int_equal(t->bytes, t->dims[0] * 144);
    assert_true(t->offset + t->bytes <= c->files[t->file].size);
    assert_non_null(strstr(container_where(c, t, where, sizeof where), "safetensors: tensor model.layers.0.self_attn.kv_a"));
    assert_null(container_find(c, "absent"));
    for (size_t i = 1; i < c->n_tensors; i++) {
        assert_true(strcmp(c->tensors[i - 1].name, c->tensors[i].name) < 0);
    }
    container_close(c);
    c = open_ok(GOLDEN "/gguf-q8_0-split/model-00003-of-00003.gguf", NULL);
    assert_int_equal(c->kind, CONTAINER_GGUF);
    assert_string_equal(c->folder, GOLDEN "/gguf-q8_0-split/");
    uint64_t u;
    assert_int_equal(gguf_get_u64(&c->meta, "deepseek2.block_count", &u, NULL), 1);
    t = container_find(c, "token_embd.weight"); /* {hidden, vocabulary} in the file */
    assert_int_equal(t->format, FORMAT_Q8_0);
    assert_int_equal(t->dims[0], 320);
    assert_int_equal(t->bytes, 320 * t->dims[1] / 32 * 34);
    container_close(c);
}

static void test_not_a_model(void **state)
{
    const char *folder = *state;
    refused(in(folder, "absent"), "absent", "No such file");
    refused(in(folder, "absent.gguf"), "absent.gguf is missing");
    refused(in(folder, "absent.safetensors"), "absent.safetensors is missing");
    refused(folder, folder, "holds no .gguf and no .safetensors file");
    write_text(in(folder, "config.json"), "{\"a\": \"some configuration\"}");
    refused(in(folder, "config.json"), "config.json: is neither");
    write_text(in(folder, "empty.gguf"), "");
    refused(in(folder, "empty.gguf"), "empty.gguf", "0 are left");
    write_text(in(folder, "page.gguf"), "<!DOCTYPE html>");
    refused(in(folder, "page.gguf"), "page.gguf: begins with bytes 3c 21 44 4f");
    write_text(in(folder, "m.safetensors"), "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n");
    refused(in(folder, "m.safetensors"), "Git LFS pointer", "git lfs pull");
    write_text(in(folder, "m.safetensors"), "<!DOCTYPE html> is here");
    refused(in(folder, "m.safetensors"), "claims a header of");
    assert_int_equal(mkfifo(in(folder, "pipe.gguf"), 0600), 0);
    refused(in(folder, "pipe.gguf"), "pipe.gguf: not a regular file");
    write_text(in(folder, "m.safetensors"), "\x02\0\0\0\0\0\0\0{}");
    write_bytes(in(folder, "none.safetensors"), "\x02\0\0\0\0\0\0\0{}", 10);
    refused(in(folder, "none.safetensors"), "holds no tensors");
}

static void test_split_missing_and_short(void **state)
{
    const char *folder = *state;
    copy_tree(GOLDEN "/gguf-q8_0-split", folder);
    unlink(in(folder, split_parts[1]));
    refused(in(folder, split_parts[0]), "1 of 3 files cannot be used", "model-00002-of-00003.gguf is missing");
    refused(folder, "model-00002-of-00003.gguf is missing");
    assert_int_equal(truncate(in(folder, split_parts[2]), 60000), 0);
    refused(in(folder, split_parts[2]), "2 of 3 files", "model-00002-of-00003.gguf is missing", "model-00003-of-00003.gguf: tensor", "needs",
            "bytes at offset", "the file of 60000 bytes has", "incomplete");
    unlink(in(folder, split_parts[0]));
    refused(in(folder, split_parts[0]), "model-00001-of-00003.gguf and model-00002-of-00003.gguf are missing", "model-00003-of-00003.gguf: tensor");
    write_text(in(folder, split_parts[2]), "GGUF");
    refused(folder, "model-00003-of-00003.gguf: the header is cut at byte 4");
}

/* Shards 2 and 4 of 4 missing, 3 short; and a long set of which one file is there. */
static void test_safetensors_missing_and_short(void **state)
{
    const char *folder = *state;
    copy_tree(GOLDEN "/v3-fp8", folder);
    assert_int_equal(truncate(in(folder, fp8_shards[2]), 30000), 0);
    unlink(in(folder, fp8_shards[1]));
    for (int i = 0; i < 3; i += 2) {
        refused(in(folder, fp8_shards[i]), "2 of 3 files", "model-00002-of-000003.safetensors is missing",
                "model-00003-of-000003.safetensors: tensor", "the file of 30000 bytes has");
    }
    unlink(in(folder, index_name));
    refused(folder, "holds 2 sets of safetensors files (expect.safetensors, model-00001-of-000003.safetensors) and no index");
}

static void test_long_sets(void **state)
{
    const char *folder = *state;
    copy_file(GOLDEN "/v3-f32/model.safetensors", in(folder, "big-00007-of-00163.safetensors"), SIZE_MAX);
    refused(folder, "162 of 163 files", "big-00001-of-00163.safetensors to big-00006-of-00163.safetensors are missing (6 files)",
            "big-00008-of-00163.safetensors to big-00163-of-00163.safetensors are missing (156 files)");
    refused(in(folder, "big-00200-of-00163.safetensors"), "numbered 200 of 163");
}

static void test_split_foreign(void **state)
{
    const char *folder = *state;
    copy_tree(GOLDEN "/gguf-q8_0-split", folder);
    /* Part 3 under the number of part 2. */
    copy_file(GOLDEN "/gguf-q8_0-split/model-00003-of-00003.gguf", in(folder, split_parts[1]), SIZE_MAX);
    refused(in(folder, split_parts[1]), "model-00002-of-00003.gguf: is part 3 of 3 by its metadata, but 2 by its name: renamed");
    /* A whole model in the place of a part. */
    copy_file(GOLDEN "/gguf-q4_0/model.gguf", in(folder, split_parts[1]), SIZE_MAX);
    refused(in(folder, split_parts[0]), "model-00002-of-00003.gguf: has no split.count: not a part of this set");
    /* Names that say another number of parts. */
    rename(in(folder, split_parts[0]), in(folder, "model-00001-of-00002.gguf"));
    refused(in(folder, "model-00001-of-00002.gguf"), "is part 1 of 3 by its metadata, but 1 of 2 by its name", "00002-of-00002.gguf is missing");
    refused(in(folder, "model-00004-of-00003.gguf"), "4 of 3");
}

/* Two parts written here, whose totals can be made wrong. */
static void write_part(const char *path, unsigned no, unsigned count, int total, const char *tensor)
{
    struct gguf_writer *w;
    struct error e = {0};
    assert_int_equal(gguf_writer_create(path, 32, &w, &e), 0);
    gguf_writer_integer(w, "split.no", GGUF_U16, no);
    gguf_writer_integer(w, "split.count", GGUF_U32, count);
    gguf_writer_integer(w, "split.tensors.count", GGUF_I32, (uint64_t)total);
    float data[8] = {0};
    if (tensor != NULL) {
        assert_int_equal(gguf_writer_tensor(w, tensor, FORMAT_F32, (uint64_t[]){8}, 1, &e), 0);
    }
    assert_int_equal(gguf_writer_begin(w, &e), 0);
    assert_int_equal(gguf_writer_append(w, data, tensor != NULL ? sizeof data : 0, &e), 0);
    assert_int_equal(gguf_writer_finish(w, false, &e), 0);
    gguf_writer_destroy(w);
}

static void test_split_totals(void **state)
{
    const char *folder = *state;
    const char *one = in(folder, "x-00001-of-00002.gguf"), *two = in(folder, "x-00002-of-00002.gguf");
    write_part(one, 0, 2, 2, "a");
    write_part(two, 1, 2, 2, "b");
    opens(two, 2, 2);
    write_part(two, 1, 2, 2, "a");
    refused(one, "tensor a is both in x-00001-of-00002.gguf and in x-00002-of-00002.gguf");
    write_part(two, 1, 2, 3, "b");
    refused(one, "x-00002-of-00002.gguf: belongs to a set of 3 tensors, the parts before to one of 2");
    write_part(one, 0, 2, 3, "a");
    refused(one, "hold 2 tensors, split.tensors.count says 3");
    write_part(one, 0, 2, -1, "a");
    refused(one, "x-00001-of-00002.gguf: key split.tensors.count is -1");
    write_part(one, 0, 2, 1, NULL); /* metadata only in the first part */
    write_part(two, 1, 2, 1, "b");
    opens(folder, 1, 2);
    write_part(two, 0, 0, 1, "b"); /* merged again under an old name */
    opens(two, 1, 1);
}

static void join(const char *to, const char *folder, const char *const *names, int n)
{
    struct bytes all = {0};
    for (int i = 0; i < n; i++) {
        struct bytes b = read_bytes(in(folder, names[i]));
        put(&all, b.data, b.len);
        bytes_free(&b);
    }
    write_bytes(to, all.data, all.len);
    bytes_free(&all);
}

static void test_joined(void **state)
{
    const char *folder = *state;
    const char *const gguf[] = {split_parts[0], split_parts[1], split_parts[2]};
    const char *const safetensors[] = {fp8_shards[0], fp8_shards[1], fp8_shards[2]};
    join(in(folder, "joined.gguf"), GOLDEN "/gguf-q8_0-split", gguf, 3);
    refused(in(folder, "joined.gguf"), "joined.gguf: another GGUF file begins at byte 66176", "Do not join", "pass the first part");
    join(in(folder, split_parts[0]), GOLDEN "/gguf-q8_0-split", gguf, 3);
    refused(in(folder, split_parts[0]), "model-00001-of-00003.gguf: another GGUF file begins", "00003.gguf are missing");
    unlink(in(folder, split_parts[0]));
    unlink(in(folder, "joined.gguf"));
    join(in(folder, "model.safetensors"), GOLDEN "/v3-fp8", safetensors, 3);
    refused(folder, "model.safetensors: another safetensors file begins at byte", "Do not join");
    copy_file(GOLDEN "/v3-f32/model.safetensors", in(folder, "model.safetensors"), SIZE_MAX);
    FILE *f = fopen(in(folder, "model.safetensors"), "ab");
    fputs("some more bytes", f);
    fclose(f);
    refused(folder, "model.safetensors: 15 bytes follow the last tensor");
}

static void test_unsupported_naming(void **state)
{
    const char *folder = *state;
    copy_file(GOLDEN "/gguf-q8_0-split/model-00001-of-00003.gguf", in(folder, "model.part1.gguf"), SIZE_MAX);
    refused(in(folder, "model.part1.gguf"), "model.part1.gguf: is part 1 of 3", "-00001-of-00003.gguf");
    refused(folder, "is part 1 of 3");
}

static void test_folders(void **state)
{
    const char *folder = *state;
    refused(GOLDEN "/gguf-bf16", "holds several models (model-k_b.gguf, model-kv_b.gguf)");
    copy_tree(GOLDEN "/gguf-q8_0-split", folder);
    opens(folder, 34, 3);
    copy_file(GOLDEN "/gguf-q4_0/model.gguf", in(folder, "other.gguf"), SIZE_MAX);
    refused(folder, "several models (model-00001-of-00003.gguf, other.gguf)");
    unlink(in(folder, "other.gguf"));
    copy_file(GOLDEN "/v3-f32/model.safetensors", in(folder, "model.safetensors"), SIZE_MAX);
    refused(folder, "several models (model-00001-of-00003.gguf, a safetensors model)");
}

/* A file without an ending, as in a cache of blobs. */
static void test_no_ending(void **state)
{
    const char *folder = *state;
    copy_file(GOLDEN "/gguf-q4_0/model.gguf", in(folder, "0123abcd"), SIZE_MAX);
    opens(in(folder, "0123abcd"), 34, 1);
    copy_file(GOLDEN "/v3-f32/model.safetensors", in(folder, "0123abce"), SIZE_MAX);
    opens(in(folder, "0123abce"), 53, 1);
}

static void test_index_disagrees(void **state)
{
    const char *folder = *state;
    copy_tree(GOLDEN "/v3-fp8", folder);
    copy_file(GOLDEN "/v3-fp8/model-00003-of-000003.safetensors", in(folder, fp8_shards[1]), SIZE_MAX);
    refused(in(folder, fp8_shards[0]), "1 of 3 files", "model-00002-of-000003.safetensors: does not agree with the index", "do not belong there (first: ",
            "are not there (first: ");
    copy_file(GOLDEN "/v3-f32/model.safetensors", in(folder, fp8_shards[1]), SIZE_MAX);
    refused(folder, "model-00002-of-000003.safetensors: does not agree with the index: 37 tensors do not belong there");
    write_text(in(folder, index_name), "{\"weight_map\":{\"lm_head.weight\":\"../model.safetensors\"}}");
    refused(folder, index_name, "'../model.safetensors'");
    write_text(in(folder, index_name), "{\"weight_map\":{\"lm_head.weight\":7}}");
    refused(folder, index_name, "byte 32");
    write_text(in(folder, index_name), "{\"weight_map\":{\"lm_head.weight\":\"elsewhere.safetensors\"}}");
    refused(folder, "elsewhere.safetensors is missing");
    copy_file(GOLDEN "/v3-fp8/model.safetensors.index.json", in(folder, "a.safetensors.index.json"), SIZE_MAX);
    unlink(in(folder, index_name));
    copy_file(GOLDEN "/v3-fp8/model.safetensors.index.json", in(folder, "b.safetensors.index.json"), SIZE_MAX);
    refused(folder, "several indexes (a.safetensors.index.json, b.safetensors.index.json");
}

static bool wants_head(void *ctx, const char *name)
{
    (void)ctx;
    return strcmp(name, "lm_head.weight") == 0;
}

static bool wants_nothing(void *ctx, const char *name)
{
    (void)ctx;
    (void)name;
    return false;
}

static void test_wanted(void **state)
{
    const char *folder = *state;
    struct container_options options = {.want = wants_head};
    copy_tree(GOLDEN "/v3-fp8", folder);
    struct container *c = open_ok(folder, &options);
    assert_int_equal(c->n_files, 1);
    assert_non_null(container_find(c, "lm_head.weight"));
    const char *shard = strrchr(c->files[0].path, '/') + 1;
    for (int i = 0; i < 3; i++) {
        if (strcmp(fp8_shards[i], shard) != 0) {
            unlink(in(folder, fp8_shards[i]));
        }
    }
    container_close(c);
    container_close(open_ok(folder, &options));
    struct error e = {0};
    options.want = wants_nothing;
    assert_int_equal(container_open(folder, &options, &c, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, "lists none of the tensors", NULL);
}

/* A file cut behind its header serves planning only. */
static void header_only(const char *folder, const char *from, const char *name, size_t header, size_t tensors)
{
    struct container_options options = {.allow_header_only = true};
    const char *path = in(folder, name);
    copy_file(from, path, header);
    struct container *c = open_ok(path, &options);
    assert_true(c->header_only);
    assert_int_equal(c->n_tensors, tensors);
    container_close(c);
    refused(path, name, "tensor", "sluice plan");
    copy_file(from, path, header + 20000); /* a broken download is none */
    struct error e = {0};
    assert_int_equal(container_open(path, &options, &c, &e), ERROR_FORMAT);
    check_error(&e, ERROR_FORMAT, "incomplete", NULL);
    copy_file(from, path, SIZE_MAX);
    c = open_ok(path, &options);
    assert_false(c->header_only);
    container_close(c);
    unlink(path);
}

static void test_header_only(void **state)
{
    struct container *c = open_ok(GOLDEN "/gguf-f32", NULL);
    uint64_t start = UINT64_MAX;
    for (size_t i = 0; i < c->n_tensors; i++) {
        start = c->tensors[i].offset < start ? c->tensors[i].offset : start;
    }
    container_close(c);
    header_only(*state, GOLDEN "/gguf-f32/model.gguf", "h.gguf", start, 34);
    header_only(*state, GOLDEN "/v3-f32/model.safetensors", "h.safetensors", 8 + 5712, 53);
}

/* 60 cuts of a file, spread over it and at its last bytes: always an error that names file and figures. */
static void cut(const char *folder, const char *from, const char *name)
{
    struct bytes b = read_bytes(from);
    for (int i = 0; i < 60; i++) {
        size_t n = i < 20 ? (size_t)i * 7 : i < 55 ? b.len * (size_t)(i - 19) / 37 : b.len - (size_t)(60 - i);
        write_bytes(in(folder, name), b.data, n);
        refused(in(folder, name), name);
    }
    unlink(in(folder, name));
    bytes_free(&b);
}

static void test_cuts(void **state)
{
    cut(*state, GOLDEN "/gguf-q4_0/model.gguf", "cut.gguf");
    cut(*state, GOLDEN "/gguf-mxfp4/model.gguf", "cut.gguf");
    cut(*state, GOLDEN "/v3-f32/model.safetensors", "cut.safetensors");
    cut(*state, GOLDEN "/glm-flash/model.safetensors", "cut.safetensors");
}

/* A type nobody knows, patched into a file; and one that is known but has no kernel. */
static void test_types(void **state)
{
    struct bytes b = read_bytes(GOLDEN "/gguf-f32/model.gguf");
    static const char name[] = "output_norm.weight";
    uint8_t *at = memmem(b.data, b.len, name, sizeof name - 1);
    assert_non_null(at);
    uint8_t *type = at + sizeof name - 1 + 4 + 8;
    const char *path = in(*state, "x.gguf");
    *type = 26;
    write_bytes(path, b.data, b.len);
    struct container *c = open_ok(path, NULL);
    assert_int_equal(container_find(c, name)->format, FORMAT_NONE);
    assert_string_equal(container_find(c, name)->type_name, "I32");
    container_close(c);
    *type = 200;
    write_bytes(path, b.data, b.len);
    refused(path, "x.gguf: tensor output_norm.weight has type 200 (unknown)", "supported: F32, F16, BF16, Q8_0", "IQ3_S");
    bytes_free(&b);
}

int main(void)
{
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),        cmocka_unit_test(test_tensors),       WITH_FOLDER(test_not_a_model),
        WITH_FOLDER(test_split_missing_and_short), WITH_FOLDER(test_safetensors_missing_and_short),
        WITH_FOLDER(test_long_sets),          WITH_FOLDER(test_split_foreign),      WITH_FOLDER(test_split_totals),
        WITH_FOLDER(test_joined),             WITH_FOLDER(test_unsupported_naming), WITH_FOLDER(test_folders),
        WITH_FOLDER(test_no_ending),          WITH_FOLDER(test_index_disagrees),    WITH_FOLDER(test_wanted),
        WITH_FOLDER(test_header_only),        WITH_FOLDER(test_cuts),               WITH_FOLDER(test_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
