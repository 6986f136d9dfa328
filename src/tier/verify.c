/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: verify.h. Must not know: what is checked. */
#include "src/tier/verify.h"

#include <pthread.h>

#include "src/base/thread.h"

struct job {
    const struct loader *loader;
    verify_fn fn;
    const void *ctx;
    pthread_mutex_t lock; /* of what follows */
    uint32_t failed;      /* number */
    int code;
    struct error error;
};

static void verify_task(void *ctx, uint32_t i, uint32_t worker)
{
    struct job *j = ctx;
    struct error told = {0};
    (void)worker;
    int r = load_interrupted(j->loader, NULL) == 0 ? j->fn(j->ctx, i, &told) : 0;
    if (r == 0) {
        return;
    }
    pthread_mutex_lock(&j->lock);
    if (j->code == 0 || i < j->failed) {
        j->failed = i;
        j->code = r;
        j->error = told;
    }
    pthread_mutex_unlock(&j->lock);
}

int verify_all(const struct loader *l, uint32_t n, verify_fn fn, const void *ctx, struct error *e)
{
    struct job j = {.loader = l, .fn = fn, .ctx = ctx, .lock = PTHREAD_MUTEX_INITIALIZER};
    if (l->pool != NULL) {
        pool_run(l->pool, n, verify_task, &j);
    }
    for (uint32_t i = 0; l->pool == NULL && i < n; i++) {
        verify_task(&j, i, 0);
    }
    int r = load_interrupted(l, e);
    return r < 0 || j.code == 0 ? r : error_set(e, j.code, "%s", j.error.text);
}
