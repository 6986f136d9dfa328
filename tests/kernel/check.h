/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what every kernel check needs: reproducible numbers, guarded buffers, comparison, timing, one report line per
 * (operation, variant, instruction set). Must not know: operations. */
#ifndef SLUICE_TESTS_KERNEL_CHECK_H
#define SLUICE_TESTS_KERNEL_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/ops.h"

enum { CHECK_BUFFERS = 24 };

/* Memory that ends at an inaccessible page; the bytes before the data are a guard. */
struct check_region {
    uint8_t *map;
    size_t map_bytes;
    uint8_t *data; /* start of the part in use; it ends at the inaccessible page */
};

struct check {
    const struct ops *ref; /* scalar */
    const struct ops *ops; /* under test; may be the scalar table */
    const char *op, *variant;
    uint64_t seed, state;
    unsigned cases, number; /* number: of the case that runs */
    bool bench;
    const char *only; /* run only what has it in "op variant"; NULL: all */
    unsigned failures;
    char shape[160]; /* of the case that runs, for messages */
    struct check_region regions[CHECK_BUFFERS];
    unsigned regions_used;
};

void check_deinit(struct check *c);

/* ---- numbers ---- */

uint64_t check_random(struct check *c);
uint32_t check_below(struct check *c, uint32_t n); /* [0, n) */
bool check_one_in(struct check *c, uint32_t n);
float check_float(struct check *c);                          /* (-1, 1) */
void check_fill_floats(struct check *c, float *x, size_t n); /* check_float times one common power of two */
void check_fill_bytes(struct check *c, void *p, size_t n);

/* Activation-like rows with now and then zeros, denormals, non-finite or saturating blocks; true if all are ordinary. */
bool check_fill_activations(struct check *c, float *x, size_t n);

/* ---- buffers of the running case ---- */

void *check_bytes(struct check *c, size_t bytes);        /* uninitialised input */
float *check_floats(struct check *c, size_t n);          /* filled with check_fill_floats */
float *check_output(struct check *c, size_t n);          /* filled with a NaN that no kernel writes */

/* ---- comparison: false, and a message, at the first difference ---- */

bool check_same(struct check *c, const char *what, const float *expected, const float *got, size_t n);
bool check_same_bytes(struct check *c, const char *what, const void *expected, const void *got, size_t n);
bool check_near(struct check *c, const char *what, double expected, double got, double tolerance);

/* ---- running ---- */

/* One random case; false if a comparison failed. */
typedef bool check_case(struct check *c, int variant);
/* Prepares once and leaves what is timed in `run`; returns the bytes that one run is to be charged with. */
struct check_timed {
    void (*run)(void *args);
    void *args;
    double bytes;
};

/* False if --only leaves this out; check_slot and check_bench ask by themselves. */
bool check_wanted(const struct check *c, const char *op, const char *variant);

/* Runs the cases of one slot and prints its line. `same` : the table under test holds the scalar function. */
void check_slot(struct check *c, const char *op, const char *variant, int id, bool same, check_case *one_case);

/* Prints the best rate of some samples of what `timed` describes, in time of this thread. */
void check_bench(struct check *c, const char *op, const char *variant, struct check_timed timed);

/* ---- the groups ---- */

void check_bulk(struct check *c);
void check_bulk_bf16(struct check *c); /* where there are units for it */
void check_matvec(struct check *c);
void check_vector(struct check *c);
void check_attention(struct check *c);
void check_router(struct check *c);
void check_gemm(struct check *c);

#endif
