/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the byte sums of a bound model as the tiers will allocate them, as input of the plan. Must not know: limits. */
#ifndef SLUICE_TIER_SIZES_H
#define SLUICE_TIER_SIZES_H

#include "src/model/bind.h"
#include "src/place/plan.h"

/* Fills shape and the byte sums of *in, but for tokenizer_bytes; leaves the choices alone. */
void sizes_fill(const struct weights *w, struct plan_input *in);

#endif
