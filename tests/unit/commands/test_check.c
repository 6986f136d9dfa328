/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the scan for bad numbers, and check and inspect from the outside: exit status and what they print. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "common/attr.h"
#include "io/file.h"
#include "src/commands/check_scan.h"
#include "src/commands/commands.h"

static void test_scan_finds_bad_scales(void **state)
{
    (void)state;
    static const struct {
        enum weight_format format;
        unsigned at;
    } halves[] = {
        { FORMAT_Q8_0, 0 },   { FORMAT_Q4_0, 0 },    { FORMAT_Q4_1, 2 },    { FORMAT_Q5_0, 0 },  { FORMAT_Q5_1, 2 },
        { FORMAT_IQ4_NL, 0 }, { FORMAT_Q2_K, 80 },   { FORMAT_Q2_K, 82 },   { FORMAT_Q3_K, 108 }, { FORMAT_Q4_K, 2 },
        { FORMAT_Q5_K, 0 },   { FORMAT_Q6_K, 208 },  { FORMAT_IQ4_XS, 0 },  { FORMAT_IQ1_S, 0 }, { FORMAT_IQ2_XXS, 0 },
        { FORMAT_IQ2_XS, 0 }, { FORMAT_IQ2_S, 0 },   { FORMAT_IQ3_XXS, 0 }, { FORMAT_IQ3_S, 0 }, { FORMAT_F16, 0 },
    };
    uint8_t data[16 * 256];
    for (size_t i = 0; i < ARRAY_LEN(halves); i++) {
        uint32_t size = weight_format_info(halves[i].format)->block_bytes;
        struct scan s = { .kind = SCAN_FORMAT, .format = halves[i].format };
        memset(data, 0x11, sizeof(data));
        scan_bytes(&s, data, 10 * size);
        assert_int_equal(s.bad, 0);
        data[3 * size + halves[i].at] = 0x00;
        data[3 * size + halves[i].at + 1] = 0x7c; /* infinity */
        data[9 * size + halves[i].at] = 0x01;
        data[9 * size + halves[i].at + 1] = 0xfe; /* NaN */
        scan_bytes(&s, data, 10 * size);
        assert_int_equal(s.bad, 2);
        assert_int_equal(s.first_bad, 13);
        assert_int_equal(s.seen, 20);
    }
}

static void test_scan_of_single_numbers(void **state)
{
    (void)state;
    uint8_t data[64];
    struct scan s = { .kind = SCAN_FORMAT, .format = FORMAT_F8_E4M3 };
    memset(data, 0x7e, sizeof(data));
    data[61] = 0xff;
    data[62] = 0xfe;
    scan_bytes(&s, data, 63);
    assert_int_equal(s.bad, 1);
    assert_int_equal(s.first_bad, 61);
    const float floats[5] = { 1, -3e38f, 0, -0.0f, 1e-40f };
    s = (struct scan){ .kind = SCAN_FORMAT, .format = FORMAT_F32 };
    scan_bytes(&s, (const uint8_t *)floats, sizeof(floats));
    assert_int_equal(s.bad, 0);
    s = (struct scan){ .kind = SCAN_SCALE, .format = FORMAT_F32 };
    scan_bytes(&s, (const uint8_t *)floats, sizeof(floats));
    assert_int_equal(s.bad, 2); /* negative ones, -0 among them */
    assert_string_equal(s.what, "negative scale");
    const uint16_t bf16[9] = { 0x7f7f, 0xff7f, 0x3f80, 0, 0, 0, 0, 0x7f80, 0xffff };
    s = (struct scan){ .kind = SCAN_FORMAT, .format = FORMAT_BF16 };
    scan_bytes(&s, (const uint8_t *)bf16, sizeof(bf16));
    assert_int_equal(s.bad, 2);
    assert_int_equal(s.first_bad, 7);
    const uint8_t exponents[3] = { 0, 254, 255 };
    s = (struct scan){ .kind = SCAN_E8M0, .format = FORMAT_NONE };
    scan_bytes(&s, exponents, 3);
    assert_int_equal(s.first_bad, 2);
    s = (struct scan){ .kind = SCAN_NOTHING, .format = FORMAT_NONE };
    scan_bytes(&s, data, sizeof(data));
    assert_int_equal(s.bad, 0);
    uint8_t blocks[2 * 17] = { 0 };
    blocks[17] = 255;
    s = (struct scan){ .kind = SCAN_FORMAT, .format = FORMAT_MXFP4 };
    scan_bytes(&s, blocks, sizeof(blocks));
    assert_int_equal(s.first_bad, 1);
    uint8_t iq1_m[56] = { 0 };
    iq1_m[53] = 0xc0; /* bits 8..11 of the scale */
    iq1_m[55] = 0x70; /* bits 12..15 */
    s = (struct scan){ .kind = SCAN_FORMAT, .format = FORMAT_IQ1_M };
    scan_bytes(&s, iq1_m, sizeof(iq1_m));
    assert_int_equal(s.bad, 1);
}

/* Runs a command with its output in a file; returns the exit status. */
static int run(int (*command)(int, char **, const volatile int *), char **argv, const char *out, int cancelled)
{
    int argc = 0;
    volatile int cancel = cancelled;
    while (argv[argc] != NULL) {
        argc++;
    }
    fflush(stdout);
    fflush(stderr);
    int saved_out = dup(STDOUT_FILENO), saved_err = dup(STDERR_FILENO);
    assert_non_null(freopen(out, "w", stdout));
    dup2(STDOUT_FILENO, STDERR_FILENO);
    int status = command(argc, argv, &cancel);
    fflush(stdout);
    dup2(saved_out, STDOUT_FILENO);
    dup2(saved_err, STDERR_FILENO);
    close(saved_out);
    close(saved_err);
    return status;
}

struct place {
    char folder[64], out[128], copy[128];
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    strcpy(p->folder, "/tmp/sluice-check-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->out, sizeof(p->out), "%s/out", p->folder);
    snprintf(p->copy, sizeof(p->copy), "%s/model.gguf", p->folder);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    remove(p->out);
    remove(p->copy);
    rmdir(p->folder);
    free(p);
    return 0;
}

static char *output(const struct place *p)
{
    char *text;
    size_t len;
    assert_int_equal(file_read_all(p->out, 1 << 24, &text, &len, NULL), 0);
    return text;
}

static void assert_output(const struct place *p, const char *part)
{
    char *text = output(p);
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", part, text);
    }
    free(text);
}

/* A copy of a golden file with one byte pair near its end overwritten. */
static void copy_altered(const struct place *p, size_t from_end, uint8_t a, uint8_t b)
{
    char *data;
    size_t len;
    assert_int_equal(file_read_all(GOLDEN "/kq-q4/model.gguf", 1 << 24, &data, &len, NULL), 0);
    if (from_end > 0) {
        data[len - from_end] = (char)a;
        data[len - from_end + 1] = (char)b;
    }
    assert_int_equal(file_write_all(p->copy, data, len, NULL), 0);
    free(data);
}

static void test_check(void **state)
{
    struct place *p = *state;
    char *good[] = { "check", "-m", GOLDEN "/v3-fp8", "--json", NULL };
    assert_int_equal(run(command_check, good, p->out, 0), 0);
    json_t *root = json_load_file(p->out, 0, NULL);
    assert_true(json_is_true(json_object_get(root, "ok")));
    assert_int_equal(json_array_size(json_object_get(root, "tensors")), 145);
    json_decref(root);
    /* Q6_K has its scale at the end of a block: row 255 of expert 2, the last block of the file */
    copy_altered(p, 2, 0x00, 0x7c);
    char *bad[] = { "check", "-m", p->copy, NULL };
    assert_int_equal(run(command_check, bad, p->out, 0), 1);
    assert_output(p, "tensor blk.1.ffn_down_exps.weight (Q6_K): 1 bad blocks, the first is block 767 (layer 1, expert 2, row 255, "
                     "column 0..255): NaN or infinite scale");
    assert_int_equal(run(command_check, bad, p->out, 1), 130);
    assert_output(p, "interrupted");
}

static void test_check_against(void **state)
{
    struct place *p = *state;
    char earlier[160];
    snprintf(earlier, sizeof(earlier), "%s/earlier", p->folder);
    copy_altered(p, 0, 0, 0);
    char *first[] = { "check", "-m", p->copy, "--json", NULL };
    assert_int_equal(run(command_check, first, earlier, 0), 0);
    char *again[] = { "check", "-m", p->copy, "--against", earlier, NULL };
    assert_int_equal(run(command_check, again, p->out, 0), 0);
    assert_output(p, "all good, as in the earlier report");
    copy_altered(p, 100, 1, 2); /* a weight, not a scale: only the fingerprint shows it */
    assert_int_equal(run(command_check, again, p->out, 0), 1);
    assert_output(p, "blk.1.ffn_down_exps.weight has fingerprint");
    assert_output(p, p->copy);
    char *other[] = { "check", "-m", GOLDEN "/gguf-f32", "--against", earlier, NULL };
    assert_int_equal(run(command_check, other, p->out, 0), 1);
    assert_output(p, "is not in the earlier report");
    char *no_report[] = { "check", "-m", p->copy, "--against", p->copy, NULL };
    assert_int_equal(run(command_check, no_report, p->out, 0), 1);
    assert_output(p, "sluice check --json");
    remove(earlier);
}

static void test_inspect(void **state)
{
    struct place *p = *state;
    char *gguf[] = { "inspect", "-m", GOLDEN "/kq-q2", "--json", NULL };
    assert_int_equal(run(command_inspect, gguf, p->out, 0), 0);
    json_t *root = json_load_file(p->out, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(root, "kind")), "gguf");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "shape"), "hidden")), 256);
    const json_t *tensors = json_object_get(root, "tensors");
    assert_int_equal(json_array_size(tensors), 34);
    const json_t *k_b = json_array_get(tensors, 0);
    assert_string_equal(json_string_value(json_object_get(k_b, "name")), "blk.0.attn_k_b.weight");
    assert_string_equal(json_string_value(json_object_get(k_b, "type")), "Q5_0");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(k_b, "shape"), 0)), 32);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(k_b, "shape"), 1)), 256);
    assert_string_equal(json_string_value(json_object_get(k_b, "file")),
                        json_string_value(json_object_get(json_array_get(json_object_get(root, "files"), 0), "path")));
    json_decref(root);
    char *hf[] = { "inspect", "-m", GOLDEN "/glm-flash", "--tensors", NULL };
    assert_int_equal(run(command_inspect, hf, p->out, 0), 0);
    assert_output(p, "no scoring_func, assumed sigmoid");
    assert_output(p, "model.layers.1.mlp.experts.7.down_proj.weight");
    assert_output(p, "routed experts");
}

static void test_usage(void **state)
{
    struct place *p = *state;
    int (*commands[])(int, char **, const volatile int *) = { command_inspect, command_check };
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        char *help[] = { "x", "--help", NULL }, *foreign[] = { "x", "-m", "y", "--ram", "4G", NULL }, *none[] = { "x", NULL };
        char *value[] = { "x", "-m", NULL }, *nowhere[] = { "x", "-m", "/nowhere/at/all", NULL };
        assert_int_equal(run(commands[i], help, p->out, 0), 0);
        assert_output(p, "examples:");
        assert_int_equal(run(commands[i], foreign, p->out, 0), 2);
        assert_output(p, "--ram");
        assert_int_equal(run(commands[i], none, p->out, 0), 2);
        assert_int_equal(run(commands[i], value, p->out, 0), 2);
        assert_int_equal(run(commands[i], nowhere, p->out, 0), 1);
        assert_output(p, "/nowhere/at/all");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scan_finds_bad_scales),
        cmocka_unit_test(test_scan_of_single_numbers),
        cmocka_unit_test_setup_teardown(test_check, setup, teardown),
        cmocka_unit_test_setup_teardown(test_check_against, setup, teardown),
        cmocka_unit_test_setup_teardown(test_inspect, setup, teardown),
        cmocka_unit_test_setup_teardown(test_usage, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
