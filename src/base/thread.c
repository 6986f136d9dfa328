/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the worker pool. Must not know: tensors, numerics.
 *
 * A job is opened and closed by one atomic word, the gate: generation, open bit, workers inside. A worker enters by
 * raising the count while the bit is set, so one that wakes up late finds the gate closed and nobody waits for it. */
#include "src/base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/attr.h"

#define GATE_OPEN ((uint64_t)1 << 16)
#define GATE_INSIDE (GATE_OPEN - 1)
#define GATE_GENERATION (GATE_OPEN << 1)

enum {
    MAX_WORKERS = 4096,
    SPINS = 1000, /* 10 to 50 microseconds: the serial stretch between two loops of a token step */
};

struct worker {
    struct pool *pool;
    pthread_t thread;
    uint32_t index;
};

struct pool {
    uint32_t workers;
    struct worker *worker; /* [workers]; 0 is the creator and has no thread of its own */
    struct pool_options options;
    int spins; /* 0 when there are more workers than processors: who spins keeps another from working */

    ATTR_ALIGNED(64) _Atomic uint64_t gate;
    ATTR_ALIGNED(64) _Atomic uint64_t next; /* first task not handed out */
    ATTR_ALIGNED(64) _Atomic uint32_t left; /* workers that went through the gate and are done */
    uint32_t tasks;                         /* of the job, written before the gate opens */
    pool_fn fn;
    void *ctx;

    pthread_mutex_t lock; /* only for sleeping */
    pthread_cond_t opened, finished;
    _Atomic uint32_t sleepers;
    atomic_bool caller_sleeps, stop;
    _Atomic uint32_t started, unpinned;

    pthread_t creator;
    cpu_set_t creator_cpus; /* as before pinning */
    bool creator_pinned;
};

static void run_tasks(struct pool *p, uint32_t worker)
{
    for (;;) {
        uint64_t task = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (task >= p->tasks) {
            return;
        }
        p->fn(p->ctx, (uint32_t)task, worker);
    }
}

static bool pin_self(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu < 0 || cpu >= CPU_SETSIZE) {
        return false;
    }
    CPU_SET((unsigned)cpu, &set);
    return pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0;
}

static bool start_worker(struct pool *p, uint32_t index)
{
    bool pinned = p->options.cpus != NULL && pin_self(p->options.cpus[index]);
    if (p->options.cpus != NULL && !pinned) {
        atomic_fetch_add(&p->unpinned, 1);
    }
    if (p->options.on_start != NULL) {
        p->options.on_start(p->options.ctx, index);
    }
    return pinned;
}

/* Waits until the gate shows another generation than `seen`; returns the gate, or `seen` when the pool stops. */
static uint64_t wait_for_job(struct pool *p, uint64_t seen)
{
    for (int i = 0; i < p->spins; i++) {
        uint64_t gate = atomic_load_explicit(&p->gate, memory_order_acquire);
        if (gate / GATE_GENERATION != seen / GATE_GENERATION) {
            return gate;
        }
        CPU_RELAX();
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    uint64_t gate = atomic_load(&p->gate);
    while (gate / GATE_GENERATION == seen / GATE_GENERATION && !atomic_load(&p->stop)) {
        pthread_cond_wait(&p->opened, &p->lock);
        gate = atomic_load(&p->gate);
    }
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
    return gate;
}

/* True if the job of `gate` is still open and the caller now counts as inside. */
static bool enter_gate(struct pool *p, uint64_t gate)
{
    uint64_t generation = gate / GATE_GENERATION;
    while ((gate & GATE_OPEN) != 0 && gate / GATE_GENERATION == generation) {
        if (atomic_compare_exchange_weak(&p->gate, &gate, gate + 1)) {
            return true;
        }
    }
    return false;
}

static void leave_gate(struct pool *p)
{
    atomic_fetch_add(&p->left, 1);
    if (atomic_load(&p->caller_sleeps)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->finished);
        pthread_mutex_unlock(&p->lock);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    start_worker(p, w->index);
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->started, 1);
    pthread_cond_signal(&p->finished);
    pthread_mutex_unlock(&p->lock);

    uint64_t seen = 0;
    while (!atomic_load_explicit(&p->stop, memory_order_relaxed)) {
        uint64_t gate = wait_for_job(p, seen);
        if (enter_gate(p, gate)) {
            run_tasks(p, w->index);
            leave_gate(p);
        }
        seen = gate;
    }
    return NULL;
}

/* Ends and joins the threads [1, upto). */
static void stop_workers(struct pool *p, uint32_t upto)
{
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->opened);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 1; i < upto; i++) {
        pthread_join(p->worker[i].thread, NULL);
    }
}

static void pool_free(struct pool *p)
{
    pthread_cond_destroy(&p->finished);
    pthread_cond_destroy(&p->opened);
    pthread_mutex_destroy(&p->lock);
    free(p->worker);
    free(p);
}

static int start_threads(struct pool *p, struct error *e)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = 0;
    uint32_t n = 1;
    for (; n < p->workers && rc == 0; n++) {
        p->worker[n] = (struct worker){ .pool = p, .index = n };
        rc = pthread_create(&p->worker[n].thread, NULL, worker_main, &p->worker[n]);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        stop_workers(p, n - 1);
        return error_set(e, -rc, "cannot start thread %u of %u: %s; use fewer --threads or raise ulimit -u", n,
                         p->workers, strerror(rc));
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->started) < p->workers - 1) {
        pthread_cond_wait(&p->finished, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return 0;
}

int pool_create(const struct pool_options *options, struct pool **ret_pool, struct error *e)
{
    if (options->workers == 0 || options->workers > MAX_WORKERS) {
        return error_set(e, ERROR_USAGE, "threads: %u, expected 1 to %d", options->workers, (int)MAX_WORKERS);
    }
    struct pool *p = aligned_alloc(64, (sizeof(*p) + 63) / 64 * 64);
    struct worker *workers = calloc(options->workers, sizeof(*workers));
    if (p == NULL || workers == NULL) {
        free(p);
        free(workers);
        return error_nomem(e, "thread pool", sizeof(*p) + options->workers * sizeof(*workers));
    }
    memset(p, 0, sizeof(*p));
    p->workers = options->workers;
    p->worker = workers;
    p->options = *options;
    p->creator = pthread_self();
    cpu_set_t cpus;
    bool known = pthread_getaffinity_np(p->creator, sizeof(cpus), &cpus) == 0;
    p->creator_cpus = cpus;
    p->spins = known && p->workers <= (uint32_t)CPU_COUNT(&cpus) ? SPINS : 0;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->opened, NULL);
    pthread_cond_init(&p->finished, NULL);
    int rc = start_threads(p, e);
    if (rc != 0) {
        pool_free(p);
        return rc;
    }
    p->creator_pinned = start_worker(p, 0) && known;
    p->options.cpus = NULL; /* belongs to the caller, not needed any more */
    *ret_pool = p;
    return 0;
}

void pool_destroy(struct pool *p)
{
    if (p == NULL) {
        return;
    }
    stop_workers(p, p->workers);
    if (p->creator_pinned && pthread_equal(p->creator, pthread_self())) {
        pthread_setaffinity_np(p->creator, sizeof(p->creator_cpus), &p->creator_cpus);
    }
    pool_free(p);
}

uint32_t pool_workers(const struct pool *p) { return p->workers; }

uint32_t pool_unpinned(const struct pool *p) { return atomic_load(&p->unpinned); }

static void wait_for_leavers(struct pool *p, uint32_t inside)
{
    for (int i = 0; i < p->spins; i++) {
        if (atomic_load_explicit(&p->left, memory_order_acquire) == inside) {
            return;
        }
        CPU_RELAX();
    }
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, true);
    while (atomic_load(&p->left) != inside) {
        pthread_cond_wait(&p->finished, &p->lock);
    }
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->lock);
}

void pool_run(struct pool *p, uint32_t tasks, pool_fn fn, void *ctx)
{
    if (tasks <= 1 || p->workers == 1) {
        for (uint32_t t = 0; t < tasks; t++) {
            fn(ctx, t, 0);
        }
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    p->tasks = tasks;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->left, 0, memory_order_relaxed);
    uint64_t generation = atomic_load_explicit(&p->gate, memory_order_relaxed) / GATE_GENERATION + 1;
    atomic_store(&p->gate, generation * GATE_GENERATION | GATE_OPEN);
    if (atomic_load(&p->sleepers) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->opened);
        pthread_mutex_unlock(&p->lock);
    }
    run_tasks(p, 0);
    uint64_t gate = atomic_fetch_and(&p->gate, ~GATE_OPEN);
    wait_for_leavers(p, (uint32_t)(gate & GATE_INSIDE));
}
