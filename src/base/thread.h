/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a pool of pinned worker threads and the parallel loop. Must not know: tensors, numerics (it calls `on_start`).
 * One thread at a time may call pool_run; it takes part as worker 0. */
#ifndef SLUICE_BASE_THREAD_H
#define SLUICE_BASE_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

struct pool;

enum { POOL_MAX_STAGES = 4, POOL_MAX_NODES = 8 };

struct pool_options {
    uint32_t workers;     /* >= 1, the caller included */
    const int *cpus;      /* [workers] processors to pin to, or NULL: not pinned. Refusal is counted, never fatal */
    const uint32_t *node; /* [workers] index of each one's memory node; NULL: all 0 */
    uint32_t at_once;     /* workers woken for a job, caller included: others stay asleep. 0: the processors allowed */
    void (*on_start)(void *ctx, uint32_t worker); /* run once in every worker, and in the creator; may be NULL */
    void *ctx;
};

/* Worker threads block all signals. The options' arrays are not needed after it. */
int pool_create(const struct pool_options *options, struct pool **ret_pool, struct error *e);
void pool_destroy(struct pool *pool);

uint32_t pool_workers(const struct pool *pool);
uint32_t pool_unpinned(const struct pool *pool); /* workers whose pinning was refused */
int pool_pin_errno(const struct pool *pool);     /* why the last of them was */

typedef void (*pool_fn)(void *ctx, uint32_t task, uint32_t worker);

/* Tasks are numbered stage by stage, within a stage node by node. A worker takes the tasks of its own node, then helps the
 * other nodes with the same stage, then goes on to the next stage: there is no barrier between stages. */
struct pool_job {
    pool_fn fn;
    void *ctx;
    uint32_t stages, nodes; /* 1 to POOL_MAX_STAGES, POOL_MAX_NODES */
    const uint32_t *count;  /* [stages * nodes] tasks of each */
};

/* Calls fn for every task once, on any worker; returns when all have returned. Which worker runs a task is not defined,
 * so results must not depend on it. */
void pool_run_job(struct pool *pool, const struct pool_job *job);

/* One stage, one node. */
void pool_run(struct pool *pool, uint32_t tasks, pool_fn fn, void *ctx);

/* Inside a task: waits until tasks of EARLIER stages, never its own or later ones, have raised *count to at_least. When a
 * task of a stage is handed out, all of earlier stages have been, so they end. What was written before *count was raised
 * with release order is visible. Spins, then gives way. */
void pool_wait_count(const _Atomic uint32_t *count, uint32_t at_least);

#endif
