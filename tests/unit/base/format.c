/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of format.h against the published table of GGUF types. */
#include "tests/unit/base/fail.h"

#include <ctype.h>
#include <string.h>

#include "common/attr.h"
#include "common/format.h"

/* Written down a second time on purpose: a slip in one of the two tables shows. */
static const struct {
    uint32_t id;
    const char *name;
    uint32_t elems, bytes;
} published[] = {
    { 0, "F32", 1, 4 },         { 1, "F16", 1, 2 },         { 2, "Q4_0", 32, 18 },      { 3, "Q4_1", 32, 20 },
    { 6, "Q5_0", 32, 22 },      { 7, "Q5_1", 32, 24 },      { 8, "Q8_0", 32, 34 },      { 10, "Q2_K", 256, 84 },
    { 11, "Q3_K", 256, 110 },   { 12, "Q4_K", 256, 144 },   { 13, "Q5_K", 256, 176 },   { 14, "Q6_K", 256, 210 },
    { 16, "IQ2_XXS", 256, 66 }, { 17, "IQ2_XS", 256, 74 },  { 18, "IQ3_XXS", 256, 98 }, { 19, "IQ1_S", 256, 50 },
    { 20, "IQ4_NL", 32, 18 },   { 21, "IQ3_S", 256, 110 },  { 22, "IQ2_S", 256, 82 },   { 23, "IQ4_XS", 256, 136 },
    { 29, "IQ1_M", 256, 56 },   { 30, "BF16", 1, 2 },       { 39, "MXFP4", 32, 17 },
};

static void agrees_with_the_published_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(published); i++) {
        enum weight_format f = weight_format_by_ggml(published[i].id);
        const struct weight_format_info *info = weight_format_info(f);
        assert_non_null(info);
        assert_int_equal(weight_format_by_name(published[i].name), f);
        assert_string_equal(ggml_type_name(published[i].id), published[i].name);
        assert_int_equal(info->block_elems, published[i].elems);
        assert_int_equal(info->block_bytes, published[i].bytes);
        assert_int_equal(info->act_block, published[i].elems == 1 ? 0 : published[i].elems);
    }
    assert_int_equal(ARRAY_LEN(published) + 1, FORMAT_COUNT); /* FP8 is the one without a GGUF id */
}

static void names_are_unique_and_lower(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMAT_COUNT; f++) {
        const struct weight_format_info *info = weight_format_info((enum weight_format)f);
        assert_int_equal(weight_format_by_name(info->name), f);
        for (const char *p = info->name; *p != '\0'; p++) {
            assert_false(isupper((unsigned char)*p));
        }
        if (info->safetensors != NULL) {
            assert_int_equal(weight_format_by_safetensors(info->safetensors), f);
        }
    }
    assert_int_equal(weight_format_by_safetensors("F8_E4M3"), FORMAT_F8_E4M3);
    assert_int_equal(weight_format_by_safetensors("I64"), FORMAT_NONE);
    assert_int_equal(weight_format_by_name(""), FORMAT_NONE);
}

static void foreign_and_removed_ids(void **state)
{
    (void)state;
    assert_null(weight_format_info(FORMAT_NONE));
    assert_null(weight_format_info((enum weight_format)-1));
    static const uint32_t removed[] = { 4, 5, 31, 32, 33, 36, 37, 38, 43, 100, UINT32_MAX };
    for (size_t i = 0; i < ARRAY_LEN(removed); i++) {
        assert_int_equal(weight_format_by_ggml(removed[i]), FORMAT_NONE);
        assert_null(ggml_type_name(removed[i]));
    }
    assert_string_equal(ggml_type_name(34), "TQ1_0");
    assert_string_equal(ggml_type_name(40), "NVFP4");
    assert_int_equal(weight_format_by_ggml(40), FORMAT_NONE);
}

static void row_bytes(void **state)
{
    (void)state;
    uint64_t b = 1;
    assert_true(weight_row_bytes(FORMAT_Q4_K, 7168, &b));
    assert_int_equal(b, 28 * 144);
    assert_true(weight_row_bytes(FORMAT_F8_E4M3, 7, &b));
    assert_int_equal(b, 7);
    assert_false(weight_row_bytes(FORMAT_Q4_K, 7000, &b));
    assert_false(weight_row_bytes(FORMAT_F32, 0, &b));
    assert_false(weight_row_bytes(FORMAT_F32, UINT64_MAX / 2, &b));
    assert_false(weight_row_bytes(FORMAT_NONE, 32, &b));
    assert_int_equal(b, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_published_table), cmocka_unit_test(names_are_unique_and_lower),
        cmocka_unit_test(foreign_and_removed_ids), cmocka_unit_test(row_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
