/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: exp, sigmoid and the float conversions of common/exact.h. Must not know: the kernels that use them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/exact.h"

static void exp_special_values(void **state)
{
    (void)state;
    assert_true(exp_exact(0.0f) == 1.0f);
    assert_true(exp_exact(-0.0f) == 1.0f);
    assert_true(exp_exact(-87.0f) > 0x1p-126f);
    assert_int_equal(float_bits(exp_exact(nextafterf(-87.0f, -100.0f))), 0);
    assert_int_equal(float_bits(exp_exact(-INFINITY)), 0);
    assert_true(isfinite(exp_exact(EXACT_EXP_MAX)));
    assert_true(isinf(exp_exact(nextafterf(EXACT_EXP_MAX, 100.0f))));
    assert_true(isinf(exp_exact(INFINITY)));
    assert_true(isnan(exp_exact(NAN)));
}

/* Every 997th float against the double of libm. */
static void exp_is_within_one_ulp(void **state)
{
    (void)state;
    for (uint64_t u = 0; u <= UINT32_MAX; u += 997) {
        float x = float_from_bits((uint32_t)u);
        if (!(x >= EXACT_EXP_MIN && x <= EXACT_EXP_MAX)) {
            continue;
        }
        double expected = exp((double)x);
        double ulp = ldexp(1.0, ilogb(expected) - 23);
        if (fabs((double)exp_exact(x) - expected) > ulp) {
            fail_msg("exp(%a) is %a, expected %a", (double)x, (double)exp_exact(x), expected);
        }
    }
}

static void sigmoid_values(void **state)
{
    (void)state;
    assert_true(sigmoid_exact(0.0f) == 0.5f);
    assert_true(sigmoid_exact(200.0f) == 1.0f);
    assert_true(sigmoid_exact(-200.0f) == 0.0f);
    assert_true(isnan(sigmoid_exact(NAN)));
    for (float x = -30.0f; x <= 30.0f; x += 0.37f) {
        double expected = 1.0 / (1.0 + exp(-(double)x));
        assert_true(fabs((double)sigmoid_exact(x) - expected) <= 3e-7 * expected);
    }
}

/* value of a half by its definition */
static double half_value(uint16_t h)
{
    int exponent = (h >> 10) & 31, mantissa = h & 1023;
    double magnitude = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return h & 0x8000 ? -magnitude : magnitude;
}

static void half_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float x = half_to_float((uint16_t)h);
        if ((h & 0x7c00) != 0x7c00) {
            assert_true((double)x == half_value((uint16_t)h));
            assert_int_equal(signbit(x) != 0, h >> 15);
            assert_int_equal(float_to_half(x), h);
        } else if ((h & 0x3ff) == 0) {
            assert_true(isinf(x));
            assert_int_equal(float_to_half(x), h);
        } else {
            assert_true(isnan(x));
            assert_int_equal(float_to_half(x), (h & 0x8000) | 0x7e00);
        }
    }
}

/* Halfway between neighbours goes to the even one, anything beside it to the nearer one. */
static void half_rounds_to_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double above = h == 0x7bff ? 65536.0 : half_value((uint16_t)(h + 1));
        float middle = (float)((half_value((uint16_t)h) + above) / 2);
        assert_int_equal(float_to_half(middle), h % 2 == 0 ? h : h + 1);
        assert_int_equal(float_to_half(nextafterf(middle, 0.0f)), h);
        assert_int_equal(float_to_half(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(float_to_half(-middle), 0x8000 | (h % 2 == 0 ? h : h + 1));
    }
    assert_int_equal(float_to_half(3e38f), 0x7c00);
}

static void bf16_conversion(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7f80; h++) {
        float x = bf16_to_float((uint16_t)h);
        float middle = float_from_bits(h << 16 | 0x8000);
        assert_int_equal(float_to_bf16(x), h);
        assert_int_equal(float_to_bf16(middle), h % 2 == 0 ? h : h + 1);
        assert_int_equal(float_to_bf16(float_from_bits(h << 16 | 0x7fff)), h);
        assert_int_equal(float_to_bf16(float_from_bits(h << 16 | 0x8001)), h + 1);
    }
    assert_int_equal(float_to_bf16(-INFINITY), 0xff80);
    assert_int_equal(float_to_bf16(float_from_bits(0x7f800001)), 0x7fc0);
    assert_int_equal(float_to_bf16(float_from_bits(0xffffffff)), 0xffc0);
}

/* spec: (-1)^s m 2^-9, (-1)^s (1 + m/8) 2^(e-7), NaN at e = 15 and m = 7 */
static void e4m3_values(void **state)
{
    (void)state;
    static const struct {
        uint8_t code;
        float value;
    } known[] = {{0x00, 0.0f}, {0x01, 0.001953125f}, {0x07, 0.013671875f}, {0x08, 0.015625f}, {0x30, 0.5f},
                 {0x38, 1.0f}, {0x3c, 1.5f},         {0x40, 2.0f},         {0x77, 240.0f},    {0x7e, 448.0f},
                 {0xb8, -1.0f}, {0xc5, -3.25f},      {0xfe, -448.0f}};
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        assert_true(e4m3_to_float(known[i].code) == known[i].value);
    }
    for (unsigned code = 0; code < 256; code++) {
        int e = (code >> 3) & 15, m = code & 7;
        double magnitude = e == 0 ? ldexp(m, -9) : ldexp(8 + m, e - 10);
        float x = e4m3_to_float((uint8_t)code);
        if ((code & 127) == 127) {
            assert_true(isnan(x));
        } else {
            assert_true((double)x == (code & 128 ? -magnitude : magnitude));
            assert_int_equal(signbit(x) != 0, code >> 7);
            assert_true(half_to_float(e4m3_to_half_scaled((uint8_t)code)) * 256.0f == x);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_special_values), cmocka_unit_test(exp_is_within_one_ulp),
        cmocka_unit_test(sigmoid_values),     cmocka_unit_test(half_round_trip),
        cmocka_unit_test(half_rounds_to_even), cmocka_unit_test(bf16_conversion),
        cmocka_unit_test(e4m3_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
