/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the worker pool. Must not know: tensors, numerics.
 *
 * A job is opened and closed by one atomic word, the gate: generation, open bit, workers inside. A worker enters by
 * raising the count while the bit is set, so one that wakes up late finds the gate closed and nobody waits for it.
 *
 * Whoever waits spins for at most its patience, then sleeps on a futex. Patience grows where a little more of it would have
 * saved the sleep and shrinks where it was wasted, so that a throttled or contended processor is given away soon. */
#include "src/base/thread.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "src/base/clock.h"

#define GATE_OPEN ((uint32_t)1 << 12)
#define GATE_INSIDE (GATE_OPEN - 1)
#define GATE_GENERATION (GATE_OPEN << 1) /* wraps: a worker that slept through a whole turn misses one job, no more */

enum {
    MAX_WORKERS = 4096, /* workers inside, without the caller: fits GATE_INSIDE */
    LOOKS = 32,         /* loads between two readings of the clock */
    PATIENCE_MIN = 20000, PATIENCE_MAX = 100000, /* ns: what waking costs; serial stretches between the loops of a token step */
    WAIT_LOOKS = 2000, WAIT_YIELDS = 16, WAIT_SLEEP = 50000,
};

struct worker {
    struct pool *pool;
    pthread_t thread;
    uint32_t index, node;
    ATTR_ALIGNED(64) uint64_t patience; /* ns */
};

/* Tasks of one stage and node. */
struct queue {
    ATTR_ALIGNED(64) _Atomic uint64_t next; /* first task not handed out */
    uint64_t end;
};

struct pool {
    uint32_t workers, at_once;
    struct worker *worker; /* [workers]; 0 is the creator and has no thread of its own */
    struct pool_options options;
    struct clock clock;

    ATTR_ALIGNED(64) _Atomic uint32_t gate;
    ATTR_ALIGNED(64) _Atomic uint32_t left;     /* workers that went through the gate and are done */
    ATTR_ALIGNED(64) _Atomic uint32_t sleepers; /* workers that sleep until the gate changes */
    ATTR_ALIGNED(64) _Atomic uint64_t opened_ns, emptied_ns; /* when a job was last opened, and closed, over sleepers */
    _Atomic uint32_t caller_sleeps, stop, started, unpinned;
    _Atomic int pin_errno;

    ATTR_ALIGNED(64) pool_fn fn; /* the job: written before the gate opens */
    void *ctx;
    uint32_t stages, nodes;
    struct queue queue[POOL_MAX_STAGES][POOL_MAX_NODES];

    pthread_t creator;
    cpu_set_t creator_cpus; /* as before pinning */
    bool creator_pinned;
};

/* ---- waiting ---- */

/* Returns at once if *word is not `value` any more; may return for no reason. */
static void sleep_on(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word, uint32_t sleepers)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, sleepers, NULL, NULL, 0);
}

static bool look(const _Atomic uint32_t *word, uint32_t mask, uint32_t value, bool other)
{
    for (int i = 0; i < LOOKS; i++) {
        if (((atomic_load_explicit(word, memory_order_acquire) & mask) != value) == other) {
            return true;
        }
        CPU_RELAX();
    }
    return false;
}

/* Spins until (*word & mask) is `value`, or is something other than it. False with the time it began when w's patience is over. */
static bool spin(const struct worker *w, const _Atomic uint32_t *word, uint32_t mask, uint32_t value, bool other, uint64_t *ret_start)
{
    const struct clock *clock = &w->pool->clock;
    if (look(word, mask, value, other)) {
        return true;
    }
    *ret_start = clock_now_ns(clock);
    do {
        if (look(word, mask, value, other)) {
            return true;
        }
    } while (clock_now_ns(clock) - *ret_start < w->patience);
    return false;
}

/* After a sleep: what was waited for came at `woken`, or before the sleep began. Waking itself takes longer than most waits and
 * does not count. */
static void learn(struct worker *w, uint64_t start, uint64_t woken)
{
    uint64_t waited = woken > start ? woken - start : 0;
    w->patience = waited < PATIENCE_MAX / 2 ? max_u64(w->patience, 2 * waited) : max_u64(w->patience / 2, PATIENCE_MIN);
}

/* Waits until the gate shows another generation than that of `seen`, as it also does when the pool stops; returns it. */
static uint32_t wait_for_job(struct pool *p, struct worker *w, uint32_t seen)
{
    const uint32_t mask = ~(GATE_GENERATION - 1);
    uint64_t start;
    if (!spin(w, &p->gate, mask, seen & mask, true, &start)) {
        atomic_fetch_add(&p->sleepers, 1);
        for (uint32_t gate; ((gate = atomic_load(&p->gate)) & mask) == (seen & mask);) {
            sleep_on(&p->gate, gate);
        }
        atomic_fetch_sub(&p->sleepers, 1);
        learn(w, start, atomic_load_explicit(&p->opened_ns, memory_order_relaxed));
    }
    return atomic_load_explicit(&p->gate, memory_order_acquire);
}

static void wait_for_leavers(struct pool *p, uint32_t inside)
{
    struct worker *w = &p->worker[0];
    uint64_t start;
    if (!spin(w, &p->left, UINT32_MAX, inside, false, &start)) {
        atomic_store(&p->caller_sleeps, 1);
        for (uint32_t left; (left = atomic_load(&p->left)) != inside;) {
            sleep_on(&p->left, left);
        }
        atomic_store_explicit(&p->caller_sleeps, 0, memory_order_relaxed);
        learn(w, start, atomic_load_explicit(&p->emptied_ns, memory_order_relaxed));
    }
}

void pool_wait_count(const _Atomic uint32_t *count, uint32_t at_least)
{
    for (int i = 0; i < WAIT_LOOKS; i++) {
        if (atomic_load_explicit(count, memory_order_acquire) >= at_least) {
            return;
        }
        CPU_RELAX();
    }
    /* The worker it waits for may want this very processor; or it is throttled, and looking is a waste. */
    for (int i = 0; atomic_load_explicit(count, memory_order_acquire) < at_least; i++) {
        if (i < WAIT_YIELDS) {
            sched_yield();
        } else {
            nanosleep(&(struct timespec){ .tv_nsec = WAIT_SLEEP }, NULL);
        }
    }
}

/* ---- a job ---- */

static void run_queue(struct pool *p, struct queue *q, uint32_t worker)
{
    uint64_t task;
    while ((task = atomic_fetch_add_explicit(&q->next, 1, memory_order_relaxed)) < q->end) {
        p->fn(p->ctx, (uint32_t)task, worker);
    }
}

static void run_tasks(struct pool *p, const struct worker *w)
{
    for (uint32_t s = 0; s < p->stages; s++) {
        for (uint32_t n = 0; n < p->nodes; n++) {
            struct queue *q = &p->queue[s][(w->node + n) % p->nodes];
            if (n == 0 || atomic_load_explicit(&q->next, memory_order_relaxed) < q->end) { /* an empty one is left alone */
                run_queue(p, q, w->index);
            }
        }
    }
}

/* True if the job of `gate` is still open and the caller now counts as inside. */
static bool enter_gate(struct pool *p, uint32_t gate)
{
    uint32_t generation = gate / GATE_GENERATION;
    while ((gate & GATE_OPEN) != 0 && gate / GATE_GENERATION == generation) {
        if (atomic_compare_exchange_weak(&p->gate, &gate, gate + 1)) {
            return true;
        }
    }
    return false;
}

static void leave_gate(struct pool *p)
{
    uint32_t left = atomic_fetch_add(&p->left, 1) + 1;
    if (atomic_load(&p->caller_sleeps) && left == (atomic_load(&p->gate) & GATE_INSIDE)) {
        atomic_store_explicit(&p->emptied_ns, clock_now_ns(&p->clock), memory_order_relaxed);
        wake(&p->left, 1);
    }
}

/* Opens the gate of the next job and wakes who is missing for `tasks` tasks. */
static void open_gate(struct pool *p, uint64_t tasks)
{
    uint32_t generation = atomic_load_explicit(&p->gate, memory_order_relaxed) / GATE_GENERATION + 1;
    if (atomic_load_explicit(&p->sleepers, memory_order_relaxed) > 0) {
        atomic_store_explicit(&p->opened_ns, clock_now_ns(&p->clock), memory_order_relaxed);
    }
    atomic_store(&p->gate, generation * GATE_GENERATION | GATE_OPEN);
    uint32_t sleepers = atomic_load(&p->sleepers);
    if (sleepers > 0) {
        uint32_t awake = p->workers - sleepers, wanted = (uint32_t)min_u64(tasks, p->at_once);
        if (wanted > awake) {
            wake(&p->gate, wanted - awake);
        }
    }
}

void pool_run_job(struct pool *p, const struct pool_job *job)
{
    assert(job->stages >= 1 && job->stages <= POOL_MAX_STAGES && job->nodes >= 1 && job->nodes <= POOL_MAX_NODES);
    uint64_t tasks = 0;
    for (uint32_t s = 0; s < job->stages; s++) {
        for (uint32_t n = 0; n < job->nodes; n++) {
            struct queue *q = &p->queue[s][n];
            atomic_store_explicit(&q->next, tasks, memory_order_relaxed);
            tasks += job->count[s * job->nodes + n];
            q->end = tasks;
        }
    }
    p->fn = job->fn;
    p->ctx = job->ctx;
    p->stages = job->stages;
    p->nodes = job->nodes;
    if (tasks <= 1 || p->workers == 1) {
        run_tasks(p, &p->worker[0]);
        return;
    }
    atomic_store_explicit(&p->left, 0, memory_order_relaxed);
    open_gate(p, tasks);
    run_tasks(p, &p->worker[0]);
    uint32_t gate = atomic_fetch_and(&p->gate, ~GATE_OPEN);
    wait_for_leavers(p, gate & GATE_INSIDE);
}

void pool_run(struct pool *p, uint32_t tasks, pool_fn fn, void *ctx)
{
    pool_run_job(p, &(struct pool_job){ .fn = fn, .ctx = ctx, .stages = 1, .nodes = 1, .count = &tasks });
}

/* ---- workers ---- */

static int pin_self(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu < 0 || cpu >= CPU_SETSIZE) {
        return EINVAL;
    }
    CPU_SET((unsigned)cpu, &set);
    return pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

/* True if it is pinned now. */
static bool start_worker(struct pool *p, uint32_t index)
{
    int refused = p->options.cpus != NULL ? pin_self(p->options.cpus[index]) : 0;
    if (refused != 0) {
        atomic_fetch_add(&p->unpinned, 1);
        atomic_store(&p->pin_errno, refused);
    }
    if (p->options.on_start != NULL) {
        p->options.on_start(p->options.ctx, index);
    }
    return p->options.cpus != NULL && refused == 0;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    start_worker(p, w->index);
    atomic_fetch_add(&p->started, 1);
    wake(&p->started, 1);

    uint32_t seen = 0;
    while (!atomic_load_explicit(&p->stop, memory_order_relaxed)) {
        uint32_t gate = wait_for_job(p, w, seen);
        if (enter_gate(p, gate)) {
            run_tasks(p, w);
            leave_gate(p);
        }
        seen = gate;
    }
    return NULL;
}

/* Ends and joins the threads [1, upto). */
static void stop_workers(struct pool *p, uint32_t upto)
{
    atomic_store(&p->stop, 1);
    atomic_fetch_add(&p->gate, GATE_GENERATION);
    wake(&p->gate, MAX_WORKERS);
    for (uint32_t i = 1; i < upto; i++) {
        pthread_join(p->worker[i].thread, NULL);
    }
}

static void pool_free(struct pool *p)
{
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
        rc = pthread_create(&p->worker[n].thread, NULL, worker_main, &p->worker[n]);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        stop_workers(p, n - 1);
        return error_set(e, -rc, "cannot start thread %u of %u: %s; use fewer --threads or raise ulimit -u", n,
                         p->workers, strerror(rc));
    }
    for (uint32_t started; (started = atomic_load(&p->started)) < p->workers - 1;) {
        sleep_on(&p->started, started);
    }
    return 0;
}

int pool_create(const struct pool_options *options, struct pool **ret_pool, struct error *e)
{
    if (options->workers == 0 || options->workers > MAX_WORKERS) {
        return error_set(e, ERROR_USAGE, "threads: %u, expected 1 to %d", options->workers, (int)MAX_WORKERS);
    }
    struct pool *p = aligned_alloc(64, sizeof(*p));
    struct worker *workers = aligned_alloc(64, options->workers * sizeof(*workers));
    if (p == NULL || workers == NULL) {
        free(p);
        free(workers);
        return error_nomem(e, "thread pool", sizeof(*p) + options->workers * sizeof(*workers));
    }
    memset(p, 0, sizeof(*p));
    p->workers = options->workers;
    p->worker = workers;
    p->options = *options;
    p->clock = clock_system();
    p->creator = pthread_self();
    bool known = pthread_getaffinity_np(p->creator, sizeof(p->creator_cpus), &p->creator_cpus) == 0;
    uint32_t processors = known ? (uint32_t)CPU_COUNT(&p->creator_cpus) : p->workers;
    p->at_once = min_u32(p->workers, options->at_once > 0 ? options->at_once : processors);
    for (uint32_t i = 0; i < p->workers; i++) {
        workers[i] = (struct worker){ .pool = p, .index = i, .node = options->node != NULL ? options->node[i] : 0,
                                      .patience = PATIENCE_MIN };
    }
    int rc = start_threads(p, e);
    if (rc != 0) {
        pool_free(p);
        return rc;
    }
    p->creator_pinned = start_worker(p, 0) && known;
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

int pool_pin_errno(const struct pool *p) { return atomic_load(&p->pin_errno); }
