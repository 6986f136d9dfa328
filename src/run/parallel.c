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
    return engine_parallel_nodes(g, 1, &tasks, fn, ctx, e);
}

int engine_parallel_nodes(struct engine *g, uint32_t nodes, const uint32_t *count, pool_fn fn, void *ctx, struct error *e)
{
    struct guarded_job guarded = {g, fn, ctx};
    pool_run_job(g->pool, &(struct pool_job){.fn = guarded_task, .ctx = &guarded, .stages = 1, .nodes = nodes, .count = count});
    return engine_interrupted(g, e);
}

int engine_interrupted(const struct engine *g, struct error *e)
{
    return engine_cancelled(g) ? error_set(e, ERROR_INTERRUPTED, "interrupted") : 0;
}
