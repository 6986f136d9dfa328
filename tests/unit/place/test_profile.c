/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles: what is read, every refusal with its line and key, writing and reading back, precedence. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/attr.h"
#include "src/place/profile.h"

static const char whole[] = "# a comment\n"
                            "name: box-1\n"
                            "description: >\n"
                            "  two lines\n"
                            "  of text\n"
                            "machine:\n"
                            "  cpu: \"a \\\"fast\\\" one\"\n"
                            "  cores: 16\n"
                            "  nodes: 2\n"
                            "  memory_total: 192G\n"
                            "  memory_available: 180.5G\n"
                            "  ram_read_gb_s: 75\n"
                            "  fma_gop_s: 2304\n"
                            "  bf16_gop_s: 1\n"
                            "  int8_gop_s: 9216\n"
                            "  nvme_read_gb_s: 12.8\n"
                            "  nvme_depth: 64\n"
                            "  nvme_chunk: 512K\n"
                            "  gpus:\n"
                            "    - {name: one, vram: 24G, read_gb_s: 907, pcie_gb_s: 25}\n"
                            "    - vram: 512M\n"
                            "settings:\n"
                            "  ram: 176G\n"
                            "  expert-ram: 47%\n"
                            "  threads: 12\n"
                            "  ctx-size: 8192\n"
                            "  mtp: off\n"
                            "  cache-type-k: 'q8_0'\n"
                            "results:\n"
                            "  - model: V3 q4_k\n"
                            "    command: sluice bench -m x -n 128\n"
                            "    version: 0.1.0\n"
                            "    date: 2026-11-30\n"
                            "    decode_tok_s: 4.25\n"
                            "    prefill_tok_s: 100\n"
                            "    expert_share: 0.47\n"
                            "    hit_ratio: 0.86\n"
                            "  - {command: x, version: \"1\", date: 2027-01-31}\n";

static int parse(const char *text, struct profile *ret, struct error *e) { return profile_parse(text, strlen(text), "p.yaml", ret, e); }

static void test_every_key_is_read(void **state)
{
    (void)state;
    struct profile p;
    struct error e = {0};
    if (parse(whole, &p, &e) != 0) {
        fail_msg("%s", e.text);
    }
    assert_string_equal(p.name, "box-1");
    assert_string_equal(p.description, "two lines of text");
    assert_true(p.has_machine);
    assert_string_equal(p.machine.cpu, "a \"fast\" one");
    assert_int_equal(p.machine.cores, 16);
    assert_int_equal(p.machine.nodes, 2);
    assert_int_equal(p.machine.memory_total, UINT64_C(192) << 30);
    assert_int_equal(p.machine.limit[LIMIT_AVAILABLE], (UINT64_C(361) << 30) / 2);
    assert_true(p.machine.ram_read_gb_s == 75 && p.machine.fma_gop_s == 2304 && p.machine.bf16_gop_s == 1);
    assert_true(p.machine.int8_gop_s == 9216 && p.machine.nvme_read_gb_s == 12.8);
    assert_true(p.machine.nvme_depth == 64 && p.machine.nvme_chunk == 512 << 10);
    assert_int_equal(p.n_gpus, 2);
    assert_string_equal(p.gpu[0].name, "one");
    assert_true(p.gpu[0].vram == UINT64_C(24) << 30 && p.gpu[0].read_gb_s == 907 && p.gpu[0].pcie_gb_s == 25);
    assert_true(p.gpu[1].vram == UINT64_C(512) << 20 && p.gpu[1].name[0] == '\0');
    assert_int_equal(p.n_settings, 6);
    assert_int_equal(p.setting[3].index, settings_find_flag("--ctx"));
    assert_string_equal(p.setting[1].value, "47%");
    assert_int_equal(p.n_results, 2);
    assert_string_equal(p.result[0].command, "sluice bench -m x -n 128");
    assert_string_equal(p.result[0].date, "2026-11-30");
    assert_true(p.result[0].decode_tok_s == 4.25 && p.result[0].prefill_tok_s == 100 && p.result[0].hit_ratio == 0.86 && p.result[0].expert_share == 0.47);
    assert_string_equal(p.result[1].version, "1");
    struct hits h = profile_hits(&p);
    double there = hits_ratio(&h, 0.47);
    assert_true(there > 0.8599999 && there < 0.8600001);

    assert_int_equal(parse("name: x\n", &p, &e), 0); /* the least */
    assert_true(!p.has_machine && p.n_settings == 0 && p.n_results == 0 && profile_hits(&p).bend == 0 && profile_hits(NULL).bend == 0);
    assert_int_equal(parse("{\"name\": \"x\", \"machine\": {\"cores\": 1, \"memory_total\": \"1G\", \"memory_available\": 5}}", &p, &e), 0);
    assert_true(p.machine.nodes == 1 && p.machine.limit[LIMIT_AVAILABLE] == 5);
}

static void test_written_and_read_again(void **state)
{
    (void)state;
    static const char *const texts[] = {
        whole, "name: x\n", "name: x\ndescription: \"\\u00fc \\u2028 \\U0001f600 # - : 'a' \\\"b\\\" \\xa0\"\n",
        "name: x\ndescription: '- {a: b}'\nsettings: {expert-ram: 64x, numa: '0,1', io: pread}\n",
        "name: x\nmachine: {cores: 3, memory_total: 1000000007, memory_available: 3K, ram_read_gb_s: 0.1, int8_gop_s: 1e15}\n"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct profile p, back;
        struct str first = {0}, second = {0};
        struct error e = {0};
        assert_int_equal(parse(texts[i], &p, &e), 0);
        assert_int_equal(profile_write(&p, &first, &e), 0);
        if (profile_parse(first.data, first.len, "written", &back, &e) != 0) {
            fail_msg("%s\n%s", e.text, first.data);
        }
        assert_memory_equal(&p, &back, sizeof(p));
        assert_int_equal(profile_write(&back, &second, &e), 0);
        assert_string_equal(first.data, second.data);
        str_deinit(&first);
        str_deinit(&second);
    }
}

#define MACHINE "name: x\nmachine:\n  cores: 4\n  memory_total: 8G\n  memory_available: 7G\n"
#define RESULT "name: x\nresults:\n  - command: c\n    version: v\n    date: "

static void test_refusals_name_line_and_key(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "p.yaml:1: is empty"},
        {"# nothing\n", "p.yaml:1: is empty"},
        {"name: x\nname: y\n", "p.yaml:2: name: is given twice"},
        {"description: x\n", "p.yaml:1: name is missing"},
        {"name: x\ndescripton: y\n", "p.yaml:2: descripton: unknown key; did you mean description?"},
        {"name: x\nzzzz: y\n", "p.yaml:2: zzzz: unknown key, expected one of: name, description, machine, settings, results"},
        {"name: a/b\n", "p.yaml:1: name: a/b: expected letters"},
        {"name: .x\n", "p.yaml:1: name: .x: expected letters"},
        {"name:\n", "p.yaml:1: name: has no value"},
        {"name: [x]\n", "p.yaml:1: name: found a list, expected one value"},
        {"name: {a: b}\n", "p.yaml:1: name: found keys with values, expected one value"},
        {"name: \"a\\0b\"\n", "p.yaml:1: name: holds a zero byte"},
        {"name: x\ndescription: \"a\\x1b[1m\"\n", "p.yaml:2: description: holds a control character at byte 1"},
        {"name: x\ndescription: \"\\u00fc\\x9b1m\"\n", "p.yaml:2: description: holds a control character at byte 2"},
        {"name: x\ndescription: \" \"\n", "p.yaml:2: description: has 0 bytes, expected 1 to 599"},
        {"- name: x\n", "p.yaml:1: expected keys with values"},
        {"name: x\n? [a, b]\n: c\n", "p.yaml:2: a key: found a list"},
        {"name: x\nmachine: 4\n", "p.yaml:2: machine: expected keys with values, such as \"cpu: ...\""},
        {"name: x\nmachine:\n  cores: 4\n  memory_available: 1G\n", "p.yaml:3: machine: memory_total is missing"},
        {"name: x\nmachine:\n  core: 4\n", "p.yaml:3: machine: core: unknown key; did you mean cores?"},
        {"name: x\nmachine:\n  cores: 0\n", "p.yaml:3: machine: cores: 0: expected a whole number from 1 to 65536"},
        {"name: x\nmachine:\n  cores: four\n", "p.yaml:3: machine: cores: four: expected a whole number"},
        {"name: x\nmachine:\n  memory_total: 5Q\n", "p.yaml:3: machine: memory_total: 5Q: expected a size"},
        {"name: x\nmachine:\n  memory_total: 0\n", "p.yaml:3: machine: memory_total: 0: expected a size above 0"},
        {MACHINE "  ram_read_gb_s: -1\n", "p.yaml:6: machine: ram_read_gb_s: -1: expected a number above 0"},
        {MACHINE "  nvme_read_gb_s: 1e999\n", "p.yaml:6: machine: nvme_read_gb_s: 1e999: expected a number"},
        {MACHINE "  nvme_depth: 257\n", "p.yaml:6: machine: nvme_depth: 257, expected 1 to 256"},
        {MACHINE "  nvme_chunk: 4K\n", "p.yaml:6: machine: nvme_chunk: 4.00 KiB, expected 64K to 16M"},
        {MACHINE "  gpus: {vram: 1G}\n", "p.yaml:6: machine: gpus: expected a list"},
        {MACHINE "  gpus:\n    - name: a\n", "p.yaml:7: machine: gpus[0]: vram is missing"},
        {MACHINE "  gpus:\n    - vram: 1G\n    - vram: 1G\n      pcie: 4\n", "p.yaml:9: machine: gpus[1]: pcie: unknown key"},
        {MACHINE "  nodes: 5\n", "p.yaml:6: machine: nodes: 5, expected at most 8 and at most one for each of the 4 cores"},
        {"name: x\nmachine:\n  cores: 4\n  memory_available: 9G\n  memory_total: 8G\n", "p.yaml:4: machine: memory_available: 9.00 GiB is more than the 8.00 GiB of memory_total"},
        {MACHINE "settings:\n  ctx: 64\n  ram: 9G\n", "p.yaml:8: settings: ram: 9G is more than the 8.00 GiB of the machine"},
        {MACHINE "settings:\n  expert-ram: 64G\n", "p.yaml:7: settings: expert-ram: 64G is more than"},
        {"name: x\nsettings: [ram]\n", "p.yaml:2: settings: expected names of settings with values"},
        {"name: x\nsettings:\n  thread: 4\n", "p.yaml:3: settings: unknown setting thread; did you mean threads?"},
        {"name: x\nsettings:\n  threads: 4\n  threads: 5\n", "p.yaml:4: settings: threads is given twice"},
        {"name: x\nsettings:\n  ctx: 4\n  ctx-size: 5\n", "p.yaml:4: settings: ctx is given twice"},
        {"name: x\nsettings:\n  threads: many\n", "p.yaml:3: settings: threads: many: expected a number from 0 to 1024, or auto"},
        {"name: x\nsettings:\n  cache-type-k: q4_0\n", "p.yaml:3: settings: cache-type-k: q4_0: unknown value, expected f32|bf16|f16|q8_0"},
        {"name: x\nsettings:\n  gpu: 0\n", "p.yaml:3: settings: gpu: 0: not in this build"},
        {"name: x\nsettings:\n  threads: [1]\n", "p.yaml:3: settings: threads: found a list"},
        {"name: x\nsettings:\n  threads:\n", "p.yaml:3: settings: threads: has no value"},
        {"name: x\nsettings:\n  model: a.gguf\n", "p.yaml:3: settings: model: a profile is for many computers and names no file; give it as --model"},
        {"name: x\nsettings:\n  profile: y\n", "p.yaml:3: settings: profile: a profile is for many computers"},
        {RESULT "30.11.2026\n", "p.yaml:5: results[0]: date: 30.11.2026: expected a date such as 2026-11-30"},
        {RESULT "2026-13-01\n", "p.yaml:5: results[0]: date: 2026-13-01: expected a date"},
        {RESULT "2026-12-01\n    hit_ratio: 1.5\n", "p.yaml:6: results[0]: hit_ratio: 1.5: expected a share from 0 to 1"},
        {RESULT "2026-12-01\n    hit_ratio: 0.5\n", "p.yaml:3: results[0]: hit_ratio goes with the expert_share"},
        {"name: x\nresults:\n  - command: c\n    date: 2026-12-01\n", "p.yaml:3: results[0]: version is missing"},
        {"name: x\n---\nname: y\n", "p.yaml:3: a second document begins"},
        {"name: x\nsettings: {threads: 4\n", "p.yaml:3: this is not YAML"},
        {"name: x\n\tthreads: 4\n", "p.yaml:2: this is not YAML"},
        {"name: *x\n", "p.yaml:1: this is not YAML: found undefined alias"},
        {"name: x\ndescription: a\xff\n", "p.yaml:2: this is not YAML"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct profile p = {.name = "untouched"};
        struct error e = {0};
        int r = parse(bad[i].text, &p, &e);
        if (r != ERROR_USAGE || strncmp(e.text, bad[i].says, strlen(bad[i].says)) != 0) {
            fail_msg("case %zu: %d \"%s\", expected \"%s\"", i, r, e.text, bad[i].says);
        }
        assert_string_equal(p.name, "untouched");
    }
}

static void test_long_values_are_refused(void **state)
{
    (void)state;
    char text[2000];
    struct profile p;
    struct error e = {0};
    snprintf(text, sizeof(text), "name: x\ndescription: %0700d\n", 1);
    assert_int_equal(parse(text, &p, &e), ERROR_USAGE);
    assert_non_null(strstr(e.text, "p.yaml:2: description: has 700 bytes, expected 1 to 599"));
    snprintf(text, sizeof(text), "name: x\nsettings:\n  threads: %0100d\n", 1);
    assert_int_equal(parse(text, &p, &e), ERROR_USAGE);
    assert_non_null(strstr(e.text, "p.yaml:3: settings: threads: has 100 bytes, expected at most 63"));
    size_t n = (size_t)snprintf(text, sizeof(text), "name: x\nresults:\n");
    for (int i = 0; i < PROFILE_RESULTS_MAX + 1; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "  - {command: c, version: v, date: 2026-12-01}\n");
    }
    assert_int_equal(parse(text, &p, &e), ERROR_USAGE);
    assert_non_null(strstr(e.text, "p.yaml:19: results: has more than 16 entries"));
}

/* Default, profile, environment, flag: the later ones win whatever the order in which they come. */
static void test_precedence(void **state)
{
    (void)state;
    struct profile p;
    struct settings s;
    struct error e = {0};
    assert_int_equal(parse("name: x\nsettings: {threads: 3, ubatch: 16, ctx: 64}\n", &p, &e), 0);
    assert_int_equal(settings_init(&s, &e), 0);
    assert_int_equal(settings_set(&s, "threads", "5", SOURCE_FLAG, &e), 0);
    assert_int_equal(settings_set(&s, "ubatch", "32", SOURCE_ENV, &e), 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(profile_apply(&p, &s, &e), 0);
        assert_int_equal(s.threads, 5);
        assert_int_equal(s.ubatch, 32);
        assert_int_equal(s.context, 64);
        assert_int_equal(s.parallel, 1);
        assert_int_equal(s.source[settings_find_flag("--ctx")], SOURCE_PROFILE);
        assert_int_equal(s.source[settings_find_flag("--parallel")], SOURCE_DEFAULT);
    }
    assert_int_equal(settings_set(&s, "ctx", "128", SOURCE_ENV, &e), 0);
    assert_int_equal(s.context, 128);
    settings_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_key_is_read),          cmocka_unit_test(test_written_and_read_again),
        cmocka_unit_test(test_refusals_name_line_and_key), cmocka_unit_test(test_long_values_are_refused),
        cmocka_unit_test(test_precedence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
