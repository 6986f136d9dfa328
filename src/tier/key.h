/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the name of a routed expert. Must not know: where it lies. */
#ifndef SLUICE_TIER_KEY_H
#define SLUICE_TIER_KEY_H

#include <stdint.h>

struct expert_key {
    uint16_t layer, expert;
};

#endif
