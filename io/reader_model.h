/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a reader that brings no bytes: for simulations. What was submitted ends when a model of a drive says so, on a clock that
 * nobody else moves, or when it is told to. It has no threads: nothing happens but in calls. Must not know: who reads, and what. */
#ifndef SLUICE_IO_READER_MODEL_H
#define SLUICE_IO_READER_MODEL_H

#include "io/reader.h"

/* A chunk goes over a line of `rate` bytes per second, one after the other, no earlier than latency_ns after it began. */
struct drive_model {
    uint64_t rate; /* 0: in no time */
    uint64_t latency_ns;
};

/* As reader_create; options->clock is replaced by `clock`, which is borrowed and may be read by anybody. */
int reader_model_create(const struct reader_options *options, const struct drive_model *drive, struct clock_manual *clock, struct reader **ret, struct error *e);

/* `ns` go by while nobody waits. */
void reader_model_pass(struct reader *r, uint64_t ns);

/* Without a drive: every request is in flight from its submission on. Of options `requests` counts. */
int reader_model_create_told(const struct reader_options *options, struct reader **ret, struct error *e);

/* What is in flight and lies within [begin, end) of a file ends: with all of its bytes, or for status < 0 with none. Returns how many. */
uint32_t reader_model_finish(struct reader *r, uint64_t begin, uint64_t end, int status);

#endif
