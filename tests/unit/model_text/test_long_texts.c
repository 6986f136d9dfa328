/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: long texts that invite quadratic work. Processor times are printed; the test's own limit catches a hang. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/model/pretokenizer.h"
#include "tests/unit/model_text/text_test.h"

enum { BYTES = 10 << 20, SPLIT_BYTES = 2 << 20 };

static const char *const units[] = { " ", "a", "\n", "1", "中", "<", "a b", " \n", "\xff", "々", "Hello, world! 12345\n" };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The last byte is another one, so that a run is followed by a letter. */
static char *repeat(const char *unit, size_t bytes)
{
    char *text = malloc(bytes);
    assert_non_null(text);
    for (size_t i = 0, n = strlen(unit); i < bytes; i++) {
        text[i] = unit[i % n];
    }
    text[bytes - 1] = 'x';
    return text;
}

static void encode_v3(void **state)
{
    (void)state;
    struct tokenizer *t = test_open(V3_FOLDER);
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        char *text = repeat(units[i], BYTES);
        double begin = seconds();
        struct token_list ids = test_encode(t, text, BYTES, TOKENIZE_SPECIAL);
        print_message("10 MiB of unit %zu: %zu tokens, %.2f s\n", i, ids.n, seconds() - begin);
        token_list_deinit(&ids);
        free(text);
    }
    tokenizer_close(t);
}

static int count_piece(void *ctx, const char *piece, size_t len)
{
    (void)piece;
    *(size_t *)ctx += len;
    return 0;
}

static void split_with(const char *name)
{
    struct pretokenizer p = { 0 };
    struct pretokenizer_scratch s;
    struct error e = { 0 };
    assert_int_equal(pretokenizer_add_named(&p, name, strlen(name), &e), 0);
    assert_int_equal(pretokenizer_scratch_init(&p, &s, &e), 0);
    double begin = seconds();
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        char *text = repeat(units[i], SPLIT_BYTES);
        size_t total = 0;
        if (pretokenizer_split(&p, &s, text, utf8_valid_prefix(text, SPLIT_BYTES), count_piece, &total, &e) < 0) {
            fail_msg("%s, unit %zu: %s", name, i, e.text);
        }
        free(text);
    }
    print_message("%s: %.2f s for all units of 2 MiB\n", name, seconds() - begin);
    pretokenizer_scratch_deinit(&s);
    pretokenizer_deinit(&p);
}

static void split_family(void **state)
{
    (void)state;
    static const char *const names[] = { "deepseek-v3", "deepseek-llm", "deepseek-coder", "kimi-k2", "glm4" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        split_with(names[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(encode_v3), cmocka_unit_test(split_family) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
