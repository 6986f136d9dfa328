/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the parallel loop of the token loop: the engine's pool with its cancel flag (engine.h). Must not know: tasks. */
#include "src/run/engine.h"

struct guarded_job {
    const struct engine *g;
    pool_fn fn;
    void *ctx;
};

static void guarded_task(void *ctx, uint32_t task, uint32_t worker)
{
    const struct guarded_job *j = ctx;
    if (!engine_cancelled(j->g)) {
        j->fn(j->ctx, task, worker);
    }
}

int engine_parallel(struct engine *g, uint32_t tasks, pool_fn fn, void *ctx, struct error *e)
{
    pool_run(g->pool, tasks, guarded_task, &(struct guarded_job){g, fn, ctx});
    return engine_cancelled(g) ? error_set(e, ERROR_INTERRUPTED, "interrupted") : 0;
}
