/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: how far an interrupted conversion came, and of what: OUT.journal. Must not know: how data is made. */
#ifndef SLUICE_COMMANDS_CONVERT_JOURNAL_H
#define SLUICE_COMMANDS_CONVERT_JOURNAL_H

#include "src/commands/output.h"

struct convert_journal {
    char *path;
    uint64_t fingerprint;
};

/* The fingerprint covers every source file (name, size, time of change) and every header to be written, so all options. */
int convert_journal_init(struct convert_journal *j, const char *out, const struct weights *w, const struct output *o, struct error *e);
void convert_journal_deinit(struct convert_journal *j);

/* 1: *ret is where to go on. 0: there is none. ERROR_USAGE: of another source or other options. */
int convert_journal_read(const struct convert_journal *j, struct output_place *ret, struct error *e);

/* output_job.checkpoint with a struct convert_journal. */
int convert_journal_write(void *ctx, const struct output_place *done, struct error *e);

void convert_journal_remove(const struct convert_journal *j);

#endif
