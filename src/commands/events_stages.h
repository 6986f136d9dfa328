/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: how long the stages of a layer took in a recorded run: median and 99th of 100. Must not know: who shows it. */
#ifndef SLUICE_COMMANDS_EVENTS_STAGES_H
#define SLUICE_COMMANDS_EVENTS_STAGES_H

#include "src/base/str.h"
#include "src/commands/events.h"

struct events_stages;

int events_stages_create(const struct events *x, struct events_stages **ret, struct error *e);
void events_stages_destroy(struct events_stages *s); /* accepts NULL */

void events_stages_text(const struct events_stages *s, struct str *out);
void events_stages_json(const struct events_stages *s, struct str *out); /* a member: , "stages": [...] */

#endif
