/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of the CLI's parts that need no model: arguments, id lists, sampling flags, the text stream, dumps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/attr.h"
#include "src/cli/args.h"
#include "src/cli/dump.h"
#include "src/cli/generate.h"
#include "src/cli/input.h"
#include "src/cli/sampling.h"

struct parsed {
    const char *text, *rest;
    int64_t n;
    float x;
    bool on;
    struct sluice_error e;
    bool help;
};

static int parse(struct parsed *p, const char *const *words, struct sluice_options *options)
{
    *p = (struct parsed){ .n = -9, .x = -9.0f };
    const struct arg args[] = {
        { "--prompt", "-p", ARG_TEXT, "TEXT", "text", &p->text, NULL },
        { "--n-predict", "-n", ARG_INT, "N", "count", &p->n, NULL },
        { "--temp", NULL, ARG_FLOAT, "T", "number", &p->x, NULL },
        { "--raw", NULL, ARG_SWITCH, NULL, "switch", &p->on, NULL },
    };
    const struct args_spec spec = {
        .command = "run", .usage = "", .summary = "", .examples = "", .args = args, .n = ARRAY_LEN(args), .positional = &p->rest, .settings = options != NULL,
    };
    char *argv[12] = { "run" };
    int argc = 1;
    for (; words[argc - 1] != NULL; argc++) {
        argv[argc] = (char *)words[argc - 1];
    }
    return args_parse(&spec, argc, argv, options, &p->help, &p->e);
}

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void test_args(void **state)
{
    (void)state;
    struct parsed p;
    struct sluice_options *o = sluice_options_create();
    assert_non_null(o);
    assert_int_equal(parse(&p, WORDS("-p", "-hello", "--temp=-1.5", "-n", "-1", "--raw", "rest", "-ctk", "f32", "--threads=2"), o), SLUICE_OK);
    assert_string_equal(p.text, "-hello");
    assert_string_equal(p.rest, "rest");
    assert_int_equal(p.n, -1);
    assert_true(p.x == -1.5f);
    assert_true(p.on);
    assert_int_equal(parse(&p, WORDS("--prompt=a=b", "--", "-n"), o), SLUICE_OK);
    assert_string_equal(p.text, "a=b");
    assert_string_equal(p.rest, "-n");
    assert_int_equal(parse(&p, WORDS("-p", ""), o), SLUICE_OK);
    assert_string_equal(p.text, "");
    sluice_options_destroy(o);
}

static void refuse(const char *const *words, const char *part)
{
    struct parsed p;
    struct sluice_options *o = sluice_options_create();
    assert_non_null(o);
    assert_int_equal(parse(&p, words, o), SLUICE_USAGE);
    if (strstr(p.e.text, part) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", part, p.e.text);
    }
    sluice_options_destroy(o);
}

static void test_args_refused(void **state)
{
    (void)state;
    refuse(WORDS("--tmep", "1"), "did you mean --temp?");
    refuse(WORDS("--thread", "1"), "did you mean --threads?");
    refuse(WORDS("--xyzzyx"), "unknown flag --xyzzyx");
    refuse(WORDS("-ngl", "99"), "plan");
    refuse(WORDS("-sm", "none"), "plan");
    refuse(WORDS("-kvu"), "unknown flag -kvu; sluice run --help lists them");
    refuse(WORDS("--temp"), "value is missing");
    refuse(WORDS("-n", "--raw"), "value is missing");
    refuse(WORDS("-n", "1.5"), "whole number");
    refuse(WORDS("-n", "99999999999999999999"), "whole number");
    refuse(WORDS("--temp", "nan"), "number");
    refuse(WORDS("--temp", "1e300"), "number");
    refuse(WORDS("--raw=1"), "takes no value");
    refuse(WORDS("a", "b"), "unexpected argument b");
    refuse(WORDS("-ctk", "q9"), "q9");
    refuse(WORDS("--threads"), "value is missing");
    refuse(WORDS("--wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww"), "unknown flag");
}

static void test_ids(void **state)
{
    (void)state;
    struct ids l = { 0 };
    struct sluice_error e = { 0 };
    assert_int_equal(ids_parse(" [5, 17,23 2147483647]\n", "x", &l, &e), SLUICE_OK);
    assert_int_equal(l.n, 4);
    assert_int_equal(l.item[3], INT32_MAX);
    assert_int_equal(ids_parse("", "x", &l, &e), SLUICE_OK);
    const char *const bad[] = { "5,x", "-1", "2147483648", "5.5", "99999999999999999999999" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(ids_parse(bad[i], "--tokens", &l, &e), SLUICE_USAGE);
        assert_non_null(strstr(e.text, "--tokens"));
    }
    ids_deinit(&l);
}

static void test_sampling(void **state)
{
    (void)state;
    struct sampling s;
    struct sluice_error e = { 0 };
    sampling_init(&s);
    assert_int_equal(sampling_add_bias(&s, "42-1.5", &e), SLUICE_OK);
    assert_int_equal(sampling_add_bias(&s, "7+3", &e), SLUICE_OK);
    assert_int_equal(sampling_add_bias(&s, "9-inf", &e), SLUICE_OK);
    assert_int_equal(s.value.n_bias, 3);
    assert_true(s.bias[0].token == 42 && s.bias[0].add == -1.5f);
    assert_true(s.bias[1].token == 7 && s.bias[1].add == 3.0f);
    assert_true(s.bias[2].token == 9 && s.bias[2].add == -INFINITY);
    const char *const bad[] = { "42", "42+", "x+1", "+1", "42+inf", "42+nan", "42-1x", "9999999999+1", "" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(sampling_add_bias(&s, bad[i], &e), SLUICE_USAGE);
    }
    s.top_k = -1;
    assert_int_equal(sampling_finish(&s, &e), SLUICE_USAGE);
    s.top_k = 40;
    s.seed = 5;
    assert_int_equal(sampling_finish(&s, &e), SLUICE_OK);
    assert_true(s.value.seed == 5 && s.value.top_k == 40);
    sampling_deinit(&s);
}

/* What comes out for `text` given in pieces of `step` bytes. */
static void check_stream(const char *text, size_t len, size_t step, const char *expected)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    struct text_stream s;
    text_stream_init(&s, f);
    for (size_t i = 0; i < len; i += step) {
        text_stream_put(&s, text + i, len - i < step ? len - i : step);
    }
    text_stream_end(&s);
    char out[256];
    rewind(f);
    size_t n = fread(out, 1, sizeof(out) - 1, f);
    out[n] = '\0';
    fclose(f);
    assert_string_equal(out, expected);
}

static void test_stream(void **state)
{
    (void)state;
#define BAD "\xEF\xBF\xBD"
    static const char good[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z\xED\x9F\xBF\xF4\x8F\xBF\xBF";
    static const char broken[] = "a\xFF\xC3(\xE2\x82z\xED\xA0\x80\xC0\x80\xF5\xF0\x9F";
    for (size_t step = 1; step < 8; step++) {
        check_stream(good, sizeof(good) - 1, step, good);
        check_stream(broken, sizeof(broken) - 1, step, "a" BAD BAD "(" BAD BAD "z" BAD BAD BAD BAD BAD BAD BAD BAD);
    }
}

static void read_file(const char *path, unsigned char *out, size_t size, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *ret_n = fread(out, 1, size, f);
    fclose(f);
}

static void test_dump(void **state)
{
    (void)state;
    char folder[] = "/tmp/sluice-dump-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/out.safetensors", folder);
    const struct dump_array arrays[] = { { .name = "a", .integers = true, .rows = 2, .cols = 3 }, { .name = "b", .rows = 100, .cols = 2 } };
    struct dump *d = NULL;
    struct sluice_error e = { 0 };
    assert_int_equal(dump_create(path, arrays, 2, true, &d, &e), SLUICE_OK);
    assert_int_equal(access(path, F_OK), -1); /* not there before it is whole */
    dump_row(d, 1, 1, (float[]){ 3.0f, 4.0f });
    dump_row(d, 0, 1, (int32_t[]){ 4, 5, 6 });
    dump_row(d, 0, 0, (int32_t[]){ 1, 2, 3 });
    dump_row(d, 1, 0, (float[]){ 1.0f, 2.0f });
    dump_shorten(d, 2);
    assert_int_equal(dump_commit(d, &e), SLUICE_OK);
    dump_destroy(d);
    unsigned char bytes[1024];
    size_t n;
    read_file(path, bytes, sizeof(bytes) - 1, &n);
    bytes[n] = '\0';
    size_t header = bytes[0] | (size_t)bytes[1] << 8;
    assert_int_equal(n, 8 + header + 2 * 3 * 4 + 2 * 2 * 4);
    assert_int_equal(header % 8, 0);
    assert_memory_equal(bytes + 8, "{\"a\":{\"dtype\":\"I32\",\"shape\":[2,3],\"data_offsets\":[0,24]},\"b\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[24,40]}}", 109);
    assert_memory_equal(bytes + 8 + header, ((int32_t[]){ 1, 2, 3, 4, 5, 6 }), 24);
    assert_memory_equal(bytes + 8 + header + 24, ((float[]){ 1, 2, 3, 4 }), 16);

    assert_int_equal(dump_create(path, arrays, 2, false, &d, &e), SLUICE_OK);
    dump_destroy(d); /* given up: the old file stays, nothing else does */
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

static void test_dump_fails(void **state)
{
    (void)state;
    const struct dump_array array = { .name = "a", .rows = 4, .cols = 4 };
    struct dump *d = NULL;
    struct sluice_error e = { 0 };
    assert_int_equal(dump_create("/dev/full", &array, 1, true, &d, &e), SLUICE_FAILED);
    assert_non_null(strstr(e.text, "/dev/full"));
    assert_non_null(strstr(e.text, "No space"));
    assert_int_equal(dump_create("/nonexistent/x", &array, 1, true, &d, &e), SLUICE_FAILED);
    const struct dump_array huge = { .name = "a", .rows = UINT64_MAX / 2, .cols = 16 };
    assert_int_equal(dump_create("/tmp/never", &huge, 1, true, &d, &e), SLUICE_FAILED);
    assert_null(d);
    dump_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_args),
        cmocka_unit_test(test_args_refused),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_sampling),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_dump),
        cmocka_unit_test(test_dump_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
