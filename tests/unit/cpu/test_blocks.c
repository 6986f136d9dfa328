/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the worked example blocks of every format, decoded to the bit by every instruction set of this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/cpu.h"
#include "tests/unit/cpu/spec_data.h"

static void check_entry(const struct spec_blocks *entry, void *user)
{
    const struct ops *ops = user;
    enum weight_format format = weight_format_by_name(entry->name);
    uint64_t row_bytes;
    assert_int_not_equal(format, FORMAT_NONE);
    assert_true(weight_row_bytes(format, entry->values_len, &row_bytes));
    assert_int_equal(row_bytes, entry->bytes_len);
    float *y = malloc(entry->values_len * sizeof(*y));
    assert_non_null(y);
    ops->dequantise[format](&(struct dequantise_args){
        .w = {.data = entry->bytes,
              .row_bytes = row_bytes,
              .rows = 1,
              .cols = (uint32_t)entry->values_len,
              .format = format},
        .y = y,
        .row_end = 1,
    });
    for (size_t i = 0; i < entry->values_len; i++) {
        if (memcmp(&y[i], &entry->values[i], sizeof(float)) != 0) {
            fail_msg("%s %s: value %zu is %a, expected %a", ops->isa, entry->name, i, (double)y[i],
                     (double)entry->values[i]);
        }
    }
    free(y);
}

static size_t check_file(const char *path)
{
    struct cpu_flags flags;
    size_t entries = 0;
    cpu_detect(&flags);
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        if (cpu_isa_runs((enum cpu_isa)isa, &flags)) {
            struct ops ops;
            cpu_ops_init(&ops, (enum cpu_isa)isa, &flags);
            entries = spec_data_each(path, check_entry, &ops);
        }
    }
    return entries;
}

static void worked_examples(void **state)
{
    const char *const *paths = *state;
    assert_int_equal(check_file(paths[0]), 16);
}

static void lattice_examples(void **state)
{
    const char *const *paths = *state;
    assert_int_equal(check_file(paths[1]), 7);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s block-examples.json iq-vectors.json\n", argv[0]);
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(worked_examples, argv + 1),
        cmocka_unit_test_prestate(lattice_examples, argv + 1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
