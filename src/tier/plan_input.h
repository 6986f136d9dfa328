/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the plan needs to know of a bound model and of the settings: byte sums as the tiers will allocate them, and
 * the choices made. Must not know: limits, the machine. */
#ifndef SLUICE_TIER_PLAN_INPUT_H
#define SLUICE_TIER_PLAN_INPUT_H

#include "src/base/settings.h"
#include "src/model/names.h"
#include "src/place/plan.h"

/* Everything but machine, threads (as set; 0: the caller chooses) and tokenizer_bytes (0). nodes: memory nodes that weights are
 * spread over. */
void plan_input_init(struct plan_input *ret, const struct weights *w, const struct settings *settings, uint32_t nodes);

#endif
