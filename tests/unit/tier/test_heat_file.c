/* SPDX-License-Identifier: Apache-2.0 */
/* The file of expert popularity: what is written is read, for engines with the MTP layer and without, of this version and of the one
 * before; anything else is refused by name. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#include "src/tier/heat_file.h"

enum { LAYERS = 3, EXPERTS = 4 };

static const struct heat_model with = {.fingerprint = "ab12", .all = "cd34", .layers = LAYERS, .mtp_layers = 1, .experts = EXPERTS},
                               without = {.fingerprint = "ab12", .all = "ab12", .layers = LAYERS, .mtp_layers = 0, .experts = EXPERTS};

struct place {
    char folder[32], path[64];
};

static int make_place(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    strcpy(p->folder, "/tmp/sluice-heat-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->path, sizeof(p->path), "%s/heat", p->folder);
    *state = p;
    return 0;
}

static int remove_place(void **state)
{
    struct place *p = *state;
    unlink(p->path);
    assert_int_equal(rmdir(p->folder), 0);
    free(p);
    return 0;
}

static float uses[(LAYERS + 1) * EXPERTS] = {0, 1, 2.5f, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static unsigned char learned[100] = "what predictors learned";

static void test_what_is_written_is_read(void **state)
{
    const struct place *p = *state;
    struct heat_file f;
    struct error e = {0};
    assert_int_equal(heat_file_read(p->path, &with, &f, &e), -ENOENT);
    for (int i = 0; i < 8; i++) { /* who writes, whether there is a learned part, who reads */
        bool mtp = i & 1, more = i & 2;
        const struct heat_model *reads = i & 4 ? &with : &without;
        const struct heat_file was = {.mtp_layers = mtp, .uses = uses, .learned = more ? learned : NULL, .learned_bytes = more ? sizeof(learned) : 0};
        assert_int_equal(heat_file_write(p->path, mtp ? &with : &without, &was, &e), 0);
        assert_int_equal(heat_file_read(p->path, reads, &f, &e), 0);
        assert_true(f.mtp_layers == mtp && f.learned_bytes == was.learned_bytes && (f.learned != NULL) == more);
        assert_memory_equal(f.uses, uses, (LAYERS + (size_t)mtp) * EXPERTS * sizeof(*uses));
        assert_true(!more || memcmp(f.learned, learned, sizeof(learned)) == 0);
        heat_file_deinit(&f);
    }
}

/* `bytes` of data and their checksum. */
static void write_raw(const char *path, const unsigned char *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    uint64_t sum = XXH3_64bits(data, bytes);
    assert_true(f != NULL && fwrite(data, 1, bytes, f) == bytes && fwrite(&sum, 1, sizeof(sum), f) == sizeof(sum) && fclose(f) == 0);
}

/* 64 bytes, then uses: without the MTP layer, or with it and the fingerprint of all layers. */
static size_t version_1(unsigned char *ret, bool mtp)
{
    const uint32_t numbers[4] = {1, LAYERS + mtp, EXPERTS, 0};
    memset(ret, 0, 64);
    memcpy(ret, "SLUICE-H", 8);
    memcpy(ret + 8, numbers, sizeof(numbers));
    strcpy((char *)ret + 24, mtp ? "cd34" : "ab12");
    memcpy(ret + 64, uses, (size_t)(LAYERS + mtp) * EXPERTS * sizeof(*uses));
    return 64 + (size_t)(LAYERS + mtp) * EXPERTS * sizeof(*uses);
}

static void test_version_before(void **state)
{
    const struct place *p = *state;
    unsigned char data[256];
    struct heat_file f;
    struct error e = {0};
    for (int i = 0; i < 4; i++) {
        bool mtp = i & 1, reads_mtp = i & 2;
        write_raw(p->path, data, version_1(data, mtp));
        int r = heat_file_read(p->path, reads_mtp ? &with : &without, &f, &e);
        if (mtp && !reads_mtp) { /* it names all layers, of which this engine has not all */
            assert_int_equal(r, ERROR_FORMAT);
            assert_non_null(strstr(e.text, "another model"));
            continue;
        }
        assert_int_equal(r, 0);
        assert_true(f.mtp_layers == mtp && f.learned == NULL && f.learned_bytes == 0);
        assert_memory_equal(f.uses, uses, (LAYERS + (size_t)mtp) * EXPERTS * sizeof(*uses));
        heat_file_deinit(&f);
    }
}

static void refused(const struct place *p, const struct heat_model *m, const char *part)
{
    struct heat_file f = {0};
    struct error e = {0};
    assert_int_equal(heat_file_read(p->path, m, &f, &e), ERROR_FORMAT);
    if (strstr(e.text, part) == NULL || strstr(e.text, p->path) == NULL || f.uses != NULL) {
        fail_msg("\"%s\" is not in: %s", part, e.text);
    }
}

static void test_what_is_refused(void **state)
{
    const struct place *p = *state;
    const struct heat_model other = {.fingerprint = "ab13", .all = "cd35", .layers = LAYERS, .mtp_layers = 1, .experts = EXPERTS},
                            larger = {.fingerprint = "ab12", .all = "cd34", .layers = LAYERS + 1, .experts = EXPERTS};
    struct error e = {0};
    struct heat_file f = {.mtp_layers = 1, .uses = uses, .learned = learned, .learned_bytes = sizeof(learned)};
    unsigned char data[512];
    assert_int_equal(heat_file_write(p->path, &with, &f, &e), 0);
    refused(p, &other, "another model");
    refused(p, &larger, "another model");
    FILE *file = fopen(p->path, "rb");
    size_t bytes = fread(data, 1, sizeof(data), file) - sizeof(uint64_t);
    fclose(file);
    for (size_t i = 0; i < bytes; i++) { /* any byte */
        data[i] ^= 0x10;
        file = fopen(p->path, "r+b");
        assert_true(file != NULL && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0);
        refused(p, &with, "");
        data[i] ^= 0x10;
    }
    for (size_t cut = 0; cut < bytes; cut += 7) { /* anywhere, checksum and all */
        write_raw(p->path, data, cut);
        refused(p, &with, "");
    }
    data[8] = 3;
    write_raw(p->path, data, bytes);
    refused(p, &with, "version 3");
}

static void test_numbers_that_are_none(void **state)
{
    const struct place *p = *state;
    float bad[LAYERS * EXPERTS] = {1, -1, 2};
    struct heat_file f = {.uses = bad};
    bad[3] = (float)INFINITY;
    bad[4] = (float)NAN;
    assert_int_equal(heat_file_write(p->path, &without, &f, NULL), 0);
    assert_int_equal(heat_file_read(p->path, &without, &f, NULL), 0);
    assert_true(f.uses[0] == 1 && f.uses[1] == 0 && f.uses[2] == 2 && f.uses[3] == 0 && f.uses[4] == 0);
    heat_file_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_written_is_read, make_place, remove_place), cmocka_unit_test_setup_teardown(test_version_before, make_place, remove_place),
        cmocka_unit_test_setup_teardown(test_what_is_refused, make_place, remove_place),         cmocka_unit_test_setup_teardown(test_numbers_that_are_none, make_place, remove_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
