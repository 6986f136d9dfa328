/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of settings.h: every flag of the stable interface, precedence, refusals, environment. */
#include "tests/unit/base/fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/attr.h"
#include "src/base/settings.h"

static int open_settings(void **state)
{
    struct settings *s = calloc(1, sizeof(*s));
    *state = s;
    return settings_init(s, NULL);
}

static int close_settings(void **state)
{
    settings_deinit(*state);
    free(*state);
    return 0;
}

static void defaults(void **state)
{
    struct settings *s = *state;
    assert_null(s->model);
    assert_int_equal(s->ram, 0);
    assert_int_equal(s->expert_ram.unit, AMOUNT_AUTO);
    assert_int_equal(s->threads, 0);
    assert_int_equal(s->ubatch, 512);
    assert_int_equal(s->context, 0);
    assert_string_equal(s->kv_type, "f16");
    assert_string_equal(s->activations, "int8");
    assert_string_equal(s->isa, "auto");
    assert_string_equal(s->io, "auto");
    assert_string_equal(s->mtp, "auto");
    assert_string_equal(s->gpu, "auto");
    assert_string_equal(s->reuse, "all");
    assert_string_equal(s->pre_tokenizer, "auto");
    for (uint32_t i = 0; i < settings_count(); i++) {
        assert_int_equal(s->source[i], SOURCE_DEFAULT);
    }
}

static void registry(void **state)
{
    (void)state;
    static const char *const flags[] = {
        "-m", "--model", "--mtp-from", "--model-mirror", "--ram", "--vram", "--expert-ram", "--expert-vram", "-t", "--threads", "-ub",
        "--ubatch", "--ubatch-size", "-c", "--ctx", "--ctx-size", "-np", "--parallel", "-ctk", "--cache-type-k", "--activations", "--isa",
        "--numa", "--io", "--io-limit", "--merge", "--prefetch", "--mtp", "--gpu", "--heat", "--profile", "--bulk",
        "--reuse", "--expert-groups", "--pre-tokenizer", "--machine",
    };
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        assert_in_range(settings_find_flag(flags[i]), 0, settings_count() - 1);
    }
    assert_int_equal(settings_find_flag("-t"), settings_find_flag("--threads"));
    static const char *const not_flags[] = { "", "-", "--", "threads", "-threads", "--t", "--thread", "-b" };
    for (size_t i = 0; i < ARRAY_LEN(not_flags); i++) {
        assert_int_equal(settings_find_flag(not_flags[i]), -1);
    }
    for (uint32_t i = 0; i < settings_count(); i++) {
        const struct setting_info *info = settings_info(i);
        char flag[80];
        snprintf(flag, sizeof(flag), "--%s", info->name);
        assert_int_equal(settings_find_flag(flag), i);
        assert_non_null(info->value);
        assert_non_null(info->help);
    }
    assert_null(settings_info(settings_count()));
}

static void accepts(void **state)
{
    struct settings *s = *state;
    static const char *const good[][2] = {
        { "ram", "24G" }, { "ram", "auto" }, { "vram", "auto" }, { "vram", "0" }, { "vram", "0,0" }, { "expert-ram", "0" },
        { "expert-ram", "12.5%" }, { "expert-ram", "128x" }, { "expert-ram", "1.5G" }, { "expert-vram", "0" },
        { "threads", "8" }, { "threads", "auto" }, { "ubatch", "8" }, { "ctx", "4096" }, { "ctx", "0" },
        { "cache-type-k", "q8_0" }, { "activations", "f32" }, { "isa", "scalar" }, { "numa", "off" }, { "numa", "on" }, { "numa", "0" },
        { "numa", "0,2" }, { "numa", "distribute" }, { "numa", "isolate" }, { "numa", "numactl" }, { "io", "pread" }, { "io", "uring" }, { "io", "mmap" },
        { "io-limit", "none" }, { "io-limit", "0" }, { "io-limit", "500M" }, { "merge", "off" }, { "merge", "on" }, { "prefetch", "off" }, { "prefetch", "ghost" }, { "prefetch", "on" }, { "mtp", "off" }, { "mtp", "on" }, { "mtp", "0" }, { "mtp", "8" },
        { "gpu", "none" }, { "bulk", "blas" }, { "reuse", "aligned" }, { "expert-groups", "off" },
        { "pre-tokenizer", "deepseek-v3" }, { "model", "/a b/c" }, { "machine", "m.json" },
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct error e = { 0 };
        int rc = settings_set(s, good[i][0], good[i][1], SOURCE_FLAG, &e);
        if (rc != 0) {
            fail_msg("%s", e.text);
        }
    }
    assert_int_equal(s->expert_ram.unit, AMOUNT_BYTES);
    assert_true(s->expert_ram.value == 1.5 * 1024 * 1024 * 1024);
    assert_int_equal(s->ubatch, 8);
    assert_string_equal(s->model, "/a b/c");
}

static void refuses(void **state)
{
    struct settings *s = *state;
    static const char *const bad[][3] = {
        { "io", "floppy", "--io floppy: unknown value, expected auto|uring|pread|mmap" },
        { "io", "uring|pread", "unknown value" },
        { "io", "aut", "unknown value" },
        { "mtp", "yes", "unknown value" },
        { "mtp", "N", "unknown value" },
        { "mtp", "9", "--mtp 9: unknown value, expected auto|off|on|N, N from 0 to 8" },
        { "mtp", "1,2", "unknown value" },
        { "numa", "N[,N]", "unknown value" },
        { "gpu", "0", "not in this build" },
        { "gpu", "0,1", "not in this build" },
        { "merge", "yes", "--merge yes: unknown value, expected on|off" },
        { "numa", "interleave", "expected auto|on|off|N[,N]" },
        { "profile", "", "--profile : empty, expected FILE" },
        { "io-limit", "fast", "--io-limit fast: expected a size such as 24G or 512M, or none" },
        { "io-limit", "-1", "expected a size" },
        { "vram", "24G", "not in this build" },
        { "vram", "0,1G", "not in this build" },
        { "vram", "0,0,0,0,0,0,0,0,0", "at most 8 GPUs" },
        { "expert-vram", "50%", "not in this build" },
        { "expert-vram", "1x", "not in this build" },
        { "cache-type-k", "q4_0", "expected f32|bf16|f16|q8_0" },
        { "ram", "lots", "expected a size such as 24G or 512M, or auto" },
        { "ram", "-1", "expected a size" },
        { "expert-ram", "101%", "a share such as 25%" },
        { "expert-ram", "-1%", "a share" },
        { "expert-ram", "1.5x", "a number of experts" },
        { "expert-ram", "x", "a number of experts" },
        { "expert-ram", "%", "a number of experts" },
        { "expert-ram", "", "a number of experts" },
        { "threads", "-1", "expected a number from 0 to 1024, or auto" },
        { "threads", "1025", "expected a number" },
        { "ubatch", "0", "--ubatch 0: expected a number from 1 to 65536" },
        { "ubatch", "auto", "expected a number" },
        { "ctx", "4294967296", "expected a number" },
        { "model", "", "--model : empty, expected PATH" },
        { "thread", "8", "unknown setting thread; did you mean threads?" },
        { "zzzzzzzzzzz", "8", "unknown setting zzzzzzzzzzz; sluice --help lists them" },
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct error e = { 0 };
        assert_int_equal(settings_set(s, bad[i][0], bad[i][1], SOURCE_FLAG, &e), ERROR_USAGE);
        if (strstr(e.text, bad[i][2]) == NULL) {
            fail_msg("%s %s: \"%s\" lacks \"%s\"", bad[i][0], bad[i][1], e.text, bad[i][2]);
        }
    }
    defaults(state); /* nothing of it was stored */
}

static void long_values_are_refused_quietly(void **state)
{
    char big[5000];
    memset(big, '9', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    for (uint32_t i = 0; i < settings_count(); i++) {
        struct error e = { 0 };
        int rc = settings_set(*state, settings_info(i)->name, big, SOURCE_FLAG, &e);
        assert_true(rc == 0 || rc == ERROR_USAGE);
    }
}

static void stronger_source_wins(void **state)
{
    struct settings *s = *state;
    assert_int_equal(settings_set(s, "threads", "4", SOURCE_FLAG, NULL), 0);
    assert_int_equal(settings_set(s, "threads", "2", SOURCE_ENV, NULL), 0);
    assert_int_equal(s->threads, 4);
    assert_int_equal(settings_set(s, "threads", "x", SOURCE_ENV, NULL), ERROR_USAGE); /* wrong even when overruled */
    assert_int_equal(settings_set(s, "threads", "5", SOURCE_FLAG, NULL), 0);
    assert_int_equal(s->threads, 5);
    assert_int_equal(settings_set_number(s, "threads", 7, SOURCE_FLAG, NULL), 0);
    assert_int_equal(s->threads, 7);
    assert_int_equal(settings_set_number(s, "threads", 1025, SOURCE_FLAG, NULL), ERROR_USAGE);
    assert_int_equal(settings_set(s, "threads", "6", SOURCE_API, NULL), 0);
    assert_int_equal(s->threads, 6);
    int index = settings_find_flag("-t");
    assert_int_equal(s->source[index], SOURCE_API);
    assert_string_equal(setting_source_name(s->source[index]), "program");
}

static void environment(void **state)
{
    struct settings *s = *state;
    struct error e = { 0 };
    setenv("SLUICE_EXPERT_RAM", "25%", 1);
    setenv("SLUICE_CACHE_TYPE_K", "bf16", 1);
    setenv("SLUICED", "not ours", 1);
    assert_int_equal(settings_read_environment(s, &e), 0);
    assert_int_equal(s->expert_ram.unit, AMOUNT_PERCENT);
    assert_string_equal(s->kv_type, "bf16");
    assert_int_equal(s->source[settings_find_flag("-ctk")], SOURCE_ENV);

    setenv("SLUICE_CACHE_TYPE_K", "q3", 1);
    assert_int_equal(settings_read_environment(s, &e), ERROR_USAGE);
    assert_string_equal(e.text, "SLUICE_CACHE_TYPE_K=q3: unknown value, expected f32|bf16|f16|q8_0");
    unsetenv("SLUICE_CACHE_TYPE_K");

    setenv("SLUICE_THREAD", "4", 1);
    assert_int_equal(settings_read_environment(s, &e), ERROR_USAGE);
    assert_string_equal(e.text, "unknown environment variable SLUICE_THREAD; did you mean SLUICE_THREADS?");
    unsetenv("SLUICE_THREAD");
    unsetenv("SLUICE_EXPERT_RAM");
    assert_string_equal(settings_environment("SLUICED"), "not ours");
    unsetenv("SLUICED");
    assert_null(settings_environment("SLUICED"));
}

static void expect_text(const struct settings *s, const char *flag, const char *text)
{
    struct str out = { 0 };
    settings_value(s, (uint32_t)settings_find_flag(flag), &out);
    assert_string_equal(out.data, text);
    str_deinit(&out);
}

static void values_as_text(void **state)
{
    struct settings *s = *state;
    expect_text(s, "--ram", "auto");
    expect_text(s, "--model", "none");
    expect_text(s, "--io-limit", "none");
    expect_text(s, "--vram", "auto");
    expect_text(s, "--expert-ram", "auto");
    expect_text(s, "-t", "auto");
    expect_text(s, "-ub", "512");
    expect_text(s, "-ctk", "f16");
    settings_set(s, "ram", "24G", SOURCE_FLAG, NULL);
    expect_text(s, "--ram", "24.00 GiB");
    settings_set(s, "expert-ram", "0", SOURCE_FLAG, NULL);
    expect_text(s, "--expert-ram", "0 B");
    settings_set(s, "expert-ram", "12.5%", SOURCE_FLAG, NULL);
    expect_text(s, "--expert-ram", "12.5%");
    settings_set(s, "expert-ram", "64x", SOURCE_FLAG, NULL);
    expect_text(s, "--expert-ram", "64x");
    s->vram[0] = 1 << 30;
    s->vram[1] = 2u << 30;
    expect_text(s, "--vram", "1.00 GiB,2.00 GiB");
    expect_text(s, "--ram", "24.00 GiB");
    settings_set(s, "io-limit", "500M", SOURCE_FLAG, NULL);
    expect_text(s, "--io-limit", "500.00 MiB");
}

/* Nothing is rounded: what is typed again is the same. */
static void values_as_typed(void **state)
{
    static const char *const values[][3] = {
        {"ram", "1500M", "1500M"}, {"ram", "1.5G", "1536M"}, {"ram", "12345", "12345"}, {"ram", "2T", "2T"}, {"expert-ram", "0", "0"},
        {"expert-ram", "12.3456789%", "12.3456789%"}, {"expert-ram", "640x", "640x"}, {"io-limit", "500M", "500M"}, {"io-limit", "0", "none"},
        {"threads", "0", "auto"}, {"ubatch", "256", "256"}, {"mtp", "2", "2"}};
    struct settings *s = *state;
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        struct str text = {0};
        assert_int_equal(settings_set(s, values[i][0], values[i][1], SOURCE_FLAG, NULL), 0);
        char flag[64];
        snprintf(flag, sizeof(flag), "--%s", values[i][0]);
        settings_typed(s, (uint32_t)settings_find_flag(flag), &text);
        assert_string_equal(text.data, values[i][2]);
        str_deinit(&text);
    }
}

static void copies_are_independent(void **state)
{
    struct settings *s = *state, copy;
    settings_set(s, "model", "a.gguf", SOURCE_FLAG, NULL);
    assert_int_equal(settings_copy(s, &copy, NULL), 0);
    settings_set(s, "model", "b.gguf", SOURCE_FLAG, NULL);
    assert_string_equal(copy.model, "a.gguf");
    assert_string_equal(copy.kv_type, "f16");
    assert_null(copy.heat);
    settings_deinit(&copy);
}

static void every_allocation_may_fail(void **state)
{
    struct settings *s = *state;
    int failed = 0, n = 1;
    for (;; n++) {
        struct settings t;
        struct error e = { 0 };
        fail_allocation(n);
        int rc = settings_init(&t, &e);
        if (!fail_happened()) {
            assert_int_equal(rc, 0);
            settings_deinit(&t);
            break;
        }
        assert_int_equal(rc, -ENOMEM);
        failed++;
    }
    assert_true(failed > 5);
    for (n = 1;; n++) {
        struct settings t;
        fail_allocation(n);
        int rc = settings_copy(s, &t, NULL);
        if (!fail_happened()) {
            assert_int_equal(rc, 0);
            settings_deinit(&t);
            break;
        }
        assert_int_equal(rc, -ENOMEM);
    }
    fail_allocation(1);
    assert_int_equal(settings_set(s, "model", "x", SOURCE_FLAG, NULL), -ENOMEM);
    assert_null(s->model);
    fail_allocation(0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_settings, close_settings)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(defaults), TEST(registry), TEST(accepts), TEST(refuses), TEST(long_values_are_refused_quietly),
        TEST(stronger_source_wins), TEST(environment), TEST(values_as_text), TEST(values_as_typed),
        TEST(copies_are_independent), TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
