/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: roles <-> tensor names of both kinds. */
#include <string.h>

#include "src/model/names.h"
#include "tests/unit/model/model_test.h"

static void test_names_of_roles(void **state)
{
    (void)state;
    char name[NAME_BYTES];
    assert_true(names_hf(ROLE_EXPERT_UP, 3, 7, name));
    assert_string_equal(name, "model.layers.3.mlp.experts.7.up_proj.weight");
    assert_true(names_gguf(ROLE_EXPERT_UP, 3, name));
    assert_string_equal(name, "blk.3.ffn_up_exps.weight");
    assert_true(names_hf(ROLE_ROUTER_BIAS, 60, 0, name));
    assert_string_equal(name, "model.layers.60.mlp.gate.e_score_correction_bias");
    assert_true(names_gguf(ROLE_ROUTER_BIAS, 60, name));
    assert_string_equal(name, "blk.60.exp_probs_b.bias");
    assert_true(names_hf(ROLE_HEAD, 5, 5, name));
    assert_string_equal(name, "lm_head.weight");
    assert_true(names_gguf(ROLE_EMBED, 5, name));
    assert_string_equal(name, "token_embd.weight");
    assert_true(names_gguf(ROLE_MTP_NORM, 61, name));
    assert_string_equal(name, "blk.61.nextn.shared_head_norm.weight");
    assert_true(names_hf(ROLE_MTP_HEAD, 61, 0, name));
    assert_string_equal(name, "model.layers.61.shared_head.head.weight");
    assert_false(names_hf(ROLE_K_B, 0, 0, name));
    assert_true(names_gguf(ROLE_K_B, 0, name));
    assert_false(names_gguf(ROLE_COUNT, 0, name));
}

static void test_every_role_is_named(void **state)
{
    (void)state;
    char name[NAME_BYTES];
    for (unsigned r = 0; r < ROLE_COUNT; r++) {
        assert_true(strlen(role_name((enum role)r)) > 0);
        assert_true(names_gguf((enum role)r, 1023, name));
        assert_true(strlen(name) < 64); /* the limit of GGUF */
        names_hf((enum role)r, 1023, 4095, name);
        assert_true(strlen(name) + 16 < NAME_BYTES);
    }
    assert_true(role_is_vector(ROLE_FINAL_NORM));
    assert_true(role_is_vector(ROLE_ROUTER_BIAS));
    assert_false(role_is_vector(ROLE_ROUTER));
    assert_false(role_is_vector(ROLE_COUNT));
}

static void test_layer_of_a_name(void **state)
{
    (void)state;
    assert_int_equal(names_layer("model.layers.61.enorm.weight"), 61);
    assert_int_equal(names_layer("model.layers.6.mlp.gate.weight"), 6);
    assert_int_equal(names_layer("blk.0.attn_q.weight"), 0);
    assert_int_equal(names_layer("model.norm.weight"), -1);
    assert_int_equal(names_layer("token_embd.weight"), -1);
    assert_int_equal(names_layer("model.layers."), -1);
    assert_int_equal(names_layer("model.layers.6"), -1);
    assert_int_equal(names_layer("model.layers.06.x"), -1);
    assert_int_equal(names_layer("blk.99999999999.x"), -1);
    assert_int_equal(names_layer("blk.-1.x"), -1);
    assert_int_equal(names_layer(""), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_roles),
        cmocka_unit_test(test_every_role_is_named),
        cmocka_unit_test(test_layer_of_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
