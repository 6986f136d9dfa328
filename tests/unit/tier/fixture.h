/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a bound model with a loader, for tests of tiers; weights compared with the file; copies that may be damaged. */
#ifndef SLUICE_TESTS_TIER_FIXTURE_H
#define SLUICE_TESTS_TIER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "src/model/bind.h"
#include "src/tier/store.h"

struct fixture {
    char folder[64];
    struct weights *weights;
    struct reader *reader;
    struct account account;
    struct counters counters;
    struct loader loader;
    atomic_int cancel;
    uint32_t calls;           /* of progress */
    uint32_t cancel_at_call;  /* 0: never */
    uint64_t last_done, last_total;
};

void open_model(struct fixture *f, const char *path);
void close_model(struct fixture *f);
void open_copy(struct fixture *f); /* of the demo model */
void close_copy(struct fixture *f);
void overwrite(const char *path, uint64_t offset, const void *data, size_t bytes);

/* Every row of v, wherever it lies, equals the file. */
void assert_matrix(const struct weight_ref *ref, const struct weight_view *v);

/* A store in which all experts stay. */
int create_all(struct fixture *f, struct store **ret, struct error *e);

#endif
