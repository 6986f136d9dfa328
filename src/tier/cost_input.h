/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: counting the weights of a bound model by part, for place/cost. Must not know: the machine, time. */
#ifndef SLUICE_TIER_COST_INPUT_H
#define SLUICE_TIER_COST_INPUT_H

#include "src/model/names.h"
#include "src/place/plan.h"

void cost_input_init(struct cost *ret, const struct weights *w);

#endif
