/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what `sluice check` does with the file of fingerprints beside a model: compare with it, or write it. Must not know: reading. */
#ifndef SLUICE_COMMANDS_CHECK_STORED_H
#define SLUICE_COMMANDS_CHECK_STORED_H

#include "src/commands/check_report.h"
#include "src/tier/fingerprints.h"

/* results: [c->n_tensors]. What differs, and a file that is no use, are problems of the report. */
int check_stored_compare(struct check_report *r, const struct container *c, const struct check_tensor *results, struct error *e);

/* Only when the report has no problem so far; else that is one more. */
int check_stored_write(struct check_report *r, const struct container *c, const struct check_tensor *results, struct error *e);

#endif
