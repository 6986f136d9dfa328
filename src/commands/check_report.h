/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what `sluice check` prints: fingerprints, problems, comparison with an earlier report. Must not know: reading. */
#ifndef SLUICE_COMMANDS_CHECK_REPORT_H
#define SLUICE_COMMANDS_CHECK_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/attr.h"
#include "common/error.h"
#include "io/container.h"
#include "src/base/str.h"
#include "src/commands/check_scan.h"

struct check_tensor {
    struct scan scan;
    uint64_t fingerprint;
    uint64_t *parts;  /* [fingerprints_parts] fingerprints of them */
    int read_status; /* 0, or why a read failed */
    uint64_t failed_at;
};

struct check_report {
    bool json;
    struct str tensors;  /* lines, or array entries */
    struct str problems; /* the same */
    uint32_t n_tensors, n_problems, n_compared;
    char first[1200];    /* the first problem */
    uint64_t bytes;
    struct str stored;   /* JSON: files of fingerprints, and what was done with them */
    uint64_t whole;      /* folded fingerprint of all tensors so far, in the order of their names */
    void *earlier;       /* private: name -> fingerprint of an earlier report, or NULL */
};

/* `against`: file of an earlier --json output, or NULL. */
int check_report_init(struct check_report *r, bool json, const char *against, struct error *e);
void check_report_deinit(struct check_report *r);

void check_problem(struct check_report *r, const char *fmt, ...) ATTR_PRINTF(2, 3);

/* A file of fingerprints that was compared with or written. */
void check_stored(struct check_report *r, const char *path, bool written);

/* results: [c->n_tensors]. */
void check_add(struct check_report *r, const struct container *c, const struct check_tensor *results);

/* Prints all of it. ERROR_FORMAT when something is wrong. */
int check_finish(struct check_report *r, struct error *e);

#endif
