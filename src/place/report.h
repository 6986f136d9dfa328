/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a plan as text for people and as JSON (docs/plan.md). No logic. */
#ifndef SLUICE_PLACE_REPORT_H
#define SLUICE_PLACE_REPORT_H

#include "src/base/str.h"
#include "src/place/plan.h"
#include "src/place/profile.h"

/* profile: what settings came from, NULL: no profile. */
void report_text(const struct plan *p, const struct shape *s, const struct profile *profile, struct str *out);
void report_json(const struct plan *p, const struct shape *s, const struct profile *profile, struct str *out); /* keys: docs/plan.md */

#endif
