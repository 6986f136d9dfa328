/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: checking many things that have been loaded, by all threads. Must not know: what is checked. */
#ifndef SLUICE_TIER_VERIFY_H
#define SLUICE_TIER_VERIFY_H

#include "src/tier/load.h"

/* Checks number i of what ctx holds; called by several threads at once. */
typedef int (*verify_fn)(const void *ctx, uint32_t i, struct error *e);

/* Calls fn for 0 to n - 1 on the loader's pool. Of several failures the one with the least number counts, whoever was first;
 * ERROR_INTERRUPTED when the loader's cancel flag is set. */
int verify_all(const struct loader *l, uint32_t n, verify_fn fn, const void *ctx, struct error *e);

#endif
