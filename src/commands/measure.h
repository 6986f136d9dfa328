/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: ceilings for commands: preparing the measuring of src/run/probe_rates on this machine. Must not know: reports. */
#ifndef SLUICE_COMMANDS_MEASURE_H
#define SLUICE_COMMANDS_MEASURE_H

#include "src/run/probe_rates.h"

/* Fills the rates of *m, whose facts are there already (probe_machine); `threads` 0: as many as a model would get. `drive`:
 * a large file on the drive to measure, or NULL. About 2 s, and 2 s for a drive. ERROR_DOES_NOT_FIT when memory is too
 * short; the drive's rate stays 0 when it cannot be told. */
int measure_machine(const char *drive, uint32_t threads, const volatile int *cancel, struct machine *m, struct error *e);

/* The drive that holds a large file alone, 2 s: its rate, 0 when it cannot be told, and how it was read. */
int measure_drive(const char *path, const volatile int *cancel, struct machine *m, struct error *e);

/* Threads and buffer of the same, for a bench. `memory`: most bytes the buffer may take, 0: a part of what is free. */
int measure_begin(const struct machine *m, const struct topology *t, uint32_t threads, enum cpu_isa isa, uint64_t memory,
                  const volatile int *cancel, struct rates **ret, struct error *e);

#endif
