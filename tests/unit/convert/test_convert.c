/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion, its pieces: rounding at the edges of each format, names of pre-tokenizers, the command under a sanitizer. What the
 * bytes of a model are is tested from outside (tests/test_convert.py). */
#undef NDEBUG
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/exact.h"
#include "io/file.h"
#include "src/base/json_text.h"
#include "src/commands/commands.h"
#include "src/commands/convert_encode.h"
#include "src/commands/gguf_keys.h"
#include "src/model/pretokenizer.h"

static void test_q8_0(void **state)
{
    (void)state;
    float x[64] = {0};
    unsigned char out[68];
    x[3] = 127.0f; /* d = 1 */
    x[4] = 0.5f;   /* halves go away from 0 */
    x[5] = -0.5f;
    x[6] = 2.5f;
    x[7] = -126.49f;
    x[8] = 0.49999997f;
    x[32 + 1] = -1e-30f; /* d is no half: stored as 0 */
    assert_true(convert_encode(FORMAT_Q8_0, x, 64, out));
    const int8_t *q = (const int8_t *)out + 2;
    assert_int_equal(out[0] | out[1] << 8, 0x3c00);
    assert_int_equal(q[3], 127);
    assert_int_equal(q[4], 1);
    assert_int_equal(q[5], -1);
    assert_int_equal(q[6], 3);
    assert_int_equal(q[7], -126);
    assert_int_equal(q[8], 0);
    assert_int_equal(out[34] | out[35] << 8, 0);
    x[32 + 1] = 1e-42f; /* 1 / d would be infinite */
    assert_true(convert_encode(FORMAT_Q8_0, x, 64, out));
    x[0] = 127.0f * 65520.0f;
    assert_false(convert_encode(FORMAT_Q8_0, x, 64, out));
}

static void test_halves(void **state)
{
    (void)state;
    const float x[4] = {65519.0f, -1.00048828125f /* halfway, to even */, 0x1p-25f, 1e-10f};
    uint16_t out[4];
    assert_true(convert_encode(FORMAT_F16, x, 4, out));
    assert_int_equal(out[0], 0x7bff);
    assert_int_equal(out[1], 0xbc00);
    assert_int_equal(out[2], 0);
    assert_int_equal(out[3], 0);
    const float large[1] = {65520.0f};
    assert_false(convert_encode(FORMAT_F16, large, 1, out));
    const float y[2] = {1.00390625f /* halfway, to even */, -3.0f};
    assert_true(convert_encode(FORMAT_BF16, y, 2, out));
    assert_int_equal(out[0], 0x3f80);
    assert_int_equal(out[1], 0xc040);
}

/* No stored value is further off than the comparison allows, and the bound is no wider than twice what happens. */
static void test_tolerances(void **state)
{
    (void)state;
    static const enum weight_format formats[] = {FORMAT_BF16, FORMAT_F16, FORMAT_Q8_0};
    uint32_t r = 1;
    for (size_t f = 0; f < ARRAY_LEN(formats); f++) {
        float used = 0;
        for (int trial = 0; trial < 20000; trial++) {
            float x[32], block_max = 0;
            unsigned char out[128];
            for (int i = 0; i < 32; i++) {
                r = r * 1664525u + 1013904223u;
                x[i] = ldexpf((float)(int32_t)r * 0x1p-31f, -(int)(r >> 8 & 7));
                block_max = fmaxf(block_max, fabsf(x[i]));
            }
            assert_true(convert_encode(formats[f], x, 32, out));
            for (int i = 0; i < 32; i++) {
                uint16_t half;
                memcpy(&half, formats[f] == FORMAT_Q8_0 ? out : out + 2 * i, 2);
                float y = formats[f] == FORMAT_Q8_0 ? half_to_float(half) * (float)(int8_t)out[2 + i]
                          : formats[f] == FORMAT_F16 ? half_to_float(half) : bf16_to_float(half);
                float allowed = convert_tolerance(formats[f], x[i], block_max);
                assert_true(fabsf(y - x[i]) <= allowed);
                used = fmaxf(used, fabsf(y - x[i]) / allowed);
            }
        }
        assert_true(used > 0.5f);
    }
}

static void test_names_of_pre_tokenizers(void **state)
{
    (void)state;
    static const char *const names[] = {"deepseek-v3", "deepseek-llm", "deepseek-coder", "kimi-k2", "glm4"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *const *patterns = pretokenizer_patterns(names[i], strlen(names[i]));
        size_t n = 0;
        while (patterns[n] != NULL) {
            n++;
        }
        assert_string_equal(pretokenizer_name(patterns, n), names[i]);
        assert_null(pretokenizer_name(patterns, n - 1));
    }
    assert_null(pretokenizer_patterns("deepseek", 8));
    char *text;
    size_t len;
    json_t *root;
    assert_int_equal(file_read_all(ROOT "/tests/data/deepseek-v3-tokenizer/tokenizer.json", 1 << 26, &text, &len, NULL), 0);
    assert_int_equal(json_text_parse(text, len, JSON_ALLOW_NUL, &root, NULL), 0);
    const json_t *steps = json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers");
    const char *patterns[3]; /* literal characters where ours are \x{...} */
    for (size_t i = 0; i < 3; i++) {
        patterns[i] = json_string_value(json_object_get(json_object_get(json_array_get(steps, i), "pattern"), "Regex"));
    }
    assert_string_equal(pretokenizer_name(patterns, 3), "deepseek-v3");
    json_decref(root);
    free(text);
}

static void test_rules_without_a_key(void **state)
{
    (void)state;
    struct error e = {0};
    struct shape good = {.rope_magnitude = 1, .yarn = true, .yarn_truncate = true, .experts = 4, .moe_layer_freq = 1};
    struct shape bad[4] = {good, good, good, good};
    bad[0].rope_half_split = true;
    bad[1].rope_magnitude = 1.1;
    bad[2].yarn_truncate = false;
    bad[3].moe_layer_freq = 2;
    assert_int_equal(gguf_keys_check(&good, "x", &e), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(gguf_keys_check(&bad[i], "x", &e), ERROR_FORMAT);
    }
}

static void test_command(void **state)
{
    (void)state;
    char folder[] = "/tmp/sluice-convert-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/m.gguf", folder);
    static const char *const sources[] = {"v3", "v3-fp8", "v3-f32", "v2-lite", "glm-flash"};
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        char source[512];
        snprintf(source, sizeof(source), "%s/tests/data/golden/%s", ROOT, sources[i]);
        const char *argv[] = {"convert", "-m", source, "--type", "q8_0", "-o", path, "--verify", "--force"};
        volatile int cancel = 1;
        assert_int_equal(command_convert(9, (char **)(uintptr_t)argv, &cancel), 130);
        assert_int_equal(command_convert(9, (char **)(uintptr_t)argv, NULL), 0);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_q8_0),        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_tolerances),  cmocka_unit_test(test_names_of_pre_tokenizers),
        cmocka_unit_test(test_rules_without_a_key), cmocka_unit_test(test_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
