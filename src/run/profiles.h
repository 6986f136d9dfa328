/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: where profiles lie - a path, or a name in the user's folder and then among those that come with the program
 * (docs/profiles.md). Must not know: what is in one. */
#ifndef SLUICE_RUN_PROFILES_H
#define SLUICE_RUN_PROFILES_H

#include "common/error.h"
#include "src/place/profile.h"

/* `what`: a path (with '/', or ending in ".yaml"), or a name. ERROR_USAGE for an unknown name, with those that are known,
 * and for a profile with mistakes. */
int profiles_open(const char *what, struct profile *ret, struct error *e);

/* Puts what the profile of --profile says, if there is one, into *s; stronger sources stay. A second call changes nothing.
 * ret_machine, or NULL: what it says of the machine; all zeros where there is none. */
int profiles_apply(struct settings *s, struct machine *ret_machine, struct error *e);

#endif
