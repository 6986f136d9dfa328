/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a pool of pinned worker threads and the parallel loop. Must not know: tensors, numerics (it calls `on_start`).
 * One thread at a time may call pool_run; it takes part as worker 0. */
#ifndef SLUICE_BASE_THREAD_H
#define SLUICE_BASE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

struct pool;

struct pool_options {
    uint32_t workers; /* >= 1, the caller included */
    const int *cpus;  /* [workers] processors to pin to, or NULL: not pinned. Refusal is counted, never fatal */
    void (*on_start)(void *ctx, uint32_t worker); /* run once in every worker, and in the creator; may be NULL */
    void *ctx;
};

/* Worker threads block all signals. */
int pool_create(const struct pool_options *options, struct pool **ret_pool, struct error *e);
void pool_destroy(struct pool *pool);

uint32_t pool_workers(const struct pool *pool);
uint32_t pool_unpinned(const struct pool *pool); /* workers whose pinning was refused */

typedef void (*pool_fn)(void *ctx, uint32_t task, uint32_t worker);

/* Calls fn for every task in [0, tasks), each once, on any worker; returns when all have returned. Which worker runs a
 * task is not defined, so results must not depend on it. */
void pool_run(struct pool *pool, uint32_t tasks, pool_fn fn, void *ctx);

#endif
