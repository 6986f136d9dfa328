/* SPDX-License-Identifier: Apache-2.0 */
/* What bench and doctor print, from results that are known; memory modules from a table of bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "src/commands/bench_ceilings.h"
#include "src/commands/bench_report.h"
#include "src/commands/doctor_facts.h"
#include "src/commands/findings.h"
#include "src/commands/host.h"

/* 64 tokens in 2, 4 and 1 s: 32, 16 and 64 tok/s. Each token reads 10^9 bytes, beside ceilings of 40, 32 and 160 GB/s: 80, 50
 * and 40 % of them. Units that take 1.7 s bound the last repeat, so roofs are 80, 50 and 170 %. */
static struct bench_row decode_row(void)
{
    return (struct bench_row){
        .test = "tg64", .threads = 2, .ubatch = 512, .decode_n = 64, .rows = 1, .seconds = {2, 4, 1}, .repeats = 3, .ram_bytes = 1e9,
        .resident_share = 1, .window = 16, .first_s = 0.25, .last_s = 0.5,
        .ceiling = {40e9, 32e9, 160e9}, .roof_s = {1.6, 2, 1.7},
        .roof = {.bytes = 64e9, .memory_s = 1.6, .compute_s = 0.1, .seconds = 1.6, .bound = ROOF_MEMORY},
        .drift = {.best = 160e9, .median = 40e9, .worst = 30e9, .samples = 4}, .hits = 5, .cache_bytes = 7};
}

static const struct bench_setting setting = {.machine = "a \"machine\", 2 cores", .model = "a model", .steps_down = "[{\"what\": \"io\", \"why\": \"x\"}]"};

static double real_of(const json_t *o, const char *key)
{
    assert_non_null(json_object_get(o, key));
    return json_number_value(json_object_get(o, key));
}

static void test_json(void **state)
{
    (void)state;
    struct bench_row rows[2] = {decode_row(), decode_row()};
    rows[1] = (struct bench_row){.test = "pp512", .threads = 2, .prompt_n = 512, .rows = 1, .seconds = {8}, .repeats = 1, .resident_share = 0.5};
    struct str out = {0};
    bench_json(&setting, rows, 2, &out);
    json_t *list = json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
    str_deinit(&out);
    assert_int_equal(json_array_size(list), 2);
    const json_t *tg = json_array_get(list, 0), *pp = json_array_get(list, 1);
    assert_float_equal(real_of(tg, "decode_tok_s"), 32, 1e-6);
    assert_float_equal(real_of(tg, "decode_s"), 2, 1e-6);
    assert_float_equal(real_of(tg, "decode_n"), 64, 0);
    assert_true(json_is_null(json_object_get(tg, "prompt_tok_s")));
    assert_float_equal(real_of(tg, "read_gb_s"), 32, 1e-6);
    assert_float_equal(real_of(tg, "ceiling_gb_s"), 40, 1e-6);
    assert_float_equal(real_of(tg, "ceiling_share"), 0.5, 1e-6);
    assert_float_equal(real_of(json_object_get(tg, "ceiling"), "best_gb_s"), 160, 1e-6);
    assert_float_equal(real_of(json_object_get(tg, "ceiling"), "worst_gb_s"), 30, 1e-6);
    assert_float_equal(real_of(json_object_get(tg, "ceiling"), "samples"), 4, 0);
    const json_t *beside = json_object_get(json_object_get(tg, "ceiling"), "repeats_gb_s"); /* in the order of the samples */
    assert_int_equal(json_array_size(beside), 3);
    assert_float_equal(json_number_value(json_array_get(beside, 1)), 32, 1e-6);
    assert_float_equal(real_of(tg, "roof_tok_s"), 40, 1e-6);
    assert_float_equal(real_of(tg, "roof_share"), 0.8, 1e-6);
    assert_float_equal(real_of(tg, "first_tok_s"), 64, 1e-6);
    assert_float_equal(real_of(tg, "last_tok_s"), 32, 1e-6);
    assert_float_equal(real_of(json_object_get(tg, "tok_s"), "min"), 16, 1e-6);
    assert_float_equal(real_of(json_object_get(tg, "tok_s"), "max"), 64, 1e-6);
    assert_float_equal(json_number_value(json_array_get(json_object_get(json_object_get(tg, "tok_s"), "samples"), 1)), 16, 1e-6);
    assert_float_equal(real_of(json_object_get(tg, "bytes_per_token"), "ram"), 1e9, 0);
    assert_float_equal(real_of(json_object_get(json_object_get(tg, "cache"), "ram"), "hits"), 5, 0);
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(tg, "steps_down"), 0), "what")), "io");
    assert_string_equal(json_string_value(json_object_get(tg, "machine")), setting.machine);

    assert_float_equal(real_of(pp, "prompt_tok_s"), 64, 1e-6);
    assert_float_equal(real_of(pp, "prompt_s"), 8, 1e-6);
    for (size_t i = 0; i < 4; i++) {
        const char *const keys[] = {"ceiling_gb_s", "ceiling_share", "roof_tok_s", "roof_share"};
        assert_true(json_is_null(json_object_get(pp, keys[i])));
    }
    assert_int_equal(json_array_size(json_object_get(json_object_get(pp, "ceiling"), "repeats_gb_s")), 0);
    json_decref(list);
}

/* A neighbour presses the memory down before the second repeat and after the third. */
static void test_ceilings_around_a_repeat(void **state)
{
    (void)state;
    const double reads[] = {30, 10, 20, 15, 5};
    struct ceilings measured[5] = {0}, each[4], median;
    for (size_t i = 0; i < 5; i++) {
        measured[i].of[CEILING_READ] = 1e9 * reads[i];
        measured[i].of[PEAK_INT8] = 1e9 * (double)(i + 1);
        measured[i].of[PEAK_FMA] = 7e9;
    }
    ceilings_pair(measured, 4, each, &median);
    const double higher[] = {30, 20, 20, 15};
    for (size_t i = 0; i < 4; i++) {
        assert_float_equal(each[i].of[CEILING_READ], 1e9 * higher[i], 0);
        assert_float_equal(each[i].of[PEAK_INT8], 1e9 * (double)(i + 2), 0);
        assert_float_equal(each[i].of[PEAK_BF16], 0, 0);
    }
    struct machine m = ceilings_machine(&median);
    assert_float_equal(m.ram_read_gb_s, 20, 1e-9);
    assert_float_equal(m.int8_gop_s, 3.5, 1e-9);
    assert_float_equal(m.fma_gop_s, 7, 1e-9);
    assert_float_equal(m.bf16_gop_s, 0, 0);

    struct error e = {0};
    assert_int_equal(ceilings_measure(NULL, &measured[0], &e), 0); /* no rates: not measured */
    assert_float_equal(measured[0].of[CEILING_READ], 0, 0);
}

static void test_text(void **state)
{
    (void)state;
    struct bench_row row = decode_row();
    row.drift.best = 33e9;
    struct str out = {0};
    bench_text(&setting, &row, 1, &out);
    assert_non_null(strstr(out.data, "| tg64             |       2 |    32.00 |  75.0 % |   32.00 |   40.00 |   50 % |    40.00 |   80 % | memory reads   |\n"));
    assert_non_null(strstr(out.data, "first 16 tokens 64.00 tok/s, last 16 32.00 tok/s"));
    assert_non_null(strstr(out.data, "warm: 100 % of memory resident"));
    assert_null(strstr(out.data, "ceiling moved"));
    str_deinit(&out);

    row.nvme_bytes = 3 << 20;
    row.drift.best = 40e9;
    bench_text(&setting, &row, 1, &out);
    assert_non_null(strstr(out.data, "cold: 3.00 MiB per token came from the drive"));
    assert_null(strstr(out.data, "warm:"));
    assert_non_null(strstr(out.data, "moved between 30.0 and 40.0 GB/s"));
    str_deinit(&out);
}

static void test_csv(void **state)
{
    (void)state;
    struct bench_row row = decode_row();
    struct str out = {0};
    bench_csv(&setting, &row, 1, &out);
    const char *line = strchr(out.data, '\n') + 1;
    assert_int_equal(strncmp(line, "\"tg64\",2,512,1,0,64,3,32,16,64,", 31), 0);
    assert_non_null(strstr(line, ",\"memory reads\",64,32,\"a \"\"machine\"\", 2 cores\",\"a model\"\n"));
    uint32_t head = 0, body = 0; /* as many fields as names: the two quoted commas of the machine are one */
    for (const char *c = out.data; c < line; c++) {
        head += *c == ',';
    }
    for (const char *c = line; *c != '\0'; c++) {
        body += *c == ',';
    }
    assert_int_equal(body, head + 1);
    str_deinit(&out);
}

static void test_findings(void **state)
{
    (void)state;
    struct findings *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    findings_add(f, FINDING_OK, "cores", "%d of them", 3);
    findings_add(f, FINDING_PROBLEM, "model", "gone\nand \"lost\"");
    findings_advise(f, "look in %s", "/tmp");
    assert_int_equal(f->problems, 1);
    struct str out = {0};
    findings_text(f, &out);
    assert_string_equal(out.data, "ok       cores        3 of them\nproblem  model        gone?and \"lost\"\n                      -> look in /tmp\n");
    str_deinit(&out);
    findings_json(f, &out);
    json_t *list = json_loadb(out.data, out.len, 0, NULL);
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "level")), "problem");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "advice")), "look in /tmp");
    json_decref(list);
    for (int i = 0; i < 2 * FINDINGS_MAX; i++) {
        findings_add(f, FINDING_NOTE, "more", "than fit");
    }
    assert_int_equal(f->n, FINDINGS_MAX);
    str_deinit(&out);
    free(f);
}

/* A memory device of `len` bytes: size word, type, speed, extended size, configured speed. */
static size_t put_module(unsigned char *at, size_t len, uint32_t size, unsigned char type, uint32_t speed, uint32_t extended, uint32_t configured)
{
    memset(at, 0, len + 2);
    at[0] = 17;
    at[1] = (unsigned char)len;
    const struct {
        size_t at;
        uint32_t value;
        int bytes;
    } fields[] = {{0x0c, size, 2}, {0x12, type, 1}, {0x15, speed, 2}, {0x1c, extended, 4}, {0x20, configured, 2}};
    for (size_t i = 0; i < 5; i++) {
        for (int b = 0; b < fields[i].bytes && fields[i].at + (size_t)b < len; b++) {
            at[fields[i].at + (size_t)b] = (unsigned char)(fields[i].value >> 8 * b);
        }
    }
    return len + 2;
}

static void test_memory_modules(void **state)
{
    (void)state;
    unsigned char table[512] = {0};
    size_t n = 0;
    n += put_module(table + n, 40, 16384, 0x1a, 3200, 0, 2933);      /* 16 GiB in MiB */
    n += put_module(table + n, 40, 0, 0x02, 0, 0, 0);                /* empty socket */
    n += put_module(table + n, 40, 0x7fff, 0x1a, 3200, 32768, 3200); /* 32 GiB by the extended field */
    table[n++] = 127;
    struct str out = {0};
    host_memory_modules(table, n, &out);
    assert_string_equal(out.data, "2 x DDR4-2933, 48.00 GiB");
    str_deinit(&out);

    for (size_t cut = 0; cut < n; cut++) { /* any cut: no read beyond it (sanitizers), no invented module */
        unsigned char *part = malloc(cut + (cut == 0));
        assert_non_null(part);
        memcpy(part, table, cut);
        host_memory_modules(part, cut, &out);
        assert_true(out.len == 0 || strstr(out.data, "DDR4") != NULL);
        free(part);
        str_deinit(&out);
    }
    for (uint32_t seed = 1; seed < 2000; seed++) { /* bytes of any value */
        unsigned char noise[96];
        uint32_t x = seed * 2654435761u;
        for (size_t i = 0; i < sizeof(noise); i++) {
            x = x * 1664525u + 1013904223u;
            noise[i] = i % 7 == 0 ? 17 : (unsigned char)(x >> 24);
        }
        host_memory_modules(noise, sizeof(noise), &out);
        str_deinit(&out);
    }
}

static void write_text(const char *root, const char *folder, const char *name, const char *text)
{
    char path[400], command[500];
    snprintf(command, sizeof(command), "mkdir -p '%s%s'", root, folder);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof(path), "%s%s/%s", root, folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Folders as kernels have them, for the device that the test's own folder is on; a partition finds its drive one folder up. */
static void test_drive_temperature(void **state)
{
    (void)state;
    static const char *const places[] = {"/device/hwmon4", "/../device/hwmon0", "/device/device/hwmon/hwmon2"};
    for (size_t i = 0; i < 3; i++) {
        char root[] = "host-XXXXXX", folder[200], command[100];
        double degrees = 0, most = 0;
        struct stat st;
        assert_non_null(mkdtemp(root));
        assert_int_equal(stat(root, &st), 0);
        assert_false(host_drive_temperature(root, root, &degrees, &most));
        snprintf(folder, sizeof(folder), "/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
        write_text(root, folder, "size", "1\n");
        snprintf(folder, sizeof(folder), "/sys/dev/block/%u:%u%s", major(st.st_dev), minor(st.st_dev), places[i]);
        write_text(root, folder, "temp1_input", "78850\n");
        assert_true(host_drive_temperature(root, root, &degrees, &most));
        assert_float_equal(degrees, 78.85, 1e-9);
        assert_float_equal(most, 0, 0);
        write_text(root, folder, "temp1_max", "81850\n");
        struct findings f = {0};
        char file[40];
        snprintf(file, sizeof(file), "%s/model", root);
        write_text(root, "", "model", "x");
        doctor_files(root, file, &f);
        struct str out = {0};
        findings_text(&f, &out);
        assert_non_null(strstr(out.data, "79 C; above 82 C it slows down"));
        assert_non_null(strstr(out.data, "heat sink"));
        str_deinit(&out);
        snprintf(command, sizeof(command), "rm -r '%s'", root);
        assert_int_equal(system(command), 0);
    }
}

static void test_drive_wear(void **state)
{
    (void)state;
    char root[] = "host-XXXXXX", folder[200], command[900];
    struct stat st;
    struct str out = {0};
    assert_non_null(mkdtemp(root));
    assert_int_equal(stat(root, &st), 0);
    host_drive_wear(root, root, &out);
    assert_null(out.data);
    snprintf(folder, sizeof(folder), "/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
    snprintf(command, sizeof(command), "mkdir -p '%s%s/device' && echo 0x01 0x03 > '%s%s/device/life_time'", root, folder, root, folder);
    assert_int_equal(system(command), 0);
    host_drive_wear(root, root, &out);
    assert_string_equal(out.data, "at most 30 % of its life");
    str_deinit(&out);
    snprintf(command, sizeof(command), "rm -r '%s%s' && mkdir -p '%s/nvme0n1/nvme0n1p2' && ln -s '../../../nvme0n1/nvme0n1p2' '%s%s'", root, folder, root, root, folder);
    assert_int_equal(system(command), 0);
    host_drive_wear(root, root, &out);
    assert_string_equal(out.data, "not readable without privileges: nvme smart-log /dev/nvme0");
    str_deinit(&out);
    snprintf(command, sizeof(command), "rm -r '%s'", root);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_json), cmocka_unit_test(test_ceilings_around_a_repeat), cmocka_unit_test(test_text),
                                       cmocka_unit_test(test_csv), cmocka_unit_test(test_findings), cmocka_unit_test(test_memory_modules),
                                       cmocka_unit_test(test_drive_temperature), cmocka_unit_test(test_drive_wear)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
