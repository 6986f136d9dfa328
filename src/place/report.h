/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a plan as text for people and as JSON (docs/plan.md). No logic. */
#ifndef SLUICE_PLACE_REPORT_H
#define SLUICE_PLACE_REPORT_H

#include "src/base/str.h"
#include "src/place/plan.h"

void report_text(const struct plan *p, const struct shape *s, struct str *out);
void report_json(const struct plan *p, const struct shape *s, struct str *out); /* keys of design 8a */

#endif
