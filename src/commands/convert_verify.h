/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: comparing a converted model with its source, value by value, through the program's own readers of both.
 * Must not know: how it was made. */
#ifndef SLUICE_COMMANDS_CONVERT_VERIFY_H
#define SLUICE_COMMANDS_CONVERT_VERIFY_H

#include "src/commands/convert_source.h"
#include "src/commands/output.h"

/* Opens `path` as a model and compares every tensor of o->list. ERROR_FORMAT names the first value that is further off than its
 * format rounds. */
int convert_verify(const char *path, const struct output *o, const struct convert_source *source, const volatile int *cancel, struct error *e);

#endif
